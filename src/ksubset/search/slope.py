r"""The least-squares slope of a score on membership, from subsets that were drawn for other distributions.

The Fisher matrix of a k-subset distribution is the covariance of its members, so its natural gradient is the slope of
the regression of the score on the k-hot vector z. Of a few thousand evaluations in n dimensions that regression needs
a ridge. It is solved by conjugate gradients on the indices of the members, in time and memory of O(N k + n) a step:
no N x n matrix is ever built.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Slope", "fit_slope", "weighted_subset_ridge"]

# Candidates for the strength of the ridge, in members seen: with d of them, a slope shrinks by d / (d + strength).
_STRENGTHS = 10.0 ** torch.arange(-1, 5, dtype=torch.float64)
_STEPS = 20


@dataclass(frozen=True)
class Slope:
    """Slopes of the score on each item's membership, and how sure they are.

    Arguments:
        mean: `(n)`, posterior means.
        deviation: `(n)`, posterior standard deviations, of each item as if the slopes of the others were known.
    """

    mean: Tensor
    deviation: Tensor


def fit_slope(subsets: Tensor, values: Tensor, weights: Tensor, num_items: int) -> Slope:
    """Ridge regression, its strength and its noise from twofold cross-validation.

    Noise that is measured on subsets left out keeps slopes modest while there are more items than evaluations.

    Shapes:
        subsets `(N, k)` indices, values `(N)`, weights `(N)`, whose sum is the number of evaluations they are worth.
    """
    spread = (weights * (values - (weights @ values) / weights.sum()).square()).sum() / weights.sum()
    if len(values) < 4 or spread <= 0:
        return Slope(torch.zeros(num_items, dtype=torch.float64), torch.ones(num_items, dtype=torch.float64))
    losses = torch.zeros_like(_STRENGTHS)
    halves = (slice(0, None, 2), slice(1, None, 2))
    for one, other in (halves, halves[::-1]):
        slopes = weighted_subset_ridge(subsets[one], values[one], weights[one], num_items, _STRENGTHS)
        rest = values[other, None] - _sums(subsets[other], slopes)
        w = weights[other, None]
        rest = rest - (w * rest).sum(0) / w.sum().clamp(min=1e-300)
        losses += (w * rest.square()).sum(0)
    best = losses.argmin()
    mean = weighted_subset_ridge(subsets, values, weights, num_items, _STRENGTHS[best, None])[:, 0]
    # An exactly linear score has no noise, but no slope is worth infinitely much.
    noise = torch.maximum(losses[best] / weights.sum(), 1e-12 * spread)
    share = _counts(subsets, weights[:, None], num_items)[:, 0] / weights.sum()
    precision = weights.sum() * share * (1 - share) + _STRENGTHS[best]
    return Slope(mean, (noise / precision).sqrt())


def weighted_subset_ridge(
    subsets: Tensor, values: Tensor, weights: Tensor, num_items: int, strengths: Tensor
) -> Tensor:
    """Slopes of weighted ridge regressions with an intercept, one column for each strength.

    Shapes:
        subsets `(N, k)`, values and weights `(N)`, strengths `(L)` -> `(n, L)`.
    """
    total = weights.sum().clamp(min=1e-300)
    share = _counts(subsets, weights[:, None], num_items) / total
    centred = values - (weights @ values) / total
    diagonal = (total * share * (1 - share)).clamp(min=0) + strengths

    def product(x: Tensor) -> Tensor:
        return (
            _counts(subsets, weights[:, None] * _sums(subsets, x), num_items)
            - total * share * (share * x).sum(0)
            + strengths * x
        )

    residual = _counts(subsets, (weights * centred)[:, None], num_items).expand(-1, len(strengths)).clone()
    slopes = torch.zeros_like(residual)
    step = scaled = residual / diagonal
    size = (residual * scaled).sum(0)
    for _ in range(_STEPS):
        image = product(step)
        length = size / (step * image).sum(0).clamp(min=1e-300)
        slopes = slopes + length * step
        residual = residual - length * image
        scaled = residual / diagonal
        before, size = size, (residual * scaled).sum(0)
        step = scaled + size / before.clamp(min=1e-300) * step
    return slopes


def _sums(subsets: Tensor, x: Tensor) -> Tensor:
    """Sums over the members, Z x: subsets `(N, k)`, x `(n, L)` -> `(N, L)`."""
    return torch.nn.functional.embedding_bag(subsets, x, mode="sum")


def _counts(subsets: Tensor, x: Tensor, num_items: int) -> Tensor:
    """Sums over the subsets with an item, Z' x: subsets `(N, k)`, x `(N, L)` -> `(n, L)`."""
    result = x.new_zeros(num_items, x.shape[1])
    return result.index_add_(0, subsets.flatten(), x.repeat_interleave(subsets.shape[1], 0))
