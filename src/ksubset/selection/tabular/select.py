"""Selecting columns of a file for a model by name, and what that is worth on rows that had no part in it."""

import csv
import io
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ksubset._support.extras import require

for _module in ("pandas", "pyarrow", "threadpoolctl"):
    require(_module, "selection")

import joblib  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.compose import make_column_selector, make_column_transformer  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.metrics import check_scoring, get_scorer_names  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler  # noqa: E402
from sklearn.utils.multiclass import type_of_target  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from ksubset._support.files import write  # noqa: E402
from ksubset.selection.wrapper.results import Progress  # noqa: E402
from ksubset.selection.wrapper.selector import KSubsetSelector  # noqa: E402

__all__ = ["MODELS", "TASKS", "Selection", "Table", "check_out", "model", "read", "save", "select", "tabulate"]

MODELS = ("hist-gradient-boosting", "random-forest", "extra-trees", "k-nearest-neighbors", "linear")
TASKS = ("classification", "regression")
_ENDINGS = (".csv", ".parquet")
_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_DAY = 86_400_000_000  # in microseconds
_DRAWS = 10


@dataclass(frozen=True)
class Table:
    """Rows of a file that have a target, as models take them.

    Arguments:
        features: `(N, n)`; numbers, which dates become too, as float64 with NaN, and all else as categories.
        target: `(N)`, numbers, or places in the list of classes.
        classes: Ascending; None in regression.
        dropped: Rows of the file without a target.
        remarks: What the user may want to know about the columns.
    """

    features: pd.DataFrame
    target: NDArray[Any]
    classes: list[str] | None
    dropped: int
    remarks: list[str]


@dataclass(frozen=True)
class Selection:
    """The columns that were found, and scores on rows that had no part in finding them.

    Arguments:
        selector: Fitted to the other rows.
        num_test: Rows for the scores below; each model is fitted to all others.
        everything: Score with all columns.
        kept: Score with those that are kept.
        random: Scores with as many random ones, of which those always kept are part, a draw each; none if there is
            nothing to draw.
    """

    selector: KSubsetSelector
    num_test: int
    everything: float
    kept: float
    random: list[float]


def read(path: Path) -> pd.DataFrame:
    """Read a file; its columns have Arrow's types, in which integers and truth values may be missing.

    Arguments:
        path: CSV (UTF-8, separated by commas, semicolons, tabs or bars) or Parquet, by its ending.

    Raises:
        ValueError: It is neither, or empty, or two columns have the same name.
        OSError: It cannot be read.
    """
    _check_ending(path, "data")
    if not path.is_file():
        raise FileNotFoundError(f"data: expected a file, got {path}")
    try:
        names = _header(path)[0] if path.suffix.lower() == ".csv" else pq.read_schema(path).names
        # pandas would rename them without a word.
        twice = sorted({name for name in names if name and names.count(name) > 1})
        frame = pd.DataFrame() if twice else _frame(path, names, dtype_backend="pyarrow")
    except ValueError as error:
        raise ValueError(f"data: expected a {path.suffix[1:]} file that can be read, got {path} ({error})") from error
    if twice:
        raise ValueError(f"data: expected columns of different names, got {', '.join(map(repr, twice))} more than once")
    if frame.empty:
        raise ValueError(f"data: expected columns and rows, got none in {path}")
    return frame


def check_out(path: Path, source: Path) -> None:
    """Find what would keep columns from being written, before hours were spent on finding them.

    Raises:
        ValueError: The ending is neither that of CSV nor of Parquet, or the file is the source.
        OSError: There is no such folder.
    """
    _check_ending(path, "out")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out: expected a file in a folder that exists, got {path}")
    if path.resolve() == source.resolve():
        raise ValueError(f"out: expected another file than that of the data, got {path}")


def save(source: Path, columns: Collection[str], path: Path) -> None:
    """Write some columns of a file, all rows, in its order, with its types; from CSV to CSV the very same cells.

    Raises:
        OSError: The file cannot be written; what was there stays.
    """
    if source.suffix.lower() == path.suffix.lower() == ".csv":
        frame = _frame(source, columns, dtype=str, keep_default_na=False)
    else:
        frame = _frame(source, columns, dtype_backend="pyarrow")
    frame = frame[[name for name in frame.columns if name in columns]]
    content = frame.to_csv(index=False).encode() if path.suffix.lower() == ".csv" else frame.to_parquet(index=False)
    write(path, content)


def _check_ending(path: Path, option: str) -> None:
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{option}: expected a file that ends in {' or '.join(_ENDINGS)}, got {path}")


