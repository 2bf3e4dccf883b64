"""What modules are, as named digests: their classes, settings and state."""

from typing import Any

import torch
from torch import Tensor, nn

from ksubset._support.identity import digest

__all__ = ["digests"]


def digests(name: str, module: nn.Module) -> dict[str, str]:
    """Of a module and all in it: the class, public attributes, parameters and buffers of each, by dotted name.

    Arguments:
        name: What the names start with.
        module: Whose.

    Raises:
        TypeError: An attribute cannot be pickled; the message names it.
        ImportError: joblib is missing.
    """
    result = {}
    for path, part in module.named_modules(prefix=name):
        result[path] = f"{type(part).__module__}.{type(part).__qualname__}"
        for attribute, value in vars(part).items():
            # Whether it trains is up to whoever trains it.
            if not attribute.startswith("_") and attribute != "training":
                try:
                    result[f"{path}.{attribute}"] = digest(_plain(value))
                except TypeError as error:
                    raise TypeError(f"{path}.{attribute}: {error}") from error
    return result | {f"{name}.{key}": digest(_plain(value)) for key, value in module.state_dict().items()}


def _plain(value: Any) -> Any:
    """Tensors as what pickles the same in every process."""
    if not isinstance(value, Tensor):
        return value
    return str(value.dtype), tuple(value.shape), value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy()
