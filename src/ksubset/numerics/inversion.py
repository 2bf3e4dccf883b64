r"""Exact samples of the k-subset distribution, k indices at a time.

Let `E_r(t) = e_r(exp w_1, ..., exp w_t)` be the elementary symmetric polynomials of the first t items. Given that r
items remain to be chosen among the first t, the largest of them has an index of at most s with probability

    E_r(s) / E_r(t),

so a subset is drawn from its largest item to its smallest by k inversions of a distribution function, each a binary
search in one row of the table of `log E_r`. No subset outside the support can come out, whatever is rounded: an item
is only found where a row increases, that is where the item has a positive weight and r - 1 items are left before it.
The probabilities are exact up to the rounding of the float64 logarithms and of uniform numbers of 53 bits.

The table is the textbook recursion of Chen, Dempster and Liu (1994), https://doi.org/10.1093/biomet/81.3.457, turned
into k cumulative sums. Preparing it takes O(n k) time; a sample takes O(k log n). Where k is above n / 2 the items that
are left out are drawn instead. Of a size that may vary, the size is drawn first: its probabilities are the last column.

The table is that of the tilted logits (`ksubset.numerics.tilt`). An item that is in the subset, or not, but for a
probability of exp(-64) / n is taken to be certain there: the digits of the table are then those of the others, however
far the logits are spread.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ksubset.numerics.complement import smaller_side
from ksubset.numerics.encoding import k_hot
from ksubset.numerics.random import uniform

__all__ = ["SamplingTable", "descending_rows", "draw", "draw_indices", "sampling_table"]

# Entries of a table that is kept whole, 512 MiB; of a larger one every sqrt(k)-th row is kept and the others are
# recomputed with each draw, which bounds the memory by 2 sqrt(k) times the logits in float64.
_WHOLE = 2**26


class SamplingTable(NamedTuple):
    """What all samples of one batch of distributions share; rows are the flattened batch.

    Shapes: weights `(R, n)`, kept `K // every + 1` times `(R, n + 1)`, open_places and flipped `(R)`, log_share
    `(R, K + 1)`, certain `(R, K)`, with K the largest size of the subsets that are drawn.
    """

    weights: Tensor
    """Tilted logits of what is drawn; -inf for items that are certain or excluded."""
    kept: list[Tensor]
    """`log E_r(t)` of the items that remain to chance, for each r that is a multiple of `every`."""
    every: int
    flipped: Tensor | None
    """Whether the items that are left out are drawn; None if nowhere."""
    open_places: Tensor
    """The size of the subset less the number of certain items; where it varies, the smallest."""
    log_share: Tensor | None
    """Log-probabilities of each number of open places; None if it does not vary."""
    certain: Tensor
    """Indices of the certain items; -1 where there is none."""
    largest: int
    """Items in the largest subset that may come out."""


def sampling_table(
    logits: Tensor, low: int | Tensor, high: int | Tensor | None = None, far: float | None = None
) -> SamplingTable:
    """Prepare sampling of subsets with `low` to `high` items, `()` or `(*B)`; differentiable in nothing.

    The arguments are those of `smaller_side`.
    """
    n = logits.shape[-1]
    weights, least, most, price, flipped, depth, largest = smaller_side(logits, low, high, far)
    is_certain = weights.isposinf()
    number = is_certain.sum(-1)
    weights = torch.where(is_certain, -math.inf, weights)
    # A program that is exported must not depend on the number of rows.
    whole = torch.compiler.is_exporting() or depth * weights.numel() <= _WHOLE
    every = 1 if whole else math.isqrt(depth)
    row = weights.new_zeros(weights.shape[0], n + 1)  # len would make a constant of a symbolic number
    kept, totals = [row], [row[:, -1]]
    for r in range(1, depth + 1):
        row = _next_row(weights, row)
        totals.append(row[:, -1])
        if r % every == 0:
            kept.append(row)

    open_places = (least - number).clamp(min=0)
    log_share: Tensor | None = None
    if price is not None:
        drawn = torch.arange(depth + 1, device=logits.device)
        allowed = (drawn >= open_places[:, None]) & (drawn <= (most - number)[:, None])
        charged = torch.stack(totals, -1) - price[:, None] * drawn
        log_share = torch.log_softmax(torch.where(allowed, charged, -math.inf), -1)
    place = torch.arange(depth, device=logits.device)
    first = is_certain.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices[:, :depth]
    certain = torch.where(place < number[:, None], first, -1)
    return SamplingTable(weights, kept, every, flipped, open_places, log_share, certain, largest)


def _next_row(weights: Tensor, row: Tensor) -> Tensor:
    """`log E_r` from `log E_(r-1)`: `E_r(t) = sum_{s <= t} exp(w_s) E_(r-1)(s - 1)`."""
    return torch.nn.functional.pad(torch.logcumsumexp(weights + row[:, :-1], -1), (1, 0), value=-math.inf)


def descending_rows(table: SamplingTable, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
    """All r from K to 0, each with `log E_r` of the distributions `rows`, or of all; what was not kept is recomputed.

    Shapes:
        rows `(C)` -> `(C, n + 1)` each.
    """
    depth = table.certain.shape[-1]

    def of_rows(part: Tensor) -> Tensor:
        return part if rows is None else part[rows]

    weights = of_rows(table.weights)
    for start in reversed(range(0, depth + 1, table.every)):
        segment = [of_rows(table.kept[start // table.every])]
        for _ in range(start + 1, min(start + table.every, depth + 1)):
            segment.append(_next_row(weights, segment[-1]))
        while segment:
            yield start + len(segment) - 1, segment.pop()


def draw(table: SamplingTable, num_samples: int, dtype: torch.dtype, generator: Generator | None = None) -> Tensor:
    """Draw subsets as vectors of zeros and ones.

    Shapes:
        -> `(num_samples, R, n)`.
    """
    chosen = k_hot(draw_indices(table, num_samples, generator), table.weights.shape[-1], dtype)
    return chosen if table.flipped is None else torch.where(table.flipped[:, None], 1 - chosen, chosen)


def draw_indices(table: SamplingTable, num_samples: int, generator: Generator | None = None) -> Tensor:
    """What is drawn of the subsets, or of their complements, in no order; unused places have -1.

    Shapes:
        -> `(num_samples, R, K)`.
    """
    (rows, n), depth, device = table.weights.shape, table.certain.shape[-1], table.weights.device
    if not depth:
        return torch.empty((num_samples, rows, 0), dtype=torch.int64, device=device)
    places = table.open_places[:, None].expand(-1, num_samples)
    if table.log_share is not None:
        cdf = table.log_share.exp().cumsum(-1)
        target = uniform((rows, num_samples), device, torch.float64, generator) * cdf[:, -1:]
        places = torch.searchsorted(cdf, target, right=True)
    numbers = uniform((depth, rows, num_samples), device, torch.float64, generator)
    end = torch.full((rows, num_samples), n, device=device)
    drawn = []
    for left, log_cdf in descending_rows(table):
        if left == 0:
            break
        # 1 - uniform lies in (0, 1], so that the logarithm is finite.
        target = torch.log1p(-numbers[left - 1]) + log_cdf.gather(-1, end)
        # A row joins when no more places are left than it has open ones; until then it hands out certain items.
        is_open = left <= places
        # Below 0 is what a row without a subset finds, if nobody has checked that it has one.
        end = torch.where(is_open, (torch.searchsorted(log_cdf, target) - 1).clamp(min=0), end)
        drawn.append(torch.where(is_open, end, table.certain.gather(-1, (left - 1 - places).clamp(min=0))))
    return torch.stack(drawn, -1).transpose(0, 1)
