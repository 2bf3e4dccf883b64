"""What a model takes: asked, and looked at, before subsets of columns are searched for it."""

from collections.abc import Collection
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer

from ksubset.selection._sklearn import safe_indexing
from ksubset.selection.groups import is_dataframe

__all__ = ["check_columns_by_name", "is_all_numbers"]


def check_columns_by_name(estimator: Any, always: Collection[str]) -> None:
    """Check that a model of subsets counts on no column that may not be in them; else a ValueError.

    Arguments:
        estimator: With column transformers somewhere, or without.
        always: Names of columns that are in every subset.
    """
    parts = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    for transformer in (part for part in (estimator, *parts) if isinstance(part, ColumnTransformer)):
        for _, _, columns in transformer.transformers:
            listed = [columns] if isinstance(columns, str) else columns
            if callable(columns) or (isinstance(columns, slice) and columns == slice(None)):
                continue
            if not isinstance(listed, slice) and all(isinstance(name, str) and name in always for name in listed):
                continue
            raise ValueError(
                "estimator: expected a ColumnTransformer that takes columns by a function, as make_column_selector is "
                f"one, or those of always_include: each subset has some columns only; got {columns!r}"
            )


def is_all_numbers(data: Any) -> bool:
    """Whether data `(N, n)` has finite numbers alone, which every model takes."""
    if is_dataframe(data):
        columns = (np.asarray(safe_indexing(data, column, axis=1)) for column in range(data.shape[1]))
        return all(column.dtype.kind in "biu" or _is_finite(column) for column in columns)
    values = data.data if hasattr(data, "tocsc") else data
    return values.dtype.kind not in "Of" or _is_finite(values)


def _is_finite(values: Any) -> bool:
    return values.dtype.kind == "f" and bool(np.isfinite(values).all())
