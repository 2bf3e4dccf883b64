r"""Exact samples by halving: how many of the chosen items are in each half, and then the same inside of each.

After the tilt the number of members among any items has a short table of probabilities: outside of

    |s - mean| <= L/3 + sqrt(L^2/9 + 2 L v),    v the variance of the number,

it has a probability below 2 exp(-L) by Bernstein's inequality, and L = 38 leaves 6e-17. A tree of such tables, made
from the leaves to the root by products of polynomials with positive coefficients, is prepared once. Given that c items
are chosen among those of a node, the left half has j with probability proportional to `P_left(j) P_right(c - j)`: a
sample walks from the root to the leaves, all nodes of a level at once. Both take O(n) time for any k, in a number of
steps that depends on shapes alone, and the host waits for the device once, to learn how wide the tables are.

No subset outside the support can come out, because an item that cannot be chosen has a table with a zero. What the
truncation leaves out is an absolute probability below 1e-16 of a draw.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ksubset.numerics.complement import SmallerSide, smaller_side
from ksubset.numerics.random import uniform

__all__ = ["SplittingTree", "draw", "splitting_tree"]

_EXPONENT = 38.0
# Items of samples that are drawn at once, which bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20


class Level(NamedTuple):
    """Tables of one level of the tree: M nodes in each of R rows.

    Shapes: probability `(W, R, M)`, first `(R, M)`.
    """

    probability: Tensor
    """Of each number of chosen items from `first` on."""
    first: Tensor | None
    """None if it is 0 everywhere."""


class SplittingTree(NamedTuple):
    """What all samples of one batch of distributions share."""

    side: SmallerSide
    levels: list[Level]
    """From the items to all of them."""


def splitting_tree(logits: Tensor, low: int | Tensor, high: int | Tensor | None = None) -> SplittingTree:
    """Prepare sampling of subsets with `low` to `high` items, `()` or `(*B)`; differentiable in nothing.

    The arguments are those of `smaller_side`.
    """
    side = smaller_side(logits, low, high)
    # Where there is no number, nothing can be drawn.
    weights = torch.where(side.weights.isnan(), -math.inf, side.weights)
    chance, other = weights.sigmoid(), (-weights).sigmoid()
    levels = [Level(torch.stack([other, chance]), None)]
    for first, width in _windows(chance, other, side.depth):
        left, right = _halves(levels[-1])
        levels.append(Level(_product(left, right, first, width), first))
    return SplittingTree(side, levels)


def _windows(chance: Tensor, other: Tensor, depth: int) -> list[tuple[Tensor | None, int]]:
    """For each level above the items the first number that its tables have, and their width."""
    mean, variance, items = chance, chance * other, 1
    firsts, widths = [], []
    while mean.shape[-1] > 1:
        mean, variance = _pairs(mean), _pairs(variance)
        items *= 2
        reach = _EXPONENT / 3 + (_EXPONENT**2 / 9 + 2 * _EXPONENT * variance).sqrt()
        first = (mean - reach).floor().clamp(min=0)
        last = (mean + reach).ceil().clamp(max=min(depth, items))
        firsts.append(first.long())
        widths.append(torch.stack([(last - first).amax() + 1, first.amax()]))
    # All of them at once, so that the host waits once.
    known = torch.stack(widths).tolist() if widths else []
    return [(first if most else None, int(width)) for first, (width, most) in zip(firsts, known, strict=True)]


def _pairs(values: Tensor) -> Tensor:
    left, right = torch.nn.functional.pad(values, (0, values.shape[-1] % 2)).chunk(2, -1)
    return left + right


def _halves(level: Level) -> tuple[Level, Level]:
    """The nodes left and right below those of the next level; of an odd number the last has an empty partner."""
    probability, first = level
    if probability.shape[-1] % 2:
        nothing = torch.zeros_like(probability[..., :1])
        nothing[0] = 1
        probability = torch.cat([probability, nothing], -1)
        first = None if first is None else torch.nn.functional.pad(first, (0, 1))
    left, right = probability.chunk(2, -1)
    firsts = (None, None) if first is None else first.chunk(2, -1)
    return Level(left, firsts[0]), Level(right, firsts[1])


def _product(left: Level, right: Level, first: Tensor | None, width: int) -> Tensor:
    """Probabilities `(width, R, M)` of the sums of two numbers, from `first` on."""
    a, b = left.probability, right.probability
    span = len(a)
    full = a.new_zeros(width if first is None else 2 * span - 1, *a.shape[1:])
    for i in range(min(span, len(full))):
        # What is beyond the table is not wanted.
        part = full[i : i + span]
        part.addcmul_(a[i], b[: len(part)])
    if first is None:
        return full
    start = first if left.first is None or right.first is None else first - left.first - right.first
    place = torch.arange(width, device=full.device)[:, None, None] + start
    inside = (place >= 0) & (place < len(full))
    return torch.where(inside, full.gather(0, place.clamp(0, len(full) - 1)), 0.0)


def draw(tree: SplittingTree, num_samples: int, dtype: torch.dtype, generator: Generator | None = None) -> Tensor:
    """Draw subsets as vectors of zeros and ones.

    Shapes:
        -> `(num_samples, R, n)`.
    """
    block = max(1, _BLOCK // max(1, tree.side.weights.numel()))
    sizes = [block] * (num_samples // block) + [num_samples % block]
    return torch.cat([_draw(tree, size, dtype, generator) for size in sizes])


def _draw(tree: SplittingTree, num_samples: int, dtype: torch.dtype, generator: Generator | None) -> Tensor:
    side, levels = tree
    rows = len(side.weights)
    number = _sizes(tree, num_samples, generator)[..., None]
    for level in reversed(levels[:-1]):
        left, right = _halves(level)
        width, nodes = len(left.probability), left.probability.shape[-1]
        beyond = number if left.first is None or right.first is None else number - left.first - right.first
        # Of the number in the right half, for each that the left may have.
        place = beyond - torch.arange(width, device=number.device)[:, None, None, None]
        inside = (place >= 0) & (place < width)
        of_right = right.probability[:, None].expand(-1, num_samples, -1, -1).gather(0, place.clamp(0, width - 1))
        cdf = torch.where(inside, left.probability[:, None] * of_right, 0.0).cumsum(0)
        target = uniform((num_samples, rows, nodes), cdf.device, torch.float64, generator) * cdf[-1]
        in_left = (cdf <= target).sum(0)
        if left.first is not None:
            in_left = in_left + left.first
        number = torch.cat([in_left, number - in_left], -1)[..., : level.probability.shape[-1]]
    chosen = number.to(dtype)
    return chosen if side.flipped is None else torch.where(side.flipped[:, None], 1 - chosen, chosen)


def _sizes(tree: SplittingTree, num_samples: int, generator: Generator | None) -> Tensor:
    """The numbers of items that are drawn, `(S, R)`."""
    side, root = tree.side, tree.levels[-1]
    if side.price is None:
        return side.least.expand(num_samples, -1)
    probability = root.probability.squeeze(-1)
    number = torch.arange(len(probability), device=probability.device)[:, None].expand_as(probability)
    if root.first is not None:
        number = number + root.first.squeeze(-1)
    allowed = (number >= side.least) & (number <= side.most)
    share = torch.softmax(torch.where(allowed, probability.log() - side.price * number, -math.inf), 0)
    cdf = share.cumsum(0)
    target = uniform((num_samples, cdf.shape[-1]), cdf.device, torch.float64, generator) * cdf[-1]
    return number[0] + (cdf[:, None] <= target).sum(0)
