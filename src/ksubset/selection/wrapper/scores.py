"""The scores of subsets on folds as a table, of which some is known."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScoreTable"]


class ScoreTable:
    """Subsets by folds; a row for each subset that was scored on one fold or more.

    Arguments:
        size: Items in a subset, k.
        num_folds: Folds F whose mean is the score.
    """

    def __init__(self, size: int, num_folds: int) -> None:
        self.subsets: NDArray[np.int64] = np.zeros((0, size), dtype=np.int64)
        """Ascending indices, `(N, k)`."""
        self.scores: NDArray[np.float64] = np.zeros((0, num_folds))
        """`(N, F)`; NaN where a subset was not scored, never where it was."""
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.subsets)

    def __contains__(self, subset: NDArray[np.int64]) -> bool:
        return subset.tobytes() in self._known

    def add(self, subsets: NDArray[np.int64]) -> NDArray[np.intp]:
        """Append subsets `(S, k)` that are not in the table, without scores; returns their rows `(S)`."""
        rows = np.arange(len(self), len(self) + len(subsets))
        self.subsets = np.concatenate([self.subsets, subsets])
        self.scores = np.concatenate([self.scores, np.full((len(subsets), self.scores.shape[1]), np.nan)])
        self._known |= {subset.tobytes() for subset in subsets}
        return rows

    def drop_unscored(self) -> None:
        """Take subsets without any score, which are the last ones, out again."""
        scored = ~np.isnan(self.scores).all(1)
        self._known -= {subset.tobytes() for subset in self.subsets[~scored]}
        self.subsets, self.scores = self.subsets[scored], self.scores[scored]

    @property
    def complete(self) -> NDArray[np.intp]:
        """Rows with a finite score on every fold."""
        return np.flatnonzero(np.isfinite(self.scores).all(1))

    @property
    def incumbent(self) -> int | None:
        """Row of the best subset among those with a finite score on every fold."""
        complete = self.complete
        return int(complete[self.scores[complete].mean(1).argmax()]) if len(complete) else None

    def preferred(self, num_copies: Callable[[NDArray[np.int64]], int]) -> int | None:
        """Row of the incumbent, or of the best one with fewer near-copies that is not significantly worse.

        It is if it loses more than two standard errors of the mean difference over folds, which both have in common.

        Arguments:
            num_copies: Maps a subset to its number of them.
        """
        preferred = incumbent = self.incumbent
        if incumbent is None or (fewest := num_copies(self.subsets[incumbent])) == 0:
            return incumbent
        complete, num_folds = self.complete, self.scores.shape[1]
        losses = self.scores[incumbent] - self.scores[complete]
        mean = losses.mean(1)
        near = np.flatnonzero(mean <= 3 * self.deviation_of_leads() / num_folds**0.5)
        for place in near[np.argsort(mean[near], kind="stable")].tolist():
            row = int(complete[place])
            if (copies := num_copies(self.subsets[row])) >= fewest:
                continue
            # Of those with as few the best alone is looked at, or one whose error is large by luck would do.
            fewest = copies
            error = losses[place].std(ddof=1) / num_folds**0.5 if num_folds > 1 else 0.0
            if mean[place] <= 2 * error:
                preferred = row
            if not fewest:
                break
        return preferred

    def deviation_of_leads(self) -> float:
        """Standard deviation over folds of how far a subset leads the best; infinite while that is unknown."""
        complete, num_folds = self.complete, self.scores.shape[1]
        if len(complete) < 3 or num_folds < 2:
            return math.inf
        leads = self.scores[complete] - self.scores[self.incumbent]
        leads -= leads.mean(1, keepdims=True)
        return math.sqrt((leads**2).sum() / ((len(complete) - 1) * (num_folds - 1)))

    def is_by_chance(self, chance: NDArray[np.float64]) -> bool:
        """Whether the best score may be that of as many subsets of noise.

        Arguments:
            chance: Scores of a model that looks at no item, `(F)`.
        """
        if not math.isfinite(deviation := self.deviation_over(chance)):
            return False
        lead = float((self.scores[self.incumbent] - chance).mean())
        # The largest of N standard normal numbers is about this. Twice, as folds do not tell what items have in common
        # with the target by chance, which is the same in all of them, and those that do well vary less.
        largest = math.sqrt(2 * math.log(len(self)))
        return lead <= 2 * largest * deviation / math.sqrt(len(chance))

    def deviation_over(self, chance: NDArray[np.float64]) -> float:
        """Standard deviation over folds of how far a subset leads scores `(F)`; infinite while that is unknown."""
        leads = self.scores[self.complete] - chance
        return math.sqrt(leads.var(1, ddof=1).mean()) if len(leads) and leads.shape[1] > 1 else math.inf

    def values(self) -> NDArray[np.float64]:
        """The scores of all subsets, `(N)`, comparable between different folds, without outliers."""
        scores = self.scores[self.complete]
        effect = (scores - scores.mean(1, keepdims=True)).mean(0) if len(scores) else 0.0
        seen = ~np.isnan(self.scores)
        sums = np.where(seen, self.scores - effect, 0.0).sum(1)
        # A subset of which the first score is awaited has none.
        values = np.divide(sums, seen.sum(1), out=np.full(len(self), -np.inf), where=seen.any(1))
        finite = values[np.isfinite(values)]
        if not len(finite):
            return np.zeros_like(values)
        low, high = np.quantile(finite, [0.25, 0.75])
        floor = max(float(low - 3 * (high - low)), float(finite.min()))
        return np.where(values > floor, values, floor)
