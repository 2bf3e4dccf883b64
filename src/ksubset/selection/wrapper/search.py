r"""Search for the subset of exactly k of n items with the best score, when every evaluation of the score is dear.

The score of a subset is its mean over F folds, and one evaluation gives one fold of one subset. The search is told a
budget of evaluations and takes the first of these ways that the budget allows:

1. All subsets on all folds.
2. All subsets, racing (below), where there are at most half as many as evaluations.
3. **Exploration** with six tenths of the evaluations: a `KSubset` distribution is learned. It starts from a prior, as
   of thousands of items each is in few of the subsets that there will be. A batch of new subsets is drawn and raced.
   The slope of the score on membership, the natural gradient, comes from all evaluations so far: a subset has the
   weight `p(z) / q(z)`, with the present distribution p and the mixture q of all that subsets were drawn from. Under
   `E_p[score] + T entropy(p)` the best logits are the slope over the temperature T, taken here as half the slope's
   standard deviation: what is not known stays open, and pure noise moves nothing far. The logits move towards that, as
   far as the effective sample size allows, which is known before anything is drawn: `ESS / S = exp(-(A(2 w' - w) + A(w)
   - 2 A(w')))` with `A = log e_k` must be a half. Then the likeliest subset is scored as well, on all folds: all
   evaluations speak for it, where the best of a batch may be luck.
   **Refinement** with the rest: members of the best subset are swapped for outsiders, likeliest first, until no swap
   improves it. If evaluations are left then, exploration starts anew without the prior, with all that is known, until
   two such restarts in a row have found nothing better.

**Racing.** A batch starts on one fold, each batch on the next. Only the better half goes on to another fold, and of
these only subsets that may still beat the best: after j of F folds, with a mean lead over the best on the same folds
above `-2 s sqrt(1/j - 1/F)`, two standard deviations of what the other folds can change, where s is the standard
deviation of leads over folds. In refinement the second condition alone counts. For the slope one fold each of many
subsets is worth more than all folds of few; means over unequal folds are compared after subtracting the fold's effect.

**Confirmation.** The best of thousands of noisy scores is the luckiest. So the best eight subsets, among them one that
was the likeliest at its time, are scored on fresh folds, in rounds of F; after each the better half stays, two at the
end, and fresh scores alone decide. A tenth of the evaluations, or what that takes if it is less, is kept for it.
"""

import math
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ksubset.distributions import KSubset
from ksubset.numerics import log_normalizer
from ksubset.selection.wrapper.regression import fit_slope

__all__ = ["ROUNDS", "Search"]

_EXPLORATION = 0.6
_BATCH = 32
_RESTARTS = 2
_FINALISTS = 8
ROUNDS = 5
"""Rounds of F fresh folds that are of use."""


