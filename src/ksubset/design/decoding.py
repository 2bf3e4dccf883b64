r"""Errors of linear decoding from sensors, left out one at a time, for all sensors at once.

From readings X `(m, n)` of n possible sensors in m snapshots, a set S predicts targets Z `(m, c)` by ridge regression.
With :math:`P = I - 11^\top / m - X_S (X_S^\top X_S + \lambda)^{-1} X_S^\top` (X and Z centred), the residual of
snapshot i of a decoder that was fitted without it is :math:`(P Z)_i / P_{ii}`, so that the sum of its squares,

.. math:: E(S) = \sum_i (P K P)_{ii} / P_{ii}^2, \qquad K = Z Z^\top,

needs no more of the targets than their Gram matrix: the field itself, classes and other quantities cost the same.

Sets are compared by this error and that which noise of the sensors adds, of the variance :math:`\lambda / m` for which
the ridge is made. Among as many sets as there are, E alone is least where it is so by chance, above all with more
sensors than a few snapshots can tell apart; noise prefers sets that agree with each other.

A sensor more or less changes P by a matrix of rank one. With :math:`Q = P X` and :math:`T = P K P X` at hand, the
errors of all sets with one sensor more take O(m n), and so does the update of both.

References:
    Allen (1974), https://doi.org/10.1080/00401706.1974.10489157, for residuals of rows left out (PRESS).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Decoding", "LeaveOneOut"]

_COLUMNS = 4096
_NUMBERS = 4_000_000
# Without noise, as a share of a sensor's sum of squares: enough for two sensors with the same readings.
_LEAST_RIDGE = 1e-10
_ROUNDING = 1e-13
_RIDGES = 10.0 ** torch.arange(-10, 1, dtype=torch.float64)


@dataclass(frozen=True)
class LeaveOneOut:
    """A set of sensors, and what is needed to change it.

    Arguments:
        projection: P, `(m, m)`.
        rest: Q, `(m, n)`.
        spread: T, `(m, n)`.
        residual: Diagonal of P K P, `(m)`.
        trace: Of P K.
    """

    projection: Tensor
    rest: Tensor
    spread: Tensor
    residual: Tensor
    trace: Tensor


class Decoding:
    """Leave-one-out errors of sets of sensors, as shares of the sum of squares of the targets.

    Arguments:
        readings: X, of all possible sensors, `(m, n)`, float64.
        targets: Z, `(m, c)`, float64.
        noise: Standard deviation of the noise of sensors, of which the ridge is m times the square. None for readings
            as they are; the ridge is then chosen by `choose_ridge`.
    """

    def __init__(self, readings: Tensor, targets: Tensor, noise: float | None) -> None:
        self.readings = readings - readings.mean(0)
        centred = targets - targets.mean(0)
        self._gram = centred @ centred.T
        self._total = self._gram.trace()
        self._noisy = noise is not None
        self._scale = float(self.readings.square().sum(0).mean())
        self.ridge = max(_LEAST_RIDGE * self._scale, len(readings) * (noise or 0.0) ** 2)

    def choose_ridge(self, subset: Tensor) -> None:
        """Take the ridge with the least error of a set `(k)`, unless the noise says it."""
        if not self._noisy:
            ridges = (self._scale * _RIDGES).tolist()
            errors = [float(self._errors(subset[None], ridge, noisy=False)) for ridge in ridges]
            self.ridge = ridges[errors.index(min(errors))]

    def errors(self, subsets: Tensor) -> Tensor:
        """Errors of sets, each from the beginning: `(S, k)` -> `(S)`."""
        m, k = len(self.readings), subsets.shape[1]
        step = max(1, _NUMBERS // (m * (k + 1)))
        return torch.cat([self._errors(part, self.ridge, noisy=True) for part in subsets.split(step)])

    def told(self, subset: Tensor) -> float:
        """The error to be expected of a set `(k)`: without noise of the sensors where none was given."""
        return float(self._errors(subset[None], self.ridge, noisy=self._noisy))

    def _errors(self, subsets: Tensor, ridge: float, *, noisy: bool) -> Tensor:
        m, k = len(self.readings), subsets.shape[1]
        chosen = self.readings.T[subsets]
        inner = chosen @ chosen.mT + ridge * torch.eye(k, dtype=chosen.dtype)
        basis = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), chosen, upper=False)
        image = basis @ self._gram
        left = 1 - 1 / m - basis.square().sum(1)
        explained = (image * basis).sum(1)
        residual = self._gram.diagonal() - 2 * explained + (basis * ((image @ basis.mT) @ basis)).sum(1)
        return self._shares(residual, left, self._total - explained.sum(1), noisy=noisy)

    def _shares(self, residual: Tensor, left: Tensor, trace: Tensor, *, noisy: bool = True) -> Tensor:
        """Errors from the diagonals of P K P and P, and the trace of P K, by the last but one dimension for columns."""
        # Where a set explains all snapshots exactly, both are rounding, which must not pass for a small error.
        floor = _ROUNDING * self._gram.diagonal()
        error = (residual.maximum(floor) / left.clamp(min=1e-12).square()).sum(-1)
        if noisy:
            # The squares of the coefficients, times the variance of the noise in all snapshots.
            error = error + trace - residual.sum(-1)
        return error / self._total

    def of(self, subset: Tensor) -> LeaveOneOut:
        """The state of a set `(k)`, from the beginning."""
        m = len(self.readings)
        chosen = self.readings[:, subset]
        identity = torch.eye(m, dtype=chosen.dtype)
        projection = identity - 1 / m - chosen @ self._inverse(chosen) @ chosen.T
        spread = projection @ self._gram
        return LeaveOneOut(
            projection, projection @ self.readings, spread @ projection @ self.readings,
            (spread * projection).sum(1), spread.trace(),
        )  # fmt: skip

    def _inverse(self, chosen: Tensor) -> Tensor:
        inner = chosen.T @ chosen + self.ridge * torch.eye(chosen.shape[1], dtype=chosen.dtype)
        return torch.cholesky_inverse(torch.linalg.cholesky(inner))

    def coefficients(self, subset: Tensor, targets: Tensor) -> Tensor:
        """Of the decoder of a set `(k)` for targets `(m, c)`, `(k, c)`."""
        chosen = self.readings[:, subset]
        return self._inverse(chosen) @ (chosen.T @ (targets - targets.mean(0)))

    def error(self, state: LeaveOneOut) -> float:
        """The error of a state."""
        return float(self._shares(state.residual, state.projection.diagonal(), state.trace))

    def with_each(self, state: LeaveOneOut) -> Tensor:
        """Errors with one sensor more, for each of all sensors, `(n)`."""
        blocks = zip(*(x.split(_COLUMNS, 1) for x in (self.readings, state.rest, state.spread)), strict=True)
        present, errors = state.projection.diagonal()[:, None], []
        for readings, rest, spread in blocks:
            length, moved = self.ridge + (readings * rest).sum(0), (readings * spread).sum(0)
            scaled = rest / length
            residual = state.residual[:, None] - 2 * scaled * spread + scaled.square() * moved
            left = present - scaled * rest
            errors.append(self._shares(residual.T, left.T, state.trace - moved / length))
        return torch.cat(errors)

    def add(self, state: LeaveOneOut, sensor: int) -> LeaveOneOut:
        """With a sensor more."""
        column = state.rest[:, sensor]
        return self._changed(state, column, self.ridge + self.readings[:, sensor] @ column)

    def remove(self, state: LeaveOneOut, subset: Tensor, place: int) -> LeaveOneOut:
        """Without the sensor at a place of the set `(k)` of a state."""
        chosen = self.readings[:, subset]
        inverse = self._inverse(chosen)
        return self._changed(state, chosen @ inverse[:, place], -inverse[place, place])

    def _changed(self, state: LeaveOneOut, vector: Tensor, length: Tensor) -> LeaveOneOut:
        """With `P - v v' / length` instead of P."""
        product = self._gram @ vector
        image, square = state.projection @ product, vector @ product
        seen = (vector @ self.readings) / length
        other = (product @ state.rest) / length - square / length * seen
        return LeaveOneOut(
            state.projection - torch.outer(vector, vector / length),
            torch.addr(state.rest, vector, seen, alpha=-1),
            torch.addr(torch.addr(state.spread, image, seen, alpha=-1), vector, other, alpha=-1),
            state.residual - 2 * vector * image / length + vector.square() * square / length**2,
            state.trace - square / length,
        )
