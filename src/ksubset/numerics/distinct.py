r"""Several distinct subsets, drawn without replacement: as if subsets were drawn one by one and repeats discarded.

Give each subset z a clock that rings after an exponential time of rate `p(z)`: the first S clocks that ring are those
of S draws without replacement. There are too many clocks to set. But the first of a set of clocks rings at the rate of
their sum, and given when that is, and whose clock it is, the others of the set still need exponential times from then
on. So one sets a clock for all subsets, and walks down a tree: a node is a choice of the r largest items of a subset,
its time is that of the first subset below it, its children are the choices of the next item, their rates come from
the table of `ksubset.numerics.sampling`. Of all nodes with r items the S with the earliest times are kept, as no other
has one of the first S subsets below it. Nothing is rejected, so that a distribution that is nearly a point mass takes
the same time, O(S n k), as any other.

This is stochastic beam search by Kool, van Hoof and Welling (2019), Stochastic Beams and Where to Find Them,
https://arxiv.org/abs/1903.06059, told with times, whose negative logarithms are the Gumbel variables of the paper.
"""

import math

import torch
from torch import Tensor

from ksubset.numerics.checks import all_known
from ksubset.numerics.sampling import SamplingTable, descending_rows

__all__ = ["first_two", "sample_distinct"]

# Entries of a block in float64, which bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20


