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
import numbers
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ksubset.numerics.checks import all_known
from ksubset.numerics.inversion import SamplingTable, descending_rows
from ksubset.numerics.random import uniform

__all__ = ["first_two", "sample_distinct"]

# Entries of a block in float64, which bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20


def sample_distinct(
    stages: Sequence[tuple[SamplingTable, Tensor]], num_samples: int, generator: Generator | None = None
) -> list[Tensor]:
    """Draw sets of distinct subsets, as k-hot masks in the order of the draws.

    Arguments:
        stages: The independent parts that a subset consists of: each the table of R distributions, and which of them
            the part is drawn from in each set, `(C)`.
        num_samples: Subsets S in a set.
        generator: Of the random numbers; by default torch's own.

    Raises:
        TypeError: `num_samples` is no integer.
        ValueError: It is negative, or a set has fewer than S subsets.

    Shapes:
        -> `(C, S, n)` for each stage, boolean.
    """
    if isinstance(num_samples, bool) or not isinstance(num_samples, numbers.Integral):
        raise TypeError(f"num_samples must be an integer, got {num_samples!r}")
    if num_samples < 0:
        raise ValueError(f"num_samples must be 0 or more, got {num_samples}")
    # Their number from logarithms, as it is beyond all floats; those of an integer are far from those of the next.
    choices = sum(_log_choices(table)[rows] for table, rows in stages)
    if isinstance(choices, Tensor) and all_known(choices > math.log(max(num_samples - 0.5, 0.5))) is False:
        fewest = round(math.exp(float(choices.min())))
        raise ValueError(f"there must be {num_samples} or more subsets to draw distinct ones, got {fewest} in a row")
    widest = max([1, *(table.weights.shape[-1] for table, _ in stages)])
    size = max(1, _BLOCK // max(1, num_samples * widest))
    number = len(stages[0][1]) if stages else 0
    parts = [
        _walk([(table, rows[start : start + size]) for table, rows in stages], num_samples, generator)
        for start in range(0, max(number, 1), size)
    ]
    return [torch.cat(masks) for masks in zip(*parts, strict=True)]


def _log_choices(table: SamplingTable) -> Tensor:
    """Logarithm of the number of subsets, `(R)`."""
    free, places = (table.weights > -math.inf).sum(-1).double(), table.open_places.double()
    if table.log_share is not None:
        free, places = free[:, None], torch.arange(table.log_share.shape[-1], device=free.device).double()
    choices = torch.lgamma(free + 1) - torch.lgamma(places + 1) - torch.lgamma((free - places).clamp(min=0) + 1)
    if table.log_share is None:
        return choices
    return torch.where((table.log_share > -math.inf) & (places <= free), choices, -math.inf).logsumexp(-1)


def _walk(stages: Sequence[tuple[SamplingTable, Tensor]], width: int, generator: Generator | None) -> list[Tensor]:
    """The beam from the root to the leaves, one part of the subsets after the other; masks `(C, S, n)` of each."""
    rows, device = stages[0][1], stages[0][0].weights.device
    # At first there is the root alone, whose time is arbitrary; the other places of the beam are empty.
    log_time = torch.full((len(rows), width), math.inf, dtype=torch.float64, device=device)
    log_time = torch.where(torch.arange(width, device=device) == 0, 0.0, log_time)
    log_rate = torch.zeros_like(log_time)
    grown = []
    for table, rows in stages:
        log_time, log_rate, origin, mask = _grow(table, rows, log_time, log_rate, generator)
        grown.append((origin, mask))
    # Who of the beam is whose child is known last; the way back collects the parts of each survivor.
    node = torch.arange(width, device=device).expand(len(rows), -1)
    masks = []
    for origin, mask in reversed(grown):
        masks.append(mask.gather(1, node[..., None].expand(-1, -1, mask.shape[-1])))
        node = origin.gather(1, node)
    return masks[::-1]


def _grow(
    table: SamplingTable, rows: Tensor, log_time: Tensor, log_rate: Tensor, generator: Generator | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Choose one part of the subsets: new times and rates, which node of the old beam each comes from, and the masks.

    Shapes: rows `(C)`, log_time and log_rate `(C, S)` -> `(C, S)` three times, `(C, S, n)`.
    """
    weights, certain = table.weights[rows], table.certain[rows]
    (count, n), width, device = weights.shape, log_time.shape[-1], weights.device
    origin = torch.arange(width, device=device).expand(count, -1)
    places = table.open_places[rows][:, None].expand(-1, width)
    if table.log_share is not None:
        child = log_rate[..., None] + table.log_share[rows][:, None]
        log_time, origin, places = _ring(log_time, child, torch.zeros_like(places, dtype=torch.bool), generator)
        log_rate = child.flatten(1).gather(-1, origin * child.shape[-1] + places)
    # What is no item, -1, falls into a last column.
    chosen = torch.zeros(count, n + 1, dtype=torch.bool, device=device)
    chosen = chosen.scatter(-1, certain.remainder(n + 1), True)[:, None, :n].expand(-1, width, -1)
    end = torch.full_like(origin, n)
    item = torch.arange(n, device=device)
    # Rates lack the elementary symmetric polynomial of the items before the last one.
    for left, log_esp in descending_rows(table, rows):
        # A node enters with as many items left as it has open places; from then on the rates of a level sum to one.
        log_rate = log_rate - torch.where(places == left, log_esp[:, -1:], 0.0)
        if left == table.certain.shape[-1]:
            continue
        child = log_rate[..., None] + (weights + log_esp[:, :-1])[:, None]
        # An empty place of the beam has no items left, and so no children.
        before = torch.where(log_time.isposinf(), 0, end)
        child = child.masked_fill(item >= before[..., None], -math.inf)
        log_time, parent, last = _ring(log_time, child, left >= places, generator)
        log_rate, places, end, origin = (x.gather(-1, parent) for x in (log_rate, places, end, origin))
        chosen = chosen.gather(1, parent[..., None].expand(-1, -1, n))
        is_open = left < places
        log_rate = torch.where(is_open, log_rate + weights.gather(-1, last), log_rate)
        end = torch.where(is_open, last, end)
        chosen = torch.where(is_open[..., None], chosen.scatter(-1, last[..., None], True), chosen)
    return log_time, log_rate, origin, chosen if table.flipped is None else chosen ^ table.flipped[rows][:, None, None]


def _ring(
    log_time: Tensor, child: Tensor, waiting: Tensor, generator: Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The S earliest of the children of all nodes, and of the nodes that wait: times, parents, and which child.

    Shapes: log_time and waiting `(C, S)`, child, logarithms of rates, `(C, S, m)` -> `(C, S)` three times.
    """
    width = log_time.shape[-1]
    exponential = -torch.log1p(-uniform(child.shape, child.device, child.dtype, generator))
    alone = exponential.clamp(min=torch.finfo(child.dtype).eps / 4).log() - child
    # More than S children of one parent are never kept.
    alone, items = alone.topk(min(width, child.shape[-1]), largest=False)
    # The first child rings when its parent does; the others need as much longer as they would without a parent.
    after = alone + torch.log(-torch.expm1(alone[..., :1] - alone))
    after = after.masked_fill(alone.isposinf(), math.inf)  # also of a node without children, where inf - inf is NaN
    times = torch.logaddexp(log_time[..., None], after)
    first = torch.arange(times.shape[-1], device=times.device) == 0
    times = torch.where(waiting[..., None], torch.where(first, log_time[..., None], math.inf), times)
    log_time, best = times.flatten(1).topk(width, largest=False)
    return log_time, best // items.shape[-1], items.flatten(1).gather(-1, best)


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
