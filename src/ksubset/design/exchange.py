"""Exact designs: exchange of rows, and drawing from the relaxed design."""

import copy

import numpy as np
import torch

from ksubset.design.criteria import Array, Criterion, Indices
from ksubset.distributions import KSubset
from ksubset.search.space import SearchSpace

__all__ = ["drawn", "exchange"]

_SOFTENING = 1e-4


def exchange(criterion: Criterion, space: SearchSpace, point: Indices) -> tuple[Indices, float]:
    """Make the best of all swaps that are allowed, again and again, until none is better.

    Arguments:
        criterion: On the free items of the space.
        space: What may be chosen.
        point: Where it starts, `(K)`, places among the free items; feasible. Its information may be singular.

    Returns:
        A point `(K)`, ascending, and its utility; -inf if swaps have found none of regular information.

    References:
        Fedorov (1972), Theory of Optimal Experiments, section 3.3. Cook and Nachtsheim (1980),
        https://doi.org/10.1080/00401706.1980.10486162, compare it with its relatives.
    """
    if criterion.utilities(point[None])[0] == -np.inf:
        # With some information of all candidates beside it, the best design is hardly ever singular.
        softened = copy.copy(criterion)
        everything = np.full(len(criterion.rows), _SOFTENING * len(point) / len(criterion.rows))
        softened.prior = criterion.weighted(everything)
        point = _climb(softened, space, point)
    if criterion.utilities(point[None])[0] > -np.inf:
        point = _climb(criterion, space, point)
    return np.sort(point), float(criterion.utilities(point[None])[0])


def _climb(criterion: Criterion, space: SearchSpace, point: Indices) -> Indices:
    items = np.arange(len(criterion.rows))
    utility = criterion.utilities(point[None])[0]
    while len(point):
        others = np.setdiff1d(items, point)
        allowed = np.zeros((len(point), len(items)), dtype=bool)
        feasible = space.swaps(point, others)
        allowed[:, others] = True if feasible is None else feasible
        swaps = criterion.swaps(point, allowed)
        out, put = np.unravel_index(int(swaps.argmax()), swaps.shape)
        swapped = point.copy()
        swapped[out] = put
        found = criterion.utilities(swapped[None])[0]
        # Less than rounding could go round in circles.
        if not allowed[out, put] or not found > utility + 1e-10 * criterion.magnitude(utility):
            break
        point, utility = swapped, found
    return point


def drawn(criterion: Criterion, space: SearchSpace, weights: Array, count: int, keep: int, seed: int) -> list[Indices]:
    """The best of many points whose inclusion probabilities are the weights of a relaxed design.

    Arguments:
        criterion: On the free items of the space.
        space: What may be chosen.
        weights: Of a relaxed design, in [0, 1], `(F)`.
        count: How many are drawn.
        keep: How many are kept at most, best first.
        seed: Of the draws.
    """
    marginals = torch.from_numpy(weights * (space.free_size / weights.sum())).clamp(0, 1)
    generator = torch.Generator().manual_seed(seed)
    points = KSubset.from_marginals(marginals).sample_indices((count,), generator=generator).sort(-1).values.numpy()
    points = np.unique(points[space.feasible(points)], axis=0)
    if not len(points):
        return []
    return list(points[np.argsort(-criterion.utilities(points), kind="stable")[:keep]])
