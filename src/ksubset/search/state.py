"""What to evaluate next, over points of a space."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.search.archive import Archive, Keys
from ksubset.search.confirmation import Confirmation
from ksubset.search.cooling import Cooling
from ksubset.search.slope import fit_slope
from ksubset.search.space import SearchSpace
from ksubset.search.walk import Swap, Walk

__all__ = ["SearchState"]

# Evaluations of a rival with noise, after which it is no better.
_RACE = 64
# All points are listed if they are as few, and at most so many times as many as are evaluated: a walk alone would look
# for the last ones for long, or miss them. More than the last number take seconds and a gigabyte.
_LISTED, _TIMES, _MOST_LISTED = 100_000, 10, 5_000_000
# Points at some distance of the best that are tried for one that is not known, and as many random ones; where all are
# listed, these few.
_KICKS, _TRIES_IF_LISTED = 50, 5
# Steps of the walk over points that are known, after which one that is not is listed.
_KNOWN = 30
# Evaluations at most for which the walk is asked where all points will be evaluated.
_WALKED = 1000


@dataclass(frozen=True)
class _Asked:
    """What a point that was asked for is good for.

    Arguments:
        why: "start", "swap", "kick" or "likeliest".
        swap: How it was come by, if from the walk.
    """

    why: str
    swap: Swap | None = None


class SearchState:
    """The search itself, over points of a space; `Search` is its face.

    Arguments:
        space: What may be chosen.
        rng: Of all that is random.
        max_evaluations: Evaluations there will be; None if that is not known.
        noisy: Whether a point has another value each time.
    """

    def __init__(
        self, space: SearchSpace, rng: np.random.Generator, max_evaluations: int | None, *, noisy: bool
    ) -> None:
        self.space, self.noisy, self._rng = space, noisy, rng
        self.archive, self.keys = Archive(), Keys(len(space.free))
        self._given = 0
        self.walk = Walk(space, self.archive, self.keys, rng)
        self.plan([] if max_evaluations is None else [max_evaluations])
        self.pending: dict[int, _Asked] = {}
        """What points that were asked for, and whose values are not known, are good for, by their keys."""
        most = _LISTED if max_evaluations is None else max_evaluations
        listed = space.enumerate(min(max(most, min(_TIMES * most, _LISTED)), _MOST_LISTED))
        self.num_points = None if listed is None or len(listed) > most else len(listed)
        """Number of all points, if they will all be evaluated unless the search ends before."""
        self._queue: deque[NDArray[np.int64]] = deque()
        self._listed = listed is not None
        self._rest: Iterator[NDArray[np.int64]] = iter(() if listed is None else rng.permutation(listed))
        self.best_row: int | None = None
        self.trace: list[tuple[int, float]] = []
        self.confirmation = Confirmation(self.archive, max_evaluations) if noisy else None
        self._limit = max_evaluations
        self._learn_at = 50.0
        self._challenger: int | None = None

    def plan(self, ends: Sequence[int]) -> None:
        """Say after how many evaluations it will end, and perhaps go on, ascending; none if it may end at any time.

        Where all points will be evaluated the second half comes in random order, and all but the first few if the end
        is known: that takes least time, and what the walk finds comes first, should the search be interrupted.
        """
        self.cooling, self._walked = Cooling(ends), _WALKED if ends else math.inf

    def enqueue(self, point: NDArray[np.int64]) -> None:
        """Evaluate a point before all that are not enqueued."""
        self._queue.append(point)

    def know(self, point: NDArray[np.int64], value: float) -> None:
        """Take a value that was known beforehand, and is no evaluation."""
        self._given += 1
        self.record(point, value)

    @property
    def evaluations(self) -> int:
        """Values of the search itself: without those known beforehand, and the fresh ones of the confirmation."""
        return self.archive.evaluations - self._given

    @property
    def _left(self) -> float:
        """Evaluations that are left; infinite if that is not known."""
        return math.inf if self._limit is None else self._limit - self.evaluations

    def next_point(self) -> NDArray[np.int64] | None:
        """What to evaluate next; None if nothing is left, or values have to be told first."""
        while self._queue:
            if (first := self._first_new([self._queue.popleft()])) is not None:
                return first
        if self.confirmation is not None:
            if self.evaluations >= self.confirmation.starts_at:
                self.confirmation.begin(self.confirmation.reserve)
            if self.confirmation.due:
                return self.confirmation.next_point()
            # A tenth of few evaluations is too few to confirm anything.
            if self._left <= 0:
                return None
            if self.archive.evaluations >= self._learn_at and (likeliest := self._likeliest()) is not None:
                return likeliest
            if (row := self._to_repeat()) is not None:
                return self.archive.points[row]
        all_known = self.num_points is not None and len(self.archive.rows) + len(self.pending) >= self.num_points
        point = None if all_known else self._new_point()
        return self._known_point() if point is None else point

    def _first_new(self, points: Iterable[NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """The first point that is neither known nor asked for."""
        for point in points:
            if (key := self.keys.of(point)) not in self.archive.rows and key not in self.pending:
                return self._asked(point, key, "start")
        return None

    def _known_point(self) -> NDArray[np.int64] | None:
        """With noise, where nothing new is left: what to evaluate again until the confirmation begins."""
        archive, left = self.archive, self._left
        if self.confirmation is None or self.best_row is None:
            return None
        if math.isfinite(left) and self.confirmation.reserve < 2 <= left:
            if self.pending:
                return None
            self.confirmation.begin(int(left))
            return self.confirmation.next_point()
        # The one that may be least, by two standard errors of its mean.
        noise = archive.noise if math.isfinite(archive.noise) else 0.0
        row = int(np.argmin(np.array(archive.mean) - 2 * np.sqrt(noise / np.array(archive.tries))))
        if archive.mean[row] < archive.mean[self.best_row]:
            self._challenger = row
        return archive.points[row]

    def _likeliest(self) -> NDArray[np.int64] | None:
        """The point that the slope of all values on membership speaks for, which is not one that may be luck."""
        self._learn_at *= 1.5
        archive, space = self.archive, self.space
        if space.rules is not None or space.free_size in (0, len(space.free)):
            return None
        values = torch.tensor(archive.mean, dtype=torch.float64)
        finite = torch.isfinite(values)
        slope = fit_slope(
            torch.from_numpy(np.stack(archive.points))[finite], values[finite],
            torch.tensor(archive.count, dtype=torch.float64)[finite], len(space.free),
        )  # fmt: skip
        point = np.sort(np.argsort(slope.mean.numpy(), kind="stable")[: space.free_size])
        row = archive.rows.get(key := self.keys.of(point))
        if row is None:
            return None if key in self.pending else self._asked(point, key, "likeliest")
        self._favour(row)
        return None

    def _favour(self, row: int) -> None:
        assert self.confirmation is not None
        self.confirmation.favourites.append(row)
        self._challenger = row if row != self.best_row else None

    def _asked(self, point: NDArray[np.int64], key: int, why: str, swap: Swap | None = None) -> NDArray[np.int64]:
        self.pending[key] = _Asked(why, swap)
        return point

    def _new_point(self) -> NDArray[np.int64] | None:
        number = None if self.noisy else self.num_points
        if number is not None and len(self.archive.rows) >= min(self._walked, number / 2):
            return self._first_new(self._rest)
        if self.best_row is not None and (swap := self._new_swap()) is not None:
            return self._asked(swap.point, swap.key, "swap", swap)
        for attempt in range(_TRIES_IF_LISTED if self._listed else 2 * _KICKS):
            if self.best_row is None or attempt >= _KICKS:
                point, why = self.space.sample(self._rng), "start"
            else:
                strength = 2 + int(self._rng.integers(1 + self.space.free_size // 4))
                point, why = self.walk.kick(self.archive.points[self.best_row], strength), "kick"
            if (key := self.keys.of(point)) not in self.archive.rows and key not in self.pending:
                return self._asked(point, key, why)
        return self._first_new(self._rest)

    def _new_swap(self) -> Swap | None:
        """A proposal of the walk that is not known; steps over those that are cost nothing."""
        # With noise it takes no such steps, so that what has failed once here fails again.
        for _ in range(0 if self.noisy and self.walk.listed else _KNOWN):
            swap = self.walk.propose()
            if swap is None:
                return None
            row = self.archive.rows.get(swap.key)
            if row is None:
                if swap.key not in self.pending:
                    return swap
            elif not self.noisy:
                self._consider(swap.point, swap.key, self.archive.mean[row])
        return self.walk.untried(self.pending)

    def _consider(self, point: NDArray[np.int64], key: int, value: float) -> None:
        self.walk.consider(point, key, value, self.cooling.temperature(self.evaluations))

    def _to_repeat(self) -> int | None:
        """Row of a point whose mean is to be known better, if there is one."""
        best, rival, archive = self.best_row, self._challenger, self.archive
        if best is None or rival is None:
            return None
        # Two standard errors of the lead; noise is not known before something was evaluated twice.
        error = 2 * math.sqrt(archive.noise * (1 / archive.count[best] + 1 / archive.count[rival]))
        if archive.count[rival] > 1 and archive.mean[rival] < archive.mean[best] - error:
            self._set_best(rival)
            return None
        # One bad value does not speak against what all values speak for.
        slack = error if self.confirmation is not None and rival in self.confirmation.favourites else 0.0
        if archive.mean[rival] >= archive.mean[best] + slack or archive.tries[rival] >= _RACE:
            self._challenger = None
            return None
        return rival if archive.tries[rival] <= archive.tries[best] else best

    def record(self, point: NDArray[np.int64], value: float) -> None:
        """Take the value of a point, whether it was asked for or not."""
        key = self.keys.of(point)
        asked = self.pending.pop(key, None)
        if self.confirmation is not None and self.confirmation.record(self.archive.rows.get(key), value):
            return
        fresh = key not in self.archive.rows
        row = self.archive.add(key, point, value)
        if self.noisy and not fresh:
            if row == self.best_row:
                self.walk.value = self.archive.mean[row]
            return
        if asked is not None and asked.swap is not None:
            self._learn(asked.swap, value)
        if self.best_row is None or (not self.noisy and value < self.archive.mean[self.best_row]):
            self._set_best(row)
        elif self.noisy:
            if asked is not None and asked.why == "likeliest":
                self._favour(row)
            elif value < self.archive.mean[self.best_row]:
                self._challenger = row
        elif asked is not None and asked.why == "kick":
            self.walk.move(point, key, value)
        else:
            self._consider(point, key, value)

    def _learn(self, swap: Swap, value: float) -> None:
        self.walk.adapt(better=value < swap.start)
        if math.isfinite(value - swap.start):
            self.walk.learn(swap, value)
            self.cooling.observe(value - swap.start, len(swap.out))

    def _set_best(self, row: int) -> None:
        self.best_row, self._challenger = row, None
        point = self.archive.points[row]
        self.walk.move(point, self.keys.of(point), self.archive.mean[row])
        self.trace.append((self.evaluations, self.archive.mean[row]))
