r"""Exact samples with compiled loops: independent draws, accepted as a part of the subset, and a walk at the end.

After the tilt every item has a majority state and a flip probability r (`ksubset.numerics.quadrature`). The items are
sorted by the binary exponent of r, and cut into parts: the first 32, which are the likeliest to flip, those after them
up to some place, and so on. From the last part to the second, its flips are drawn independently, and kept with

    P(the items before have the rest of the size) / (the largest such probability),

or drawn again: probabilistic divide and conquer (Arratia and DeSalvo, 2011, https://arxiv.org/abs/1110.3856).
Because the items before are the likeliest to flip, they have at least their share of the variance, an eighth or so, and
a part is kept about every third time, or more often. The probabilities of the items before come from the nodes of the
quadrature, the largest being next to the mean. The first 32 items are walked through, with a table of theirs.

Items with r below 1/8 are not looked at one by one: of those with r between 2^-(b + 1) and 2^-b, one in 2^b is visited,
by geometric steps, and flips with probability `2^b r`, so that a draw takes time in proportion to the items that flip.

No subset outside the support can come out. Probabilities are exact to the rounding of float64: an absolute error of the
order of 1e-16 of a draw, which is also what is left out beyond the quadrature's window and of items whose r is below
exp(-64) / n. Random numbers are those of xoshiro256++, seeded for each row with 256 bits of torch's generator.
"""

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from ksubset.numerics.compiled import TINY
from ksubset.numerics.encoding import k_hot
from ksubset.numerics.tilt import largest_size, possible_sizes, sizes, tilt, tilt_to_range

__all__ = ["Arranged", "arranged", "draw", "draw_indices"]

# Items that are walked through, or twice as many if they are all, and how many times larger the next part's end is.
_WALKED, _FACTOR = 32, 8


class Arranged(NamedTuple):
    """What all samples of one batch of distributions share; arrays of numpy, as of `arrange` and `draw_subsets`.

    Shapes: order and flip `(R, n)`, ends `(R, b)`, cuts `(R, l)`, levels and least `(R)`, laws `(R, l, 174)`, share
    `(R, s)`.
    """

    order: Any
    flip: Any
    ends: Any
    cuts: Any
    levels: Any
    laws: Any
    least: Any
    share: Any
    largest: int
    """Items in the largest subset that may come out."""


def arranged(logits: Tensor, low: int | Tensor, high: int | Tensor | None = None) -> Arranged:
    """Prepare sampling of subsets with `low` to `high` items, `()` or `(*B)`; differentiable in nothing.

    Arguments:
        logits: Log-odds `(*B, n)`, on the CPU; -inf excludes an item, +inf includes it. A row is assumed feasible.
        low: Subset size, an integer or an integer tensor of the batch's shape.
        high: Largest size, if it varies.
    """
    from ksubset.numerics.compiled import arrangement  # noqa: PLC0415 - numba takes a second to import

    n = logits.shape[-1]
    rows = logits.numel() // n
    if high is None:
        least = sizes(low, logits).reshape(-1).contiguous()
        signed = _flip_probabilities(logits.reshape(-1, n), least)
    else:
        first, most = possible_sizes(logits, low, high)
        least = first.reshape(-1).contiguous()
        tilted, price, reference = tilt_to_range(logits.double(), first, most)
        signed = _signed(tilted).reshape(-1, n)
    # One in 4 n of the rarest items is visited.
    classes, parts = n.bit_length() + 2, 2
    while _WALKED * _FACTOR ** (parts - 1) < n:
        parts += 1
    order, flip = torch.empty(rows, n, dtype=torch.int32, device="cpu").numpy(), torch.empty_like(signed).numpy()
    ends, cuts = (torch.zeros(rows, size, dtype=torch.int64, device="cpu").numpy() for size in (classes, parts))
    levels = torch.zeros_like(least).numpy()
    walked = n if n <= 2 * _WALKED else _WALKED
    arrangement.arrange(signed.numpy(), walked, _FACTOR, order, flip, ends, cuts, levels)
    depth = int(levels.max()) if rows else 0
    shape = rows, depth if depth > 1 else 0, arrangement.LAW
    laws = torch.empty(shape, dtype=torch.float64, device="cpu").numpy()
    arrangement.characteristics(flip, cuts, levels, laws)
    share = torch.ones(rows, 1, dtype=torch.float64, device="cpu").numpy()
    if high is not None:
        span = int(most.max() - least.min()) + 1 if rows else 1
        share = torch.empty(rows, span, dtype=torch.float64, device="cpu").numpy()
        largest_sizes, prices, references = (x.reshape(-1).contiguous().numpy() for x in (most, price, reference))
        arrangement.size_shares(flip, cuts[:, 0].copy(), least.numpy(), largest_sizes, prices, references, share)
    largest = largest_size(low if high is None else high, n)
    return Arranged(order, flip, ends, cuts, levels, laws, least.numpy(), share, largest)


def _flip_probabilities(rows: Tensor, size: Tensor) -> Tensor:
    """Flip probabilities `(R, n)` of subsets of a known size, negative where the majority state is in the subset."""
    from ksubset.numerics.compiled.tilting import tilt_rows  # noqa: PLC0415

    signed = rows.double().clone(memory_format=torch.contiguous_format)
    settled = torch.zeros(len(rows), dtype=torch.bool, device="cpu")
    tilt_rows(signed.numpy(), size.numpy(), settled.numpy())
    if not settled.all():
        others = ~settled
        signed[others] = _signed(tilt(rows[others].double(), size[others])[0])
    return signed


def _signed(tilted: Tensor) -> Tensor:
    # Zero has no sign.
    flip = torch.sigmoid(-tilted.abs()).clamp(min=TINY)
    return torch.where(tilted > 0, -flip, flip)


def draw(state: Arranged, num_samples: int, dtype: torch.dtype, generator: Generator | None = None) -> Tensor:
    """Draw subsets as vectors of zeros and ones.

    Shapes:
        -> `(num_samples, R, n)`.
    """
    drawn, n = draw_indices(state, num_samples, generator), state.order.shape[-1]
    if drawn.numel() and drawn.min() >= 0:
        # Where no place is unused, this takes a quarter of the time.
        return torch.zeros(*drawn.shape[:-1], n, dtype=dtype, device="cpu").scatter_(-1, drawn, 1)
    return k_hot(drawn, n, dtype)


def draw_indices(state: Arranged, num_samples: int, generator: Generator | None = None) -> Tensor:
    """Draw subsets as indices, in no order; unused places have -1.

    Shapes:
        -> `(num_samples, R, K)`, int64, with K the size of the largest subset.
    """
    from ksubset.numerics.compiled.drawing import draw_subsets  # noqa: PLC0415

    rows = len(state.order)
    seeds = torch.empty(rows, 4, dtype=torch.int64, device="cpu").random_(-(2**63), None, generator=generator)
    chosen = torch.full((rows, num_samples, state.largest), -1, device="cpu")
    draw_subsets(*state[:-1], seeds.view(torch.uint64).numpy(), chosen.numpy())
    return chosen.transpose(0, 1)
