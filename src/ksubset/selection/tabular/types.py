"""What the columns of a file are to a model: numbers, dates, categories, and a target of one kind or another."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from ksubset.selection.arguments import MOST_CLASSES
from ksubset.selection.tabular.files import CsvFormat
from ksubset.selection.tabular.notation import parse

__all__ = ["TASKS", "Table", "check_names", "tabulate"]

TASKS = ("classification", "regression")
_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_BELOW_MICROSECONDS = r"(\.\d{6})\d+"
_SHOWN = 3
_EXACT = 2**53  # whole numbers up to here are floats of their own
_DIGITS = 16  # of the least one that is none
_WHOLE = rf"[-+]?[0-9]{{{_DIGITS},4000}}"  # Python makes no integers of more
_DAY = 86_400_000_000  # in microseconds


@dataclass(frozen=True)
class Table:
    """Rows of a file that have a target, as models take them.

    Arguments:
        features: `(N, n)`; numbers, which dates become too, as float64 with NaN, and all else as categories.
        target: `(N)`, numbers, or places in the list of classes.
        classes: Ascending; None in regression.
        dropped: Rows of the file without a target.
        groups: Of rows that belong together, `(N)`, or None.
        ordered: Whether the rows are in the order of time.
        notes: Columns of text that were read as numbers, each with how.
        suspects: Columns that a user should look at, each with what is strange about it.
    """

    features: pd.DataFrame
    target: NDArray[Any]
    classes: list[str] | None
    dropped: int
    groups: NDArray[np.intp] | None
    ordered: bool
    notes: dict[str, str]
    suspects: dict[str, str]

    @property
    def scoring(self) -> str:
        """Name of the score that models of the target have by themselves."""
        return "r2" if self.classes is None else "accuracy"


def tabulate(
    data: pd.DataFrame,
    target: str,
    task: str | None = None,
    exclude: Sequence[str] = (),
    format: CsvFormat | None = None,
    groups: str | None = None,
    time: str | None = None,
) -> Table:
    """Tell features from the target, and what kind of target it is.

    Text, truth values, and whole numbers are classes, the latter if there are at most 20 and ten rows of each on
    average; all else is regression.

    Arguments:
        data: As of `Source.read`.
        target: Name of a column.
        task: "classification" or "regression", whatever the target looks like.
        exclude: Columns that are neither.
        format: Of a file of text, as of `Source`.
        groups: Name of a column, no feature, whose rows of one value belong together, such as those of a patient.
        time: Name of a column, no feature, by which rows are put into order.

    Raises:
        ValueError: A column is unknown or of a type that no model takes, or the target has no two values.
    """
    if task not in (None, *TASKS):
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    check_names([target], data.columns, "target")
    check_names(exclude, data.columns.drop(target), "exclude")
    apart = {name: value for name, value in (("groups", groups), ("time", time)) if value is not None}
    if len(apart) > 1:
        raise ValueError("time: expected None, as groups are given, got both")
    for argument, name in apart.items():
        check_names([name], data.columns.drop(target), argument)
        if data[name].isna().any():
            raise ValueError(f"{argument}: expected a column without missing values, got {name!r}")
    names = [name for name in data.columns if name not in (target, *exclude, *apart.values())]
    if not names:
        raise ValueError("data: expected columns besides the target and the excluded ones, got none")
    notes: dict[str, str] = {}
    suspects: dict[str, str] = {}
    reader = _Reader(format or CsvFormat(), notes, suspects)
    if time is not None:
        moments = reader.column(data[time], time)
        if isinstance(moments, pd.Categorical):
            raise ValueError(f"time: expected a column of dates or numbers, got {time!r}, which is text")
        if np.isnan(moments).any():
            raise ValueError(f"time: expected a column without missing values, got {time!r}")
        data = data.iloc[np.argsort(moments, kind="stable")]
    values = reader.column(data[target], target)
    given = ~pd.isna(values)
    if not given.any():
        raise ValueError(f"target: expected a column with values, got {target!r}, which has none")
    values, rows = values[given], data.loc[given, names].reset_index(drop=True)
    classify = _has_classes(values, data[target]) if task is None else task == "classification"
    labels, codes = np.unique(np.asarray(values), return_inverse=True)
    if len(labels) < 2:
        what = "two classes or more" if classify else "a column with different values"
        raise ValueError(f"target: expected {what}, got {target!r}, which has only {_text(labels[0])}")
    if not classify and isinstance(values, pd.Categorical):
        raise ValueError(f"task: expected classification, as {target!r} is text, got regression")
    truth = data[target].dtype.kind == "b"
    classes = [str(bool(label)) if truth else _text(label) for label in labels]
    features = {}
    for name in names:
        features[name] = reader.column(rows[name], name)
        if (seems := _seems_useless(features[name])) is not None:
            suspects.setdefault(name, seems)
    return Table(
        pd.DataFrame(features), codes if classify else np.asarray(values, dtype=np.float64),
        classes if classify else None, int((~given).sum()),
        None if groups is None else pd.factorize(data.loc[given, groups])[0], time is not None, notes, suspects,
    )  # fmt: skip


def check_names(names: Sequence[str], known: Collection[str], argument: str) -> None:
    """Check that names, given as some argument, are those of columns; else a ValueError."""
    for name in names:
        if name not in known:
            listed = ", ".join(map(repr, list(known)[:10])) + (", ..." if len(known) > 10 else "")
            raise ValueError(f"{argument}: expected one of {listed}, got {name!r}")


def _text(label: Any) -> str:
    return f"{label:.15g}" if isinstance(label, float) else str(label)


def _has_classes(values: Any, column: pd.Series) -> bool:
    if isinstance(values, pd.Categorical) or column.dtype.kind == "b":
        return True
    count = len(np.unique(values))
    return type_of_target(values) != "continuous" and count <= MOST_CLASSES and len(values) >= 10 * count


def _seems_useless(values: Any) -> str | None:
    if len(pd.unique(values)) == 1:
        return "has the same value in all rows"
    if isinstance(values, pd.Categorical):
        return "has another text in each row, as an id has" if len(values.categories) == len(values) else None
    return "counts the rows, as an id does" if (np.diff(values) == 1).all() else None


@dataclass(frozen=True)
class _Reader:
    """Columns as models take them; what a user should know of them goes into `notes` and `suspects`, by name."""

    format: CsvFormat
    notes: dict[str, str]
    suspects: dict[str, str]

    def column(self, column: pd.Series, name: str) -> NDArray[np.float64] | pd.Categorical:
        """Numbers with NaN, or categories in order; `(N)`."""
        text = _text_or_numbers(column, name)
        if isinstance(text, np.ndarray):
            values = pa.array(column)
            if pa.types.is_integer(values.type):
                self._look_at_digits(name, [value or 0 for value in pc.min_max(values).as_py().values()])
            return text
        found = parse(text, self.format)
        if found is not None and not found.others:
            if found.notes:
                self.notes[name] = ", ".join(found.notes)
            self._look_at_digits(name, map(int, text[text.str.fullmatch(_WHOLE, na=False)].unique()))
            return _finite(found.values)
        if found is not None:
            others = ", ".join(map(repr, found.others[:_SHOWN])) + (", ..." if len(found.others) > _SHOWN else "")
            self.suspects[name] = (
                f"is text, as not all of it are numbers: {others}; where that means missing, --na makes numbers of it"
            )
        codes, levels = pd.factorize(text, sort=True)
        return pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))

    def _look_at_digits(self, name: str, values: Iterable[int]) -> None:
        if any(abs(value) > _EXACT for value in values):
            self.suspects[name] = f"has whole numbers of {_DIGITS} digits and more, of which not all can be told apart"


def _text_or_numbers(column: pd.Series, name: str) -> NDArray[np.float64] | pd.Series:
    """Numbers with NaN, which dates become too, or strings; `(N)`."""
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
        text = text.str.replace(_BELOW_MICROSECONDS, r"\1", regex=True)
        dates = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        if dates.notna().sum() == len(given):
            # Nanoseconds would not reach far from today.
            return _days(pa.array(dates.dt.as_unit("us"), from_pandas=True))
    return text


def _days(values: Any) -> NDArray[np.float64]:
    return _finite(values.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) / _DAY


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # Most models refuse what is infinite.
    return np.where(np.isfinite(values), values, np.nan)
