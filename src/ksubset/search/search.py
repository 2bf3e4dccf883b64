"""What to evaluate next, as a conversation: ask for subsets, tell their values."""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.search.archive import Archive, Keys
from ksubset.search.arguments import check_integer
from ksubset.search.constraints import Constraint
from ksubset.search.objective import ENCODINGS, encoded
from ksubset.search.regression import fit_slope
from ksubset.search.results import Confirmation, SearchProgress, SearchResult, result_of
from ksubset.search.space import SearchSpace
from ksubset.search.walk import Walk

__all__ = ["Search", "SearchState"]

# Evaluations of a rival with noise, after which it is no better.
_RACE = 64


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
        self.walk = Walk(space, self.archive, self.keys, rng)
        self.pending: dict[int, str] = {}
        """What points that were asked for, and whose values are not known, are good for, by their keys."""
        everything = space.enumerate(100_000 if max_evaluations is None else max_evaluations)
        self.num_points = None if everything is None else len(everything)
        """Number of all points, if they will all be evaluated."""
        self._queue: deque[NDArray[np.int64]] = deque()
        if everything is not None and not noisy:
            self._queue.extend(rng.permutation(everything))
        self.best_row: int | None = None
        self.trace: list[tuple[int, float]] = []
        self.confirmation = Confirmation(self.archive, self.num_points, max_evaluations) if noisy else None
        self._limit = max_evaluations
        self._learn_at = 50.0
        self._challenger: int | None = None

    def enqueue(self, point: NDArray[np.int64]) -> None:
        """Evaluate a point before all others."""
        self._queue.appendleft(point)

    def next_point(self) -> NDArray[np.int64] | None:
        """What to evaluate next; None if nothing is left, or values have to be told first."""
        while self._queue:
            point = self._queue.popleft()
            if (key := self.keys.of(point)) not in self.archive.rows and key not in self.pending:
                return self._asked(point, key, "start")
        if self.confirmation is not None:
            if self.archive.evaluations >= self.confirmation.starts_at:
                self.confirmation.begin(self.confirmation.reserve)
            if self.confirmation.due:
                return self.confirmation.next_point()
            if self.archive.evaluations >= self._learn_at and (likeliest := self._likeliest()) is not None:
                return likeliest
            if (row := self._to_repeat()) is not None:
                return self.archive.points[row]
        if self.num_points is not None and len(self.archive.rows) + len(self.pending) >= self.num_points:
            if self.confirmation is None or self._limit is None or self.pending:
                return None
            self.confirmation.begin(self._limit - self.archive.evaluations)
            return self.confirmation.next_point()
        return self._new_point()

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

    def _asked(self, point: NDArray[np.int64], key: int, why: str) -> NDArray[np.int64]:
        self.pending[key] = why
        return point

    def _new_point(self) -> NDArray[np.int64] | None:
        if self.best_row is not None:
            swap = self.walk.random_swap(self.pending)
            if swap is not None:
                return self._asked(*self.walk.swapped(*swap), "swap")
        for attempt in range(100):
            if self.best_row is None or attempt >= 50:
                point = self.space.sample(self._rng)
            else:
                strength = 2 + int(self._rng.integers(1 + self.space.free_size // 4))
                point = self.walk.kick(self.archive.points[self.best_row], strength)
            if (key := self.keys.of(point)) not in self.archive.rows and key not in self.pending:
                return self._asked(point, key, "start")
        return None

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
        if archive.mean[rival] >= archive.mean[best] + slack or archive.count[rival] >= _RACE:
            self._challenger = None
            return None
        return rival if archive.count[rival] <= archive.count[best] else best

    def record(self, point: NDArray[np.int64], value: float) -> None:
        """Take the value of a point, whether it was asked for or not."""
        key = self.keys.of(point)
        why = self.pending.pop(key, None)
        if self.confirmation is not None and self.confirmation.record(self.archive.rows.get(key), value):
            return
        fresh = key not in self.archive.rows
        row = self.archive.add(key, point, value)
        if self.noisy and not fresh:
            if row == self.best_row:
                self.walk.value = self.archive.mean[row]
            return
        if self.best_row is None or (not self.noisy and value < self.archive.mean[self.best_row]):
            self._set_best(row)
        elif self.noisy:
            if why == "likeliest":
                self._favour(row)
            elif value < self.archive.mean[self.best_row]:
                self._challenger = row
        elif value <= self.walk.value or why == "start":
            self.walk.move(point, key, value)

    def _set_best(self, row: int) -> None:
        self.best_row, self._challenger = row, None
        point = self.archive.points[row]
        self.walk.move(point, self.keys.of(point), self.archive.mean[row])
        self.trace.append((self.archive.evaluations, self.archive.mean[row]))


class Search:
    """Choose k of n by asking for subsets and telling their values, where `minimize` does not fit.

    Arguments:
        n, k, encoding, noisy, always, exclude, groups, constraints, initial, random_state: As of `minimize`.
        max_evaluations: Evaluations there will be, so that all subsets are asked for where these are as few, and, with
            noise, a tenth is kept to confirm the best; None if that is not known.

    Raises:
        TypeError, ValueError: As of `minimize`.

    Example:
        >>> import numpy as np
        >>> weights = np.arange(10.0)
        >>> search = Search(10, 3, max_evaluations=200, random_state=0)
        >>> while len(subsets := search.ask(8)):
        ...     search.tell(subsets, weights[subsets].sum(1))
        >>> search.result().subset
        array([0, 1, 2])
    """

    def __init__(
        self,
        n: int,
        k: int,
        *,
        encoding: str = "indices",
        noisy: bool = False,
        max_evaluations: int | None = None,
        always: Iterable[int] = (),
        exclude: Iterable[int] = (),
        groups: Sequence[Iterable[int]] | None = None,
        constraints: Sequence[Constraint] = (),
        initial: Any = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding: expected one of {', '.join(ENCODINGS)}, got {encoding!r}")
        self._encoding = encoding
        self.space = SearchSpace(n, k, always=always, exclude=exclude, groups=groups, constraints=constraints)
        limit = None if max_evaluations is None else check_integer("max_evaluations", max_evaluations, 1)
        self.state = SearchState(self.space, np.random.default_rng(random_state), limit, noisy=noisy)
        given = {} if initial is None else initial
        pairs = given.items() if isinstance(given, Mapping) else [(subset, None) for subset in given]
        for subset, value in pairs:
            point = self.space.point("initial", subset)
            if value is None:
                self.state.enqueue(point)
            else:
                self.state.record(point, float(value))
        self._given = self.state.archive.evaluations

    @property
    def num_evaluations(self) -> int:
        """Values told."""
        fresh = 0 if self.state.confirmation is None else self.state.confirmation.evaluations
        return self.state.archive.evaluations - self._given + fresh

    def ask(self, count: int = 1) -> NDArray[Any]:
        """Subsets to evaluate, at most so many; none if all subsets are known or asked for.

        Where f is deterministic they are new ones, each asked for once.

        Raises:
            ValueError: Groups differ in size, and the encoding is not "mask".

        Returns:
            `(S, k)`, int64, ascending indices, or `(S, n)`, boolean.
        """
        self.check_encoding(vectorized=True)
        subsets = self.ask_subsets(count)
        if not subsets and self._encoding == "indices":
            return np.zeros((0, self.space.items_in_all or 0), dtype=np.int64)
        return encoded(subsets, self._encoding, self.space.num_items)

    def check_encoding(self, *, vectorized: bool) -> None:
        """A ValueError if subsets would be rows of different length."""
        if vectorized and self._encoding == "indices" and self.space.items_in_all is None:
            raise ValueError('encoding: expected "mask" where groups differ in size, got "indices"')

    @property
    def in_vain(self) -> int:
        """Evaluations since the last improvement."""
        return self.state.archive.evaluations - (self.state.trace[-1][0] if self.state.trace else 0)

    def confirm(self) -> None:
        """With noise, ask for nothing but the best few subsets from now on."""
        if self.state.confirmation is not None and self.state.archive.points:
            self.state.confirmation.begin(max(2, self.state.archive.evaluations // 10))

    def progress(self, max_evaluations: int | None, seconds: float) -> SearchProgress:
        """Where the search stands, after a value was told."""
        row, archive = self.state.best_row, self.state.archive
        assert row is not None
        return SearchProgress(
            self.num_evaluations, max_evaluations, seconds, self.space.items(archive.points[row]), archive.mean[row]
        )

    def tell_subsets(self, subsets: list[NDArray[np.int64]], values: list[float]) -> None:
        """Take values of subsets that were asked for."""
        for subset, value in zip(subsets, values, strict=True):
            self.state.record(self.space.point("subsets", subset), value)

    def ask_subsets(self, count: int) -> list[NDArray[np.int64]]:
        """As `ask`, as a list of indices, of any number each."""
        subsets = []
        for _ in range(check_integer("count", count, 1)):
            point = self.state.next_point()
            if point is None:
                break
            subsets.append(self.space.items(point))
        return subsets

    def tell(self, subsets: Any, values: Any) -> None:
        """Take values of subsets, in any order, whether they were asked for or not; not finite ones are the worst.

        Arguments:
            subsets: As of `ask`.
            values: `(S)`.

        Raises:
            ValueError: There are not as many values as subsets, or a subset is not one that may be chosen.
        """
        subsets, values = list(subsets), np.asarray(values, dtype=np.float64)
        if values.shape != (len(subsets),):
            raise ValueError(f"values: expected shape ({len(subsets)},), one for each subset, got {values.shape}")
        for subset, value in zip(subsets, values.tolist(), strict=True):
            items = (
                np.flatnonzero(subset) if self._encoding == "mask" and len(subset) == self.space.num_items else subset
            )
            self.state.record(self.space.point("subsets", items), value if math.isfinite(value) else math.inf)

    def result(self) -> SearchResult:
        """The best so far.

        Raises:
            ValueError: No value was told, or none was finite.
        """
        return result_of(self.space, self.state, self.num_evaluations)
