"""Every subset that was evaluated, and its values."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["Archive", "Keys"]


class Keys:
    """Numbers that tell points apart: the exclusive or of a random number of 128 bits for each of its places.

    Two of a billion points have the same one with a probability of 1e-21, and a swap changes it in no time.

    Arguments:
        count: Places F.
    """

    def __init__(self, count: int) -> None:
        # The seed is of no consequence, but results shall not depend on chance that is not the user's.
        halves = np.random.default_rng(0).integers(2**63, size=(count, 2)).tolist()
        self.of_place = [high << 64 | low for high, low in halves]

    def of(self, point: NDArray[np.int64]) -> int:
        """The key of a point `(K)`."""
        key = 0
        for place in point.tolist():
            key ^= self.of_place[place]
        return key


class Archive:
    """Points and the sums of their values, a row for each point."""

    def __init__(self) -> None:
        self.points: list[NDArray[np.int64]] = []
        """Ascending places, `(K)` each."""
        self.mean: list[float] = []
        self.count: list[int] = []
        self._squares = 0.0
        self.rows: dict[int, int] = {}
        """Row of each key."""
        self.evaluations = 0

    def add(self, key: int, point: NDArray[np.int64], value: float) -> int:
        """Enter a value of a point; returns its row."""
        self.evaluations += 1
        row = self.rows.setdefault(key, len(self.points))
        if row == len(self.points):
            self.points.append(point)
            self.mean.append(value)
            self.count.append(1)
            return row
        self.count[row] += 1
        before = self.mean[row]
        self.mean[row] = before + (value - before) / self.count[row] if before < math.inf else math.inf
        if value < math.inf and before < math.inf:
            self._squares += (value - before) * (value - self.mean[row])
        else:
            self.mean[row] = math.inf
        return row

    @property
    def noise(self) -> float:
        """Variance of a value, pooled over all points with several; infinite while there is none."""
        degrees = self.evaluations - len(self.points)
        return self._squares / degrees if degrees else math.inf
