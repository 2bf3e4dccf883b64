"""What the columns of a file are to a model: numbers, dates, categories, and a target of one kind or another."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

__all__ = ["TASKS", "Table", "check_names", "tabulate"]

TASKS = ("classification", "regression")
_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_DAY = 86_400_000_000  # in microseconds


@dataclass(frozen=True)
class Table:
    """Rows of a file that have a target, as models take them.

    Arguments:
        features: `(N, n)`; numbers, which dates become too, as float64 with NaN, and all else as categories.
        target: `(N)`, numbers, or places in the list of classes.
        classes: Ascending; None in regression.
        dropped: Rows of the file without a target.
        suspects: Columns that may be ids, each with what makes it look like one.
    """

    features: pd.DataFrame
    target: NDArray[Any]
    classes: list[str] | None
    dropped: int
    suspects: dict[str, str]

    @property
    def scoring(self) -> str:
        """Name of the score that models of the target have by themselves."""
        return "r2" if self.classes is None else "accuracy"


def tabulate(data: pd.DataFrame, target: str, task: str | None = None, exclude: Sequence[str] = ()) -> Table:
    """Tell features from the target, and what kind of target it is.

    Text, truth values, and whole numbers are classes, the latter if there are at most 20 and ten rows of each on
    average; all else is regression.

    Arguments:
        data: As of `read`.
        target: Name of a column.
        task: "classification" or "regression", whatever the target looks like.
        exclude: Columns that are neither.

    Raises:
        ValueError: A column is unknown or of a type that no model takes, or the target has no two values.
    """
    if task not in (None, *TASKS):
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    check_names([target], data.columns, "target")
    check_names(exclude, data.columns.drop(target), "exclude")
    names = [name for name in data.columns if name != target and name not in exclude]
    if not names:
        raise ValueError("data: expected columns besides the target and the excluded ones, got none")
    values = _model_column(data[target], target)
    given = ~pd.isna(values)
    if not given.any():
        raise ValueError(f"target: expected a column with values, got {target!r}, which has none")
    values, rows = values[given], data.loc[given, names]
    classify = _has_classes(values, data[target]) if task is None else task == "classification"
    labels, codes = np.unique(np.asarray(values), return_inverse=True)
    if len(labels) < 2:
        what = "two classes or more" if classify else "a column with different values"
        raise ValueError(f"target: expected {what}, got {target!r}, which has only {_text(labels[0])}")
    if not classify and isinstance(values, pd.Categorical):
        raise ValueError(f"task: expected classification, as {target!r} is text, got regression")
    truth = data[target].dtype.kind == "b"
    classes = [str(bool(label)) if truth else _text(label) for label in labels]
    features, suspects = {}, {}
    for name in names:
        features[name] = _model_column(rows[name], name)
        if (seems := _seems_an_id(features[name])) is not None:
            suspects[name] = seems
    return Table(
        pd.DataFrame(features), codes if classify else np.asarray(values, dtype=np.float64),
        classes if classify else None, int((~given).sum()), suspects,
    )  # fmt: skip


def check_names(names: Sequence[str], known: Collection[str], argument: str) -> None:
    """Check that names, given as some argument, are those of columns; else a ValueError."""
    for name in names:
        if name not in known:
            listed = ", ".join(map(repr, list(known)[:10])) + (", ..." if len(known) > 10 else "")
            raise ValueError(f"{argument}: expected one of {listed}, got {name!r}")


def _text(label: Any) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)


def _has_classes(values: Any, column: pd.Series) -> bool:
    if isinstance(values, pd.Categorical) or column.dtype.kind == "b":
        return True
    count = len(np.unique(values))
    return type_of_target(values) != "continuous" and count <= 20 and len(values) >= 10 * count


def _seems_an_id(values: Any) -> str | None:
    if isinstance(values, pd.Categorical):
        return "has another text in each row" if len(values.categories) == len(values) else None
    return "counts the rows" if len(values) > 1 and (np.diff(values) == 1).all() else None


def _model_column(column: pd.Series, name: str) -> NDArray[np.float64] | pd.Categorical:
    """Numbers with NaN, or categories in order; `(N)`."""
    values = pa.array(column)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode().cast(pa.string())
    kind = values.type
    number = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if any(holds(kind) for holds in number):
        return _finite(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _days(values.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False))
    if pa.types.is_duration(kind):
        return _days(values.cast(pa.duration("us"), safe=False))
    if pa.types.is_time(kind):
        return _days(values.cast(pa.time64("us"), safe=False))
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ValueError(f"data: expected columns of numbers, text or dates, got {name!r} of {kind}; exclude it")
    text = values.cast(pa.string()).to_pandas().astype(object)
    given = text.dropna()
    if len(given) and given.str.fullmatch(_DATE).all():
        dates = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        if dates.notna().sum() == len(given):
            return np.asarray((dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)
    codes, levels = pd.factorize(text, sort=True)
    return pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))


def _days(values: Any) -> NDArray[np.float64]:
    return _finite(values.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) / _DAY


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # Most models refuse what is infinite.
    return np.where(np.isfinite(values), values, np.nan)
