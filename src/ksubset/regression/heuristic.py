"""Best subsets of sizes too large for a proof: descents over all swaps, from starts of several kinds."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path_gram
from torch import Tensor

from ksubset.distributions import KSubset
from ksubset.regression.exact import branch_and_bound, enumerate_subsets
from ksubset.regression.quadratic import Quadratic

__all__ = ["Elite", "Solution", "descend", "search"]

# Subsets that one enumeration goes through at most.
_ENUMERATED = 200_000
# Random starts of a round, and rounds without a better subset after which no more follow.
_ROUND, _PATIENCE = 8, 2
# Operations, roughly, that branch and bound may take, and nodes.
_OPERATIONS, _MOST_NODES = 2e9, 20_000


@dataclass(frozen=True)
class Solution:
    """A subset of one size.

    Attributes:
        subset: Its members, ascending, `(k)`.
        rss: Its residual sum of squares in the units of the problem.
        optimal: Whether it is proved that no subset of its size has a smaller one.
    """

    subset: NDArray[np.int64]
    rss: float
    optimal: bool


def descend(quadratic: Quadratic, subsets: Tensor) -> tuple[Tensor, Tensor]:
    """Make the best of all swaps again and again until none helps, from many subsets at once.

    Shapes:
        `(B, k)`, k from 1 to n - 1 -> `(B, k)` ascending, and `(B)`, their residual sums of squares.
    """
    candidates = subsets.sort(1).values
    best, values = candidates.clone(), torch.full((len(subsets),), math.inf, dtype=torch.float64)
    active = torch.arange(len(subsets))
    while len(active):
        found, table = quadratic.swaps(candidates)
        # As the value of the sorted subset falls strictly, no subset comes twice.
        better = found < values[active]
        active, candidates, table = active[better], candidates[better], table[better]
        best[active], values[active] = candidates, found[better]
        flat = table.flatten(1)
        lowest = flat.min(1)
        better = lowest.values < values[active]
        active, place = active[better], lowest.indices[better]
        candidates = candidates[better].clone()
        candidates[torch.arange(len(active)), place // quadratic.num_columns] = place % quadratic.num_columns
        candidates = candidates.sort(1).values
    return best, values


def search(
    quadratic: Quadratic,
    sizes: Sequence[int],
    *,
    starts: int,
    max_nodes: int | None,
    generator: np.random.Generator,
) -> list[Solution]:
    """The best subsets of some sizes, those found in the end for each.

    Few subsets are enumerated. Otherwise descents start from forward selection, from the order in which columns enter
    the lasso, from the best of the size before, and from samples of k-subset distributions whose inclusion
    probabilities are learned from the best local minima; branch and bound then tries to prove the best one.

    Arguments:
        quadratic: The problem.
        sizes: Ascending.
        starts: Random starts of each size at most.
        max_nodes: Nodes of branch and bound for each size; None are as many as cost little.
        generator: Of the random starts.
    """
    solutions: list[Solution] = []
    paths = _Paths(quadratic, max(sizes))
    for size in sizes:
        before = torch.from_numpy(solutions[-1].subset) if solutions else None
        try:
            solutions.append(_solved(quadratic, size, paths, before, starts, max_nodes, generator))
        except KeyboardInterrupt:
            if not solutions:
                raise
            warnings.warn(f"interrupted: sizes from {size} on are left out", stacklevel=3)
            break
    return solutions


def _solved(
    quadratic: Quadratic, size: int, paths: "_Paths", before: Tensor | None, starts: int, max_nodes: int | None,
    generator: np.random.Generator,
) -> Solution:  # fmt: skip
    n = quadratic.num_columns
    if size in {0, n}:
        subset = torch.arange(size)
        return Solution(subset.numpy(), float(quadratic.rss(subset[None])), optimal=True)
    if math.comb(n, size) <= _ENUMERATED and math.comb(n - 1, size - 1) <= _ENUMERATED:
        subset, value, optimal = enumerate_subsets(quadratic, size)
        return Solution(subset.numpy(), value, optimal)
    subsets, values = descend(quadratic, torch.stack([*paths.starts(size), *_extended(quadratic, before, size)]))
    best = Elite(subsets, values)
    failures = 0
    for first in range(0, starts, _ROUND):
        sampled = best.sample(min(_ROUND, starts - first), n, generator)
        improved = best.add(*descend(quadratic, sampled))
        failures = 0 if improved else failures + 1
        if failures == _PATIENCE:
            break
    subset, value = best.subsets[0], float(best.values[0])
    nodes = min(_MOST_NODES, int(_OPERATIONS / n**3)) if max_nodes is None else max_nodes
    optimal = False
    if nodes:
        subset, value, optimal = branch_and_bound(quadratic, subset, nodes)
    return Solution(subset.numpy(), value, optimal)


def _extended(quadratic: Quadratic, before: Tensor | None, size: int) -> Iterator[Tensor]:
    if before is not None:
        while len(before) < size:
            before = torch.cat([before, quadratic.additions(before[None]).argmin(1)])
        yield before


class _Paths:
    """Orders in which columns enter, by forward selection and in the lasso."""

    def __init__(self, quadratic: Quadratic, most: int) -> None:
        chosen = torch.empty(0, dtype=torch.int64)
        for _ in range(most):
            chosen = torch.cat([chosen, quadratic.additions(chosen[None]).argmin(1)])
        self._orders = [chosen]
        with warnings.catch_warnings():
            # Dependent columns end its path early, and what it is worth is seen by its residual.
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, entered, _ = lars_path_gram(
                quadratic.product.numpy(), quadratic.gram.numpy(), n_samples=1, method="lasso", max_iter=2 * most,
                copy_Gram=True, return_path=False,
            )  # fmt: skip
        order = torch.tensor(entered[:most], dtype=torch.int64)
        others = chosen[~torch.isin(chosen, order)]
        self._orders.append(torch.cat([order, others])[:most])

    def starts(self, size: int) -> list[Tensor]:
        return [order[:size] for order in self._orders]


class Elite:
    """The best local minima that were found, each once, and a distribution of subsets learned from them."""

    _KEPT = 8
    # Weight of the uniform distribution in the inclusion probabilities.
    _UNIFORM = 0.2

    def __init__(self, subsets: Tensor, values: Tensor) -> None:
        self.subsets, self.values = subsets[:0], values[:0]
        self.add(subsets, values)

    def add(self, subsets: Tensor, values: Tensor) -> bool:
        """Take more of them; whether one is better than all before."""
        before = float(self.values[0]) if len(self.values) else math.inf
        subsets, values = torch.cat([self.subsets, subsets]), torch.cat([self.values, values])
        unique, owner = torch.unique(subsets, dim=0, return_inverse=True)
        lowest = torch.full((len(unique),), math.inf, dtype=torch.float64).scatter_reduce(0, owner, values, "amin")
        order = lowest.argsort()[: self._KEPT]
        self.subsets, self.values = unique[order], lowest[order]
        return float(self.values[0]) < before

    def sample(self, count: int, num_columns: int, generator: np.random.Generator) -> Tensor:
        """Subsets `(count, k)` of the distribution whose inclusion probabilities are, mixed with equal ones, theirs."""
        size = self.subsets.shape[1]
        shares = torch.zeros(num_columns, dtype=torch.float64).index_add(
            0, self.subsets.flatten(), torch.full((self.subsets.numel(),), 1 / len(self.subsets), dtype=torch.float64)
        )
        marginals = (1 - self._UNIFORM) * shares + self._UNIFORM * size / num_columns
        random = torch.Generator().manual_seed(int(generator.integers(2**62)))
        return KSubset.from_marginals(marginals).sample_indices((count,), generator=random)
