"""Arguments that selectors share: numbers, and callbacks."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["check_integer", "check_positive", "listed_callbacks", "notify"]


def listed_callbacks(callbacks: Any) -> list[Callable[[Any], Any]]:
    """None, a function or several, as a list.

    Raises:
        TypeError: They are something else.
    """
    listed = [] if callbacks is None else [callbacks] if callable(callbacks) else callbacks
    if not isinstance(listed, Sequence) or not all(map(callable, listed)):
        raise TypeError(f"callbacks: expected a function or a sequence of functions, got {callbacks!r}")
    return list(listed)


def notify(callbacks: Sequence[Callable[[Any], Any]], progress: Any) -> bool:
    """Call all of them; returns whether one has answered True."""
    answers = [callback(progress) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)


def check_integer(name: str, value: Any, least: int) -> int:
    """An integer that is large enough.

    Raises:
        TypeError, ValueError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")
    return int(value)


def check_positive(name: str, value: Any) -> float:
    """A finite number above 0.

    Raises:
        TypeError, ValueError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: expected a number above 0, got {value}")
    return float(value)
