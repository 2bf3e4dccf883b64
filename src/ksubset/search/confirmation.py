"""Fresh values of the few best, where values are noisy."""

import math

import numpy as np
from numpy.typing import NDArray

from ksubset.search.archive import Archive

__all__ = ["Confirmation"]

_FINALISTS = 8


class Confirmation:
    """Fresh values of the few best points, as the best of many noisy values is the luckiest: successive halving.

    Arguments:
        archive: Points and their values so far.
        max_evaluations: A tenth of it is kept; None if that is not known.
    """

    def __init__(self, archive: Archive, max_evaluations: int | None) -> None:
        self._archive = archive
        self.reserve = 0 if max_evaluations is None else max_evaluations // 10
        self.starts_at = math.inf if max_evaluations is None else max_evaluations - self.reserve
        """Evaluations of the search, after which it begins."""
        self.values: dict[int, list[float]] = {}
        """Fresh values by the finalists' rows."""
        self.favourites: list[int] = []
        """Rows of points that all values speak for, the last one best known."""
        self._left: list[int] = []
        self._asked: list[int] = []
        self.due = False
        self.evaluations = 0

    def begin(self, reserve: int) -> None:
        """Confirm from now on, with so many evaluations."""
        if not self.due and reserve >= 2:
            self.due, self.reserve = True, reserve
            count = min(_FINALISTS, max(2, reserve // 4))
            means, counts = np.array(self._archive.mean), np.array(self._archive.count)
            order = np.argsort(means + 2 * math.sqrt(min(self._archive.noise, 1e300)) / np.sqrt(counts), kind="stable")
            self._left = list(dict.fromkeys([*self.favourites[:-3:-1], *order.tolist()]))[:count]
            self.values = {row: [] for row in self._left}

    def next_point(self) -> NDArray[np.int64] | None:
        """A finalist, those with fewest fresh values first."""
        if self.evaluations + len(self._asked) >= self.reserve:
            return None
        rounds = max(1, math.ceil(math.log2(max(2, len(self.values)))))
        stage = (self.evaluations * rounds) // max(1, self.reserve)
        keep = max(2, len(self.values) >> stage)
        if keep < len(self._left) and all(self.values[row] for row in self._left):
            self._left = sorted(self._left, key=self.mean)[:keep]
        row = min(self._left, key=lambda row: len(self.values[row]) + self._asked.count(row))
        self._asked.append(row)
        return self._archive.points[row]

    def record(self, row: int | None, value: float) -> bool:
        """Take a fresh value, if it is one; returns whether it is."""
        if row is None or row not in self._asked:
            return False
        self._asked.remove(row)
        self.values[row].append(value)
        self.evaluations += 1
        return True

    @property
    def winner(self) -> int | None:
        """Row of the finalist with the least mean of fresh values among those with most."""
        if not self.evaluations:
            return None
        most = max(map(len, self.values.values()))
        rows = [row for row in self._left if len(self.values[row]) >= max(1, most - 1)]
        return min(rows, key=self.mean)

    def mean(self, row: int) -> float:
        """Of a finalist's fresh values that are finite; infinite if there is none."""
        finite = self.finite(row)
        return float(np.mean(finite)) if finite else math.inf

    def finite(self, row: int) -> list[float]:
        """A finalist's fresh values that are finite."""
        return [value for value in self.values[row] if value < math.inf]
