"""Arguments that searches and selectors share: numbers, items and callbacks."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "check_integer", "check_items", "check_nonnegative", "check_positive", "is_integer", "listed",
    "listed_callbacks", "notify",
]  # fmt: skip


def listed(name: str, values: Any) -> list[Any]:
    """Several values as a list; a TypeError for one alone, such as an item where items are expected."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: expected a sequence, got {values!r}")
    return list(values)


def listed_callbacks(callbacks: Any) -> list[Callable[[Any], Any]]:
    """None, a function or several, as a list; a TypeError for anything else."""
    functions = [] if callbacks is None else [callbacks] if callable(callbacks) else callbacks
    if not isinstance(functions, Sequence) or not all(map(callable, functions)):
        raise TypeError(f"callbacks: expected a function or a sequence of functions, got {callbacks!r}")
    return list(functions)


def notify(callbacks: Sequence[Callable[[Any], Any]], progress: Any) -> bool:
    """Call all of them; returns whether one has answered True."""
    answers = [callback(progress) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, of Python or NumPy, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_integer(name: str, value: Any, least: int) -> int:
    """An integer that is large enough; else a TypeError or ValueError."""
    if not is_integer(value):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")
    return int(value)


def check_positive(name: str, value: Any) -> float:
    """A finite number above 0; else a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: expected a number above 0, got {value}")
    return float(value)


def check_nonnegative(name: str, value: Any) -> float:
    """A finite number, 0 or more; else a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: expected a finite number, 0 or more, got {value}")
    return float(value)


def check_items(name: str, items: Iterable[Any], num_items: int) -> NDArray[np.int64]:
    """Distinct indices of items, ascending; else a TypeError or ValueError."""
    given = listed(name, items)
    for item in given:
        if not is_integer(item):
            raise TypeError(f"{name}: expected indices of items, got {item!r}")
        if not 0 <= item < num_items:
            raise ValueError(f"{name}: expected indices from 0 to {num_items - 1}, got {item}")
    result = np.unique(np.array(given, dtype=np.int64))
    if len(result) < len(given):
        raise ValueError(f"{name}: expected distinct items, got {given}")
    return result
