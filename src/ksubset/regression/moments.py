"""Second moments of data, from which all subsets of its columns are fitted."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.regression.base import units
from ksubset.regression.quadratic import Quadratic

__all__ = ["Fit", "Moments"]

Array = NDArray[np.float64]
# A column that varies by less than this part of its size is constant.
_CONSTANT = 1e-13
# Error of a column, as part of its norm.
_ROUNDING = 1e-15


@dataclass(frozen=True)
class Fit:
    """Least squares on some columns.

    Attributes:
        coefficients: Of these columns, `(k)`.
        intercept: The intercept, 0 if there is none.
        rss: Weighted residual sum of squares, without the penalty.
    """

    coefficients: Array
    intercept: float
    rss: float


class Moments:
    """Centred and scaled data, and what is left of it beside the columns that are always included.

    Arguments:
        x: Data `(N, n)`.
        y: Target `(N)`.
        weights: Of the rows, `(N)`; integers mean repeated rows.
        intercept: Whether there is one, which is not penalised.
        alpha: Penalty on the sum of squared coefficients of the columns, each divided by its standard deviation (root
            mean square without an intercept), in units of the mean squared error.
        always: Columns that are in every subset, indices `(a)`.
        exclude: Columns that are in none.

    Attributes:
        free: Columns that are in some subsets, `(m)`.
        quadratic: Least squares on these, beside `always`, in units of `total`.
        total: Weighted sum of squares of the target with `always` fitted alone, with the penalty.
        num_rows: Sum of the weights.
    """

    def __init__(
        self, x: Array, y: Array, weights: Array, *, intercept: bool, alpha: float, always: NDArray[np.int64],
        exclude: NDArray[np.int64],
    ) -> None:  # fmt: skip
        self.num_rows = float(weights.sum())
        self.free = np.setdiff1d(np.arange(x.shape[1]), np.union1d(always, exclude))
        self._always, self._alpha = always, alpha
        kept = weights > 0
        root = np.sqrt(weights[kept])[:, None]
        self._unit = units(x[kept])
        x, y = x[kept] / self._unit, y[kept]
        size, target_size = np.abs(x).max(0), np.abs(y).max()
        self._mean = weights[kept] @ x / self.num_rows if intercept else np.zeros(x.shape[1])
        self._target_mean = float(weights[kept] @ y / self.num_rows) if intercept else 0.0
        x, y = x - self._mean, y - self._target_mean
        if intercept:
            # The means are rounded, and the larger they are the more.
            more, target_more = weights[kept] @ x / self.num_rows, float(weights[kept] @ y / self.num_rows)
            x, y = x - more, y - target_more
            self._mean, self._target_mean = self._mean + more, self._target_mean + target_more
        self._x = x * root
        self._y = y * root[:, 0]
        self._scale = np.sqrt(np.square(self._x).sum(0))
        most = np.sqrt(self.num_rows)
        self._scale[self._scale <= _CONSTANT * size * most] = 0
        self._x *= np.divide(1, self._scale, out=np.zeros_like(self._scale), where=self._scale > 0)
        # By what they were rounded before they were centred, as a part of what is left, in units of _ROUNDING.
        self._rounding, self._target_rounding = np.ones(x.shape[1]), 1.0
        if intercept:
            self._rounding += np.divide(size * most, self._scale, out=np.zeros_like(size), where=self._scale > 0)
            norm = float(np.linalg.norm(self._y))
            self._target_rounding += target_size * most / norm if norm else 0.0
        self.quadratic, self.total = self._reduced()

    def _penalised(self, columns: NDArray[np.int64]) -> tuple[Array, Array]:
        """These columns and the target, with rows for the penalty."""
        x, y = self._x[:, columns], self._y
        if self._alpha:
            penalty = np.eye(len(columns)) * np.sqrt(self._alpha / self.num_rows)
            x, y = np.vstack([x, penalty]), np.concatenate([y, np.zeros(len(columns))])
        return x, y

    def _reduced(self) -> tuple[Quadratic, float]:
        x, y = self._penalised(np.concatenate([self.free, self._always]))
        x, kept, nothing = x[:, : len(self.free)], x[:, len(self.free) :], np.linalg.norm(y) * self._target_rounding
        whole = np.linalg.norm(x, axis=0)
        before = whole * self._rounding[self.free]
        coefficients, target_coefficients = np.zeros(x.shape[1]), 0.0
        dependent = np.finfo(np.float64).eps * max(x.shape)
        if len(self._always):
            left, values, right = np.linalg.svd(kept, full_matrices=False)
            independent = self._independent(self._always, kept, values, right)
            left, inverse = left[:, independent], right[independent].T / values[independent]
            rounding = self._rounding[self._always]
            coefficients = np.linalg.norm(rounding[:, None] * (inverse @ (left.T @ x)), axis=0)
            target_coefficients = float(np.linalg.norm(rounding * (inverse @ (left.T @ y))))
            x, y = x - left @ (left.T @ x), y - left @ (left.T @ y)
        norms, total = np.linalg.norm(x, axis=0), float(np.linalg.norm(y))
        useful = norms > np.maximum(dependent * np.maximum(whole, 1), _ROUNDING * (before + coefficients))
        # Rounding is a larger part of what is left than it was before, and the more so the larger coefficients are.
        left_of = np.divide(before + coefficients, norms, out=np.ones_like(norms), where=useful)
        left_of_target = (nothing + target_coefficients) / total if total else 1.0
        quadratic = Quadratic(
            torch.from_numpy(x * np.divide(1, norms, out=np.zeros_like(norms), where=useful)),
            torch.from_numpy(y / total if total else y),
            torch.from_numpy(_ROUNDING * np.maximum(left_of, 1.0)),
            _ROUNDING * max(float(left_of_target), 1.0),
        )
        return quadratic, total**2

    def columns(self, subset: NDArray[np.int64]) -> NDArray[np.int64]:
        """The columns, ascending, of a subset of `free`, those always included among them."""
        columns: NDArray[np.int64] = np.sort(np.concatenate([self._always, self.free[subset]]))
        return columns

    def fit(self, columns: NDArray[np.int64]) -> Fit:
        """Least squares on these columns by an orthogonal decomposition; of dependent ones the shortest solution."""
        x, y = self._penalised(columns)
        solved = np.zeros(0)
        if len(columns):
            left, values, right = np.linalg.svd(x, full_matrices=False)
            kept = self._independent(columns, x, values, right)
            solved = right[kept].T @ ((left[:, kept].T @ y) / values[kept])
        scale = self._scale[columns]
        coefficients = np.divide(solved, scale, out=np.zeros_like(scale), where=scale > 0)
        rss = float(np.square(self._y - self._x[:, columns] @ solved).sum())
        intercept = self._target_mean - float(self._mean[columns] @ coefficients)
        return Fit(coefficients / self._unit[columns], intercept, rss)

    def _independent(self, columns: NDArray[np.int64], x: Array, values: Array, right: Array) -> NDArray[np.bool_]:
        """Which singular values of these columns, `x`, are more than rounding; `right` holds their vectors as rows."""
        rounding = _ROUNDING * np.linalg.norm(right * self._rounding[columns], axis=1)
        dependent = float(np.finfo(np.float64).eps) * max(x.shape) * values[:1]
        independent: NDArray[np.bool_] = (values > rounding) & (values > dependent)
        return independent
