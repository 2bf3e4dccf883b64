"""The subsets that may be chosen: what is always or never in, groups, and constraints."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack

from ksubset.search.arguments import check_integer, check_items, listed
from ksubset.search.constraints import Constraint, Inequalities
from ksubset.search.feasibility import Part, conflict, excessive, solve, widened

__all__ = ["SearchSpace"]

# Draws without a feasible one among them, after which the solver is asked.
_REJECTED = 2000
# Beginnings of points that are held while points are listed, or as many as the points if they are more: a gigabyte.
_MOST_BEGINNINGS = 10_000_000


@dataclass(frozen=True)
class _Rules:
    """Inequalities of the free units, those of many items dense, those of pairs as a graph.

    Arguments:
        matrix: `(m, F)`.
        low, high: `(m)`, with what rounding may add.
        excludes: `(F, F)`, sparse, of ones: pairs that may not be together.
    """

    matrix: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    excludes: csr_array


class SearchSpace:
    """Subsets of exactly k of n units that fulfil all that is asked, over those units that are free to be in or out.

    A unit is a group of items, or an item that is in none. Points of the space are ascending places `(K)` in the list
    of free units; what is always in is added where they become items.

    Arguments:
        num_items: Items n.
        size: Units k in a subset.
        always, exclude: Items that are in every subset, and in none, with their groups.
        groups: Sequences of items that are kept or dropped together, without overlap.
        constraints: What else is asked.

    Raises:
        TypeError, ValueError: An argument is of a wrong kind or out of range, or no subset is left; the message says
            which arguments cannot be fulfilled together.
    """

    def __init__(
        self,
        num_items: int,
        size: int,
        *,
        always: Iterable[int] = (),
        exclude: Iterable[int] = (),
        groups: Sequence[Iterable[int]] | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self.num_items, self.size = check_integer("n", num_items, 1), check_integer("k", size, 0)
        self.units = self._units(groups)
        """Items of each unit, ascending."""
        count = len(self.units)
        if self.size > count:
            what = "items" if groups is None else "groups, items in none counted as groups of their own"
            raise ValueError(f"k: expected at most the number of {what}, {count}, got {size}")
        self._unit_of = np.empty(self.num_items, dtype=np.int64)
        for unit, items in enumerate(self.units):
            self._unit_of[items] = unit
        kept, out = self._chosen("always", always), self._chosen("exclude", exclude)
        if (kept & out).any():
            shared = np.flatnonzero((kept & out)[self._unit_of])
            raise ValueError(f"always, exclude: expected different items, got {shared.tolist()} in both")
        if kept.sum() > self.size:
            raise ValueError(f"always: expected at most k = {size}, got {kept.sum()}")
        if count - out.sum() < self.size:
            raise ValueError(f"exclude: expected to leave at least k = {size}, leaves {count - out.sum()}")
        self._parts = self._checked(constraints)
        fixed = [
            Part(name, _fixed(chosen, float(value)))
            for name, chosen, value in (("always", kept, 1), ("exclude", out, 0))
            if chosen.any()
        ]
        self._fixed = fixed
        if self._parts and solve(count, self.size, [*fixed, *self._parts]) is None:
            names = conflict(count, self.size, [*fixed, *self._parts])
            raise ValueError(f"constraints: no subset of size {size} fulfils {' and '.join(names)}")
        self.kept = np.flatnonzero(kept)
        """Units that are always in."""
        if self._parts:
            out |= excessive(self._all_rows()) & ~kept
        self.free = np.flatnonzero(~kept & ~out)
        """Units that are in or out, `(F)`."""
        self.free_size = self.size - len(self.kept)
        """Free units in a subset, K."""
        self.rules = self._rules() if self._parts and len(self.free) else None
        """None if every K free units will do."""
        self._thin = False
        self._sizes = np.array([len(items) for items in self.units])

    def _units(self, groups: Sequence[Iterable[int]] | None) -> list[NDArray[np.int64]]:
        given = [] if groups is None else listed("groups", groups)
        checked = [check_items(f"groups[{place}]", group, self.num_items) for place, group in enumerate(given)]
        grouped = np.concatenate([np.zeros(0, dtype=np.int64), *checked])
        if any(len(group) == 0 for group in checked):
            raise ValueError("groups: expected at least one item in each, got an empty one")
        items, times = np.unique(grouped, return_counts=True)
        if (times > 1).any():
            raise ValueError(f"groups: expected no overlap, got {items[times > 1].tolist()} in several")
        alone = np.setdiff1d(np.arange(self.num_items), grouped)
        return sorted([*checked, *alone[:, None]], key=lambda unit: int(unit[0]))

    def _chosen(self, name: str, items: Iterable[int]) -> NDArray[np.bool_]:
        chosen = np.zeros(len(self.units), dtype=bool)
        chosen[self._unit_of[check_items(name, items, self.num_items)]] = True
        return chosen

    def _checked(self, constraints: Sequence[Constraint]) -> list[Part]:
        given = listed("constraints", constraints)
        if not all(isinstance(one, Constraint) for one in given):
            raise TypeError(f"constraints: expected a sequence of constraints, got {constraints!r}")
        to_units = coo_array(
            (np.ones(self.num_items), (np.arange(self.num_items), self._unit_of)),
            shape=(self.num_items, len(self.units)),
        ).tocsr()
        most = self.size * max(map(len, self.units))
        parts = []
        for place, constraint in enumerate(given):
            rows = constraint.inequalities(self.num_items)
            rows = widened(Inequalities((rows.matrix @ to_units).tocsr(), rows.low, rows.high), most)
            parts.append(Part(f"constraints[{place}] = {constraint}", rows))
        return parts

    def _all_rows(self) -> Inequalities:
        """What is asked of the units beside those that are always in."""
        matrix = vstack([part.inequalities.matrix for part in self._parts]).tocsr()
        low = np.concatenate([part.inequalities.low for part in self._parts])
        high = np.concatenate([part.inequalities.high for part in self._parts])
        always = matrix[:, self.kept].sum(axis=1)
        return Inequalities(matrix, low - always, high - always)

    def _rules(self) -> _Rules:
        rows = self._all_rows()
        matrix = rows.matrix[:, self.free].tocsr()
        matrix.eliminate_zeros()
        asked = (matrix.sum(axis=1) > rows.high) | (matrix.min(axis=1).toarray() < 0) | (rows.low > 0)
        matrix, low, high = matrix[asked], rows.low[asked], rows.high[asked]
        # Rows of two ones and a limit of one; there may be very many.
        pair = (np.diff(matrix.indptr) == 2) & (matrix.sum(axis=1) == 2) & (abs(high - 1) < 0.5) & (low <= 0)
        pair &= matrix.max(axis=1).toarray() == 1
        first, second = matrix[pair].indices.reshape(-1, 2).T
        ends = np.concatenate([first, second]), np.concatenate([second, first])
        excludes = coo_array((np.ones(len(ends[0]), dtype=np.int64), ends), shape=(len(self.free),) * 2).tocsr()
        excludes.data[:] = 1
        return _Rules(matrix[~pair].toarray(), low[~pair], high[~pair], excludes)

    @property
    def items_in_all(self) -> int | None:
        """Items in every subset; None if subsets differ in it, as groups of different sizes do."""
        sizes = np.unique(self._sizes[self.free])
        if len(sizes) > 1:
            return None
        return int(self._sizes[self.kept].sum() + self.free_size * (sizes[0] if len(sizes) else 0))

    def items(self, point: NDArray[np.int64]) -> NDArray[np.int64]:
        """Items of a point, ascending; point `(K)` -> `(k)`, or as many as its groups have."""
        units = np.concatenate([self.kept, self.free[point]])
        if len(self.units) == self.num_items:
            units.sort()
            return units
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *(self.units[unit] for unit in units)]))

    def point(self, name: str, items: Iterable[int]) -> NDArray[np.int64]:
        """The point of a subset of items.

        Raises:
            TypeError, ValueError: It is none of the space; the message begins with the name.
        """
        found = check_items(name, items, self.num_items)
        units = np.unique(self._unit_of[found])
        if len(units) != self.size or self._sizes[units].sum() != len(found) or not np.isin(self.kept, units).all():
            raise ValueError(f"{name}: expected k = {self.size} with all of always, whole groups, got {found.tolist()}")
        units = np.setdiff1d(units, self.kept)
        if not np.isin(units, self.free).all():
            raise ValueError(f"{name}: expected nothing of exclude, got {found.tolist()}")
        point = np.searchsorted(self.free, units)
        if not self.feasible(point[None])[0]:
            raise ValueError(f"{name}: expected a subset that fulfils all constraints, got {found.tolist()}")
        return point

    def feasible(self, points: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether points fulfil all constraints, `(S, K)` -> `(S)`."""
        if self.rules is None:
            return np.ones(len(points), dtype=bool)
        rules = self.rules
        sums = rules.matrix[:, points].sum(-1).T
        good: NDArray[np.bool_] = ((sums >= rules.low) & (sums <= rules.high)).all(1)
        if rules.excludes.nnz:
            rows = np.repeat(np.arange(len(points)), points.shape[1])
            member = coo_array(
                (np.ones(points.size, dtype=np.int64), (rows, points.ravel())), shape=(len(points), len(self.free))
            )
            good &= (member.tocsr() @ rules.excludes).multiply(member.tocsr()).sum(axis=1) == 0
        return good

    def swaps(self, members: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Which swaps of a member for another lead from a feasible point to feasible ones; None for all.

        Shapes:
            members `(K)`, others `(F - K)` -> `(K, F - K)`.
        """
        if self.rules is None:
            return None
        rules = self.rules
        allowed = np.ones((len(members), len(others)), dtype=bool)
        for row, low, high in zip(rules.matrix, rules.low, rules.high, strict=True):
            sums = row[members].sum() - row[members][:, None] + row[others]
            allowed &= (sums >= low) & (sums <= high)
        if rules.excludes.nnz:
            excludes = rules.excludes[members][:, others].toarray()
            allowed &= excludes.sum(0) == excludes
        return allowed

    def sample(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A random point: one of all with the same probability, unless so few of them fulfil the constraints that the
        solver has to be asked for one.
        """
        drawn = 0
        while not self._thin:
            batch = min(1 if self.rules is None else 1 + drawn, 256)
            points = np.argsort(rng.random((batch, len(self.free))), axis=1)[:, : self.free_size]
            good = np.flatnonzero(self.feasible(points))
            if len(good):
                return np.sort(points[good[0]])
            drawn += batch
            self._thin = drawn >= _REJECTED
        found = solve(len(self.units), self.size, [*self._fixed, *self._parts], rng.random(len(self.units)))
        assert found is not None  # the constructor has found one
        point = np.flatnonzero(found[self.free])
        # Solutions are corners, which are few; from there a walk.
        for _ in range(2 * self.free_size):
            others = np.setdiff1d(np.arange(len(self.free)), point)
            allowed = self.swaps(point, others)
            if allowed is None or not allowed.any():
                break
            out, into = np.unravel_index(rng.choice(np.flatnonzero(allowed)), allowed.shape)
            point[out] = others[into]
        return np.sort(point)

    def enumerate(self, limit: int) -> NDArray[np.int64] | None:
        """All points, `(N, K)`, if there are at most so many; None if there are more, or it takes too long to say."""
        count, size = len(self.free), self.free_size
        if self.rules is None and math.comb(count, size) > limit:
            return None
        rules = self.rules
        matrix = np.zeros((0, count)) if rules is None else rules.matrix
        if count * (size + 1) * len(matrix) > 10_000_000:
            return None
        together = np.arange(count, -1, -1) if rules is None else _most_together(rules.excludes)
        lowest, highest = _extreme_sums(matrix, size), -_extreme_sums(-matrix, size)
        prefixes, sums = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(matrix)))
        for level in range(size):
            left = size - level - 1
            starts = prefixes[:, -1] + 1 if level else np.zeros(1, dtype=np.int64)
            counts = count - left - starts
            if counts.sum() > max(limit, min(20 * limit, _MOST_BEGINNINGS)) + 10_000:
                return None
            parent = np.repeat(np.arange(len(prefixes)), counts)
            child = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts) + starts[parent]
            total = sums[parent] + matrix[:, child].T
            keep = np.ones(len(child), dtype=bool)
            if rules is not None:
                keep &= (total + lowest[child + 1, left] <= rules.high).all(1)
                keep &= (total + highest[child + 1, left] >= rules.low).all(1)
                keep &= left <= together[child + 1]
                for place in range(level) if rules.excludes.nnz else ():
                    keep[keep] = ~_pairs(rules.excludes, prefixes[parent[keep], place], child[keep])
            prefixes, sums = np.column_stack([prefixes[parent[keep]], child[keep]]), total[keep]
        return prefixes if len(prefixes) <= limit else None


