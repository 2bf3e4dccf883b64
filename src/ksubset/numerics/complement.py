"""The subset or its complement, whichever has fewer items: what the samplers of eager torch draw."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ksubset.numerics.tilt import largest_size, possible_sizes, sizes, tilt, tilt_to_range

__all__ = ["SmallerSide", "smaller_side"]


class SmallerSide(NamedTuple):
    """What is drawn; rows are the flattened batch.

    Shapes: weights `(R, n)`, least, most, price and flipped `(R)`.
    """

    weights: Tensor
    """Tilted logits of what is drawn, in float64; +-inf for items that are certain or excluded."""
    least: Tensor
    """Fewest items that are drawn."""
    most: Tensor
    price: Tensor | None
    """What each further item is charged, in nats; None if the size is known."""
    flipped: Tensor | None
    """Whether the items that are left out are drawn; None if nowhere."""
    depth: int
    """Items in the largest set that is drawn."""
    largest: int
    """Items in the largest subset that may come out."""


def smaller_side(logits: Tensor, low: int | Tensor, high: int | Tensor | None, far: float | None = None) -> SmallerSide:
    """Tilt the logits of subsets of `low` to `high` items, and turn rows round whose subsets have more than n / 2.

    Arguments:
        logits: Log-odds `(*B, n)`; -inf excludes an item, +inf includes it. A row is assumed feasible.
        low: Subset size, an integer or an integer tensor of the batch's shape (reading its maximum synchronises).
        high: Largest size, if it varies.
        far: Size of a tilted logit beyond which an item is taken to be certain; by default an item is that is in the
            subset, or not, but for a probability of exp(-64) / n.
    """
    n = logits.shape[-1]
    double = logits.detach().double()
    price: Tensor | None = None
    if high is None:
        high = low
        least = most = sizes(low, logits)
        tilted, _ = tilt(double, low)
    else:
        least, most = possible_sizes(double, low, high)
        tilted, shift, _ = tilt_to_range(double, least, most)
        price = shift.reshape(-1)
    least, most = least.reshape(-1), most.reshape(-1)
    limit = 64 + math.log(n) if far is None else far
    weights = torch.where(tilted.abs() > limit, tilted.sign() * math.inf, tilted).reshape(-1, n)
    largest, depth = largest_size(high, n), _depth(n, low, high)
    if depth == largest:
        return SmallerSide(weights, least, most, price, None, depth, largest)
    flipped = n - least < most
    weights = torch.where(flipped[:, None], -weights, weights)
    if price is not None:
        price = torch.where(flipped, -price, price)
    least, most = torch.where(flipped, n - most, least), torch.where(flipped, n - least, most)
    return SmallerSide(weights, least, most, price, flipped, depth, largest)


def _depth(n: int, low: int | Tensor, high: int | Tensor) -> int:
    """Items in the largest set that is drawn: a subset or its complement."""
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return largest_size(torch.minimum(torch.as_tensor(n - low), torch.as_tensor(high)), n)
    return min(n - low, high)
