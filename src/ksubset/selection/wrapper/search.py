r"""Search for the subset of exactly k of n items with the best score, when every evaluation of the score is dear.

The score of a subset is its mean over F folds, and one evaluation gives one fold of one subset. The search is told a
budget of evaluations and takes the first of these ways that the budget allows:

1. All subsets on all folds.
2. All subsets, racing (below), where there are at most half as many as evaluations.
3. **Exploration** with six tenths of the evaluations: a distribution is learned, as `Proposal` says. It starts from a
   prior, as of thousands of items each is in few of the subsets that there will be. A batch of new subsets is drawn and
   raced, and the distribution learns from it. Then the likeliest subset is scored as well, on all folds: all
   evaluations speak for it, where the best of a batch may be luck.
   **Refinement** with the rest: members of the best subset are swapped for outsiders, likeliest first, until no swap
   improves it. If evaluations are left then, exploration starts anew without the prior, with all that is known, until
   two such restarts in a row have found nothing better.

**Racing** is successive halving. A batch starts on one fold, each batch on the next. Only the better half goes on to
another fold, and of these only subsets that may still beat the best: after j of F folds, with a mean lead over the best
on the same folds above `-2 s sqrt(1/j - 1/F)`, two standard deviations of what the other folds can change, where s is
the standard deviation of leads over folds. In refinement the second condition alone counts. For the slope one fold each
of many subsets is worth more than all folds of few; means over unequal folds are compared after subtracting the fold's
effect.

**Confirmation.** The best of thousands of noisy scores is the luckiest. So the best eight subsets, among them one that
was the likeliest at its time, are scored on fresh folds, in rounds of F; after each the better half stays, two at the
end, and fresh scores alone decide. A tenth of the evaluations, or what that takes if it is less, is kept for it.
"""

import math
from collections.abc import Callable, Iterator
from itertools import combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.search.proposal import Proposal
from ksubset.search.scores import ScoreTable

__all__ = ["ROUNDS", "Search"]

_EXPLORATION = 0.6
_BATCH = 32
_RESTARTS = 2
_FINALISTS = 8
ROUNDS = 5
"""Rounds of F fresh folds that are of use."""