def _header(path: Path) -> tuple[list[str], str]:
    """Names of the columns of a CSV file, and what separates them."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = next(filter(str.strip, file), "")
    separator = max(",;\t|", key=line.count)
    return next(csv.reader(io.StringIO(line), delimiter=separator), []), separator


def _frame(path: Path, columns: Collection[str], **options: Any) -> pd.DataFrame:
    if path.suffix.lower() == ".parquet":
        in_order = [name for name in pq.read_schema(path).names if name in columns]
        return pd.read_parquet(path, columns=in_order, **options).reset_index(drop=True)
    separator = _header(path)[1]
    return pd.read_csv(path, sep=separator, encoding="utf-8-sig", index_col=False, low_memory=False, **options)


def tabulate(frame: pd.DataFrame, target: str, task: str | None = None, exclude: Sequence[str] = ()) -> Table:
    """Tell features from the target, and what kind of target it is.

    Text, truth values, and whole numbers are classes, the latter if there are at most 20 and ten rows of each on
    average; all else is regression.

    Arguments:
        frame: As of `read`.
        target: Name of a column.
        task: "classification" or "regression", whatever the target looks like.
        exclude: Columns that are neither.

    Raises:
        ValueError: A column is unknown or of a type that no model takes, or the target has no two values.
    """
    if task not in (None, *TASKS):
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    _check_names([target], frame.columns, "target")
    _check_names(exclude, frame.columns.drop(target), "exclude")
    names = [name for name in frame.columns if name != target and name not in exclude]
    if not names:
        raise ValueError("data: expected columns besides the target and the excluded ones, got none")
    values = _model_column(frame[target], target)
    given = ~pd.isna(values)
    if not given.any():
        raise ValueError(f"target: expected a column with values, got {target!r}, which has none")
    values, rows = values[given], frame.loc[given, names]
    classify = _has_classes(values, frame[target]) if task is None else task == "classification"
    labels, codes = np.unique(np.asarray(values), return_inverse=True)
    if len(labels) < 2:
        what = "two classes or more" if classify else "a column with different values"
        raise ValueError(f"target: expected {what}, got {target!r}, which has only {_text(labels[0])}")
    if not classify and isinstance(values, pd.Categorical):
        raise ValueError(f"task: expected classification, as {target!r} is text, got regression")
    truth = frame[target].dtype.kind == "b"
    classes = [str(bool(label)) if truth else _text(label) for label in labels]
    features, remarks = {}, []
    for name in names:
        features[name] = _model_column(rows[name], name)
        if (seems := _seems_an_id(features[name])) is not None:
            remarks.append(f"column {name!r} {seems}: if that is an id, leave it out by --exclude {name!r}")
    return Table(
        pd.DataFrame(features), codes if classify else np.asarray(values, dtype=np.float64),
        classes if classify else None, int((~given).sum()), remarks,
    )  # fmt: skip


def _check_names(names: Sequence[str], known: Collection[str], option: str) -> None:
    for name in names:
        if name not in known:
            listed = ", ".join(map(repr, list(known)[:10])) + (", ..." if len(known) > 10 else "")
            raise ValueError(f"{option}: expected one of {listed}, got {name!r}")


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
        raise ValueError(
            f"data: expected columns of numbers, text or dates, got {name!r} of {kind}; leave it out by --exclude"
        )
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


def model(name: str, *, classify: bool, seed: int = 0) -> Any:
    """A model for any of a table's features, of any kind, as a scikit-learn pipeline with the defaults of scikit-learn.

    Arguments:
        name: One of `MODELS`; linear is logistic regression, or ridge regression.
        classify: Whether the target is a class.
        seed: Of the model, if it draws.

    Raises:
        ValueError: There is no such model.
    """
    numbers, texts = make_column_selector(dtype_include="number"), make_column_selector(dtype_include="category")
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=20, sparse_output=False)
    if name == "hist-gradient-boosting":
        # It takes at most 255 categories.
        ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=254)
        encoder = make_pipeline(ordinal, FunctionTransformer(_as_categories, feature_names_out="one-to-one"))
        # It takes what is missing, but no numbers that are missing in all rows.
        zeros = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
        columns = make_column_transformer(
            (encoder, texts), (zeros, _void), remainder="passthrough", verbose_feature_names_out=False
        )
        kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        boosting = kind(categorical_features="from_dtype", random_state=seed)
        return make_pipeline(columns.set_output(transform="pandas"), boosting)
    if name in ("random-forest", "extra-trees"):
        forests = {
            "random-forest": (RandomForestClassifier, RandomForestRegressor),
            "extra-trees": (ExtraTreesClassifier, ExtraTreesRegressor),
        }
        forest = forests[name][not classify](random_state=seed)
        return make_pipeline(make_column_transformer((one_hot, texts), remainder="passthrough"), forest)
    scaled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    columns = make_column_transformer((scaled, numbers), (one_hot, texts))
    if name == "k-nearest-neighbors":
        return make_pipeline(columns, KNeighborsClassifier() if classify else KNeighborsRegressor())
    if name == "linear":
        return make_pipeline(columns, LogisticRegression(max_iter=1000) if classify else Ridge())
    raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {name!r}")


def _void(frame: pd.DataFrame) -> list[str]:
    numbers = frame.select_dtypes("number")
    return list(numbers.columns[numbers.isna().all()])


def _as_categories(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype("category")


def select(
    table: Table,
    estimator: Any,
    sizes: Sequence[int] | str,
    *,
    scoring: str | None = None,
    folds: int = 5,
    max_evaluations: int | None = None,
    jobs: int = 1,
    seed: int = 0,
    always_include: Sequence[str] = (),
    test_share: float = 0.2,
    checkpoint: Path | None = None,
    callback: Callable[[Progress], Any] | None = None,
) -> Selection:
    """Hold rows out, find the best columns on the others, and compare them with all and with random ones.

    Arguments:
        table: Features and target.
        estimator: As of `model`.
        sizes: Columns to keep; of several, or "auto", as the selector has it.
        scoring: Name of a scorer; None is the estimator's own score. Of two classes the last one is the positive one.
        folds: Of the cross-validation.
        max_evaluations: Most model fits, for each size.
        jobs: Fits at a time, each on one thread.
        seed: Of the rows held out, the search, and the random columns.
        always_include: Columns that are kept in any case.
        test_share: Share of the rows to hold out.
        checkpoint: File of the scores, from which the same search goes on.
        callback: Called with the progress after each batch.

    Raises:
        ValueError: An argument is out of range, or there are too few rows, in all or of a class.
    """
    _check_names(always_include, table.features.columns, "always-include")
    always, everything = sorted(set(always_include)), np.arange(table.features.shape[1])
    least, most = max(1, len(always)), len(everything)
    if not isinstance(sizes, str) and not (sizes and least <= min(sizes) <= max(sizes) <= most):
        raise ValueError(f"k: expected {least} to {most}, the number of columns, got {', '.join(map(str, sizes))}")
    if scoring is not None and scoring not in get_scorer_names():
        raise ValueError(f"scoring: expected a scorer of scikit-learn, such as 'roc_auc' or 'r2', got {scoring!r}")
    if jobs == 0:
        raise ValueError("jobs: expected 1 or more, or -1 for as many as there are cores, got 0")
    search, test = _split(table, folds, test_share, seed)
    selector = KSubsetSelector(
        estimator,
        n_features_to_select=sizes if isinstance(sizes, str) else list(sizes),
        scoring=scoring,
        cv=folds,
        max_evaluations=max_evaluations,
        n_jobs=jobs,
        random_state=seed,
        callbacks=callback,
        always_include=always,
        checkpoint=checkpoint,
    )
    scorer = check_scoring(estimator, scoring=scoring)

    def score(columns: NDArray[Any]) -> float:
        features = table.features.iloc[:, columns]
        fitted = clone(estimator).fit(features.iloc[search], table.target[search])
        return float(scorer(fitted, features.iloc[test], table.target[test]))

    # Small fits on several threads take up to ten times as long as on one.
    with threadpool_limits(1), joblib.parallel_config("loky", inner_max_num_threads=1):
        selector.fit(table.features.iloc[search], table.target[search])
        fixed = table.features.columns.get_indexer(always)
        free, rng = np.setdiff1d(everything, fixed), np.random.default_rng(seed)
        count = selector.n_features_ - len(fixed)
        draws = _DRAWS if 0 < count < len(free) else 0
        random = [np.sort(np.append(fixed, rng.choice(free, count, replace=False))) for _ in range(draws)]
        return Selection(
            selector, len(test), score(everything), score(np.flatnonzero(selector.support_)), list(map(score, random))
        )


def _split(table: Table, folds: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to search with and rows to hold out; of each class as many as it has, in proportion."""
    if not 0 < share < 1:
        raise ValueError(f"test-share: expected a number above 0 and below 1, got {share}")
    rows, held = np.arange(len(table.target)), round(share * len(table.target))
    if held < max(2, len(table.classes or ())) or held >= len(rows):
        what = "two rows" if table.classes is None else "as many rows as there are classes"
        raise ValueError(f"test-share: expected a share that holds out {what}, got {share} of {len(rows)} rows")
    if table.classes is None:
        search, test = train_test_split(rows, test_size=held, random_state=seed)
        if len(search) < 2 * folds:
            raise ValueError(f"cv: expected two rows in each fold, got {folds} folds of {len(search)} rows")
        return search, test
    total = np.bincount(table.target)
    _check_classes(total, 2, table.classes, folds)
    search, test = train_test_split(rows, test_size=held, random_state=seed, stratify=table.target)
    _check_classes(np.bincount(table.target[search], minlength=len(total)), folds, table.classes, folds)
    return search, test


def _check_classes(counts: NDArray[np.intp], needed: int, classes: list[str], folds: int) -> None:
    if counts.min() < needed:
        rare = int(counts.argmin())
        raise ValueError(
            f"cv: expected at most as many folds as there are rows of each class to search with, got {folds}, "
            f"and {counts[rare]} of class {classes[rare]!r}"
        )
