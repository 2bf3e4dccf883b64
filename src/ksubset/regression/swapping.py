"""Best subsets for logistic regression: all of them where they are few, else descents over swaps."""

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ksubset.regression.heuristic import Elite
from ksubset.regression.logistic import Logistic

__all__ = ["Found", "search_logistic"]

# Multiplications, roughly, that fits of all subsets of a size may take, and steps of a fit for this estimate.
_OPERATIONS, _STEPS = 3e8, 8
# Subsets of an enumeration that are fitted at once.
_BATCH = 4096
# Swaps, the most promising ones, that are fitted.
_FITTED = 16
# Random starts of a round, and rounds without a better subset after which no more follow.
_ROUND, _PATIENCE = 4, 2
# What counts as no better, as part of the objective.
_SAME = 1e-9


@dataclass(frozen=True)
class Found:
    """A subset of one size.

    Attributes:
        subset: Its members, ascending, `(k)`.
        theta: Its coefficients, `(q, m)`.
        optimal: Whether all of its size were fitted.
    """

    subset: Tensor
    theta: Tensor
    optimal: bool


def search_logistic(
    problem: Logistic, sizes: Sequence[int], *, starts: int, generator: np.random.Generator
) -> list[Found]:
    """The best subsets of some sizes, those found in the end for each.

    Arguments:
        problem: The problem.
        sizes: Ascending.
        starts: Random starts of each size at most.
        generator: Of the random starts.
    """
    found: list[Found] = []
    forward = torch.empty(0, dtype=torch.int64)
    for size in sizes:
        try:
            if _affordable(problem, size):
                found.append(_enumerated(problem, size))
                continue
            forward = _extended(problem, forward, size)
            first = [forward, *([_extended(problem, found[-1].subset, size)] if found else [])]
            found.append(_searched(problem, first, starts, generator))
        except KeyboardInterrupt:
            if not found:
                raise
            warnings.warn(f"interrupted: sizes from {size} on are left out", stacklevel=4)
            break
    return found


def _affordable(problem: Logistic, size: int) -> bool:
    columns = (1 + problem.fixed.shape[1] + size) * problem.targets.shape[1]
    one = _STEPS * len(problem.x) * columns**2
    return size in {0, problem.num_columns} or math.comb(problem.num_columns, size) * one <= _OPERATIONS


def _enumerated(problem: Logistic, size: int) -> Found:
    subsets = itertools.combinations(range(problem.num_columns), size)
    best, lowest = None, math.inf
    while batch := list(itertools.islice(subsets, _BATCH)):
        members = torch.tensor(batch, dtype=torch.int64).reshape(len(batch), size)
        values, theta = problem.fit(members)
        place = int(values.argmin())
        if best is None or float(values[place]) < lowest:
            best, lowest = (members[place], theta[place]), float(values[place])
    assert best is not None
    return Found(*best, optimal=True)


def _extended(problem: Logistic, subset: Tensor, size: int) -> Tensor:
    """The subset with one column after the other, the best of those that the score test finds promising."""
    while len(subset) < size:
        _, theta = problem.fit(subset[None])
        added = problem.additions(subset, theta[0]).topk(min(_FITTED, problem.num_columns - len(subset)), largest=False)
        candidates = torch.cat([subset.expand(len(added.indices), -1), added.indices[:, None]], 1)
        subset = candidates[problem.fit(candidates)[0].argmin()]
    return subset


def _searched(problem: Logistic, first: Sequence[Tensor], starts: int, generator: np.random.Generator) -> Found:
    minima = [_descended(problem, subset) for subset in first]
    best = Elite(torch.stack([subset for subset, _ in minima]), torch.tensor([value for _, value in minima]).double())
    failures = 0
    for start in range(0, starts, _ROUND):
        sampled = best.sample(min(_ROUND, starts - start), problem.num_columns, generator)
        minima = [_descended(problem, subset) for subset in sampled]
        improved = best.add(
            torch.stack([subset for subset, _ in minima]), torch.tensor([value for _, value in minima]).double()
        )
        failures = 0 if improved else failures + 1
        if failures == _PATIENCE:
            break
    subset = best.subsets[0]
    return Found(subset, problem.fit(subset[None])[1][0], optimal=False)


def _descended(problem: Logistic, subset: Tensor) -> tuple[Tensor, float]:
    """A subset of which no promising swap is better, ascending, and its objective."""
    subset = subset.sort().values
    values, theta = problem.fit(subset[None])
    while True:
        table = problem.swaps(subset, theta[0]).flatten()
        promising = table.topk(min(_FITTED, int(table.isfinite().sum())), largest=False).indices
        candidates = subset.expand(len(promising), -1).clone()
        candidates[torch.arange(len(promising)), promising // problem.num_columns] = promising % problem.num_columns
        candidates = candidates.sort(1).values
        found, coefficients = problem.fit(candidates)
        place = int(found.argmin())
        if not float(found[place]) < float(values[0]) * (1 - _SAME):
            return subset, float(values[0])
        subset, values, theta = candidates[place], found[place : place + 1], coefficients[place : place + 1]
