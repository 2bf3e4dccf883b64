"""What a model takes: asked, and looked at, before subsets of columns are searched for it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from ksubset.selection._sklearn import safe_indexing
from ksubset.selection.groups import is_dataframe

__all__ = ["check_columns_by_name", "is_all_numbers"]


def check_columns_by_name(estimator: Any, names: Sequence[str], always: NDArray[np.int64]) -> None:
    """Check that a model of subsets counts on no column that may not be in them; else a ValueError.

    Arguments:
        estimator: With column transformers somewhere, or without.
        names: Of all columns, if they have names.
        always: Columns that are in every subset, ascending.
    """
    named = {names[place] for place in always} if len(names) else set()
    # So many first columns are in every subset, and so in their places.
    in_place = int(np.argmin([*(always == np.arange(len(always))), False]))
    for transformer in _first_to_see(estimator):
        for _, _, columns in transformer.transformers:
            if not (callable(columns) or _has(columns, named, in_place)):
                raise ValueError(
                    "estimator: expected a ColumnTransformer that takes columns by a function, as make_column_selector "
                    f"is one, or those of always_include: each subset has some columns only; got {columns!r}"
                )


def _first_to_see(model: Any) -> Iterator[ColumnTransformer]:
    """The column transformers of a model that are given its columns as they are."""
    if isinstance(model, ColumnTransformer):
        yield model
    elif isinstance(model, Pipeline):
        steps = (step for _, step in model.steps if step is not None and not isinstance(step, str))
        yield from _first_to_see(next(steps, None))
    elif hasattr(model, "get_params") and not isinstance(model, type):
        params = model.get_params(deep=False)
        inner = [params.get(name) for name in ("estimator", "regressor", "classifier")]
        listed = params.get("estimators") or params.get("transformer_list") or ()
        for part in (*inner, *(one[1] for one in listed if isinstance(one, tuple))):
            yield from _first_to_see(part)


def _has(columns: Any, named: Collection[str], in_place: int) -> bool:
    """Whether all subsets have these columns, and in the same places."""
    if isinstance(columns, slice):
        ends = [end for end in (columns.start, columns.stop) if end is not None]
        if ends and all(isinstance(end, str) for end in ends):
            return all(end in named for end in ends)
        start, stop = columns.start or 0, columns.stop
        return start == 0 if stop is None else start >= 0 and 0 <= stop <= in_place
    wanted = [columns] if isinstance(columns, str) or np.ndim(columns) == 0 else list(columns)
    if any(isinstance(one, bool | np.bool_) for one in wanted):
        return False
    return all(one in named if isinstance(one, str) else 0 <= one < in_place for one in wanted)


def is_all_numbers(data: Any) -> bool:
    """Whether data `(N, n)` has finite numbers alone, which every model takes."""
    parts: Iterable[Any] = [data.data if hasattr(data, "tocsc") else data]
    if is_dataframe(data):
        parts = (np.asarray(safe_indexing(data, column, axis=1)) for column in range(data.shape[1]))
    return all(part.dtype.kind in "biu" or (part.dtype.kind == "f" and np.isfinite(part).all()) for part in parts)
