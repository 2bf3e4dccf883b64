"""What models read from arrays and data frames, and what they refuse."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import narwhals
import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = [
    "Columns", "array", "check_rows", "column_of", "columns", "copies", "events", "integers", "kind", "labels",
    "matching_columns", "numbers", "table",
]  # fmt: skip

Array = NDArray[np.float64]
# What converts to a float all the same: a string is no number, even one that looks like one.
_NOT_NUMBERS = (str, bytes, complex, np.complexfloating, datetime, timedelta, np.datetime64, np.timedelta64)
# The integers up to here are floats.
_LARGEST = 2**53


class Columns(NamedTuple):
    """Covariates `(n, p)`, their names, and the index of their rows if they have one."""

    values: Array
    names: list[str]
    rows: pd.Index | None


def columns(exog: Any) -> Columns:
    """Read covariates from a table (pandas, polars, another library's), a series, or an array `(n, p)` or `(n)`.

    Raises:
        TypeError: Something in them is no number.
        ValueError: The shape is another one, values are missing or infinite, or names occur twice.
    """
    index = exog.index if isinstance(exog, pd.DataFrame | pd.Series) else None
    frame = exog.to_frame() if isinstance(exog, pd.Series) else table(exog)
    if frame is None:
        values = array(exog)
        if values.ndim not in {1, 2}:
            raise ValueError(f"exog must have shape (rows, columns), got {values.shape}")
        values = values.reshape(len(values), -1)
        frame = pd.DataFrame(values, columns=[f"x{j + 1}" for j in range(values.shape[1])])
    names = [str(name) for name in frame.columns]
    if not names or not len(frame):
        raise ValueError(f"exog must have at least one row and one column, got shape {frame.shape}")
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of exog must have different names, got {names}")
    read = [_as_floats(frame.iloc[:, j], f"exog column {name!r}") for j, name in enumerate(names)]
    return Columns(np.stack(read, 1), names, index)


def kind(value: Any) -> str:
    """What an object is, and of which library: many have data frames."""
    library, name = type(value).__module__.partition(".")[0], type(value).__name__
    return name if library == "builtins" else f"{library} {name}"


def array(values: Any) -> NDArray[Any]:
    """An array; of a masked one with its mask, which is what is missing."""
    return values if np.ma.isMaskedArray(values) else np.asarray(values)


def table(data: Any) -> pd.DataFrame | None:
    """A table of any library as a data frame of pandas; None for what has no columns with names."""
    if isinstance(data, pd.DataFrame):
        return data
    read = narwhals.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(read, narwhals.DataFrame):
        return None
    return pd.DataFrame({name: read[name].to_numpy() for name in read.columns})


def matching_columns(exog: Any, names: list[str]) -> Columns:
    """Read covariates of new rows, in the model's order; ValueError where they are not those of the model."""
    frame = exog.to_frame() if isinstance(exog, pd.Series) and exog.name is not None else table(exog)
    # Columns that are too many need not be numbers.
    given = columns(exog).names if frame is None else [str(name) for name in frame.columns]
    if len(given) != len(names) or (frame is not None and set(given) != set(names)):
        raise ValueError(f"exog must have the columns {names}, got {given}")
    values, found, rows = columns(exog)
    order = range(len(names)) if frame is None else [found.index(name) for name in names]
    return Columns(values[:, order], names, rows)


def check_rows(index: pd.Index | None, what: str, **given: Any) -> tuple[pd.Index | None, str]:
    """Series belong to the rows of an index, or, without one, of the first series: ValueError where that of one says
    that they are others, or in another order.

    Returns:
        The index that all have, and whose it is.
    """
    for name, values in given.items():
        if not isinstance(values, pd.Series):
            continue
        if index is None:
            index, what = values.index, name
        elif len(values) == len(index) and not values.index.equals(index):
            raise ValueError(
                f"{name} must have the index of {what}, got another one; {name}.to_numpy() is taken row by row"
            )
    return index, what


def numbers(values: Any, name: str, rows: int) -> Array:
    """Read one finite number for each row."""
    array = _as_floats(values, name)
    if array.shape != (rows,):
        raise ValueError(f"{name} must have one value for each of the {rows} rows, got shape {array.shape}")
    return array


def _as_floats(values: Any, name: str) -> Array:
    series = pd.Series(values) if np.ndim(values) == 1 else None
    if series is None:
        raise ValueError(f"{name} must have one dimension, got shape {np.shape(values)}")
    if missing := int(series.isna().sum()):
        raise ValueError(f"{name} has {missing} missing values; leave these rows out first (dropna)")
    if isinstance(series.dtype, pd.CategoricalDtype):
        raise TypeError(f"{name} must be numeric, got a category; from_formula makes columns of its levels")
    if series.dtype.kind not in "biuf":
        for value in series:
            if isinstance(value, _NOT_NUMBERS):
                raise TypeError(f"{name} must be numeric, got {value!r} ({series.dtype})")
    try:
        array: Array = series.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numeric, got {series.dtype}") from error
    if (
        series.dtype.kind in "iu"
        and np.abs(array).max(initial=0.0) >= _LARGEST
        and len(np.unique(array)) < series.nunique()
    ):
        raise ValueError(
            f"{name} has different integers beyond 2**53 that are equal as floats; subtract their smallest first"
        )
    if infinite := int((~np.isfinite(array)).sum()):
        raise ValueError(f"{name} has {infinite} infinite values")
    return array


def events(values: Any, name: str, rows: int) -> NDArray[np.bool_]:
    """Read zeros and ones, or booleans, one for each row."""
    array = numbers(values, name, rows)
    if not ((array == 0) | (array == 1)).all():
        other = array[(array != 0) & (array != 1)][0]
        raise ValueError(f"{name} must be 0 or 1 (or boolean) in every row, got {other:g}")
    positive: NDArray[np.bool_] = array == 1
    return positive


def labels(values: Any, name: str, rows: int) -> tuple[NDArray[np.int64], pd.Index]:
    """Read one label of any kind for each row: its number, and the labels in the order of their first rows."""
    if isinstance(values, pd.MultiIndex):
        values = pd.Series(values.tolist(), dtype=object).mask(np.any(np.equal(values.codes, -1), axis=0))
    elif isinstance(values, list | tuple) and any(isinstance(value, tuple) for value in values):
        values = pd.Series(values, dtype=object)
    if np.ndim(values) != 1 or len(values) != rows:
        raise ValueError(f"{name} must have one label for each of the {rows} rows, got shape {np.shape(values)}")
    if isinstance(values, np.ndarray):
        # Files of other machines may have their bytes swapped, of which pandas makes no groups.
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    series = pd.Series(values)
    if missing := int(series.isna().sum()):
        raise ValueError(f"{name} has {missing} missing values")
    code, unique = pd.factorize(series)
    return code.astype(np.int64), pd.Index(unique)


def integers(values: Any, name: str, rows: int) -> NDArray[np.int64]:
    """Read positive integers, one for each row; by default 1."""
    if values is None:
        return np.ones(rows, np.int64)
    array = numbers(values, name, rows)
    if not ((array >= 1) & (array == np.floor(array))).all():
        other = array[(array < 1) | (array != np.floor(array))][0]
        raise ValueError(f"{name} must be positive integers (how often a row was observed), got {other:g}")
    if array.max() > _LARGEST // rows:
        raise ValueError(f"{name} must be at most {_LARGEST // rows} where there are {rows} rows, got {array.max():g}")
    return array.astype(np.int64)


def copies(order: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows, each as often as its weight says."""
    return np.repeat(order, weights[order])


def column_of(data: pd.DataFrame, column: Any, name: str) -> Any:
    """A column of a data frame by its name, or values that are given as they are; None stays None.

    Raises:
        ValueError: The data frame has no such column.
    """
    # Names may be numbers, or, where columns have several levels, tuples.
    is_name = column is not None and (np.ndim(column) == 0 or (isinstance(column, tuple) and column in data.columns))
    if not is_name:
        return column
    if column not in data.columns:
        raise ValueError(f"{name}: the data has no column {column!r}; it has {list(map(str, data.columns))}")
    return data[column]
