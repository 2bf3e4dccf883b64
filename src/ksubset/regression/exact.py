"""Best subsets with a proof: by enumeration, or by branch and bound."""

import heapq
import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ksubset.regression.quadratic import Quadratic

__all__ = ["branch_and_bound", "enumerate_subsets"]

# Prefixes that are extended at once.
_BATCH = 4096
# Nodes that are bounded at once.
_NODES = 32
# What counts as no better, as part of the residual sum of squares.
_SAME = 1e-9
# Subsets that are fitted anew where second moments do not tell which is the best.
_REFITTED = 10_000
# Smallest eigenvalue of a Gram matrix whose columns are independent.
_SINGULAR = 1e-10


def enumerate_subsets(quadratic: Quadratic, size: int) -> tuple[Tensor, float, bool]:
    """The best subset of all of one size, 1 or more.

    The subsets of size k - 1 are factored, and each is extended by all later columns at once.

    Returns:
        The subset `(k)`, its residual sum of squares, and whether none is better by more than a billionth.
    """
    contenders = _Contenders(quadratic, size)
    columns = torch.arange(quadratic.num_columns)
    for prefixes in _prefixes(quadratic.num_columns - 1, size - 1):
        last = prefixes[:, -1:] if size > 1 else torch.full((len(prefixes), 1), -1)
        found, errors = quadratic.additions_with_error(prefixes)
        found = found.masked_fill(columns <= last, math.inf)
        place = int(found.argmin())
        row, column = divmod(place, len(columns))
        contenders.add(torch.cat([prefixes[row], columns[column : column + 1]])[None])
        rows, others = ((found - errors).clamp_min(0) < contenders.limit).nonzero().unbind(1)
        if len(rows):
            contenders.add(torch.cat([prefixes[rows], others[:, None]], 1))
    return contenders.best()


class _Contenders:
    """Subsets of which second moments do not tell which is the best, as their errors are larger than the differences.

    Attributes:
        value: The lowest residual sum of squares by second moments.
        limit: What that of the best is at most.
    """

    def __init__(self, quadratic: Quadratic, size: int) -> None:
        self._quadratic = quadratic
        self._lowest, self.value = torch.arange(size), math.inf
        self.limit = quadratic.total
        self._subsets = torch.empty((0, size), dtype=torch.int64)
        self._lower = torch.empty(0, dtype=torch.float64)
        self._left_out = math.inf

    def add(self, subsets: Tensor) -> None:
        """Take more of them, `(B, k)`, B from 1."""
        subsets = subsets.sort(1).values
        values, errors = self._quadratic.rss_with_error(subsets)
        place = int(values.argmin())
        if float(values[place]) < self.value:
            self._lowest, self.value = subsets[place], float(values[place])
        self.limit = min(self.limit, float((values + errors).min()))
        subsets = torch.cat([self._subsets, subsets])
        lower = torch.cat([self._lower, (values - errors).clamp_min(0)])
        close = lower < self.limit
        lower, order = lower[close].sort()
        if len(lower) > _REFITTED:
            self._left_out = min(self._left_out, float(lower[_REFITTED]))
        self._subsets, self._lower = subsets[close][order[:_REFITTED]], lower[:_REFITTED]

    def best(self) -> tuple[Tensor, float, bool]:
        """The best `(k)`, its residual sum of squares, and whether none is better by more than a billionth.

        Where several are as good but for errors of the second moments, all of them are fitted anew.
        """
        subsets = torch.unique(self._subsets, dim=0)
        if len(subsets) < 2:
            return (subsets[0] if len(subsets) else self._lowest), self.value, self._left_out >= self.limit
        values, errors = self._quadratic.refitted(subsets)
        place = int(values.argmin())
        limit = float(values[place] + errors[place]) * (1 - _SAME)
        others = (values - errors).scatter(0, torch.tensor([place]), math.inf)
        return subsets[place], float(values[place]), min(float(others.min()), self._left_out) >= limit


def _prefixes(num_columns: int, size: int) -> Iterator[Tensor]:
    if size == 0:
        yield torch.empty((1, 0), dtype=torch.int64)
        return
    subsets = itertools.combinations(range(num_columns), size)
    while batch := list(itertools.islice(subsets, _BATCH)):
        yield torch.from_numpy(np.array(batch))