class Search:
    """The evaluations so far, and what to evaluate next.

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
        self._generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        self._rounds = min(ROUNDS, num_fresh // num_folds)
        in_full = sum(max(2, _FINALISTS >> r) for r in range(self._rounds)) * num_folds
        self._reserve = min(budget // 10, in_full)
        self.evaluations = 0
        self.subsets: NDArray[np.int64] = np.zeros((0, size), dtype=np.int64)
        self.scores: NDArray[np.float64] = np.zeros((0, num_folds))
        """Of each subset on each fold, `(N, F)`; NaN where it was not evaluated."""
        self.fresh: dict[int, list[float]] = {}
        """Scores of the finalists, by their row, on fresh folds."""
        self._prior = torch.zeros(num_items, dtype=torch.float64) if prior is None else torch.from_numpy(prior)
        self.logits = self._prior
        self._seen: set[bytes] = set()
        self._proposals: list[tuple[Tensor, float, int]] = []
        # Rows that were drawn, and not found by swaps.
        self._drawn: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        # Logarithm of the sum over proposals of the subsets drawn from it times a subset's probability.
        self._log_mixture = torch.zeros(0, dtype=torch.float64)
        # Rows of subsets that were the likeliest once.
        self._modes: list[int] = []
        self._batches = 0

    @property
    def best(self) -> int:
        """Row of the best subset: by fresh scores, by scores on all folds, or by what there is."""
        if self.fresh:
            most = max(map(len, self.fresh.values()))
            rows = [row for row, scores in self.fresh.items() if len(scores) == most]
            return max(rows, key=lambda row: (np.mean(self.fresh[row]), self.scores[row].mean(), -row))
        incumbent = self._incumbent()
        return int(self._values().argmax()) if incumbent is None else incumbent

    @property
    def inclusion(self) -> Tensor:
        """Inclusion probabilities `(n)` of the distribution as learned so far."""
        if self.size in (0, self.num_items):
            return torch.full_like(self.logits, float(self.size > 0))
        return KSubset(self.size, self.logits).mean

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
            self._learn()

    def _explore_and_refine(self, limit: int) -> Iterator[None]:
        best, logits, in_vain = None, self.logits, 0
        while in_vain <= _RESTARTS and self.evaluations < limit:
            self.logits = self._prior
            yield from self._explore(limit)
            yield from self._refine(limit)
            # What the prior led to is known by now, and it may have led past the best.
            self._prior = torch.zeros_like(self._prior)
            if (found := self._incumbent()) != best:
                best, logits, in_vain = found, self.logits, 0
            in_vain += 1
        self.logits = logits

    def _explore(self, limit: int) -> Iterator[None]:
        end = self.evaluations + _EXPLORATION * (limit - self.evaluations)
        while self.evaluations < end:
            # Racing takes about two evaluations for each subset.
            batch = self._draw(min(max(_BATCH, len(self.subsets) // 8), -(-(limit - self.evaluations) // 2)))
            if not len(batch):
                return
            self._race(batch, limit, drawn=True)
            self._learn()
            self._race_mode(limit)
            yield
            # Less than half an item is open: swaps try these more systematically.
            if self.inclusion.topk(self.size).values.sum() > self.size - 0.5:
                return

    def _race_mode(self, limit: int) -> None:
        """Evaluate the likeliest subset, which all evaluations speak for, and not one that may be luck."""
        mode = np.sort(np.argsort(-self.logits.numpy(), kind="stable")[: self.size])
        if mode.tobytes() not in self._seen and self.evaluations < limit:
            self._race(mode[None], limit, drawn=False, halve=False, stop=False)
            self._modes.append(len(self.subsets) - 1)

    def _refine(self, limit: int) -> Iterator[None]:
        while (best := self._incumbent()) is not None:
            swaps = self._swaps(self.subsets[best])
            while batch := list(islice(swaps, min(_BATCH, limit - self.evaluations))):
                self._race(np.stack(batch), limit, drawn=False, halve=False)
                yield
                if self._incumbent() != best:
                    break
            else:
                return

    def _confirm(self) -> Iterator[None]:
        complete = self._complete()
        count = min(_FINALISTS, (self.budget - self.evaluations) // self.num_folds)
        rows = complete[np.argsort(-self.scores[complete].mean(1), kind="stable")]
        mode = rows[np.isin(rows, self._modes)][:1]
        rows = np.append(mode, rows[~np.isin(rows, mode)])[:count]
        for turn in range(self._rounds):
            if not len(rows) or self.budget - self.evaluations < len(rows) * self.num_folds:
                return
            folds = range(self.num_folds * (turn + 1), self.num_folds * (turn + 2))
            scores = np.stack([self._scores(self.subsets[rows], fold) for fold in folds], 1)
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
        best, deviation = self._incumbent(), self._deviation_of_leads()
        folds = (self._batches + np.arange(self.num_folds)) % self.num_folds
        batch = batch[: limit - self.evaluations]
        first = self._scores(batch, int(folds[0]))
        rows = np.arange(len(self.subsets), len(self.subsets) + len(batch))
        if drawn:
            self._proposed(batch)
        scores = np.full((len(batch), self.num_folds), np.nan)
        scores[:, folds[0]] = first
        self.subsets, self.scores = np.concatenate([self.subsets, batch]), np.concatenate([self.scores, scores])
        self._seen |= {subset.tobytes() for subset in batch}
        self._batches += 1
        for seen in range(1, self.num_folds):
            mean = self.scores[rows[:, None], folds[:seen]].mean(1)
            order = np.argsort(-mean, kind="stable")
            if halve:
                order = order[: -(-len(order) // 2)]
            if stop and best is not None:
                slack = 2 * deviation * math.sqrt(1 / seen - 1 / self.num_folds)
                order = order[mean[order] >= self.scores[best, folds[:seen]].mean() - slack]
            rows = rows[order][: limit - self.evaluations]
            if not len(rows):
                return
            self.scores[rows, folds[seen]] = self._scores(self.subsets[rows], int(folds[seen]))

    def _complete(self) -> NDArray[np.intp]:
        """Rows with a finite score on every fold."""
        return np.flatnonzero(np.isfinite(self.scores).all(1))

    def _incumbent(self) -> int | None:
        complete = self._complete()
        return int(complete[self.scores[complete].mean(1).argmax()]) if len(complete) else None

    def _deviation_of_leads(self) -> float:
        """Standard deviation over folds of how far a subset leads the best; infinite while that is unknown."""
        complete = self._complete()
        if len(complete) < 3 or self.num_folds < 2:
            return math.inf
        leads = self.scores[complete] - self.scores[self._incumbent()]
        leads -= leads.mean(1, keepdims=True)
        return math.sqrt((leads**2).sum() / ((len(complete) - 1) * (self.num_folds - 1)))

    def _values(self) -> NDArray[np.float64]:
        """The scores of all subsets, comparable between different folds, without outliers."""
        complete = self._complete()
        if len(complete):
            effect = (self.scores[complete] - self.scores[complete].mean(1, keepdims=True)).mean(0)
        else:
            effect = np.zeros(self.num_folds)
        values = np.nanmean(self.scores - effect, 1)
        finite = values[np.isfinite(values)]
        if not len(finite):
            return np.zeros_like(values)
        low, high = np.quantile(finite, [0.25, 0.75])
        floor = max(float(low - 3 * (high - low)), float(finite.min()))
        return np.where(values > floor, values, floor)

    def _draw(self, count: int) -> NDArray[np.int64]:
        """Up to so many distinct subsets that were never evaluated; fewer if they are hard to come by."""
        dist = KSubset(self.size, self.logits)
        new: dict[bytes, NDArray[np.int64]] = {}
        for _ in range(8):
            for subset in dist.sample_indices((count,), generator=self._generator).numpy():
                if (key := subset.tobytes()) not in self._seen:
                    new.setdefault(key, subset)
            if len(new) >= count:
                break
        return np.array(list(new.values())[:count], dtype=np.int64).reshape(-1, self.size)

    def _proposed(self, batch: NDArray[np.int64]) -> None:
        """Note that a batch was drawn from the present distribution."""
        normalizer = float(log_normalizer(self.logits, self.size))
        new = (self.logits.clone(), normalizer, len(batch))
        self._proposals.append(new)
        old = torch.logaddexp(self._log_mixture, self._log_share(self.subsets[self._drawn], new))
        self._drawn = np.append(self._drawn, len(self.subsets) + np.arange(len(batch)))
        shares = [self._log_share(batch, proposal) for proposal in self._proposals]
        self._log_mixture = torch.cat([old, torch.logsumexp(torch.stack(shares), 0)])

    @staticmethod
    def _log_share(subsets: NDArray[np.int64], proposal: tuple[Tensor, float, int]) -> Tensor:
        logits, normalizer, count = proposal
        return logits[torch.from_numpy(subsets)].sum(-1) - normalizer + math.log(count)

    def _learn(self) -> None:
        """Move the logits towards the slope over the temperature."""
        subsets = torch.from_numpy(self.subsets[self._drawn])
        log_weights = self.logits[subsets].sum(-1) - self._log_mixture
        weights = (log_weights - log_weights.max()).exp()
        # Their sum is the effective sample size.
        weights = weights * (weights.sum() / weights.square().sum())
        slope = fit_slope(subsets, torch.from_numpy(self._values()[self._drawn]), weights, self.num_items)
        self._move(self._prior + 2 * slope.mean / slope.deviation)

    def _move(self, target: Tensor) -> None:
        w = self.logits
        present = log_normalizer(w, self.size)

        def keeps_half(share: float) -> bool:
            new = torch.lerp(w, target, share)
            beyond, there = log_normalizer(torch.stack([2 * new - w, new]), self.size)
            return bool(beyond + present - 2 * there <= math.log(2))

        low, high = (1.0, 1.0) if keeps_half(1.0) else (0.0, 1.0)
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if keeps_half(middle) else (low, middle)
        moved = torch.lerp(w, target, low)
        self.logits = moved - moved.mean()

    def _swaps(self, best: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """New subsets that differ from the best in one item, those that raise the logits most first."""
        logits = self.logits.tolist()
        members = set(best.tolist())
        others = sorted((item for item in range(self.num_items) if item not in members), key=lambda item: -logits[item])

        def cost(member: int) -> Iterator[tuple[float, int, int]]:
            return ((logits[member] - logits[other], member, other) for other in others)

        # Merged as they are asked for, as all pairs might not fit into memory.
        for _, member, other in merge(*map(cost, best.tolist())):
            subset = np.array(sorted(members - {member} | {other}), dtype=np.int64)
            if subset.tobytes() not in self._seen:
                yield subset
