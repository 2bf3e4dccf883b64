"""Constraints on subsets, each as linear inequalities on membership."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array
from scipy.spatial import KDTree

from ksubset.search.arguments import check_integer, check_items

__all__ = ["Apart", "AtLeast", "AtMost", "Budget", "Constraint", "Exactly", "Inequalities"]

# Items that are as far apart as they should be may seem nearer by this part of their coordinates, or of a distance that
# was computed from coordinates that are not known.
_ROUNDING, _SAME = 1e-14, 1e-9


@dataclass(frozen=True)
class Inequalities:
    """Linear inequalities on membership z, `low <= matrix z <= high`.

    Arguments:
        matrix: `(m, n)`, sparse.
        low, high: `(m)`, infinite where there is no limit.

    Example:
        >>> second_without_first = csr_array([[-1.0, 1.0, 0.0]])  # z_1 - z_0 <= 0: item 1 needs item 0
        >>> Inequalities(second_without_first, np.full(1, -np.inf), np.zeros(1)).matrix @ np.array([0, 1, 0])
        array([1.])
    """

    matrix: csr_array
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Constraint(ABC):
    """What subsets have to fulfil; `str` says it in a few words. One of your own gives linear inequalities.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from ksubset.search import minimize
        >>> class Even(Constraint):
        ...     def inequalities(self, num_items):
        ...         odd = csr_array((np.arange(num_items)[None] % 2).astype(float))
        ...         return Inequalities(odd, np.zeros(1), np.zeros(1))
        >>> minimize(lambda subset: subset.sum(), 9, 3, constraints=[Even()], max_evaluations=50).subset
        array([0, 2, 4])
    """

    @abstractmethod
    def inequalities(self, num_items: int) -> Inequalities:
        """The constraint for n items.

        Raises:
            TypeError, ValueError: It is not one of so many items.
        """


class _Count(Constraint):
    """Limits on how many of some items are in a subset."""

    def __init__(self, count: int, items: Iterable[int]) -> None:
        self.count, self.items = check_integer("count", count, 0), list(items)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.count}, {_listed(self.items)})"

    __repr__ = __str__

    @abstractmethod
    def _limits(self) -> tuple[float, float]:
        """The least and the largest number."""

    def inequalities(self, num_items: int) -> Inequalities:
        items = check_items(f"{type(self).__name__}: items", self.items, num_items)
        low, high = self._limits()
        matrix = coo_array((np.ones(len(items)), (np.zeros(len(items), dtype=np.int64), items)), shape=(1, num_items))
        return Inequalities(matrix.tocsr(), np.array([low]), np.array([high]))


class AtMost(_Count):
    """At most so many of some items; of none of them, `AtMost(0, items)`, is a forbidden region.

    Arguments:
        count: How many.
        items: Their indices.

    Raises:
        TypeError, ValueError: The count is no integer of 0 or more; once n is known, for items that are none.

    Example:
        >>> from ksubset.search import minimize
        >>> bound = AtMost(1, [0, 1, 2])
        >>> minimize(lambda subset: subset.sum(), 9, 3, constraints=[bound], max_evaluations=100).subset
        array([0, 3, 4])
    """

    def _limits(self) -> tuple[float, float]:
        return -np.inf, self.count


class AtLeast(_Count):
    """At least so many of some items.

    Arguments:
        count, items: As of `AtMost`.

    Raises:
        TypeError, ValueError: As of `AtMost`.

    Example:
        >>> from ksubset.search import minimize
        >>> bound = AtLeast(2, [6, 7, 8])
        >>> minimize(lambda subset: subset.sum(), 9, 3, constraints=[bound], max_evaluations=100).subset
        array([0, 6, 7])
    """

    def _limits(self) -> tuple[float, float]:
        return self.count, np.inf


class Exactly(_Count):
    """Exactly so many of some items; so many of each group is `[Exactly(m, group) for group in groups]`.

    Arguments:
        count, items: As of `AtMost`.

    Raises:
        TypeError, ValueError: As of `AtMost`.

    Example:
        >>> from ksubset.search import minimize
        >>> one_of_each = [Exactly(1, group) for group in ([0, 1, 2], [3, 4, 5], [6, 7, 8])]
        >>> minimize(lambda subset: subset.sum(), 9, 3, constraints=one_of_each, max_evaluations=100).subset
        array([0, 3, 6])
    """

    def _limits(self) -> tuple[float, float]:
        return self.count, self.count


class Budget(Constraint):
    """Costs of the items in a subset that together may not exceed a limit.

    A sum counts as within the limit if rounding alone lifts it above.

    Arguments:
        costs: `(n)`, 0 or more each.
        limit: Largest sum.

    Raises:
        ValueError: Costs are negative, NaN or infinite, or not one for each item; or the limit is negative or NaN.

    Example:
        >>> from ksubset.search import minimize
        >>> minimize(lambda subset: -subset.sum(), 4, 2, constraints=[Budget([3, 1, 2, 4], 5)]).subset
        array([1, 3])
    """

    def __init__(self, costs: ArrayLike, limit: float) -> None:
        self.costs, self.limit = _numbers("costs", costs, 1), float(limit)
        wrong = np.flatnonzero(~(self.costs >= 0) | np.isinf(self.costs))
        if len(wrong):
            raise ValueError(f"costs: expected finite numbers of 0 or more, got {self.costs[wrong[0]]} at {wrong[0]}")
        if not self.limit >= 0:
            raise ValueError(f"limit: expected 0 or more, got {limit}")

    def __str__(self) -> str:
        return f"Budget(costs, {self.limit:g})"

    __repr__ = __str__

    def inequalities(self, num_items: int) -> Inequalities:
        if len(self.costs) != num_items:
            raise ValueError(f"costs: expected one for each of {num_items} items, got {len(self.costs)}")
        return Inequalities(csr_array(self.costs[None]), np.array([-np.inf]), np.array([self.limit]))


class Apart(Constraint):
    """No two items closer than a distance, or no two of given pairs.

    Arguments:
        distance: Least distance of two items in a subset; by rounding they may be nearer, of `distances` by a
            billionth.
        coordinates: `(n, d)`, for Euclidean distances; or `(n)`, on a line.
        distances: `(n, n)`, symmetric, instead.
        pairs: `(P, 2)`, indices of items that exclude each other, instead of all of these.

    Raises:
        TypeError: Not exactly one of coordinates, distances and pairs is given, or the distance is missing.
        ValueError: One of them has a wrong shape, or NaN.

    Example:
        >>> from ksubset.search import minimize
        >>> spread = Apart(2.5, coordinates=range(9))
        >>> minimize(lambda subset: subset.sum(), 9, 3, constraints=[spread], max_evaluations=100).subset
        array([0, 3, 6])
    """

    def __init__(
        self,
        distance: float | None = None,
        *,
        coordinates: ArrayLike | None = None,
        distances: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
    ) -> None:
        given = [name for name, value in _named(coordinates, distances, pairs) if value is not None]
        if len(given) != 1 or (distance is None) != (pairs is not None):
            raise TypeError(
                "Apart: expected a distance with either coordinates or distances, or pairs alone, got "
                f"{'no distance' if distance is None else 'a distance'} and {' and '.join(given) or 'nothing else'}"
            )
        if distance is not None and not distance >= 0:
            raise ValueError(f"distance: expected 0 or more, got {distance}")
        self.distance, self._size = distance, None
        if pairs is not None:
            found = np.asarray(pairs)
            found = found.reshape(0, 2) if found.size == 0 else found
            if found.ndim != 2 or found.shape[1] != 2:
                raise ValueError(f"pairs: expected shape (P, 2), got {found.shape}")
            if found.size and not np.issubdtype(found.dtype, np.integer):
                raise TypeError(f"pairs: expected indices of items, got {found.dtype}")
            if (found[:, 0] == found[:, 1]).any():
                raise ValueError("pairs: expected two different items in each")
            self.pairs = found
            return
        assert distance is not None
        if coordinates is not None:
            points = _numbers("coordinates", coordinates, None)
            points = points[:, None] if points.ndim == 1 else points
            if points.ndim != 2:
                raise ValueError(f"coordinates: expected shape (n, d), got {points.shape}")
            # Those at exactly this distance are far enough, and the tree finds them too.
            near = KDTree(points).query_pairs(distance, output_type="ndarray").reshape(-1, 2)
            between = np.linalg.norm(points[near[:, 0]] - points[near[:, 1]], axis=1)
            near = near[between < distance - _ROUNDING * np.abs(points).max(initial=0.0)]
            self.pairs, self._size = near, len(points)
            return
        square = _numbers("distances", distances, 2)
        if square.shape[0] != square.shape[1] or not np.array_equal(square, square.T):
            raise ValueError(f"distances: expected a symmetric matrix, got shape {square.shape}")
        near = np.triu(square < distance * (1 - _SAME), 1)
        self.pairs, self._size = np.argwhere(near), len(square)

    def __str__(self) -> str:
        return f"Apart({len(self.pairs)} pairs)" if self.distance is None else f"Apart({self.distance:g})"

    __repr__ = __str__

    def inequalities(self, num_items: int) -> Inequalities:
        if self._size not in (None, num_items):
            raise ValueError(f"Apart: expected distances of {num_items} items, got those of {self._size}")
        if len(self.pairs) and not 0 <= self.pairs.min() <= self.pairs.max() < num_items:
            raise ValueError(
                f"pairs: expected indices from 0 to {num_items - 1}, got {self.pairs.min()} to {self.pairs.max()}"
            )
        pairs = np.unique(np.sort(self.pairs.astype(np.int64), axis=1), axis=0)
        count = len(pairs)
        places = (np.repeat(np.arange(count), 2), pairs.ravel())
        matrix = coo_array((np.ones(2 * count), places), shape=(count, num_items)).tocsr()
        return Inequalities(matrix, np.full(count, -np.inf), np.ones(count))


def _named(coordinates: Any, distances: Any, pairs: Any) -> list[tuple[str, Any]]:
    return [("coordinates", coordinates), ("distances", distances), ("pairs", pairs)]


def _numbers(name: str, values: Any, dimensions: int | None) -> NDArray[np.float64]:
    result = np.array(values, dtype=np.float64)
    if dimensions is not None and result.ndim != dimensions:
        raise ValueError(f"{name}: expected {dimensions} dimensions, got shape {result.shape}")
    if np.isnan(result).any():
        raise ValueError(f"{name}: expected numbers, got NaN at {np.argwhere(np.isnan(result))[0].tolist()}")
    return result


def _listed(items: list[int]) -> str:
    return str(items) if len(items) <= 6 else f"{len(items)} items from {items[0]}"
