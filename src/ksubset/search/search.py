"""What to evaluate next, as a conversation: ask for subsets, tell their values."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset.search.arguments import check_integer, listed
from ksubset.search.constraints import Constraint
from ksubset.search.objective import ENCODINGS, encoded, numbers
from ksubset.search.results import SearchProgress, SearchResult, result_of
from ksubset.search.space import SearchSpace
from ksubset.search.state import SearchState

__all__ = ["Search"]


class Search:
    """Choose k of n by asking for subsets and telling their values, where `minimize` does not fit.

    Arguments:
        n, k, encoding, noisy, always, exclude, groups, constraints, initial, random_state: As of `minimize`; initial
            subsets are `(S, k)`.
        max_evaluations: Evaluations there will be, so that all subsets are asked for where these are as few, the search
            cools down towards the end, and, with noise, a tenth is kept to confirm the best; None if that is not known.

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
        self._limit = limit = None if max_evaluations is None else check_integer("max_evaluations", max_evaluations, 1)
        self.state = SearchState(self.space, np.random.default_rng(random_state), limit, noisy=noisy)
        self._untold: Counter[int] = Counter()
        given = {} if initial is None else initial
        pairs = given.items() if isinstance(given, Mapping) else [(subset, None) for subset in listed("initial", given)]
        for subset, value in pairs:
            point = self.space.point("initial", subset)
            if value is None:
                self.state.enqueue(point)
            else:
                self.state.know(point, float(numbers(value, None, "initial: expected numbers for values")[()]))

    @property
    def num_evaluations(self) -> int:
        """Values told."""
        fresh = 0 if self.state.confirmation is None else self.state.confirmation.evaluations
        return self.state.evaluations + fresh

    def ask(self, count: int = 1) -> NDArray[Any]:
        """Subsets to evaluate, at most so many; none if `max_evaluations` were told or asked for, or all subsets were.

        Where f is deterministic they are new ones, each asked for once. With noise those that may be the best are asked
        for again, and there are none once the best few are confirmed.

        Raises:
            ValueError: Groups differ in size, and the encoding is not "mask".

        Returns:
            `(S, k)`, int64, ascending indices, or `(S, n)`, boolean.
        """
        self.check_encoding(vectorized=True)
        count = check_integer("count", count, 1)
        if self._limit is not None:
            count = min(count, self._limit - self.num_evaluations - self._untold.total())
        points = self.ask_points(count)
        self._untold.update(map(self.state.keys.of, points))
        subsets = [self.space.items(point) for point in points]
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
        return self.state.evaluations - (self.state.trace[-1][0] if self.state.trace else 0)

    def confirm(self) -> None:
        """With noise, ask for nothing but the best few subsets from now on."""
        if self.state.confirmation is not None and self.state.archive.points:
            self.state.confirmation.begin(max(2, self.state.evaluations // 10))

    def progress(self, max_evaluations: int | None, seconds: float) -> SearchProgress:
        """Where the search stands, after a value was told."""
        row, archive = self.state.best_row, self.state.archive
        assert row is not None
        return SearchProgress(
            self.num_evaluations, max_evaluations, seconds, self.space.items(archive.points[row]), archive.mean[row]
        )

    def ask_points(self, count: int) -> list[NDArray[np.int64]]:
        """As `ask`, as points of `space`, whose values `state.record` takes."""
        points: list[NDArray[np.int64]] = []
        while len(points) < count and (point := self.state.next_point()) is not None:
            points.append(point)
        return points

    def tell(self, subsets: Any, values: Any) -> None:
        """Take values of subsets, in any order, whether they were asked for or not; not finite ones are the worst.

        Arguments:
            subsets: As of `ask`.
            values: `(S)`.

        Raises:
            TypeError, ValueError: There are not as many values as subsets, one is no real number, or a subset is none
                that may be chosen.
        """
        subsets = list(subsets)
        values = numbers(values, len(subsets), f"values: expected shape ({len(subsets)},), one for each subset")
        points = []
        for subset in subsets:
            is_mask = self._encoding == "mask" and len(subset) == self.space.num_items
            points.append(self.space.point("subsets", np.flatnonzero(subset) if is_mask else subset))
        # All of them or, where one is wrong, none.
        self._untold -= Counter(map(self.state.keys.of, points))
        for point, value in zip(points, values.tolist(), strict=True):
            self.state.record(point, value)

    def result(self) -> SearchResult:
        """The best so far.

        Raises:
            ValueError: No value was told, or none was finite.
        """
        return result_of(self.space, self.state, self.num_evaluations)
