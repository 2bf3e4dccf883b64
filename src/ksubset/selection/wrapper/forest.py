"""Importances in a forest: how much each column says of the target together with others, which a search starts from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.utils import check_array

from ksubset.selection._sklearn import safe_indexing
from ksubset.selection.groups import take_rows

__all__ = ["forest_scores"]

_TREES = 200
_ROWS = 1_000
_MOST = 8.0
"""As of univariate scores."""


def forest_scores(data: Any, target: NDArray[Any], *, classify: bool, seed: int) -> NDArray[np.float64]:
    """Twice the logarithm of one and a column's importance in extremely randomized trees, over the mean importance.

    That is 0 for a column that no tree has use for. Of many rows 1,000 are taken, evenly spaced.

    Arguments:
        data: `(N, n)` in any container; missing numbers count as the mean of their column, and text and categories as
            numbers in the order of their values.
        target: `(N)` or `(N, m)`.
        classify: Whether targets are classes rather than numbers.
        seed: Of the trees.

    Returns:
        `(n)`, from 0 to 8.

    References:
        Geurts, Ernst and Wehenkel (2006), Extremely randomized trees, Machine Learning 63(1).
    """
    if len(target) > _ROWS:
        some = np.linspace(0, len(target) - 1, _ROWS).astype(np.intp)
        data, target = take_rows(data, some), target[some]
    if classify or target.dtype.kind not in "biuf":
        codes = [np.unique(one, return_inverse=True)[1] for one in target.reshape(len(target), -1).T]
        forest, target = ExtraTreesClassifier(_TREES, random_state=seed), np.stack(codes, 1)
    else:
        forest = ExtraTreesRegressor(_TREES, max_features="sqrt", random_state=seed)
        target = target.reshape(len(target), -1)
    forest.fit(_numbers(data), target[:, 0] if target.shape[1] == 1 else target)
    shares = forest.feature_importances_ * data.shape[1]
    scores: NDArray[np.float64] = (2 * np.log1p(shares)).clip(0, _MOST)
    return scores


def _numbers(data: Any) -> Any:
    """`(N, n)`, an array or a sparse matrix that trees take."""
    if hasattr(data, "tocsc"):
        data = data.tocsc(copy=True).astype(np.float64)
        data.data = _within_range(np.nan_to_num(data.data, posinf=0, neginf=0))
        return data
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "biuf":
        data = np.stack([_column(safe_indexing(data, [place], axis=1)) for place in range(data.shape[1])], 1)
    finite = np.isfinite(data)
    means = np.where(finite, data, 0).sum(0) / np.maximum(finite.sum(0), 1)
    return _within_range(np.where(finite, data, means))


def _within_range(values: NDArray[Any]) -> NDArray[np.float64]:
    """Trees hold float32."""
    within: NDArray[np.float64] = np.asarray(values, dtype=np.float64).clip(-1e30, 1e30)
    return within


def _column(column: Any) -> NDArray[np.float64]:
    try:
        numbers: NDArray[np.float64] = check_array(column, dtype=np.float64, ensure_all_finite=False).ravel()
    except (TypeError, ValueError):
        numbers = np.unique(np.asarray(column).ravel().astype(str), return_inverse=True)[1].astype(np.float64)
    return numbers
