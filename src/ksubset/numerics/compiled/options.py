"""How loops are compiled: once for each machine, and kept in a cache where there is a folder for it."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numpy.typing import NDArray

__all__ = ["Array", "exact", "in_any_order"]

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])


def exact(function: Function) -> Function:
    """Compile with the arithmetic as it is written."""
    return _compiled(function, fastmath=False)


def in_any_order(function: Function) -> Function:
    """Compile with sums of four or eight terms at a time; infinity and NaN keep their meaning."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def _compiled(function: Function, **options: Any) -> Function:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled: Function = njit(cache=True, **options)(function)
    except RuntimeError:  # neither beside the source nor in the user's home may anything be written
        compiled = njit(**options)(function)
    return compiled
