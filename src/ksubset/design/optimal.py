"""Optimal design: the k of n candidate runs that tell most about the coefficients of a linear model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import check_array

from ksubset.design.criteria import Array, AverageVariance, Criterion, Determinant, Indices, SmallestEigenvalue
from ksubset.design.exchange import drawn, exchange
from ksubset.design.relaxation import Relaxed, relax
from ksubset.search import Constraint, minimize
from ksubset.search.arguments import check_integer, listed
from ksubset.search.space import SearchSpace

__all__ = ["DesignResult", "optimal_design"]

_CRITERIA = ("D", "A", "E", "I")
_METHODS = ("auto", "enumeration", "exchange", "rounding", "search")
_ENUMERATED = 100_000
_DRAWS = 2000
_SEARCHED = 5000
# Values that differ by less, as a share, are the same but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class DesignResult:
    """A design, and how far from the best it may be.

    Arguments:
        subset: Rows of the candidates, ascending, `(k)`.
        value: The criterion: D the p-th root of the determinant of the information, A the trace of its inverse, E its
            smallest eigenvalue, I the mean variance of predictions at the candidates; of errors with variance 1.
        bound: What no design can be better than: D and E at most, A and I at least.
        efficiency: The value beside the bound, in [0, 1]; the design is at least this good.
        optimal: Whether it is proved that no design is better, up to rounding.
        weights: The relaxed design that the bound comes from, `(n)`, between 0 and 1 with sum k.
        information: Of the design, with the prior, `(p, p)`.

    Example:
        >>> import numpy as np
        >>> line = np.column_stack([np.ones(11), np.linspace(-1, 1, 11)])
        >>> design = optimal_design(line, 4, random_state=0)
        >>> design.subset, design.optimal, round(design.efficiency, 2)
        (array([ 0,  1,  9, 10]), True, 1.0)
        >>> design.information.round(2).tolist()
        [[4.0, 0.0], [0.0, 3.28]]
    """

    subset: Indices
    value: float
    bound: float
    efficiency: float
    optimal: bool
    weights: Array = field(repr=False)
    information: Array = field(repr=False)


def optimal_design(
    candidates: Any,
    k: int,
    criterion: str = "D",
    *,
    prior: Any = None,
    always: Iterable[int] = (),
    exclude: Iterable[int] = (),
    constraints: Sequence[Constraint] = (),
    method: str = "auto",
    num_starts: int = 10,
    random_state: int | None = None,
) -> DesignResult:
    r"""Choose k of n candidate runs, each at most once, for a linear model with coefficients :math:`\beta`.

    With rows x of the model matrix, the information of a design S is :math:`M = M_0 + \sum_{i \in S} x_i x_i^\top`, the
    inverse of the covariance of the estimates where errors have variance 1. "D" maximises its determinant, "A"
    minimises the trace of its inverse, "E" maximises its smallest eigenvalue, and "I" (also V or IV) minimises the mean
    variance of predictions at the candidates. To allow a run twice, list it twice.

    The bound is the optimum over weights between 0 and 1 whose sum is k, without the constraints. A design is proved to
    be optimal where it meets the bound, where all designs were enumerated, or where the bound excludes so many
    candidates that the designs that are left were.

    Arguments:
        candidates: Rows of the model matrix, intercept, squares and products included, `(n, p)`.
        k: Runs to choose.
        criterion: "D", "A", "E" or "I".
        prior: Information :math:`M_0` from elsewhere: a symmetric matrix `(p, p)` without negative eigenvalues, or a
            number, for that times the identity (a ridge, or a Gaussian prior). None is none.
        always: Candidates that are in each design, as runs that were made already; they count towards k.
        exclude: Candidates that are in none.
        constraints: What else a design has to fulfil: `AtMost`, `AtLeast`, `Exactly`, `Budget`, `Apart` of
            `ksubset.search`.
        method: "enumeration" of all designs; "exchange" of rows from random designs; "rounding", from half as many
            more, the best of 2,000 drawn with the weights of the relaxed one as inclusion probabilities; "search" by
            `ksubset.search.minimize`, from the best of these. "auto" enumerates up to 100,000 designs, and else rounds,
            or searches where there are constraints.
        num_starts: Random designs that are improved by exchange.
        random_state: Seed; None for another one each time.

    Raises:
        TypeError, ValueError: An argument is of a wrong kind or out of range; the candidates, or k of them, are too
            few to estimate all coefficients without a prior; constraints leave no design, or there are too many to be
            enumerated.

    References:
        Pukelsheim (1993), Optimal Design of Experiments. Fedorov (1972), Theory of Optimal Experiments.
        Joshi and Boyd (2009), Sensor selection via convex optimization, https://doi.org/10.1109/TSP.2008.2007095,
        for the relaxation.

    Example:
        >>> dose = np.linspace(-1, 1, 21)
        >>> found = optimal_design(np.stack([dose**0, dose, dose**2], 1), 6, random_state=0)
        >>> dose[found.subset].round(1).tolist(), found.optimal
        ([-1.0, -0.9, -0.1, 0.0, 0.9, 1.0], True)
    """
    rows = np.asarray(check_array(candidates, dtype=np.float64, input_name="candidates"))
    size = check_integer("k", k, 1)
    for name, value, known in (("criterion", criterion, _CRITERIA), ("method", method, _METHODS)):
        if value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    starts = check_integer("num_starts", num_starts, 1)
    rules = listed("constraints", constraints)
    space = SearchSpace(len(rows), size, always=always, exclude=exclude, constraints=rules)
    before = _prior(prior, rows.shape[1])
    problem = _Problem(rows, before, criterion, space, rules)
    seed = int(np.random.default_rng(random_state).integers(2**31 - 1))
    return problem.solve(method, starts, seed)


class _Problem:
    """Candidates that are free to be in or out, and what is known of the rest."""

    def __init__(
        self, rows: Array, prior: Array, name: str, space: SearchSpace, constraints: Sequence[Constraint]
    ) -> None:
        self._rows, self._prior, self._name, self._space = rows, prior, name, space
        self._constraints = constraints
        kept = rows[space.kept]
        before = prior + kept.T @ kept
        self._moments = rows.T @ rows / len(rows) if name == "I" else np.eye(rows.shape[1])
        self.criterion = self._criterion_on(rows[space.free], before)
        columns = rows.shape[1]
        known = int(np.linalg.matrix_rank(before, hermitian=True))
        if space.free_size + known < columns:
            with_prior = "" if not known else f", as always and prior give {known} of them"
            raise ValueError(
                f"k: expected at least {columns - known + len(kept)} for {columns} coefficients{with_prior}, got "
                f"{space.size}; or give a prior of full rank"
            )
        everything = self.criterion.weighted(np.ones(len(space.free)))
        if self.criterion.relaxed(np.ones(len(space.free)), 1e-300)[0] == -np.inf or not _full_rank(everything):
            raise ValueError(
                f"candidates: expected all {columns} columns to be independent and of similar scale, or a prior, got "
                f"information of rank {np.linalg.matrix_rank(everything, hermitian=True)} from all that may be chosen"
            )

    def _criterion_on(self, rows: Array, before: Array) -> Criterion:
        if self._name == "D":
            return Determinant(rows, before)
        return SmallestEigenvalue(rows, before) if self._name == "E" else AverageVariance(rows, before, self._moments)

    def solve(self, method: str, starts: int, seed: int) -> DesignResult:
        criterion, space = self.criterion, self._space
        everything = space.enumerate(_ENUMERATED) if method in ("auto", "enumeration") else None
        if method == "enumeration" and everything is None:
            raise ValueError(f"method: expected another one than 'enumeration' for more than {_ENUMERATED:,} designs")
        free = len(space.free)
        only = space.free_size in (0, free)
        weights = np.full(free, float(space.free_size > 0))
        relaxed = None if only else relax(criterion, space.free_size)
        if everything is not None:
            utilities = criterion.utilities(everything)
            point, utility, optimal = everything[utilities.argmax()], float(utilities.max()), True
        else:
            found = [self._improved(start) for start in self._starts(method, relaxed, starts, seed)]
            if method == "search" or (method == "auto" and space.rules is not None):
                found.append(self._search([point for point, _ in found], seed))
            point, utility = max(found, key=lambda pair: pair[1])
            optimal = only
        if utility == -np.inf:
            raise ValueError("constraints: found no design from which all coefficients can be estimated")
        if relaxed is not None:
            weights = relaxed.weights
            if not optimal:
                point, utility, optimal = self._proved(relaxed, point, utility)
        return self._result(point, utility, weights, utility if relaxed is None else relaxed.bound, optimal=optimal)

    def _starts(self, method: str, relaxed: Relaxed | None, starts: int, seed: int) -> Iterator[Indices]:
        if method != "exchange" and relaxed is not None:
            # Fewer, as those drawn are much alike.
            yield from drawn(self.criterion, self._space, relaxed.weights, _DRAWS, (starts + 1) // 2, seed)
        rng = np.random.default_rng(seed)
        for _ in range(starts):
            yield self._space.sample(rng)

    def _improved(self, start: Indices) -> tuple[Indices, float]:
        """By exchange; the smallest eigenvalue after the trace of the inverse, as swaps rarely raise it alone."""
        if self._name == "E":
            smooth = AverageVariance(self.criterion.rows, self.criterion.prior, np.eye(self._rows.shape[1]))
            start = exchange(smooth, self._space, start)[0]
        return exchange(self.criterion, self._space, start)

    def _search(self, points: list[Indices], seed: int) -> tuple[Indices, float]:
        """By `minimize`, which changes more than one row at a time."""
        space = self._space
        whole = self._criterion_on(self._rows, self._prior)
        found = minimize(
            lambda subsets: -whole.utilities(subsets), space.num_items, space.size, vectorized=True,
            max_evaluations=_SEARCHED, always=space.kept,
            exclude=np.setdiff1d(np.arange(space.num_items), np.union1d(space.kept, space.free)),
            constraints=self._constraints, initial=np.unique([space.items(point) for point in points], axis=0),
            random_state=seed,
        )  # fmt: skip
        return exchange(self.criterion, space, space.point("subset", found.subset))

    def _proved(self, relaxed: Relaxed, point: Indices, utility: float) -> tuple[Indices, float, bool]:
        """Enumerate what the bound leaves, if that is little; else what was found, not proved."""
        space = self._space
        slack = _ROUNDING * self.criterion.magnitude(utility)
        if relaxed.bound <= utility + slack:
            return point, utility, True
        inside, outside = relaxed.forced(utility + slack, space.free_size)
        left = np.flatnonzero(~inside & ~outside)
        size = space.free_size - int(inside.sum())
        if size < 0 or len(left) < size:
            return point, utility, True
        rest = SearchSpace(
            len(space.free), space.free_size, always=np.flatnonzero(inside), exclude=np.flatnonzero(outside)
        )
        points = rest.enumerate(_ENUMERATED)
        if points is None:
            return point, utility, False
        fixed = np.tile(rest.kept, (len(points), 1))
        points = np.sort(np.concatenate([fixed, rest.free[points]], axis=1), axis=1)
        points = np.concatenate([points[space.feasible(points)], point[None]])
        utilities = self.criterion.utilities(points)
        best = int(utilities.argmax())
        return points[best], float(utilities[best]), True

    def _result(self, point: Indices, utility: float, weights: Array, bound: float, *, optimal: bool) -> DesignResult:
        space, criterion = self._space, self.criterion
        value, limit = criterion.value(utility), criterion.value(max(bound, utility))
        everywhere = np.zeros(space.num_items)
        everywhere[space.kept] = 1
        everywhere[space.free] = weights
        return DesignResult(
            space.items(point), value, limit, min(1.0, criterion.efficiency(value, limit)), optimal, everywhere,
            criterion.information(point[None])[0],
        )  # fmt: skip


def _prior(prior: Any, columns: int) -> Array:
    """The prior information, `(p, p)`; a ValueError that says what is wrong with it."""
    if prior is None:
        return np.zeros((columns, columns))
    matrix = np.asarray(prior, dtype=np.float64)
    matrix = matrix * np.eye(columns) if matrix.ndim == 0 else matrix
    if (
        matrix.shape != (columns, columns)
        or not np.isfinite(matrix).all()
        or not np.allclose(matrix, matrix.T, rtol=0, atol=1e-8 * np.abs(matrix).max())
    ):
        raise ValueError(f"prior: expected a number or a finite symmetric matrix ({columns}, {columns}), got {prior!r}")
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(abs(values[-1]), 1e-300):
        raise ValueError(f"prior: expected no negative eigenvalues, got {values[0]:g}")
    return matrix


def _full_rank(matrix: Array) -> bool:
    return int(np.linalg.matrix_rank(matrix, hermitian=True)) == len(matrix)