def _fixed(chosen: NDArray[np.bool_], value: float) -> Inequalities:
    places = np.flatnonzero(chosen)
    matrix = coo_array((np.ones(len(places)), (np.arange(len(places)), places)), shape=(len(places), len(chosen)))
    return Inequalities(matrix.tocsr(), np.full(len(places), value), np.full(len(places), value))


def _pairs(graph: csr_array, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether there is an edge between each two, `(S)`."""
    if not len(first):
        return np.zeros(0, dtype=bool)
    return np.asarray(graph[first, second]).ravel() > 0


def _most_together(excludes: csr_array) -> NDArray[np.int64]:
    """How many places from one on may be together at most, `(F + 1)`: as many as cliques that cover them, greedily."""
    count = excludes.shape[0]
    clique = np.full(count, -1)
    sizes: list[int] = []
    result = np.zeros(count + 1, dtype=np.int64)
    for place in range(count - 1, -1, -1):
        near = clique[excludes.indices[excludes.indptr[place] : excludes.indptr[place + 1]]]
        found, times = np.unique(near[near >= 0], return_counts=True)
        whole = found[times == np.array(sizes, dtype=np.int64)[found]]
        clique[place] = whole[0] if len(whole) else len(sizes)
        if len(whole):
            sizes[whole[0]] += 1
        else:
            sizes.append(1)
        result[place] = len(sizes)
    return result


def _extreme_sums(matrix: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Least sums of so many entries from a column on: `(m, F)` -> `(F + 1, size + 1, m)`, infinite where too few."""
    rows, count = matrix.shape
    result = np.full((count + 1, size + 1, rows), np.inf)
    result[:, 0] = 0
    least = np.zeros((rows, 0))
    for column in range(count - 1, -1, -1):
        least = np.sort(np.column_stack([least, matrix[:, column]]), axis=1)[:, :size]
        result[column, 1 : least.shape[1] + 1] = np.cumsum(least, axis=1).T
    return result
