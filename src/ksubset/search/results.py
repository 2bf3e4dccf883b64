"""What a search has found, and how sure that is."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ksubset.search.space import SearchSpace
from ksubset.search.state import SearchState

__all__ = ["SearchProgress", "SearchResult", "result_of"]

_ELITE = 100


@dataclass(frozen=True)
class SearchProgress:
    """Where a search stands, as callbacks get it.

    Arguments:
        num_evaluations: Calls of f so far.
        max_evaluations: How many there may be; None for no limit.
        seconds: Since the beginning.
        subset: The best so far, `(k)`, ascending indices.
        value: Its value; with noise the mean of its values.

    Example:
        >>> from ksubset.search import minimize
        >>> told = []
        >>> result = minimize(lambda subset: subset.sum(), 9, 3, max_evaluations=84, callbacks=told.append)
        >>> told[-1].num_evaluations, told[-1].subset
        (84, array([0, 1, 2]))
    """

    num_evaluations: int
    max_evaluations: int | None
    seconds: float
    subset: NDArray[np.int64]
    value: float


@dataclass(frozen=True)
class SearchResult:
    """The best subset that was found.

    Arguments:
        subset: `(k)`, int64, ascending indices.
        value: Its value; with noise `confirmed_value`, or the mean of its values if there is none, which
            flatters.
        standard_error: Of that mean; 0 without noise. One value of the subset takes the spread of those that were
            evaluated several times, and is NaN where none was.
        confirmed_value: With noise, the mean of values that had no part in the choice of the finalists, if any was
            finite; else None.
        num_evaluations: Values used.
        optimal: Whether all subsets that may be chosen were evaluated, without noise, so that none is better.
        inclusion: `(n)`, share of the 100 best subsets evaluated that have each item; of all if there were fewer.
        trace: Rows `(num_evaluations, value)` of each improvement, `(T, 2)`; 0 evaluations for values known before.
        elite: The 100 best subsets as masks, `(E, n)`, boolean, best first.
        elite_values: `(E)`.

    Example:
        >>> from ksubset.search import minimize
        >>> result = minimize(lambda subset: subset.sum(), 9, 3, max_evaluations=84)
        >>> result.subset, result.value, result.optimal
        (array([0, 1, 2]), 3.0, True)
        >>> result.elite_values[:3].tolist()
        [3.0, 4.0, 5.0]
        >>> result.co_inclusion()[0, :3].round(2).tolist()
        [0.33, 0.08, 0.08]
    """

    subset: NDArray[np.int64]
    value: float
    standard_error: float
    confirmed_value: float | None
    num_evaluations: int
    optimal: bool
    inclusion: NDArray[np.float64] = field(repr=False)
    trace: NDArray[np.float64] = field(repr=False)
    elite: NDArray[np.bool_] = field(repr=False)
    elite_values: NDArray[np.float64] = field(repr=False)

    def co_inclusion(self) -> NDArray[np.float64]:
        """Share of the 100 best subsets evaluated that have both of two items, `(n, n)`."""
        masks = self.elite.astype(np.float64)
        shares: NDArray[np.float64] = masks.T @ masks / len(masks)
        return shares


def result_of(space: SearchSpace, state: SearchState, num_evaluations: int) -> SearchResult:
    """What a search has found, however it ended; a ValueError if no value is finite."""
    archive, confirmation = state.archive, state.confirmation
    best = state.best_row
    if best is None:
        raise ValueError("f: expected at least one value, got none")
    fresh: list[float] = []
    if confirmation is not None and (winner := confirmation.winner) is not None:
        fresh = confirmation.finite(winner)
        best = winner if fresh else best
    # With noise the best may be one of which no value was finite.
    if not fresh and archive.mean[best] == math.inf:
        best = int(np.argmin(archive.mean))
    value = float(np.mean(fresh) if fresh else archive.mean[best])
    if not math.isfinite(value):
        raise ValueError(f"f: expected finite values, got none in {num_evaluations} evaluations")
    error = 0.0
    if state.noisy:
        count = len(fresh) or archive.count[best]
        spread = float(np.var(fresh, ddof=1)) if len(fresh) > 1 else archive.noise
        error = math.sqrt(spread / count) if math.isfinite(spread) else math.nan
    order = np.argsort(archive.mean, kind="stable")[:_ELITE]
    elite = np.zeros((len(order), space.num_items), dtype=bool)
    for mask, row in zip(elite, order.tolist(), strict=True):
        mask[space.items(archive.points[row])] = True
    optimal = not state.noisy and state.num_points is not None and len(archive.points) >= state.num_points
    return SearchResult(
        space.items(archive.points[best]), value, error, float(np.mean(fresh)) if fresh else None, num_evaluations,
        optimal, elite.mean(0), np.array(state.trace).reshape(-1, 2), elite, np.array(archive.mean)[order],
    )  # fmt: skip
