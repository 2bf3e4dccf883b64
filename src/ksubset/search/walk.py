"""A point, and the swaps from it that were not tried yet."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ksubset.search.archive import Archive, Keys
from ksubset.search.space import SearchSpace

__all__ = ["Walk"]

# Random swaps that were all tried before, after which the rest are listed.
_REPEATED = 30


class Walk:
    """The point that swaps start from.

    Arguments:
        space: What may be chosen.
        archive: Points in it are not proposed again.
        keys: Of points.
        rng: Of random swaps.
    """

    def __init__(self, space: SearchSpace, archive: Archive, keys: Keys, rng: np.random.Generator) -> None:
        self._space, self._archive, self._keys, self._rng = space, archive, keys, rng
        self.value = math.inf
        self.key = 0
        self.members: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.others: NDArray[np.int64] = np.arange(len(space.free))
        self.allowed: NDArray[np.bool_] | None = None
        """Which swaps are feasible, `(K, F - K)`; None for all."""
        self._rest: list[int] | None = None

    def move(self, point: NDArray[np.int64], key: int, value: float) -> None:
        """Go to a point that was evaluated."""
        self.members, self.key, self.value = point, key, value
        inside = np.zeros(len(self._space.free), dtype=bool)
        inside[point] = True
        self.others = np.flatnonzero(~inside)
        self.allowed, self._rest = self._space.swaps(self.members, self.others), None

    def swapped(self, out: int, into: int) -> tuple[NDArray[np.int64], int]:
        """The point with member number `out` replaced by other number `into`, and its key."""
        point = self.members.copy()
        point[out] = self.others[into]
        point.sort()
        of_place = self._keys.of_place
        return point, self.key ^ of_place[int(self.members[out])] ^ of_place[int(self.others[into])]

    def is_new(self, out: int, into: int, pending: Mapping[int, str]) -> bool:
        """Whether a swap is feasible, and was not tried, nor is it at present."""
        if self.allowed is not None and not self.allowed[out, into]:
            return False
        of_place = self._keys.of_place
        key = self.key ^ of_place[int(self.members[out])] ^ of_place[int(self.others[into])]
        return key not in self._archive.rows and key not in pending

    def random_swap(self, pending: Mapping[int, str]) -> tuple[int, int] | None:
        """A swap that was not tried, each with the same probability; None if there is none left."""
        width = len(self.others)
        total = len(self.members) * width
        if self._rest is None:
            if total == 0:
                return None
            for code in self._rng.integers(total, size=_REPEATED):
                swap = divmod(int(code), width)
                if self.is_new(swap[0], swap[1], pending):
                    return swap
            codes = np.arange(total) if self.allowed is None else np.flatnonzero(self.allowed)
            self._rest = self._rng.permutation(codes).tolist()
        while self._rest:
            swap = divmod(self._rest.pop(), width)
            if self.is_new(swap[0], swap[1], pending):
                return swap
        return None

    def kick(self, point: NDArray[np.int64], strength: int) -> NDArray[np.int64]:
        """A point so many random feasible swaps away from another; less if there are not as many."""
        point = point.copy()
        for _ in range(strength):
            others = np.setdiff1d(np.arange(len(self._space.free)), point)
            allowed = self._space.swaps(point, others)
            total = len(point) * len(others)
            codes = np.arange(total) if allowed is None else np.flatnonzero(allowed)
            if not len(codes):
                break
            out, into = divmod(int(self._rng.choice(codes)), len(others))
            point[out] = others[into]
        point.sort()
        return point
