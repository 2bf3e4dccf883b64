r"""Exact samples of the k-subset distribution, k indices at a time.

Let `E_r(t) = e_r(exp w_1, ..., exp w_t)` be the elementary symmetric polynomials of the first t items. Given that r
items remain to be chosen among the first t, the largest of them has an index of at most s with probability

    E_r(s) / E_r(t),

so a subset is drawn from its largest item to its smallest by k inversions of a distribution function, each a binary
search in one row of the table of `log E_r`. No subset outside the support can come out, whatever is rounded: an item
is only found where a row increases, that is where the item has a positive weight and r - 1 items are left before it.
The probabilities are exact up to the rounding of the float64 logarithms and of uniform numbers of 53 bits.

The table is the textbook recursion of Chen, Dempster and Liu (1994), https://doi.org/10.1093/biomet/81.3.457, turned
into k cumulative sums. It takes O(n k) time and memory; a sample takes O(k log n).
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ksubset.numerics.tilt import kth_largest, largest_size

__all__ = ["SamplingTable", "sample_indices", "sampling_table"]


class SamplingTable(NamedTuple):
    """What all samples of one batch of distributions share; rows are the flattened batch.

    Shapes: log_esp `(R, K + 1, n + 1)`, open_places `(R)`, certain `(R, K)`, with K the largest subset size.
    """

    log_esp: Tensor
    """`log E_r(t)` of the items that are neither certain nor excluded."""
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
    weights = (logits.detach().double() - kth_largest(logits.detach().double(), k)).reshape(-1, n)
    size = torch.as_tensor(k, device=logits.device).expand(logits.shape[:-1]).reshape(-1)
    largest = largest_size(k)

    is_certain = weights.isposinf()
    open_places = size - is_certain.sum(-1)
    weights = torch.where(is_certain, -math.inf, weights)
    log_esp = weights.new_full((len(weights), largest + 1, n + 1), -math.inf)
    log_esp[:, 0] = 0
    for r in range(1, largest + 1):
        log_esp[:, r, 1:] = torch.logcumsumexp(weights + log_esp[:, r - 1, :-1], -1)

    place = torch.arange(largest, device=logits.device)
    first = is_certain.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
    certain = first.gather(-1, (place - open_places[:, None]).clamp(0, n - 1))
    taken = (place >= open_places[:, None]) & (place < size[:, None])
    return SamplingTable(log_esp, open_places, torch.where(taken, certain, -1))


def sample_indices(table: SamplingTable, num_samples: int, generator: Generator | None = None) -> Tensor:
    """Draw subsets as the indices of their items, ascending; rows with fewer than K items end in -1.

    Shapes:
        -> `(num_samples, R, K)`, int64.
    """
    rows, sizes, positions = table.log_esp.shape
    device = table.log_esp.device
    shape = (sizes - 1, rows, num_samples)
    uniform = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
    drawn = []
    end = torch.full((rows, num_samples), positions - 1, device=device)
    for place in range(sizes - 1):
        left = (table.open_places - place).clamp(min=0)
        log_cdf = table.log_esp[torch.arange(rows, device=device), left]
        # 1 - uniform lies in (0, 1], so that the logarithm is finite.
        target = torch.log1p(-uniform[place]) + log_cdf.gather(-1, end)
        is_open = (left > 0)[:, None]
        end = torch.where(is_open, torch.searchsorted(log_cdf, target) - 1, end)
        drawn.append(torch.where(is_open, end, table.certain[:, place, None]))
    if not drawn:
        return torch.empty((num_samples, rows, 0), dtype=torch.int64, device=device)
    # Unused places sort last as the largest value, and become -1 again afterwards.
    indices = torch.stack(drawn, -1).transpose(0, 1)
    ascending = torch.where(indices < 0, positions, indices).sort(-1).values
    return torch.where(ascending == positions, -1, ascending)
