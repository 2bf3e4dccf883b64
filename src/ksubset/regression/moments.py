"""Second moments of data, from which all subsets of its columns are fitted."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.regression.quadratic import Quadratic

__all__ = ["Fit", "Moments"]

Array = NDArray[np.float64]
# A column that varies by less than this part of its size is constant, and one of whose square less than this part is
# left beside the columns that are always included depends on them.
_CONSTANT, _DEPENDENT = 1e-13, 1e-11


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
        x, y = x[kept], y[kept]
        size = np.abs(x).max(0)
        self._mean = weights[kept] @ x / self.num_rows if intercept else np.zeros(x.shape[1])
        self._target_mean = float(weights[kept] @ y / self.num_rows) if intercept else 0.0
        self._x = (x - self._mean) * root
        self._y = (y - self._target_mean) * root[:, 0]
        self._scale = np.sqrt(np.square(self._x).sum(0))
        self._scale[self._scale <= _CONSTANT * size * np.sqrt(self.num_rows)] = 0
        self._x *= np.divide(1, self._scale, out=np.zeros_like(self._scale), where=self._scale > 0)
        self.quadratic, self.total = self._reduced()

    def _reduced(self) -> tuple[Quadratic, float]:
        gram = self._x.T @ self._x
        gram[np.diag_indices_from(gram)] += self._alpha / self.num_rows * (self._scale > 0)
        product, total = self._x.T @ self._y, float(self._y @ self._y)
        nothing = total
        if len(self._always):
            inner = np.linalg.pinv(gram[np.ix_(self._always, self._always)], rcond=_DEPENDENT, hermitian=True)
            rows = gram[self._always]
            total = max(0.0, total - float(product[self._always] @ inner @ product[self._always]))
            product = product - rows.T @ (inner @ product[self._always])
            gram = gram - rows.T @ inner @ rows
        gram, product = gram[np.ix_(self.free, self.free)], product[self.free]
        scale = np.sqrt(np.diagonal(gram).clip(0))
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > np.sqrt(_DEPENDENT))
        # A target that is fitted already is no longer anything but rounding.
        unit = np.sqrt(total) if total > 1e-28 * nothing else np.inf
        gram = gram * inverse[:, None] * inverse
        gram[np.diag_indices_from(gram)] = inverse > 0
        quadratic = Quadratic(
            torch.from_numpy(gram),
            torch.from_numpy(product * inverse / unit),
            1.0 if np.isfinite(unit) else 0.0,
        )
        return quadratic, total

    def columns(self, subset: NDArray[np.int64]) -> NDArray[np.int64]:
        """The columns, ascending, of a subset of `free`, those always included among them."""
        columns: NDArray[np.int64] = np.sort(np.concatenate([self._always, self.free[subset]]))
        return columns

    def fit(self, columns: NDArray[np.int64]) -> Fit:
        """Least squares on these columns by an orthogonal decomposition; of dependent ones the shortest solution."""
        x, y = self._x[:, columns], self._y
        if self._alpha and len(columns):
            x = np.vstack([x, np.sqrt(self._alpha / self.num_rows) * np.eye(len(columns))])
            y = np.concatenate([y, np.zeros(len(columns))])
        solved = np.linalg.lstsq(x, y, rcond=None)[0]
        scale = self._scale[columns]
        coefficients = np.divide(solved, scale, out=np.zeros_like(scale), where=scale > 0)
        rss = float(np.square(self._y - self._x[:, columns] @ solved).sum())
        return Fit(coefficients, self._target_mean - float(self._mean[columns] @ coefficients), rss)