def branch_and_bound(quadratic: Quadratic, start: Tensor, max_nodes: int) -> tuple[Tensor, float, bool]:
    r"""Improve a subset until none is better, or the number of nodes is spent.

    A node is a set A of columns that may be kept, some of which must be. The columns of A have coefficients b and the
    inverse M of their Gram matrix. To drop column i alone costs :math:`c_i = b_i^2 / M_{ii}`, and m of them together at
    least the largest of their costs, and at least their sum divided by the largest eigenvalue of M scaled to a diagonal
    of ones; the cheapest m columns therefore bound the node. By the same bounds columns are fixed one by one.

    References:
        Furnival and Wilson (1974), https://doi.org/10.1080/00401706.1974.10489231, for the first of the two bounds.

    Arguments:
        quadratic: The problem; with columns dependent, or nearly so, there is no bound, and nothing is proved.
        start: The subset to begin with, `(k)`; the better it is, the sooner the end.
        max_nodes: Most nodes.

    Returns:
        The subset, ascending, its residual sum of squares, and whether none is better by more than a billionth.
    """
    size, n = len(start), quadratic.num_columns
    contenders = _Contenders(quadratic, size)
    contenders.add(start[None])
    smallest = torch.linalg.eigvalsh(quadratic.gram)[0]
    # No subset has a smaller eigenvalue.
    error = float(quadratic.error(1 / smallest, n))
    if n <= size or smallest < _SINGULAR or math.isinf(error):
        return start, contenders.value, False
    counter = itertools.count()
    heap = [(0.0, next(counter), torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool))]
    visited = 0
    # Errors are those of the bound and of the best.
    while heap and heap[0][0] < (limit := contenders.value * (1 - _SAME) + 2 * error):
        if visited >= max_nodes:
            return *contenders.best()[:2], False
        nodes = [heapq.heappop(heap) for _ in range(min(_NODES, len(heap), max_nodes - visited))]
        visited += len(nodes)
        bounds = _Bounds(quadratic, size, torch.stack([node[2] for node in nodes]),
                         torch.stack([node[3] for node in nodes]))  # fmt: skip
        active, fixed = bounds.narrowed(limit)
        free = active & ~fixed
        place = bounds.costs.masked_fill(~free, -math.inf).argmax(1, keepdim=True)
        split = torch.zeros_like(free).scatter(1, place, free.gather(1, place))
        children = (
            (bounds.lower, active, fixed | split),
            (bounds.dropping.gather(1, place).squeeze(1).maximum(bounds.lower), active & ~split, fixed),
        )
        lower, active, fixed = (torch.cat(parts) for parts in zip(*children, strict=True))
        promising = (lower < limit) & (active.sum(1) >= size) & (fixed.sum(1) <= size) & (fixed <= active).all(1)
        # Where exactly k columns are left, or k must be kept, the node is that subset.
        ends = promising & ((active.sum(1) == size) | (fixed.sum(1) == size))
        leaves = torch.cat([bounds.cheapest_dropped, (fixed.double() + active)[ends].topk(size, 1).indices])
        leaves = leaves[quadratic.rss(leaves) < limit]
        if len(leaves):
            contenders.add(leaves)
        for row in (promising & ~ends).nonzero().flatten().tolist():
            heapq.heappush(heap, (float(lower[row]), next(counter), active[row], fixed[row]))
    return contenders.best()


class _Bounds:
    """Lower bounds of a batch of nodes, `active` and `fixed` `(B, n)`.

    Attributes:
        costs: Of dropping each column alone, `(B, n)`, infinite where it cannot be dropped.
        lower: Of the node, `(B)`.
        dropping: Of the node without each column, `(B, n)`.
        keeping: Of the node in which it must be kept, `(B, n)`.
        cheapest_dropped: The subset that is left when the cheapest are dropped, `(B, k)`.
    """

    def __init__(self, quadratic: Quadratic, size: int, active: Tensor, fixed: Tensor) -> None:
        mask = active.double()
        masked = quadratic.gram * mask[:, :, None] * mask[:, None, :] + torch.diag_embed(1 - mask)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(masked))
        masked_product = quadratic.product * mask
        coefficients = (inverse @ masked_product[:, :, None]).squeeze(2)
        squares = coefficients.square()
        residual = quadratic.total - (masked_product * coefficients).sum(1)
        diagonal = inverse.diagonal(dim1=1, dim2=2)
        self._free = active & ~fixed
        self.costs = (squares / diagonal).masked_fill(~self._free, math.inf)
        scale = self._free / diagonal.sqrt()
        largest = torch.linalg.eigvalsh(inverse * scale[:, :, None] * scale[:, None, :])[:, -1:]
        drop = (active.sum(1) - size)[:, None]
        ascending = self.costs.sort(1).values
        # Behind the last one of finite cost there is nothing to drop.
        sums = torch.cat([torch.zeros(len(active), 1, dtype=torch.float64), ascending.cumsum(1)], 1)
        last, following = ascending.gather(1, drop - 1), ascending.gather(1, drop.clamp_max(ascending.shape[1] - 1))
        among = self.costs <= last
        together = sums.gather(1, drop) / largest
        self.lower = (residual[:, None] + torch.maximum(last, together)).squeeze(1)
        others = torch.where(among, sums.gather(1, drop), sums.gather(1, drop - 1) + self.costs)
        self.dropping = residual[:, None] + torch.maximum(torch.maximum(self.costs, last), others / largest)
        others = torch.where(among, sums.gather(1, drop) - self.costs + following, sums.gather(1, drop))
        worst = torch.where(among, following, last)
        self.keeping = residual[:, None] + torch.maximum(worst, others / largest)
        self.cheapest_dropped = self.costs.masked_fill(~active, -1).topk(size, 1).indices
        self._active, self._fixed = active, fixed

    def narrowed(self, limit: float) -> tuple[Tensor, Tensor]:
        """Without columns that no subset below the limit keeps, and with those that all keep fixed."""
        fixed = self._fixed | (self._free & (self.dropping >= limit))
        return self._active & ~(self._free & (self.keeping >= limit)), fixed
