"""Arguments that selectors share: numbers, seeds, targets and callbacks."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, check_random_state

__all__ = ["check_integer", "check_positive", "check_target", "is_integer", "listed_callbacks", "notify", "seed_of"]


def listed_callbacks(callbacks: Any) -> list[Callable[[Any], Any]]:
    """None, a function or several, as a list; a TypeError for anything else."""
    listed = [] if callbacks is None else [callbacks] if callable(callbacks) else callbacks
    if not isinstance(listed, Sequence) or not all(map(callable, listed)):
        raise TypeError(f"callbacks: expected a function or a sequence of functions, got {callbacks!r}")
    return list(listed)


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


def check_target(target: Any, data: Any) -> NDArray[Any]:
    """Targets `(N)` or `(N, m)` of data `(N, n)` as an array; a ValueError if they are not as many, or not finite."""
    checked: NDArray[Any] = check_array(target, ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(data, checked)
    return checked


def seed_of(random_state: Any) -> int:
    """A seed as of scikit-learn's `random_state`; of None a new one each time."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))
