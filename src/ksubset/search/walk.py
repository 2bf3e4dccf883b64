"""A point, and where to go from it."""

import math
from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ksubset.search.archive import Archive, Keys
from ksubset.search.effects import Effects
from ksubset.search.space import SearchSpace

__all__ = ["Swap", "Walk"]

# Shares of proposals in which neither side of a swap is chosen by what was learned, so that it may be wrong, and in
# which one side is not: of two items that replace each other well, neither is good by itself.
_UNIFORM, _ONE_SIDED = 0.1, 0.225
# Factors of the number of items swapped at a time, after an improvement and without one: steady at one in five.
_WIDER, _NARROWER = 1.3, 0.93


@dataclass(frozen=True)
class Swap:
    """A point near another.

    Arguments:
        point: `(K)`, ascending places.
        key: Of the point.
        out, into: `(m)`, places that are not in it but in the other, and the reverse.
        start: Value of the other point.
    """

    point: NDArray[np.int64]
    key: int
    out: NDArray[np.int64]
    into: NDArray[np.int64]
    start: float


class Walk:
    """The point that swaps start from.

    Arguments:
        space: What may be chosen.
        archive: Points in it are not proposed again by `untried`.
        keys: Of points.
        rng: Of all that is random.
    """

    def __init__(self, space: SearchSpace, archive: Archive, keys: Keys, rng: np.random.Generator) -> None:
        self._space, self._archive, self._keys, self._rng = space, archive, keys, rng
        self.value = math.inf
        self.key = 0
        self.members: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.others: NDArray[np.int64] = np.arange(len(space.free))
        self._effects = Effects(len(space.free), rng)
        self._width = max(1.0, min(space.free_size / 8, len(space.free) - space.free_size))
        self._allowed: NDArray[np.bool_] | None = None
        self._rest: list[int] | None = None

    @property
    def listed(self) -> bool:
        """Whether `untried` was needed here before."""
        return self._rest is not None

    def move(self, point: NDArray[np.int64], key: int, value: float) -> None:
        """Go to a point that was evaluated."""
        self.members, self.key, self.value = point, key, value
        inside = np.zeros(len(self._space.free), dtype=bool)
        inside[point] = True
        self.others = np.flatnonzero(~inside)
        self._allowed = self._rest = None
        self._effects.moved()

    def consider(self, point: NDArray[np.int64], key: int, value: float, temperature: float) -> None:
        """Go to a point that was evaluated if it is not worse, or by chance: Metropolis' rule."""
        if value <= self.value or (
            temperature > 0 and self._rng.random() < math.exp((self.value - value) / temperature)
        ):
            self.move(point, key, value)

    def learn(self, swap: Swap, value: float) -> None:
        """Take the value of a point that was proposed."""
        self._effects.learn(swap.out, swap.into, value - swap.start)

    def adapt(self, *, better: bool) -> None:
        """Swap more items at a time while that improves the value, and less while it does not."""
        most = max(1.0, min(len(self.members), len(self.others)) / 2)
        self._width = min(self._width * _WIDER, most) if better else max(self._width * _NARROWER, 1.0)

    def propose(self) -> Swap | None:
        """A point that is likely to be good; None if no swap is feasible."""
        members, others, rng = self.members, self.others, self._rng
        if not len(members) or not len(others):
            return None
        kind = rng.random()
        effects = self._effects.draw() if kind > _UNIFORM else None
        # The worst leave, and the best come, by their effects or by lot.
        leave = rng.random(len(members)) if effects is None or kind < _UNIFORM + _ONE_SIDED else -effects[members]
        come = rng.random(len(others)) if effects is None or kind > 1 - _ONE_SIDED else effects[others]
        allowed = self._feasible()
        if allowed is None:
            count = int(self._width + rng.random())
            out, into = _least(leave, count), _least(come, count)
        else:
            # Of several swaps at a time the second may not be feasible after the first.
            rows = np.flatnonzero(allowed.any(1))
            if not len(rows):
                return None
            out = rows[[int(np.argmin(leave[rows]))]]
            into = np.array([int(np.argmin(np.where(allowed[out[0]], come, np.inf)))])
        return self._swapped(out, into)

    def untried(self, pending: Container[int]) -> Swap | None:
        """A swap of two that was not tried, each with the same probability; None if there is none left."""
        width = len(self.others)
        total = len(self.members) * width
        if self._rest is None:
            if total == 0:
                return None
            allowed = self._feasible()
            codes = np.arange(total) if allowed is None else np.flatnonzero(allowed)
            self._rest = self._rng.permutation(codes).tolist()
        of_place = self._keys.of_place
        while self._rest:
            out, into = divmod(self._rest.pop(), width)
            key = self.key ^ of_place[int(self.members[out])] ^ of_place[int(self.others[into])]
            if key not in self._archive.rows and key not in pending:
                return self._swapped(np.array([out]), np.array([into]))
        return None

    def kick(self, point: NDArray[np.int64], strength: int) -> NDArray[np.int64]:
        """A point so many random feasible swaps away from another; less if there are not as many."""
        point = point.copy()
        outside = np.ones(len(self._space.free), dtype=bool)
        outside[point] = False
        for _ in range(strength):
            others = np.flatnonzero(outside)
            allowed = self._space.swaps(point, others)
            codes = None if allowed is None else np.flatnonzero(allowed)
            total = len(point) * len(others) if codes is None else len(codes)
            if not total:
                break
            drawn = int(self._rng.integers(total))
            out, into = divmod(drawn if codes is None else int(codes[drawn]), len(others))
            outside[point[out]], outside[others[into]] = True, False
            point[out] = others[into]
        point.sort()
        return point

    def _feasible(self) -> NDArray[np.bool_] | None:
        """Which swaps of two are feasible, `(K, F - K)`; None for all."""
        if self._space.rules is not None and self._allowed is None:
            self._allowed = self._space.swaps(self.members, self.others)
        return self._allowed

    def _swapped(self, out: NDArray[np.int64], into: NDArray[np.int64]) -> Swap:
        """The point with members number `out` replaced by others number `into`."""
        leave, come = self.members[out], self.others[into]
        point = self.members.copy()
        point[out] = come
        point.sort()
        key = self.key
        for place in (*leave.tolist(), *come.tolist()):
            key ^= self._keys.of_place[place]
        return Swap(point, key, leave, come, self.value)


def _least(numbers: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Where the least so many of some numbers are, in no order."""
    if count == 1:
        return np.array([int(numbers.argmin())])
    return np.argpartition(numbers, count - 1)[:count]
