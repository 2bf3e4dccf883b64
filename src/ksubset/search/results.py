"""What a search has found, and how sure that is."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ksubset.search.archive import Archive
from ksubset.search.space import SearchSpace

if TYPE_CHECKING:
    from ksubset.search.search import SearchState

__all__ = ["Confirmation", "SearchProgress", "SearchResult", "result_of"]

_FINALISTS = 8
_ELITE = 100


@dataclass(frozen=True)
class SearchProgress:
    """Where a search stands, as callbacks get it.

    Arguments:
        num_evaluations: Calls of f so far.
        max_evaluations: How many there may be; None for no limit.
        seconds: Since the beginning.
        subset: The best so far, ascending indices.
        value: Its value; with noise the mean of its values.
    """

    num_evaluations: int
    max_evaluations: int | None
    seconds: float
    subset: NDArray[np.int64]
    value: float


@dataclass(frozen=True)
class SearchResult:
    """The best subset that was found.

    Arguments:
        subset: `(k)`, int64, ascending indices.
        value: Its value; with noise `confirmed_value`, or the mean of its values if there is none, which
            flatters.
        standard_error: Of that mean; 0 without noise, NaN if the subset was evaluated once.
        confirmed_value: With noise, the mean of values that had no part in the choice of the finalists; else None.
        num_evaluations: Values used.
        optimal: Whether all subsets that may be chosen were evaluated, without noise, so that none is better.
        inclusion: `(n)`, share of the 100 best subsets evaluated that have each item; of all if there were fewer.
        trace: Rows `(num_evaluations, value)` of each improvement, `(T, 2)`.
        elite: The 100 best subsets as masks, `(E, n)`, boolean, best first.
        elite_values: `(E)`.
    """

    subset: NDArray[np.int64]
    value: float
    standard_error: float
    confirmed_value: float | None
    num_evaluations: int
    optimal: bool
    inclusion: NDArray[np.float64]
    trace: NDArray[np.float64]
    elite: NDArray[np.bool_] = field(repr=False)
    elite_values: NDArray[np.float64] = field(repr=False)

    def co_inclusion(self) -> NDArray[np.float64]:
        """Share of the 100 best subsets evaluated that have both of two items, `(n, n)`."""
        masks = self.elite.astype(np.float64)
        shares: NDArray[np.float64] = masks.T @ masks / len(masks)
        return shares


class Confirmation:
    """Fresh values of the few best points, as the best of many noisy values is the luckiest: successive halving.

    Arguments:
        archive: Points and their values so far.
        num_points: Number of all points, if they are as few as evaluations.
        max_evaluations: A tenth of it is kept, a half where all points may be finalists.
    """

    def __init__(self, archive: Archive, num_points: int | None, max_evaluations: int | None) -> None:
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
            self._left = sorted(self._left, key=lambda row: float(np.mean(self.values[row])))[:keep]
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
        return min(rows, key=lambda row: float(np.mean(self.values[row])))


def result_of(space: SearchSpace, state: "SearchState", num_evaluations: int) -> SearchResult:
    """What a search has found, however it ended; a ValueError if no value is finite."""
    archive, confirmation = state.archive, state.confirmation
    best = state.best_row
    if best is None:
        raise ValueError("f: expected at least one value, got none")
    fresh: list[float] = []
    if confirmation is not None and (winner := confirmation.winner) is not None:
        best, fresh = winner, confirmation.values[winner]
    value = float(np.mean(fresh)) if fresh else archive.mean[best]
    if not math.isfinite(value):
        raise ValueError(f"f: expected finite values, got none in {num_evaluations} evaluations")
    error = 0.0
    if state.noisy:
        count = len(fresh) or archive.count[best]
        spread = float(np.var(fresh, ddof=1)) if len(fresh) > 1 else archive.noise
        error = math.sqrt(spread / count) if math.isfinite(spread) else math.nan
    order = np.argsort(archive.mean, kind="stable")[:_ELITE]
    elite = np.zeros((len(order), space.num_items), dtype=bool)
    for mask, row in zip(elite, order.tolist(), strict=True):
        mask[space.items(archive.points[row])] = True
    optimal = not state.noisy and state.num_points is not None and len(archive.points) >= state.num_points
    return SearchResult(
        space.items(archive.points[best]), value, error, float(np.mean(fresh)) if fresh else None, num_evaluations,
        optimal, elite.mean(0), np.array(state.trace).reshape(-1, 2), elite, np.array(archive.mean)[order],
    )  # fmt: skip