def sample_distinct(table: SamplingTable, rows: Tensor, num_samples: int) -> Tensor:
    """Draw sets of distinct subsets, as k-hot masks in the order of the draws.

    Arguments:
        table: Of R distributions.
        rows: Which of them each set is drawn from.
        num_samples: Subsets S in a set.

    Raises:
        ValueError: A distribution has fewer than S subsets.

    Shapes:
        rows `(C)` -> `(C, S, n)`, boolean.
    """
    # Their number from logarithms, as it is beyond all floats; those of an integer are far from those of the next.
    free, places = (table.weights > -math.inf).sum(-1).double(), table.open_places.double()
    choices = torch.lgamma(free + 1) - torch.lgamma(places + 1) - torch.lgamma(free - places + 1)
    if all_known(choices > math.log(max(num_samples - 0.5, 0.5))) is False:
        fewest = round(math.exp(float(choices.min())))
        raise ValueError(f"there must be {num_samples} or more subsets to draw distinct ones, got {fewest} in a row")
    size = max(1, _BLOCK // max(1, num_samples * table.weights.shape[-1]))
    return torch.cat([_beam(table, part, num_samples) for part in rows.split(size)])


def _beam(table: SamplingTable, rows: Tensor, width: int) -> Tensor:
    weights, places, certain = table.weights[rows], table.open_places[rows], table.certain[rows]
    count, n = weights.shape
    # What is no item, -1, falls into a last column.
    chosen = torch.zeros(count, n + 1, dtype=torch.bool, device=weights.device)
    chosen = chosen.scatter_(-1, certain.remainder(n + 1), value=True)[:, None, :n].repeat(1, width, 1)
    # At first there is the root alone, whose time is arbitrary; the other places of the beam are empty.
    log_time = weights.new_full((count, width), math.inf)
    log_time[:, 0] = 0.0
    # Logarithm of a node's rate, but for the elementary symmetric polynomial of the items before its last one.
    log_rate = torch.zeros_like(log_time)
    end = torch.full_like(log_time, n, dtype=torch.int64)
    item = torch.arange(n, device=weights.device)
    for left, log_esp in descending_rows(table, rows):
        # A row enters with as many items left as it has open places; from then on the rates of a level sum to one.
        log_rate = log_rate - torch.where(places == left, log_esp[:, -1], 0.0)[:, None]
        if left == certain.shape[-1]:
            continue
        child = log_rate[..., None] + (weights + log_esp[:, :-1])[:, None]
        alone = torch.empty_like(child).exponential_().log_().sub_(child)
        alone.masked_fill_(item >= end[..., None], math.inf)
        # More than S children of one parent are never kept.
        alone, items = alone.topk(min(width, n), largest=False)
        # The first child rings when its parent does; the others need as much longer as they would without a parent.
        after = alone + torch.log(-torch.expm1(alone[..., :1] - alone))
        after.masked_fill_(alone.isposinf(), math.inf)  # also of a node without children, where inf - inf is NaN
        times, best = torch.logaddexp(log_time[..., None], after).flatten(1).topk(width, largest=False)
        parent, last = best // items.shape[-1], items.flatten(1).gather(-1, best)
        grown_rate = log_rate.gather(-1, parent) + weights.gather(-1, last)
        grown = chosen.gather(1, parent[..., None].expand(-1, -1, n)).scatter_(-1, last[..., None], value=True)
        is_open = (left < places)[:, None]
        log_time = torch.where(is_open, times, log_time)
        log_rate = torch.where(is_open, grown_rate, log_rate)
        # An empty place has no items left, and so no children.
        end = torch.where(is_open, last.masked_fill(log_time.isposinf(), 0), end)
        chosen = torch.where(is_open[..., None], grown, chosen)
    return chosen


def first_two(log_prob: Tensor) -> tuple[Tensor, Tensor]:
    r"""Which of a set of distinct subsets was drawn first, and which after it: probabilities given the set.

    The clocks of the subsets, of rates p, all ring before those of the rest, of rate q together, with probability

        int q exp(-q t) prod_s (1 - exp(-p_s t)) dt,

    and if s is known to have been the first, the others all ring before the rest with the same but for the factor of
    s. With x = p / q and the time in units of 1 / q, `P(first = s | set)` is proportional to

        int exp(-t) prod_{r != s} (1 - exp(-x_r t)) / x_r dt,

    and `P(second = r | first = s, set)` to the same without the factors of s and r. The integrals over log t are sums
    at equal steps, which converge exponentially. Nothing overflows or cancels, however small probabilities are.

    References:
        Kool, van Hoof and Welling (2020), Estimating Gradients for Discrete Random Variables by Sampling without
        Replacement, https://openreview.net/forum?id=rklEj2EFvB, for the integral.

    Shapes:
        log_prob `(C, S)`, S of 2 or more -> `(C, S)`, and `(C, S, S)` with zeros on the diagonal; float64.
    """
    size = log_prob.shape[-1]
    # The integrand peaks at log(S + 1) at the latest, as t^S exp(-t), with a width of 1 / sqrt(S + 1).
    spread = math.sqrt(size + 1)
    end = math.log(spread**2 + 9 * spread + 40)
    log_time = torch.arange(-36, end, min(0.25, 0.6 / spread), dtype=torch.float64, device=log_prob.device)
    parts = [_first_two(part, log_time) for part in log_prob.split(max(1, _BLOCK // (size * len(log_time))))]
    first, second = zip(*parts, strict=True)
    return torch.cat(first), torch.cat(second)


def _first_two(log_prob: Tensor, log_time: Tensor) -> tuple[Tensor, Tensor]:
    log_prob = log_prob.double()
    # Where the set is all that is likely, the rest is rounding noise, and the order no longer depends on it.
    rest = (1 - log_prob.exp().sum(-1, keepdim=True)).clamp(min=1e-16)
    # Nor does it depend on how small the small ones are.
    x = (log_prob.clamp(min=-600) - rest.log()).exp()[..., None]
    inverse = x / -torch.expm1(-x * log_time.exp())
    log_weight = log_time - log_time.exp() - inverse.log().sum(-2)
    weighted = (log_weight - log_weight.amax(-1, keepdim=True)).exp()[:, None] * inverse
    first = weighted.sum(-1)
    second = weighted @ inverse.mT
    second.diagonal(dim1=-2, dim2=-1).zero_()
    return first / first.sum(-1, keepdim=True), second / second.sum(-1, keepdim=True)
