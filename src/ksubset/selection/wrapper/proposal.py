r"""The distribution that new subsets are drawn from, learned from the scores of those drawn so far.

The slope of the score on membership, the natural gradient, comes from all subsets that were drawn: each has the weight
`p(z) / q(z)`, with the present distribution p and the mixture q of all that subsets were drawn from (deterministic
mixture importance sampling). Under `E_p[score] + T entropy(p)` the best logits are the slope over the temperature T,
taken here as half the slope's standard deviation: what is not known stays open, and pure noise moves nothing far. The
logits move towards that, as far as the effective sample size allows, which is known before anything is drawn:
`ESS / S = exp(-(A(2 w' - w) + A(w) - 2 A(w')))` with `A = log e_k` must be a half.
"""

import math
from collections.abc import Iterator
from heapq import merge

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ksubset.distributions.ksubset import KSubset
from ksubset.numerics import log_normalizer
from ksubset.search.slope import fit_slope
from ksubset.selection.wrapper.scores import ScoreTable

__all__ = ["Proposal"]


class Proposal:
    """A distribution over k-subsets that learns from a table of scores.

    Arguments:
        table: The scores; subsets in it are not drawn again.
        prior: Logits `(n)`, float64, to start from, which what is learned is added to.
        generator: Of the subsets drawn.
    """

    def __init__(self, table: ScoreTable, prior: Tensor, generator: torch.Generator) -> None:
        self._table, self._prior, self._generator = table, prior, generator
        self._size = table.subsets.shape[1]
        self.logits = prior
        """At present, `(n)`."""
        # Logits, normalizer and number of subsets of each distribution that subsets were drawn from.
        self._past: list[tuple[Tensor, float, int]] = []
        self.drawn: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        """Rows of the subsets that were drawn, and not found by swaps."""
        self.log_mixture = torch.zeros_like(prior[:0])
        """Logarithm of the sum, over all distributions so far, of the subsets drawn times the probability of each."""

    @property
    def inclusion(self) -> Tensor:
        """Inclusion probabilities `(n)`."""
        if self._size in (0, len(self.logits)):
            return torch.full_like(self.logits, float(self._size > 0))
        return KSubset(self._size, self.logits).mean

    def likeliest(self, count: int) -> NDArray[np.int64]:
        """So many items, if there are, the likeliest first."""
        return np.argsort(-self.logits.numpy(), kind="stable")[:count]

    def draw(self, count: int) -> NDArray[np.int64]:
        """Up to so many distinct subsets that are not in the table; fewer if they are hard to come by."""
        dist = KSubset(self._size, self.logits)
        new: dict[bytes, NDArray[np.int64]] = {}
        for _ in range(8):
            for subset in dist.sample_indices((count,), generator=self._generator).numpy():
                if subset not in self._table:
                    new.setdefault(subset.tobytes(), subset)
            if len(new) >= count:
                break
        return np.array(list(new.values())[:count], dtype=np.int64).reshape(-1, self._size)

    def record(self, rows: NDArray[np.intp]) -> None:
        """Note that subsets, now in these rows of the table, were drawn from the present distribution."""
        self._past.append((self.logits.clone(), float(log_normalizer(self.logits, self._size)), len(rows)))
        old = torch.logaddexp(self.log_mixture, self._log_shares(self.drawn, self._past[-1]))
        new = torch.logsumexp(torch.stack([self._log_shares(rows, one) for one in self._past]), 0)
        self.drawn, self.log_mixture = np.append(self.drawn, rows), torch.cat([old, new])

    def _log_shares(self, rows: NDArray[np.intp], past: tuple[Tensor, float, int]) -> Tensor:
        logits, normalizer, count = past
        return logits[torch.from_numpy(self._table.subsets[rows])].sum(-1) - normalizer + math.log(count)

    def learn(self) -> None:
        """Move the logits towards the slope over the temperature."""
        subsets = torch.from_numpy(self._table.subsets[self.drawn])
        log_weights = self.logits[subsets].sum(-1) - self.log_mixture
        weights = (log_weights - log_weights.max()).exp()
        # Their sum is the effective sample size.
        weights = weights * (weights.sum() / weights.square().sum())
        values = torch.from_numpy(self._table.values()[self.drawn])
        slope = fit_slope(subsets, values, weights, len(self.logits))
        self.move(self._prior + 2 * slope.mean / slope.deviation)

    def move(self, target: Tensor) -> None:
        """Move the logits towards a target `(n)`, until half of the effective sample size is left."""
        w = self.logits
        present = log_normalizer(w, self._size)

        def keeps_half(share: float) -> bool:
            new = torch.lerp(w, target, share)
            beyond, there = log_normalizer(torch.stack([2 * new - w, new]), self._size)
            return bool(beyond + present - 2 * there <= math.log(2))

        low, high = (1.0, 1.0) if keeps_half(1.0) else (0.0, 1.0)
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if keeps_half(middle) else (low, middle)
        moved = torch.lerp(w, target, low)
        self.logits = moved - moved.mean()

    def restart(self) -> None:
        """Start from equal logits, and without the prior."""
        self.logits = self._prior = torch.zeros_like(self._prior)

    def swaps(self, best: NDArray[np.int64], out: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Subsets not in the table that have another item in place of one of `out`; those likeliest come first."""
        logits = self.logits.tolist()
        members = set(best.tolist())
        others = sorted((item for item in range(len(logits)) if item not in members), key=lambda item: -logits[item])

        def cost(member: int) -> Iterator[tuple[float, int, int]]:
            return ((logits[member] - logits[other], member, other) for other in others)

        # Merged as they are asked for, as all pairs might not fit into memory.
        for _, member, other in merge(*map(cost, out.tolist())):
            subset = np.array(sorted(members - {member} | {other}), dtype=np.int64)
            if subset not in self._table:
                yield subset
