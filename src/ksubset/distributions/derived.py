"""What follows from the parameters of a distribution: computed when it is asked for."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.distributions.utils import lazy_property

__all__ = ["derived", "kept", "number_of_changes"]

T = TypeVar("T")


class derived(lazy_property):  # type: ignore[type-arg]  # noqa: N801 - as its base
    """A parameter that follows from the one that was given; not kept, as its graph can be used once only."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self.wrapped(instance)


class kept(Generic[T]):  # noqa: N801 - as other decorators of methods
    """A result without gradients that is computed once, and again when the parameter was changed in place."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name = compute, compute.__name__

    def __get__(self, instance: Any, owner: Any = None) -> T:
        compiling = torch.compiler.is_compiling()
        if not compiling and number_of_changes(instance._parameter[1]) != instance._changes:
            instance._start_again()
        results: dict[str, T] = instance._results
        if self._name not in results:
            # What is computed in inference mode would be of no use outside of it.
            leave = not compiling and torch.is_inference_mode_enabled()
            with torch.inference_mode(False) if leave else nullcontext():
                results[self._name] = self._compute(instance)
        return results[self._name]


def number_of_changes(parameter: Tensor) -> int:
    """How often a tensor was changed in place; 0 where torch does not count that."""
    return 0 if torch.compiler.is_compiling() or parameter.is_inference() else parameter._version