class Search:
    """What to evaluate next, and for how much of the budget.

    Arguments:
        evaluate: Maps subsets `(S, k)`, ascending indices, and the number of a fold to scores `(S)`; larger is
            better, and what is not finite counts as the worst. Folds from F on are fresh ones.
        num_items: Items n.
        size: Items k in a subset.
        num_folds: Folds F whose mean is the score.
        budget: Evaluations at most.
        seed: Of all that is random.
        num_fresh: Fresh folds there are, a multiple of F; none means no confirmation.
        prior: Logits `(n)` to start from, which evaluations are added to; equal ones if there is no better guess.
    """

    def __init__(
        self,
        evaluate: Callable[[NDArray[np.int64], int], NDArray[np.float64]],
        num_items: int,
        size: int,
        num_folds: int,
        budget: int,
        seed: int,
        num_fresh: int = 0,
        prior: NDArray[np.float64] | None = None,
    ) -> None:
        self._evaluate = evaluate
        self.num_items, self.size, self.num_folds, self.budget = num_items, size, num_folds, budget
        self._rng = np.random.default_rng([seed, size])
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        self._rounds = min(ROUNDS, num_fresh // num_folds)
        in_full = sum(max(2, _FINALISTS >> r) for r in range(self._rounds)) * num_folds
        self._reserve = min(budget // 10, in_full)
        self.evaluations = 0
        self.table = ScoreTable(size, num_folds)
        start = torch.from_numpy(np.zeros(num_items) if prior is None else prior)
        self.proposal = Proposal(self.table, start, generator)
        self.fresh: dict[int, list[float]] = {}
        """Scores of the finalists, by their row, on fresh folds."""
        self.modes: list[int] = []
        """Rows of subsets that were the likeliest once."""
        self._batches = 0

    @property
    def best(self) -> int:
        """Row of the best subset: by fresh scores, by scores on all folds, or by what there is."""
        if self.fresh:
            most = max(map(len, self.fresh.values()))
            rows = [row for row, scores in self.fresh.items() if len(scores) == most]
            return max(rows, key=lambda row: (np.mean(self.fresh[row]), self.table.scores[row].mean(), -row))
        incumbent = self.table.incumbent
        return int(self.table.values().argmax()) if incumbent is None else incumbent

    def run(self) -> Iterator[None]:
        """Search and confirm; yields after each batch, so that the caller may look, or leave."""
        limit = self.budget - self._reserve
        number = math.comb(self.num_items, self.size)
        if 2 * number <= limit or number * self.num_folds <= limit:
            yield from self._enumerate(in_full=number * self.num_folds <= limit)
        else:
            yield from self._explore_and_refine(limit)
        yield from self._confirm()

    def _enumerate(self, *, in_full: bool) -> Iterator[None]:
        everything = np.array(list(combinations(range(self.num_items), self.size)), dtype=np.int64)
        self._rng.shuffle(everything)
        for start in range(0, len(everything), 2 * _BATCH):
            batch = everything[start : start + 2 * _BATCH]
            self._race(batch, self.budget, drawn=len(everything) > 1, halve=not in_full, stop=not in_full)
            yield
        # As all is known, repeated steps lead to where sampling would have led.
        for _ in range(10 if len(everything) > 1 else 0):
            self.proposal.learn()

    def _explore_and_refine(self, limit: int) -> Iterator[None]:
        best, logits, in_vain = None, self.proposal.logits, 0
        while in_vain <= _RESTARTS and self.evaluations < limit:
            yield from self._explore(limit)
            yield from self._refine(limit)
            if (found := self.table.incumbent) != best:
                best, logits, in_vain = found, self.proposal.logits, 0
            in_vain += 1
            # What the prior led to is known by now, and it may have led past the best.
            self.proposal.restart()
        self.proposal.logits = logits

    def _explore(self, limit: int) -> Iterator[None]:
        end = self.evaluations + _EXPLORATION * (limit - self.evaluations)
        while self.evaluations < end:
            # Racing takes about two evaluations for each subset.
            batch = self.proposal.draw(min(max(_BATCH, len(self.table) // 8), -(-(limit - self.evaluations) // 2)))
            if not len(batch):
                return
            self._race(batch, limit, drawn=True)
            self.proposal.learn()
            self._race_mode(limit)
            yield
            # Less than half an item is open: swaps try these more systematically.
            if self.proposal.inclusion.topk(self.size).values.sum() > self.size - 0.5:
                return

    def _race_mode(self, limit: int) -> None:
        """Evaluate the likeliest subset, which all evaluations speak for, and not one that may be luck."""
        mode = self.proposal.mode
        if mode not in self.table and self.evaluations < limit:
            self._race(mode[None], limit, drawn=False, halve=False, stop=False)
            self.modes.append(len(self.table) - 1)

    def _refine(self, limit: int) -> Iterator[None]:
        while (best := self.table.incumbent) is not None:
            swaps = self.proposal.swaps(self.table.subsets[best])
            while batch := list(islice(swaps, min(_BATCH, limit - self.evaluations))):
                self._race(np.stack(batch), limit, drawn=False, halve=False)
                yield
                if self.table.incumbent != best:
                    break
            else:
                return

    def _confirm(self) -> Iterator[None]:
        complete = self.table.complete
        count = min(_FINALISTS, (self.budget - self.evaluations) // self.num_folds)
        rows = complete[np.argsort(-self.table.scores[complete].mean(1), kind="stable")]
        mode = rows[np.isin(rows, self.modes)][:1]
        rows = np.append(mode, rows[~np.isin(rows, mode)])[:count]
        for turn in range(self._rounds):
            if not len(rows) or self.budget - self.evaluations < len(rows) * self.num_folds:
                return
            folds = range(self.num_folds * (turn + 1), self.num_folds * (turn + 2))
            scores = np.stack([self._scores(self.table.subsets[rows], fold) for fold in folds], 1)
            for row, more in zip(rows.tolist(), scores.tolist(), strict=True):
                self.fresh[row] = self.fresh.get(row, []) + more
            mean = np.array([np.mean(self.fresh[row]) for row in rows.tolist()])
            rows = rows[np.argsort(-mean, kind="stable")][: max(2, len(rows) // 2)]
            yield

    def _scores(self, subsets: NDArray[np.int64], fold: int) -> NDArray[np.float64]:
        scores = self._evaluate(subsets, fold)
        self.evaluations += len(subsets)
        return np.where(np.isfinite(scores), scores, -np.inf)

    def _race(
        self, batch: NDArray[np.int64], limit: int, *, drawn: bool, halve: bool = True, stop: bool = True
    ) -> None:
        """Evaluate new subsets fold by fold, and fewer on each."""
        table = self.table
        best, deviation = table.incumbent, table.deviation_of_leads()
        folds = (self._batches + np.arange(self.num_folds)) % self.num_folds
        batch = batch[: limit - self.evaluations]
        rows = table.add(batch, int(folds[0]), self._scores(batch, int(folds[0])))
        if drawn:
            self.proposal.record(rows)
        self._batches += 1
        for seen in range(1, self.num_folds):
            mean = table.scores[rows[:, None], folds[:seen]].mean(1)
            order = np.argsort(-mean, kind="stable")
            if halve:
                order = order[: -(-len(order) // 2)]
            if stop and best is not None:
                slack = 2 * deviation * math.sqrt(1 / seen - 1 / self.num_folds)
                order = order[mean[order] >= table.scores[best, folds[:seen]].mean() - slack]
            rows = rows[order][: limit - self.evaluations]
            if not len(rows):
                return
            table.fill(rows, int(folds[seen]), self._scores(table.subsets[rows], int(folds[seen])))
