r"""Exact samples of the k-subset distribution, k indices at a time.

Let `E_r(t) = e_r(exp w_1, ..., exp w_t)` be the elementary symmetric polynomials of the first t items. Given that r
items remain to be chosen among the first t, the largest of them has an index of at most s with probability

    E_r(s) / E_r(t),

so a subset is drawn from its largest item to its smallest by k inversions of a distribution function, each a binary
search in one row of the table of `log E_r`. No subset outside the support can come out, whatever is rounded: an item
is only found where a row increases, that is where the item has a positive weight and r - 1 items are left before it.
The probabilities are exact up to the rounding of the float64 logarithms and of uniform numbers of 53 bits.

The table is the textbook recursion of Chen, Dempster and Liu (1994), https://doi.org/10.1093/biomet/81.3.457, turned
into k cumulative sums. Preparing it takes O(n k) time; a sample takes O(k log n).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ksubset.numerics.tilt import kth_largest, largest_size, sizes

__all__ = ["SamplingTable", "descending_rows", "sample_indices", "sampling_table"]

# Entries of a table that is kept whole, 512 MiB; of a larger one every sqrt(k)-th row is kept and the others are
# recomputed with each draw, which bounds the memory by 2 sqrt(k) times the logits in float64.
_WHOLE = 2**26


class SamplingTable(NamedTuple):
    """What all samples of one batch of distributions share; rows are the flattened batch.

    Shapes: weights `(R, n)`, kept `K // every + 1` times `(R, n + 1)`, open_places `(R)`, certain `(R, K)`, with K the
    largest subset size.
    """

    weights: Tensor
    """Logits, shifted; -inf for items that are certain or excluded."""
    kept: list[Tensor]
    """`log E_r(t)` of the items that remain to chance, for each r that is a multiple of `every`."""
    every: int
    open_places: Tensor
    """The size of the subset less the number of certain items."""
    certain: Tensor
    """Indices of the certain items, in the places after the open ones; -1 where there is none."""


def sampling_table(logits: Tensor, k: int | Tensor) -> SamplingTable:
    """Prepare sampling; differentiable in nothing.

    A row is assumed feasible: at most k logits at +inf, at least k above -inf.

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it.
        k: Subset size, an integer or an integer tensor of the batch's shape (reading its maximum synchronises).

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)`.
    """
    n = logits.shape[-1]
    double = logits.detach().double()
    weights = (double - kth_largest(double, k)).reshape(-1, n)
    size = sizes(k, logits).reshape(-1)
    largest = largest_size(k)

    is_certain = weights.isposinf()
    open_places = size - is_certain.sum(-1)
    weights = torch.where(is_certain, -math.inf, weights)
    every = 1 if largest * weights.numel() <= _WHOLE else math.isqrt(largest)
    row = weights.new_zeros(len(weights), n + 1)
    kept = [row]
    for r in range(1, largest + 1):
        row = _next_row(weights, row)
        if r % every == 0:
            kept.append(row)

    place = torch.arange(largest, device=logits.device)
    first = is_certain.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
    certain = first.gather(-1, (place - open_places[:, None]).clamp(0, n - 1))
    taken = (place >= open_places[:, None]) & (place < size[:, None])
    return SamplingTable(weights, kept, every, open_places, torch.where(taken, certain, -1))


def _next_row(weights: Tensor, row: Tensor) -> Tensor:
    """`log E_r` from `log E_(r-1)`: `E_r(t) = sum_{s <= t} exp(w_s) E_(r-1)(s - 1)`."""
    return torch.nn.functional.pad(torch.logcumsumexp(weights + row[:, :-1], -1), (1, 0), value=-math.inf)


def descending_rows(table: SamplingTable, rows: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
    """All r from K to 0, each with `log E_r` of the distributions `rows`, or of all; what was not kept is recomputed.

    Shapes:
        rows `(C)` -> `(C, n + 1)` each.
    """
    largest = table.certain.shape[-1]

    def of_rows(part: Tensor) -> Tensor:
        return part if rows is None else part[rows]

    weights = of_rows(table.weights)
    for start in reversed(range(0, largest + 1, table.every)):
        segment = [of_rows(table.kept[start // table.every])]
        for _ in range(start + 1, min(start + table.every, largest + 1)):
            segment.append(_next_row(weights, segment[-1]))
        while segment:
            yield start + len(segment) - 1, segment.pop()


def sample_indices(table: SamplingTable, num_samples: int, generator: Generator | None = None) -> Tensor:
    """Draw subsets as the indices of their items, ascending; rows with fewer than K items end in -1.

    Shapes:
        -> `(num_samples, R, K)`, int64.
    """
    (rows, n), largest, device = table.weights.shape, table.certain.shape[-1], table.weights.device
    uniform = torch.rand((largest, rows, num_samples), dtype=torch.float64, device=device, generator=generator)
    end = torch.full((rows, num_samples), n, device=device)
    drawn = []
    for left, log_cdf in descending_rows(table):
        if left == 0:
            break
        # 1 - uniform lies in (0, 1], so that the logarithm is finite.
        target = torch.log1p(-uniform[left - 1]) + log_cdf.gather(-1, end)
        # A row joins when no more places are left than it has open ones; until then it hands out certain items.
        is_open = (left <= table.open_places)[:, None]
        end = torch.where(is_open, torch.searchsorted(log_cdf, target) - 1, end)
        drawn.append(torch.where(is_open, end, table.certain[:, left - 1, None]))
    if not drawn:
        return torch.empty((num_samples, rows, 0), dtype=torch.int64, device=device)
    # Unused places sort last as the largest value, and become -1 again afterwards.
    indices = torch.stack(drawn, -1).transpose(0, 1)
    ascending = torch.where(indices < 0, n, indices).sort(-1).values
    return torch.where(ascending == n, -1, ascending)
