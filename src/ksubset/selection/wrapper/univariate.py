"""Univariate scores: how much each column by itself says of the target, which is where a search starts."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.feature_selection import f_classif, f_regression
from sklearn.utils import check_array

from ksubset.selection._sklearn import safe_indexing
from ksubset.selection.groups import take_rows

__all__ = ["univariate_scores"]

_MOST = 8.0
"""Beyond so many standard deviations everything is equally sure."""
_ROWS = 5_000
"""Rows at most; more would not change where a search starts."""


def univariate_scores(data: Any, target: NDArray[Any] | None, *, classify: bool) -> NDArray[np.float64]:
    """Evidence that the target depends on a column, as a one-sided normal score; of several targets the strongest.

    It has the p-value of an F-test: on a column's mean in each class, on its correlation with a numeric target or, for
    text and categories, on the target's mean in each of them. A column that says something only together with others
    gets next to nothing, and so does every column where there is no target. Of many rows 5,000 are taken, evenly
    spaced.

    Arguments:
        data: `(N, n)` in any container; missing numbers count as the mean of their column.
        target: `(N)` or `(N, m)`.
        classify: Whether targets are classes rather than numbers.

    Returns:
        `(n)`, from 0 to 8.
    """
    if target is None:
        return np.zeros(data.shape[1])
    if len(target) > _ROWS:
        some = np.linspace(0, len(target) - 1, _ROWS).astype(np.intp)
        data, target = take_rows(data, some), target[some]
    discrete = classify or target.dtype.kind not in "biuf"
    targets = target.reshape(len(target), -1).T
    # Both tests warn of columns that are constant, or follow the target exactly, and have the right limit there.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        p = np.array([_p_values(data, one, discrete) for one in targets])
    scores: NDArray[np.float64] = norm.isf(np.where(np.isnan(p), 1.0, p)).clip(0, _MOST).max(0)
    return scores


def _p_values(data: Any, target: NDArray[Any], discrete: bool) -> NDArray[np.float64]:
    if hasattr(data, "tocsc") or (isinstance(data, np.ndarray) and data.dtype.kind in "biuf"):
        return _of_numbers(data, target, discrete)
    p, numbers = np.ones(data.shape[1]), {}
    for place in range(data.shape[1]):
        column = safe_indexing(data, [place], axis=1)
        try:
            numbers[place] = check_array(column, dtype=np.float64, ensure_all_finite=False)
        except (TypeError, ValueError):
            p[place] = _of_categories(np.asarray(column).ravel(), target, discrete)
    if numbers:
        p[list(numbers)] = _of_numbers(np.hstack(list(numbers.values())), target, discrete)
    return p


def _of_numbers(columns: Any, target: NDArray[Any], discrete: bool) -> NDArray[np.float64]:
    if hasattr(columns, "tocsc"):
        columns = columns.tocsc(copy=True)
        columns.data = np.nan_to_num(columns.data, posinf=0, neginf=0)
    elif not (finite := np.isfinite(columns)).all():
        means = np.where(finite, columns, 0).sum(0) / np.maximum(finite.sum(0), 1)
        columns = np.where(finite, columns, means)
    statistic, p = (f_classif if discrete else f_regression)(columns, target)
    # Below 0 it is of a correlation of 1 that was rounded up.
    return np.where(statistic < 0, 0.0, p)


def _of_categories(column: NDArray[Any], target: NDArray[Any], discrete: bool) -> float:
    levels, codes = np.unique(column.astype(str), return_inverse=True)
    if 2 * len(levels) > len(column):
        return 1.0
    values = (target[:, None] == np.unique(target)).astype(float) if discrete else target[:, None]
    p = f_classif(values, codes)[1]
    # The least of several p-values is small by luck.
    return min(1.0, len(p) * float(np.nanmin(p, initial=1.0)))
