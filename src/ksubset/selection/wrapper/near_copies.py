"""Columns that say nearly the same, of which a subset needs one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from ksubset.selection._sklearn import safe_indexing
from ksubset.selection.groups import SubsetSpace, take_rows
from ksubset.selection.wrapper.redundancy import firsts

__all__ = ["NearCopies"]

_CORRELATION = 0.99
_ROWS = 1_000
"""Rows at most; by these a correlation of 0.99 is known to 0.001."""


class NearCopies:
    """Which columns are near-copies of each other: with a correlation beyond 0.99, or below -0.99.

    Text and categories are near-copies of nothing. Columns are looked at when they are first asked for, and of many
    rows 1,000, evenly spaced: there is no matrix of columns by columns.

    Arguments:
        data: `(N, n)` in any container; missing numbers count as the mean of their column.
    """

    def __init__(self, data: Any) -> None:
        some = np.linspace(0, data.shape[0] - 1, min(data.shape[0], _ROWS)).astype(np.intp)
        data = data if len(some) == data.shape[0] else take_rows(data, some)
        self._data = data.tocsc() if hasattr(data, "tocsc") else data
        self._directions: dict[int, NDArray[np.float32]] = {}

    def alike(self, space: SubsetSpace, items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which free groups `(m)` have columns that are near-copies of each other.

        Returns:
            `(m, m)`; on the diagonal whether a group has a near-copy of a column that is kept always.
        """
        groups = [*space.free[items].tolist(), *space.always.tolist()]
        if not groups:
            return np.zeros((0, 0), dtype=bool)
        columns = [space.members[group].tolist() for group in groups]
        directions = np.stack([self._direction(column) for group in columns for column in group])
        first = np.cumsum([0, *map(len, columns[:-1])])
        alike = np.abs(directions @ directions.T) > _CORRELATION
        alike = np.logical_or.reduceat(np.logical_or.reduceat(alike, first, 0), first, 1)
        found: NDArray[np.bool_] = alike[: len(items), : len(items)]
        np.fill_diagonal(found, alike[: len(items), len(items) :].any(1))
        return found

    def repeating(self, columns: NDArray[np.intp], correlation: float) -> NDArray[np.bool_]:
        """Which of some columns `(m)` correlate with one before that does not itself, in size by more than this."""
        directions = np.stack([self._direction(column) for column in columns.tolist()])
        alike = np.abs(directions @ directions.T) > correlation
        np.fill_diagonal(alike, False)
        return ~firsts(alike)

    def _direction(self, column: int) -> NDArray[np.float32]:
        """The column, less its mean, with length 1; or of length 0."""
        if column not in self._directions:
            self._directions[column] = _direction(safe_indexing(self._data, [column], axis=1))
        return self._directions[column]


def _direction(column: Any) -> NDArray[np.float32]:
    try:
        dense = column.toarray() if hasattr(column, "toarray") else column
        values = check_array(dense, dtype=np.float64, ensure_all_finite=False).ravel()
    except (TypeError, ValueError):
        return np.zeros(column.shape[0], dtype=np.float32)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(len(values), dtype=np.float32)
    # Twice, as squares of what is far from 0, or large, are not exact, or not finite.
    values = np.where(finite, values / max(1.0, float(np.abs(values[finite]).max())), 0.0)
    values = np.where(finite, values - values[finite].mean(), 0.0)
    length = float(np.linalg.norm(values))
    return (values / length if length > 1e-12 else np.zeros_like(values)).astype(np.float32)
