"""Checks of arguments: numbers, columns, sizes and weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

__all__ = ["check_integer", "check_nonnegative", "check_positions", "check_weights", "generator", "is_integer"]


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


def check_nonnegative(name: str, value: Any) -> float:
    """A finite number, 0 or more; else a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: expected a finite number, 0 or more, got {value}")
    return float(value)


def check_positions(name: str, columns: Any, names: Sequence[str] | None, num_columns: int) -> NDArray[np.int64]:
    """Columns given by name or index, as ascending indices without repetition.

    Raises:
        TypeError: It is no sequence, or a column is neither a name nor an index.
        ValueError: A column is unknown.
    """
    if columns is None:
        return np.empty(0, dtype=np.int64)
    if isinstance(columns, str) or not hasattr(columns, "__len__") or not hasattr(columns, "__getitem__"):
        raise TypeError(f"{name}: expected a sequence of columns, got {columns!r}")
    places = {} if names is None else {column: place for place, column in enumerate(names)}
    found = set()
    for column in list(columns):
        if isinstance(column, str):
            if column not in places:
                known = "names of columns" if places else "indices, as the columns have no names"
                raise ValueError(f"{name}: expected {known}, got {column!r}")
            found.add(places[column])
        elif is_integer(column):
            if not 0 <= column < num_columns:
                raise ValueError(f"{name}: expected indices from 0 to {num_columns - 1}, got {column}")
            found.add(int(column))
        else:
            raise TypeError(f"{name}: expected names or indices of columns, got {column!r}")
    return np.array(sorted(found), dtype=np.int64)


def check_weights(weights: Any, num_rows: int) -> NDArray[np.float64]:
    """Weights of rows `(N)`, ones by default; a ValueError if they are negative, not finite, or all 0."""
    if weights is None:
        return np.ones(num_rows)
    if np.isscalar(weights):
        weights = np.full(num_rows, weights)
    checked: NDArray[np.float64] = check_array(
        weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight", estimator="sample_weight"
    )
    if checked.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    if len(checked) != num_rows:
        raise ValueError(f"sample_weight: expected {num_rows} weights, one for each row, got {len(checked)}")
    if (checked < 0).any() or not checked.any():
        raise ValueError("sample_weight: expected weights of 0 or more, and not all of them zero")
    return checked


def generator(random_state: Any) -> np.random.Generator:
    """A generator seeded as of scikit-learn's `random_state`; of None anew each time."""
    if random_state is None:
        return np.random.default_rng()
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
