"""What each item adds to the value near a walk, learned from the swaps that were tried."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["Effects"]

# Of the noise, by which all variances grow when the walk moves, as effects are those beside the present members.
_DRIFT = 0.2
# Standard deviations at which residuals are cut off.
_OUTLIER = 5.0
# Weight of the last residual in the noise.
_MEMORY = 0.02


class Effects:
    """Independent normal beliefs on what each place adds to the value, and what additive effects leave unexplained.

    A swap shows a sum of differences of effects; the beliefs are those of a Kalman filter that keeps no covariances,
    so that learning costs no more than the swap has items. Proposals draw from the beliefs (Thompson sampling): what
    is not known well is tried, too.

    Arguments:
        count: Places F.
        rng: Of the draws.
    """

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._mean, self._variance = np.zeros(count), np.zeros(count)
        self._noise = 0.0

    def learn(self, out: NDArray[np.int64], into: NDArray[np.int64], difference: float) -> None:
        """Take what it has made of the value that places `out` were replaced by as many others, both `(m)`."""
        count, mean, variance = len(out), self._mean, self._variance
        if self._noise == 0:
            # Nothing is known but this: half of it is thought to be of effects.
            self._noise = min(abs(difference), 1e100) ** 2 / (2 * count)
            variance[:] = self._noise
        explained = float(variance[out].sum() + variance[into].sum())
        total = explained + count * self._noise
        if total == 0:
            return
        # A penalty in a value is no effect of that size.
        limit = _OUTLIER * math.sqrt(total)
        residual = min(max(difference - float(mean[into].sum() - mean[out].sum()), -limit), limit)
        for places, sign in ((out, -1.0), (into, 1.0)):
            gain = variance[places] / total
            mean[places] += sign * residual * gain
            variance[places] *= 1 - gain
        # The mean square of residuals is that of noise and beliefs; but some of it is always noise.
        square = max(residual**2 - explained, 0.1 * residual**2) / count
        self._noise += _MEMORY * (square - self._noise)

    def moved(self) -> None:
        """The walk has other members now, beside which effects are not quite the same."""
        self._variance += _DRIFT * self._noise

    def draw(self) -> NDArray[np.float64]:
        """Effects as they may be, `(F)`."""
        drawn: NDArray[np.float64] = self._rng.standard_normal(len(self._mean))
        drawn *= np.sqrt(self._variance)
        drawn += self._mean
        return drawn
