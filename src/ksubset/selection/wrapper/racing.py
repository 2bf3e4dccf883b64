r"""Search for the subset of exactly k of n items with the best score, when every evaluation of the score is dear.

The score of a subset is its mean over F folds, and one evaluation gives one fold of one subset. The search is told a
budget of evaluations and takes the first of these ways that the budget allows:

1. All subsets on all folds.
2. All subsets on some folds, and the better ones on the others, by successive halving.
3. **Exploration** with six tenths of the evaluations: a distribution is learned, as `Proposal` says. It starts from a
   prior, as of thousands of items each is in few of the subsets that there will be. A batch of new subsets is drawn and
   raced, and the distribution learns from it. Then the likeliest subset is scored as well, on all folds: all
   evaluations speak for it, where the best of a batch may be luck.
   **Refinement** with the rest: members of the best subset are swapped for outsiders, likeliest first, until no swap
   improves it. Then those that racing left behind and that may still beat the best **come back**, the most promising
   first. If evaluations are left, exploration starts anew without the prior, with all that is known, until two such
   restarts in a row have found nothing better, or, where the budget is asked for, until it is used.
   Where it is not asked for, and the best score may well be chance, the search goes on in way 2, if that is affordable.

With a limit in time, which may end the search before all subsets, way 3 with half of the budget comes first.

**Near-copies.** Of items that say nearly the same a subset needs one. So the likeliest subset is that of items without
near-copies; refinement first parts those in the best subset, and last makes new ones; and of two subsets the one with
fewer is the better if it loses no more than two standard errors of the difference over folds.

**Racing.** A batch starts on some folds, each batch on the next, and the better half goes on to others at once. A
subset is given up by a test on paired differences alone: after j of F folds, its mean lead over the best on the same
folds is below `-2 s sqrt(1/j - 1/F)`, two standard deviations of what the other folds can change, where s is the
standard deviation of leads over folds. Differences on the same rows have much less noise than scores, and thirty of
them have a mean that is about normal: folds are taken together until they have so many rows, and nothing is decided on
fewer. For the slope one fold each of many subsets is worth more than all folds of few; means over unequal folds are
compared after subtracting the fold's effect.

**Confirmation.** The best of thousands of noisy scores is the luckiest. So the best eight subsets, among them one that
was the likeliest at its time, are scored on fresh folds, in rounds of F; after each the better half stays, two at the
end, and fresh scores alone decide. A tenth of the evaluations, or what that takes if it is less, is kept for it.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.selection.wrapper.proposal import Proposal
from ksubset.selection.wrapper.redundancy import Redundancy
from ksubset.selection.wrapper.scores import ScoreTable
from ksubset.selection.wrapper.stages import each_with_each, in_stages

__all__ = ["ROUNDS", "RacingSearch"]

_EXPLORATION = 0.6
_BATCH = 32
_RESTARTS = 2
_FINALISTS = 8
_MOST_LISTED = 1_000_000  # subsets that are all tried, at most
_PARTED = 64  # swaps at most that come before others: an outsider may be any of thousands
ROUNDS = 5
"""Rounds of F fresh folds that are of use."""


class RacingSearch:
    """What to evaluate next, and for how much of the budget.

    Arguments:
        evaluate: Maps subsets `(S, k)`, ascending indices, and the number of a fold for each `(S)` to scores, one after
            the other; larger is better, and what is not finite counts as the worst. Folds from F on are fresh ones.
        num_items: Items n.
        size: Items k in a subset.
        fold_rows: Rows that each of the F folds, whose mean is the score, is scored on.
        budget: Evaluations at most.
        seed: Of all that is random.
        after_score: Called when a score is entered, before the next evaluation; what it raises ends the search.
        num_fresh: Fresh folds there are, a multiple of F; none means no confirmation.
        prior: Logits `(n)` to start from, which evaluations are added to; equal ones if there is no better guess.
        use_all: Whether the search goes on until the budget is used, though nothing better is found.
        max_seconds: After nine tenths of them nothing but the confirmation is begun; None for no end.
        chance: Scores `(F)` of a model that looks at no item; None if they are not known.
        most: Evaluations at most where none of the budget has found anything better than chance, and they are enough to
            try all subsets.
        alike: Maps items `(m)` to which of them are near-copies of each other `(m, m)`, or on the diagonal of something
            in each subset; None if there are none.
    """

    def __init__(
        self,
        evaluate: Callable[[NDArray[np.int64], NDArray[np.intp]], Iterable[float]],
        num_items: int,
        size: int,
        fold_rows: Sequence[int],
        budget: int,
        seed: int,
        after_score: Callable[[], None] = lambda: None,
        num_fresh: int = 0,
        prior: NDArray[np.float64] | None = None,
        *,
        use_all: bool = False,
        max_seconds: float | None = None,
        chance: NDArray[np.float64] | None = None,
        most: int = 0,
        alike: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None = None,
    ) -> None:
        self._evaluate, self._after_score, self._use_all = evaluate, after_score, use_all
        self.num_items, self.size, self.num_folds, self.budget = num_items, size, len(fold_rows), budget
        self._rng = np.random.default_rng([seed, size])
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        self._rounds = min(ROUNDS, num_fresh // self.num_folds)
        in_full = sum(max(2, _FINALISTS >> r) for r in range(self._rounds)) * self.num_folds
        self._reserve = min(budget // 10, in_full, budget - self.num_folds)
        self._end = math.inf if max_seconds is None else time.monotonic() + 0.9 * max_seconds
        self._fold_rows = fold_rows
        self._most_at_once = max(map(len, in_stages(fold_rows)))
        self.evaluations = 0
        self.table = ScoreTable(size, self.num_folds)
        self._chance, self._most = chance, most
        self._copies = Redundancy(alike)
        start = torch.from_numpy(np.zeros(num_items) if prior is None else prior)
        self.proposal = Proposal(self.table, start, generator)
        self.fresh: dict[int, list[float]] = {}
        """Scores of the finalists, by their row, on fresh folds."""
        self.modes: list[int] = []
        """Rows of subsets that were the likeliest once."""
        self.finished = False
        """Whether the search has come to its end, and was not left before."""
        self._batches = 0

    @property
    def best(self) -> int:
        """Row of the best subset: by fresh scores, by scores on all folds, or by what there is."""
        if self.fresh:
            most = max(map(len, self.fresh.values()))
            rows = [row for row, scores in self.fresh.items() if len(scores) == most]
            return max(rows, key=lambda row: (np.mean(self.fresh[row]), self.table.scores[row].mean(), -row))
        preferred = self._preferred
        return int(self.table.values().argmax()) if preferred is None else preferred

    @property
    def _preferred(self) -> int | None:
        """Row of the best subset by scores on all folds, unless one with fewer near-copies is as good."""
        return self.table.preferred(self._copies.count)

    def run(self) -> Iterator[None]:
        """Search and confirm; yields after each batch, so that the caller may look, or leave."""
        limit = self.budget - self._reserve
        number = math.comb(self.num_items, self.size)
        listed = number if number <= _MOST_LISTED else math.inf
        # A quarter more than all on the first folds, for the better ones on the others.
        in_full, halved = listed * self.num_folds, listed * len(in_stages(self._fold_rows)[0]) * 1.25
        if self._end < math.inf and number > 1 and halved <= limit:
            yield from self._explore_and_refine(limit // 2)
        if in_full <= limit:
            yield from self._try_all(limit)
        elif halved <= limit - self.evaluations:
            yield from self._halve_all(limit)
        else:
            yield from self._explore_and_refine(limit)
            most = self._most - self._reserve
            by_chance = self._chance is not None and self.table.is_by_chance(self._chance)
            if halved <= most - self.evaluations and by_chance:
                self.budget = self._most
                yield from self._halve_all(most)
        yield from self._confirm()
        self.finished = True

    def _is_open(self, limit: int) -> bool:
        """Whether evaluations and time are left for another subset on some folds, or there has been none."""
        has_time = time.monotonic() < self._end or not len(self.table)
        return limit - self.evaluations >= self._most_at_once and has_time

    def _try_all(self, limit: int) -> Iterator[None]:
        everything = self._all_subsets()
        yield from self._fill(np.arange(len(self.table)), np.arange(self.num_folds), limit)
        new = everything[[subset not in self.table for subset in everything]]
        for start in range(0, len(new), 2 * _BATCH):
            if not self._is_open(limit):
                break
            self._race(new[start : start + 2 * _BATCH], limit, drawn=len(everything) > 1, in_full=True)
            yield
        self._learn_from_all(len(everything))

    def _halve_all(self, limit: int) -> Iterator[None]:
        stages, everything = self._next_stages(), self._all_subsets()
        rows = np.arange(len(self.table))
        yield from self._fill(rows, stages[0], limit)
        new = everything[[subset not in self.table for subset in everything]]
        for start in range(0, len(new), 2 * _BATCH):
            if not self._is_open(limit):
                break
            rows = np.append(rows, self._score_new(new[start : start + 2 * _BATCH], stages[0], drawn=True))
            yield
        for place in range(1, len(stages)):
            seen = np.concatenate(stages[:place])
            mean = self.table.scores[rows[:, None], seen].mean(1)
            # As many as there are evaluations for on all folds that are left, and no more than half.
            possible = (limit - self.evaluations) // sum(map(len, stages[place:]))
            rows = rows[np.argsort(-mean, kind="stable")][: min(-(-len(rows) // 2), possible)]
            yield from self._fill(rows, stages[place], limit)
        self._learn_from_all(len(everything))

    def _fill(self, rows: NDArray[np.intp], folds: NDArray[np.intp], limit: int) -> Iterator[None]:
        """Score subsets on those of some folds where they have no score."""
        for start in range(0, len(rows), 2 * _BATCH):
            if not self._is_open(limit):
                break
            each, fold = each_with_each(rows[start : start + 2 * _BATCH], folds)
            unknown = np.isnan(self.table.scores[each, fold])
            self._score(each[unknown], fold[unknown])
            yield

    def _all_subsets(self) -> NDArray[np.int64]:
        everything = np.array(list(combinations(range(self.num_items), self.size)), dtype=np.int64)
        self._rng.shuffle(everything)
        return everything

    def _learn_from_all(self, number: int) -> None:
        # As all is known, repeated steps lead to where sampling would have led.
        for _ in range(10 if number > 1 else 0):
            self.proposal.learn()

    def _explore_and_refine(self, limit: int) -> Iterator[None]:
        best, logits, in_vain = None, self.proposal.logits, 0
        while self._is_open(limit) and (self._use_all or in_vain <= _RESTARTS):
            before = self.evaluations
            yield from self._explore(limit)
            yield from self._refine(limit)
            yield from self._come_back(limit)
            if (found := self.table.incumbent) != best:
                best, logits, in_vain = found, self.proposal.logits, 0
            in_vain += 1
            # What the prior led to is known by now, and it may have led past the best.
            self.proposal.restart()
            if self.evaluations == before:
                break
        self.proposal.logits = logits

    def _explore(self, limit: int) -> Iterator[None]:
        end = self.evaluations + _EXPLORATION * (limit - self.evaluations)
        while self.evaluations < end and self._is_open(limit):
            # Racing takes about two evaluations for each subset, where a fold has rows enough.
            left = (limit - self.evaluations) // (2 * self._most_at_once)
            batch, before = self.proposal.draw(max(1, min(max(_BATCH, len(self.table) // 8), left))), self.evaluations
            self._race(batch, limit, drawn=True)
            if self.evaluations == before:
                return
            self.proposal.learn()
            self._race_mode(limit)
            yield
            # Less than half an item is open: swaps try these more systematically.
            if self.proposal.inclusion.topk(self.size).values.sum() > self.size - 0.5:
                return

    def _race_mode(self, limit: int) -> None:
        """Evaluate the likeliest subset, which all evaluations speak for, and not one that may be luck."""
        mode = np.sort(self._copies.thinned(self.proposal.likeliest(2 * self.size), self.size))
        if mode not in self.table and self.evaluations + self.num_folds <= limit:
            self._race(mode[None], limit, drawn=False, in_full=True)
            self.modes.append(len(self.table) - 1)

    def _refine(self, limit: int) -> Iterator[None]:
        while (best := self._preferred) is not None:
            swaps = self._swaps(best)
            while self._is_open(limit) and (batch := list(islice(swaps, _BATCH))):
                self._race(np.stack(batch), limit, drawn=False, halve=False)
                yield
                if self._preferred != best:
                    break
            else:
                return

    def _swaps(self, best: int) -> Iterator[NDArray[np.int64]]:
        """Swaps that part near-copies, then those that make none, and then the others; each once."""
        subset, count, told = self.table.subsets[best], self._copies.count, set()
        copies = count(subset)
        parting = self.proposal.swaps(subset, self._copies.redundant(subset))
        parted = islice((swap for swap in parting if count(swap) < copies), _PARTED)
        making_none = (swap for swap in self.proposal.swaps(subset, subset) if count(swap) <= copies)
        for swap in chain(parted, making_none, self.proposal.swaps(subset, subset)):
            if (key := swap.tobytes()) not in told:
                told.add(key)
                yield swap

    def _come_back(self, limit: int) -> Iterator[None]:
        """With up to half of what is left, go on with subsets that may still beat the best."""
        table, end = self.table, self.evaluations + (limit - self.evaluations) // 2
        while self._is_open(end) and (best := table.incumbent) is not None:
            seen = ~np.isnan(table.scores)
            rows = np.flatnonzero(~seen.all(1))
            count = seen[rows].sum(1)
            leads = np.where(seen[rows], table.scores[rows] - table.scores[best], 0.0).sum(1) / count
            bounds = leads + 2 * table.deviation_of_leads() * np.sqrt(1 / count - 1 / self.num_folds)
            order = np.argsort(-bounds, kind="stable")[:_BATCH]
            rows = rows[order[(bounds[order] > 0) & np.isfinite(bounds[order])]]
            if not len(rows):
                return
            wanted = [(row, fold) for row in rows for fold in self._unseen(seen[row])][: end - self.evaluations]
            self._score(np.array([row for row, _ in wanted]), np.array([fold for _, fold in wanted]))
            yield

    def _unseen(self, seen: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The next folds of a subset, that have rows enough to decide on."""
        folds = np.flatnonzero(~seen)
        return folds[in_stages([self._fold_rows[fold] for fold in folds.tolist()])[0]]

    def _confirm(self) -> Iterator[None]:
        complete = self.table.complete
        count = min(_FINALISTS, (self.budget - self.evaluations) // self.num_folds)
        rows = complete[np.argsort(-self.table.scores[complete].mean(1), kind="stable")]
        if (preferred := self._preferred) is not None and preferred != rows[0]:
            subsets, copies = self.table.subsets, self._copies.count
            most = copies(subsets[preferred])
            rows = np.array([row for row in rows.tolist() if copies(subsets[row]) <= most])
        mode = rows[np.isin(rows, self.modes)][:1]
        rows = np.append(mode, rows[~np.isin(rows, mode)])[:count]
        for turn in range(self._rounds):
            if not len(rows) or self.budget - self.evaluations < len(rows) * self.num_folds:
                return
            folds = np.arange(self.num_folds * (turn + 1), self.num_folds * (turn + 2))
            # Of all or none, as means over different folds are not compared.
            scores = np.reshape(list(self._evaluations(*each_with_each(rows, folds))), (len(rows), -1))
            # A fold with a score of no finalist, as one class alone has no ROC AUC, says nothing of them.
            scores = scores[:, np.isfinite(scores).any(0)]
            whole = np.isfinite(scores).all(1)
            if not scores.size or not whole.any():
                return
            rows = rows[whole]
            for row, more in zip(rows.tolist(), scores[whole].tolist(), strict=True):
                self.fresh[row] = self.fresh.get(row, []) + more
            mean = np.array([np.mean(self.fresh[row]) for row in rows.tolist()])
            rows = rows[np.argsort(-mean, kind="stable")][: max(2, len(rows) // 2)]
            yield

    def _evaluations(self, rows: NDArray[np.intp], folds: NDArray[np.intp]) -> Iterator[float]:
        for score in self._evaluate(self.table.subsets[rows], folds):
            self.evaluations += 1
            yield score if math.isfinite(score) else -math.inf
            self._after_score()

    def _score(self, rows: NDArray[np.intp], folds: NDArray[np.intp]) -> None:
        """Enter scores as they come: what ends this early loses none."""
        pairs = zip(rows.tolist(), folds.tolist(), strict=True)
        for (row, fold), score in zip(pairs, self._evaluations(rows, folds), strict=True):
            self.table.scores[row, fold] = score

    def _score_new(self, batch: NDArray[np.int64], folds: NDArray[np.intp], *, drawn: bool) -> NDArray[np.intp]:
        """Rows of new subsets, scored on some folds."""
        rows = self.table.add(batch)
        try:
            self._score(*each_with_each(rows, folds))
        finally:
            self.table.drop_unscored()
        if drawn:
            self.proposal.record(rows)
        return rows

    def _next_stages(self) -> list[NDArray[np.intp]]:
        """All folds, taken together until they have rows enough; each time from another one on."""
        folds = (self._batches + np.arange(self.num_folds)) % self.num_folds
        self._batches += 1
        return [folds[stage] for stage in in_stages([self._fold_rows[fold] for fold in folds.tolist()])]

    def _race(
        self, batch: NDArray[np.int64], limit: int, *, drawn: bool, halve: bool = True, in_full: bool = False
    ) -> None:
        """Evaluate new subsets on some folds after the others, and fewer on each."""
        table = self.table
        best, deviation = table.incumbent, table.deviation_of_leads()
        stages = self._next_stages()
        if in_full:
            stages = [np.concatenate(stages)]

        def affordable(place: int) -> int:
            # As long as no subset has all its scores, one of each batch has to get them.
            reserve = 0 if best is not None else sum(map(len, stages[place + 1 :]))
            return max(0, limit - self.evaluations - reserve) // len(stages[place])

        batch = batch[: affordable(0)]
        if not len(batch):
            return
        rows = self._score_new(batch, stages[0], drawn=drawn)
        for place in range(1, len(stages)):
            seen = np.concatenate(stages[:place])
            mean = table.scores[rows[:, None], seen].mean(1)
            order = np.argsort(-mean, kind="stable")
            if halve:
                order = order[: -(-len(order) // 2)]
            if best is not None:
                slack = 2 * deviation * math.sqrt(1 / len(seen) - 1 / self.num_folds)
                order = order[mean[order] >= table.scores[best, seen].mean() - slack]
            rows = rows[order][: affordable(place)]
            if not len(rows):
                return
            self._score(*each_with_each(rows, stages[place]))
