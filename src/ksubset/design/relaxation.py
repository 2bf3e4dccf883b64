"""The relaxed design: weights between 0 and 1 instead of rows, whose criterion bounds that of every design."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ksubset.design.criteria import Array, Criterion

__all__ = ["Relaxed", "relax"]

_STEPS = 2000
_MEMORY = 10


@dataclass(frozen=True)
class Relaxed:
    """A relaxed design, and the bound that goes with it.

    Arguments:
        weights: Between 0 and 1, with sum k, `(n)`.
        bound: On the utility of all designs.
        slopes: What the bound loses by an item less or more, `(n)`: see `forced`.
    """

    weights: Array
    bound: float
    slopes: Array

    def forced(self, utility: float, k: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Items that are in every design of a larger utility, and items that are in none, `(n)` each, boolean."""
        ordered = np.sort(self.slopes)[::-1]
        least, next_one = ordered[k - 1], ordered[k] if k < len(ordered) else -math.inf
        inside = self.bound - (self.slopes - next_one) < utility
        outside = self.bound - (least - self.slopes) < utility
        return inside, outside


def relax(criterion: Criterion, k: int, tolerance: float = 1e-9) -> Relaxed:
    """Maximise a concave criterion over weights between 0 and 1 with sum k, by spectral projected gradients.

    Arguments:
        criterion: What is maximised.
        k: Size of the designs.
        tolerance: Difference of bound and utility at which it ends, as a share of the utility.

    References:
        Birgin, Martínez and Raydan (2000), https://doi.org/10.1137/S1052623497330963.
    """
    weights = np.full(len(criterion.rows), k / len(criterion.rows))
    scale = abs(criterion.relaxed(weights, 1e-300)[0])
    best = Relaxed(weights, math.inf, weights)
    for share in criterion.smoothing:
        weights, found = _ascend(criterion, weights, k, share * scale, tolerance)
        best = min(best, found, key=lambda relaxed: relaxed.bound)
    return Relaxed(weights, best.bound, best.slopes)


def _ascend(criterion: Criterion, weights: Array, k: int, smoothing: float, tolerance: float) -> tuple[Array, Relaxed]:
    utility, slopes, constant = criterion.relaxed(weights, smoothing)
    history = [utility]
    length = 1 / np.abs(slopes).max()
    best = Relaxed(weights, math.inf, slopes)
    for _ in range(_STEPS):
        most = float(np.partition(slopes, len(slopes) - k)[len(slopes) - k :].sum())
        if constant + most < best.bound:
            best = Relaxed(weights, constant + most, slopes)
        # By so much a smoothed utility can be larger elsewhere; more exactly than it is smoothed nobody has to know.
        if most - float(slopes @ weights) <= max(tolerance * criterion.magnitude(utility), 0.1 * smoothing):
            break
        direction = project(weights + length * slopes, k) - weights
        rise, step = float(slopes @ direction), 1.0
        floor = min(history[-_MEMORY:])
        while True:
            tried = criterion.relaxed(weights + step * direction, smoothing)
            if tried[0] >= floor + 1e-4 * step * rise:
                break
            step /= 2
            if step < 1e-12:
                return weights, best
        moved, bent = step * direction, slopes - tried[1]
        curvature = float(moved @ bent)
        weights = weights + moved
        utility, slopes, constant = tried
        history.append(utility)
        length = float(moved @ moved) / curvature if curvature > 0 else 1e6 / np.abs(slopes).max()
    return weights, best


def project(point: Array, k: int) -> Array:
    """The nearest point with entries between 0 and 1 and sum k: `(n)` -> `(n)`."""
    # The sum of clip(point - t, 0, 1) is linear in t between these.
    knots = np.unique(np.concatenate([point, point - 1]))
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if np.clip(point - knots[middle], 0, 1).sum() >= k else (low, middle)
    sums = [np.clip(point - knots[at], 0, 1).sum() for at in (low, high)]
    share = (sums[0] - k) / (sums[0] - sums[1]) if sums[0] > sums[1] else 0.0
    clipped: Array = np.clip(point - (knots[low] + share * (knots[high] - knots[low])), 0, 1)
    return clipped
