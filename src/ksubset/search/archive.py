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
    """Points and the means of their values, a row for each point."""

    def __init__(self) -> None:
        self.points: list[NDArray[np.int64]] = []
        """Ascending places, `(K)` each."""
        self.mean: list[float] = []
        """Of the finite values of each; infinite while there is none."""
        self.count: list[int] = []
        """Values that the mean is of."""
        self.tries: list[int] = []
        """Values, finite or not."""
        self._squares, self._degrees = 0.0, 0
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
            self.tries.append(1)
            return row
        self.tries[row] += 1
        before = self.mean[row]
        if before == math.inf:
            self.mean[row] = value
        elif value < math.inf:
            self.count[row] += 1
            self.mean[row] = before + (value - before) / self.count[row]
            self._squares += (value - before) * (value - self.mean[row])
            self._degrees += 1
        return row

    @property
    def noise(self) -> float:
        """Variance of a value, pooled over all points with several; infinite while there is none."""
        return self._squares / self._degrees if self._degrees else math.inf
