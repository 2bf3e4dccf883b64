r"""What is optimised in the choice of rows: criteria of the information matrix, with all swaps at once.

The information of a design is :math:`M = M_0 + \sum_{i \in S} x_i x_i^\top`. Each criterion has a utility that is
concave in M and larger for better designs. A swap of row x for row y changes M by a matrix of rank two, so that the
utilities of all :math:`k (n - k)` swaps follow from two matrices of size `(k, n)`, and nothing is decomposed anew.

References:
    Fedorov (1972), Theory of Optimal Experiments. Pukelsheim (1993), Optimal Design of Experiments.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "AverageVariance", "Criterion", "Determinant", "Indices", "SmallestEigenvalue"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
_BLOCK = 4096


class Criterion(ABC):
    """A criterion on candidate rows.

    Arguments:
        rows: Candidates, `(n, p)`.
        prior: Information that is there before, `(p, p)`.
    """

    smoothing: ClassVar[tuple[float, ...]] = (0.0,)
    """Shares of the utility by which it is smoothed, one after the other, where it has no derivatives otherwise."""

    def __init__(self, rows: Array, prior: Array) -> None:
        self.rows, self.prior = rows, prior

    def information(self, subsets: Indices) -> Array:
        """Information of designs `(S, k)` -> `(S, p, p)`."""
        chosen = self.rows[subsets]
        matrix: Array = self.prior + chosen.swapaxes(1, 2) @ chosen
        return matrix

    def utilities(self, subsets: Indices) -> Array:
        """Utilities of designs `(S, k)` -> `(S)`; -inf where the information is singular."""
        step = max(1, 16 * _BLOCK // max(1, subsets.shape[1]))
        blocks = [self._of_information(self.information(subsets[i : i + step])) for i in range(0, len(subsets), step)]
        return np.concatenate(blocks)

    @abstractmethod
    def value(self, utility: float) -> float:
        """The criterion in its usual form."""

    @abstractmethod
    def efficiency(self, value: float, bound: float) -> float:
        """How good a value is beside a bound, in [0, 1]; both in the usual form."""

    def magnitude(self, utility: float) -> float:
        """What a difference from a utility is compared with, where it may be no more than rounding."""
        return abs(utility)

    @abstractmethod
    def _of_information(self, information: Array) -> Array: ...

    @abstractmethod
    def swaps(self, subset: Indices, allowed: NDArray[np.bool_]) -> Array:
        """Utilities after each swap, `(k, n)`: row i of a design `(k)` gives way to candidate j.

        They are -inf where a swap is not allowed, and may be where it is worse than the best. The information of the
        design must not be singular.
        """

    @abstractmethod
    def relaxed(self, weights: Array, smoothing: float) -> tuple[float, Array, float]:
        """Utility of a design with weights `(n)`, its derivatives `(n)`, and the constant of a bound.

        With derivatives g and constant c, no design v with weights in [0, 1] has a utility above `c + g v`.

        Arguments:
            weights: Of the candidates, `(n)`.
            smoothing: By how much, up to a factor `log p`, the utility may be lower where it is smoothed.
        """

    def weighted(self, weights: Array) -> Array:
        """Information of a design with weights `(n)` -> `(p, p)`."""
        matrix: Array = self.prior + self.rows.T @ (weights[:, None] * self.rows)
        return matrix


class Determinant(Criterion):
    """D: the p-th root of the determinant, large where the confidence ellipsoid of the coefficients is small."""

    def value(self, utility: float) -> float:
        return math.exp(utility / self.rows.shape[1])

    def efficiency(self, value: float, bound: float) -> float:
        return value / bound

    def magnitude(self, utility: float) -> float:
        # Differences of logarithms are shares already.
        return max(1.0, abs(utility))

    def _of_information(self, information: Array) -> Array:
        sign, logarithm = np.linalg.slogdet(information)
        return np.where((sign > 0) & _regular(information), logarithm, -np.inf)

    def swaps(self, subset: Indices, allowed: NDArray[np.bool_]) -> Array:
        information = self.information(subset[None])[0]
        inverse = np.linalg.inv(information)
        solved = self.rows @ inverse
        cross = self.rows[subset] @ solved.T
        own = (solved * self.rows).sum(1)
        factor = (1 + own) * (1 - own[subset, None]) + cross**2
        with np.errstate(divide="ignore"):
            changed: Array = np.linalg.slogdet(information)[1] + np.log(np.where(allowed, np.maximum(factor, 0), 0))
        return changed

    def relaxed(self, weights: Array, smoothing: float) -> tuple[float, Array, float]:
        information = self.weighted(weights)
        if not _regular(information):
            return -math.inf, np.zeros(len(weights)), math.inf
        slopes = ((self.rows @ np.linalg.inv(information)) * self.rows).sum(1)
        utility = float(np.linalg.slogdet(information)[1])
        return utility, slopes, utility - float(slopes @ weights)


class AverageVariance(Criterion):
    r"""A and I: :math:`\operatorname{tr}(M^{-1} B)`, the variance of coefficients or of predictions.

    Arguments:
        rows, prior: As of `Criterion`.
        moments: B, `(p, p)`: the identity for the sum of the variances of the coefficients (A), the mean of
            :math:`x x^\top` over a region for the mean variance of predictions there (I).
    """

    def __init__(self, rows: Array, prior: Array, moments: Array) -> None:
        super().__init__(rows, prior)
        self._moments = moments

    def value(self, utility: float) -> float:
        return -utility

    def efficiency(self, value: float, bound: float) -> float:
        return bound / value

    def _of_information(self, information: Array) -> Array:
        regular = _regular(information)
        utility = np.full(len(information), -np.inf)
        utility[regular] = -np.trace(np.linalg.solve(information[regular], self._moments), axis1=1, axis2=2)
        return utility

    def swaps(self, subset: Indices, allowed: NDArray[np.bool_]) -> Array:
        inverse = np.linalg.inv(self.information(subset[None])[0])
        solved = self.rows @ inverse
        other = solved @ self._moments @ inverse
        chosen = self.rows[subset]
        cross, cross_other = chosen @ solved.T, chosen @ other.T
        own, own_other = (solved * self.rows).sum(1), (other * self.rows).sum(1)
        # The inverse of the capacitance of the swap is [[own - 1, cross], [cross, own + 1]] with this determinant.
        determinant = (own[subset, None] - 1) * (own + 1) - cross**2
        change = (own + 1) * own_other[subset, None] - 2 * cross * cross_other + (own[subset, None] - 1) * own_other
        with np.errstate(divide="ignore", invalid="ignore"):
            # The determinant of the information has the factor -determinant, which is 0 where it becomes singular.
            changed = -np.trace(inverse @ self._moments) + change / determinant
        return np.where(allowed & (determinant < -1e-12), changed, -np.inf)

    def relaxed(self, weights: Array, smoothing: float) -> tuple[float, Array, float]:
        information = self.weighted(weights)
        if not _regular(information):
            return -math.inf, np.zeros(len(weights)), math.inf
        inverse = np.linalg.inv(information)
        middle = inverse @ self._moments @ inverse
        utility, slopes = -float(np.trace(inverse @ self._moments)), ((self.rows @ middle) * self.rows).sum(1)
        return utility, slopes, utility - float(slopes @ weights)


class SmallestEigenvalue(Criterion):
    """E: the smallest eigenvalue, large where no combination of coefficients is badly known."""

    smoothing = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)

    def value(self, utility: float) -> float:
        return utility

    def efficiency(self, value: float, bound: float) -> float:
        return value / bound

    def _of_information(self, information: Array) -> Array:
        utility: Array = np.where(_regular(information), np.linalg.eigvalsh(information)[:, 0], -np.inf)
        return utility

    def swaps(self, subset: Indices, allowed: NDArray[np.bool_]) -> Array:
        information = self.information(subset[None])[0]
        bounds = np.where(allowed, self._interlaced(information, subset), -np.inf)
        best = present = float(np.linalg.eigvalsh(information)[0])
        changed = np.full(bounds.shape, -np.inf)
        order = np.argsort(-bounds, axis=None)
        order = order[: int((bounds > present).sum())]
        for start in range(0, len(order), _BLOCK):
            out, put = np.unravel_index(order[start : start + _BLOCK], bounds.shape)
            if bounds[out[0], put[0]] <= best:
                break
            old, new = self.rows[subset[out]], self.rows[put]
            moved = information - old[:, :, None] * old[:, None] + new[:, :, None] * new[:, None]
            changed[out, put] = np.linalg.eigvalsh(moved)[:, 0]
            best = max(best, float(changed[out, put].max()))
        return changed

    def _interlaced(self, information: Array, subset: Indices) -> Array:
        """Upper bounds on the smallest eigenvalue after each swap: that of the two smallest eigenvectors' block."""
        values, vectors = np.linalg.eigh(information)
        first = self.rows @ vectors[:, 0]
        a = values[0] - first[subset, None] ** 2 + first**2
        if len(values) > 1:
            second = self.rows @ vectors[:, 1]
            c = values[1] - second[subset, None] ** 2 + second**2
            b = first * second - (first * second)[subset, None]
            a = (a + c) / 2 - np.hypot((a - c) / 2, b)
        bounds: Array = a
        return bounds

    def relaxed(self, weights: Array, smoothing: float) -> tuple[float, Array, float]:
        values, vectors = np.linalg.eigh(self.weighted(weights))
        with np.errstate(over="ignore"):
            shares = np.exp((values[0] - values) / smoothing)
        total = shares.sum()
        # Of trace 1, so that the smallest eigenvalue of any matrix is at most its product with this one.
        density = (vectors * (shares / total)) @ vectors.T
        slopes = ((self.rows @ density) * self.rows).sum(1)
        return float(values[0] - smoothing * math.log(total)), slopes, float((density * self.prior).sum())


def _regular(information: Array) -> NDArray[np.bool_]:
    """Whether matrices `(*B, p, p)` are positive definite beyond rounding -> `(*B)`."""
    values = np.linalg.eigvalsh(information)
    regular: NDArray[np.bool_] = values[..., 0] > 1e-13 * np.maximum(values[..., -1], 1e-300)
    return regular
