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
# What counts as no better: part of the residual sum of squares, and of the squared coefficients for their rounding.
_SAME, _ROUNDING = 1e-9, 1e-14
# Smallest eigenvalue of a Gram matrix whose columns are independent.
_SINGULAR = 1e-10


def enumerate_subsets(quadratic: Quadratic, size: int) -> tuple[Tensor, float]:
    """The best subset `(k)` of all of one size, 1 or more, and its residual sum of squares.

    The subsets of size k - 1 are factored, and each is extended by all later columns at once.
    """
    best, value = torch.arange(size), math.inf
    columns = torch.arange(quadratic.num_columns)
    for prefixes in _prefixes(quadratic.num_columns - 1, size - 1):
        last = prefixes[:, -1:] if size > 1 else torch.full((len(prefixes), 1), -1)
        found = quadratic.additions(prefixes).masked_fill(columns <= last, math.inf)
        place = int(found.argmin())
        row, column = divmod(place, len(columns))
        if (lowest := float(found[row, column])) < value:
            best, value = torch.cat([prefixes[row], columns[column : column + 1]]), lowest
    return best, float(quadratic.rss(best[None]))


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
        quadratic: The problem; with dependent columns there is no bound, and nothing is proved.
        start: The subset to begin with, `(k)`; the better it is, the sooner the end.
        max_nodes: Most nodes.

    Returns:
        The subset, ascending, its residual sum of squares, and whether none is better by more than a billionth.
    """
    size = len(start)
    best, value = start, float(quadratic.rss(start[None]))
    order = (quadratic.gram.diagonal() > 0).nonzero().flatten()
    gram, product = quadratic.gram[order][:, order], quadratic.product[order]
    if len(order) <= size or float(torch.linalg.eigvalsh(gram)[0]) < _SINGULAR:
        return best, value, False
    counter = itertools.count()
    heap = [(0.0, next(counter), torch.ones(len(order), dtype=torch.bool), torch.zeros(len(order), dtype=torch.bool))]
    visited = 0
    while heap and heap[0][0] < value * (1 - _SAME):
        if visited >= max_nodes:
            return best, value, False
        nodes = [heapq.heappop(heap) for _ in range(min(_NODES, len(heap), max_nodes - visited))]
        visited += len(nodes)
        bounds = _Bounds(gram, product, quadratic.total, size, torch.stack([node[2] for node in nodes]),
                         torch.stack([node[3] for node in nodes]))  # fmt: skip
        limit = value * (1 - _SAME)
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
        found = quadratic.rss(order[leaves])
        lowest = int(found.argmin())
        if float(found[lowest]) < value:
            best, value = order[leaves[lowest]].sort().values, float(found[lowest])
        for row in (promising & ~ends).nonzero().flatten().tolist():
            heapq.heappush(heap, (float(lower[row]), next(counter), active[row], fixed[row]))
    return best, value, True


class _Bounds:
    """Lower bounds of a batch of nodes, `active` and `fixed` `(B, n)`.

    Attributes:
        costs: Of dropping each column alone, `(B, n)`, infinite where it cannot be dropped.
        lower: Of the node, `(B)`.
        dropping: Of the node without each column, `(B, n)`.
        keeping: Of the node in which it must be kept, `(B, n)`.
        cheapest_dropped: The subset that is left when the cheapest are dropped, `(B, k)`.
    """

    def __init__(self, gram: Tensor, product: Tensor, total: float, size: int, active: Tensor, fixed: Tensor) -> None:
        mask = active.double()
        masked = gram * mask[:, :, None] * mask[:, None, :] + torch.diag_embed(1 - mask)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(masked))
        masked_product = product * mask
        coefficients = (inverse @ masked_product[:, :, None]).squeeze(2)
        squares = coefficients.square()
        residual = total - (masked_product * coefficients).sum(1) - _ROUNDING * squares.sum(1)
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
