"""Arguments that selectors share: columns, seeds and targets."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.multiclass import type_of_target

from ksubset.search.arguments import is_integer

__all__ = [
    "MOST_CLASSES",
    "are_classes",
    "check_distinct",
    "check_labels",
    "check_target",
    "listed",
    "positions",
    "seed_of",
]

MOST_CLASSES = 20
"""Different whole numbers that may be classes; more are taken for numbers."""


def check_target(target: Any, data: Any) -> NDArray[Any]:
    """Targets `(N)` or `(N, m)` of data `(N, n)` as an array; a ValueError if they are not as many, or not finite."""
    checked: NDArray[Any] = check_array(target, ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(data, checked)
    return checked


def are_classes(target: NDArray[Any], instead: str) -> bool:
    """Whether targets are classes: whatever are no floats, and floats of at most 20 different whole numbers.

    Arguments:
        target: As of `check_target`.
        instead: What to do where they are not meant to be, for a warning if there are many for so few rows.
    """
    if type_of_target(target, input_name="y").startswith("continuous"):
        return False
    if target.dtype.kind not in "fiu" or (count := len(np.unique(target))) <= MOST_CLASSES:
        return True
    if target.dtype.kind != "f" and len(target) < 10 * count:
        warnings.warn(f"y: {count} different integers are taken for classes; {instead}", stacklevel=4)
    return target.dtype.kind != "f"


def seed_of(random_state: Any) -> int:
    """A seed as of scikit-learn's `random_state`, or drawn from a generator of NumPy; of None a new one each time."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31 - 1))
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise ValueError(
            f"random_state: expected an integer from 0 to 2**32 - 1, a generator of NumPy or None, got {random_state!r}"
        ) from error


def listed(value: Any, argument: str) -> Sequence[Any]:
    """A sequence as a list, of None an empty one; else a TypeError."""
    if value is None:
        return []
    if isinstance(value, str) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TypeError(f"{argument}: expected a sequence, got {value!r}")
    return list(value)


def check_distinct(data: Any) -> None:
    """Refuse a table of which two columns have the same name; else a name, also of a result, would mean either."""
    columns: Any = getattr(data, "columns", None)
    # Tables of other libraries than pandas have no such names.
    if not getattr(columns, "is_unique", True):
        name = columns[columns.duplicated()].tolist()[0]
        raise ValueError(f"X: expected columns of different names, got {name!r} more than once")


def check_labels(data: Any, **arguments: Any) -> None:
    """Refuse integers for columns of a table whose columns have other integers as names: they may mean either.

    Arguments:
        data: Of any kind.
        arguments: Columns, or groups of them, by the argument's name.

    Raises:
        ValueError: An argument has integers, and so have the columns, other than 0, 1, 2 and so on.
    """
    names = list(getattr(data, "columns", ()))
    if not names or not all(map(is_integer, names)) or names == list(range(len(names))):
        return
    for argument, columns in arguments.items():
        if _has_integer(columns):
            raise ValueError(
                f"{argument}: expected names, as integers may be names or places in a table with the columns "
                f"{names[:3]}...; X.columns = X.columns.astype(str) makes names of them"
            )


def _has_integer(columns: Any) -> bool:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        return is_integer(columns)
    return any(map(_has_integer, columns))


def positions(columns: Any, argument: str, places: Mapping[str, int], num_columns: int) -> NDArray[np.int64]:
    """Indices of columns, given by name or index, in their order; None means none.

    Arguments:
        columns: The columns, `(m)`.
        argument: Its name, for messages.
        places: Of all columns by name, if they have names.
        num_columns: How many there are, n.

    Raises:
        TypeError: It is no sequence, or a column is neither a name nor an index.
        ValueError: A column is unknown.
    """
    found = []
    for column in listed(columns, argument):
        if isinstance(column, str):
            if column not in places:
                known = "names of columns of X" if places else "indices, as the columns of X have no names"
                raise ValueError(f"{argument}: expected {known}, got {column!r}")
            found.append(places[column])
        elif is_integer(column):
            if not 0 <= column < num_columns:
                raise ValueError(f"{argument}: expected indices from 0 to {num_columns - 1}, got {column}")
            found.append(int(column))
        else:
            raise TypeError(f"{argument}: expected names or indices of columns, got {column!r}")
    return np.array(found, dtype=np.int64)
