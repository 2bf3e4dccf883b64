"""What best subset regression and classification share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ksubset.regression.sizes import CRITERIA, check_sizes
from ksubset.search.arguments import check_integer
from ksubset.selection._sklearn import check_sample_weight
from ksubset.selection.arguments import positions

__all__ = ["BestSubset", "units"]

Columns = NDArray[np.int64]


def units(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """A power of two for each column, so that the largest value in these units is from 1 to 2, or 0: squares of them
    neither overflow nor vanish, and no digit is lost.
    """
    powers: NDArray[np.float64] = np.ldexp(1.0, np.frexp(np.abs(x).max(0))[1] - 1)
    return powers


class BestSubset(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Checks of arguments, and the columns that are kept."""

    def _checked(self, X: Any, sample_weight: Any) -> tuple[NDArray[np.float64], list[int], Columns, Columns]:
        """Weights `(N)`, sizes, and the columns that are always and never included."""
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight: expected weights of 0 or more, and not all of them zero")
        if self.criterion not in {*CRITERIA, "cv"}:
            raise ValueError(f"criterion: expected one of {[*CRITERIA, 'cv']}, got {self.criterion!r}")
        check_integer("n_starts", self.n_starts, 0)
        places = {name: place for place, name in enumerate(getattr(self, "feature_names_in_", ()))}
        always = np.unique(positions(self.always_include, "always_include", places, X.shape[1]))
        exclude = np.unique(positions(self.exclude, "exclude", places, X.shape[1]))
        if len(both := np.intersect1d(always, exclude)):
            raise ValueError(f"exclude: expected no columns of always_include, got columns {both.tolist()}")
        sizes = check_sizes(self.k, len(always), X.shape[1] - len(exclude), float(weights.sum()))
        return weights, sizes, always, exclude

    def _mask(self, columns: Columns) -> NDArray[np.bool_]:
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[columns] = True
        return mask

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        support: NDArray[np.bool_] = self.support_
        return support
