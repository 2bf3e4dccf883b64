"""Whether there is a subset at all: mixed-integer programming by HiGHS, and which arguments are to blame if not."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, diags_array, vstack

from ksubset.search.constraints import Inequalities

__all__ = ["Part", "conflict", "excessive", "satisfies", "solve", "widened"]

# In units of the rounding of each addition: limits, coefficients and sums of them are all rounded.
_ROUNDING = 4.0
_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """Something asked of subsets, by its name in an error message.

    Arguments:
        name: As in "constraints[1] = Budget(costs, 5)".
        inequalities: On all units, `widened`.
    """

    name: str
    inequalities: Inequalities


def widened(inequalities: Inequalities, count: int) -> Inequalities:
    """The same with limits that sums of so many, in whatever order, do not miss by rounding alone."""
    matrix, low, high = inequalities.matrix, inequalities.low, inequalities.high
    bound = count * abs(matrix).max(axis=1).toarray()
    # Where nothing cancels, a sum near a limit is no larger than the limit, however large other coefficients are.
    cancels = matrix.min(axis=1).toarray() < 0
    share = _ROUNDING * np.finfo(np.float64).eps * count
    return Inequalities(
        matrix,
        low - share * np.where(cancels, bound, np.minimum(bound, abs(low))),
        high + share * np.where(cancels, bound, np.minimum(bound, abs(high))),
    )


def excessive(inequalities: Inequalities) -> NDArray[np.bool_]:
    """Items that by themselves are too much for a limit, `(n)`."""
    entries = inequalities.matrix.tocoo()
    limits = np.where(inequalities.matrix.min(axis=1).toarray() >= 0, inequalities.high, np.inf)
    result = np.zeros(inequalities.matrix.shape[1], dtype=bool)
    result[entries.col[entries.data > limits[entries.row]]] = True
    return result


def satisfies(inequalities: Inequalities, member: NDArray[np.bool_]) -> bool:
    """Whether a mask `(n)` fulfils them."""
    sums = inequalities.matrix @ member.astype(np.float64)
    return bool((sums >= inequalities.low).all() and (sums <= inequalities.high).all())


def solve(
    num_units: int, size: int, parts: Sequence[Part], objective: NDArray[np.float64] | None = None
) -> NDArray[np.bool_] | None:
    """A subset of so many units that fulfils all parts, of the least objective; None if there is none.

    Raises:
        TimeoutError: None was found in a minute, and it is not proved that there is none.

    Shapes:
        objective `(n)` -> `(n)`.
    """
    exact = Inequalities(csr_array(np.ones((1, num_units))), np.array([float(size)]), np.array([float(size)]))
    matrices, lows, highs = [exact.matrix], [exact.low], [exact.high]
    possible = np.ones(num_units)
    for part in parts:
        possible[excessive(part.inequalities)] = 0
    for part in parts:
        rows = part.inequalities
        # The solver's tolerance is absolute: rows of large coefficients would be taken more seriously than others, and
        # beside one that is too much for the limit, all others would be nothing.
        matrix = (rows.matrix @ diags_array(possible)).tocsr()
        largest = np.maximum(abs(matrix).max(axis=1).toarray(), 1e-300)
        matrices.append(diags_array(1 / largest) @ matrix)
        lows.append(rows.low / largest)
        highs.append(rows.high / largest)
    cost = np.zeros(num_units) if objective is None else objective
    while True:
        found = milp(
            cost, integrality=np.ones(num_units), bounds=Bounds(0, possible), options={"time_limit": _SECONDS},
            constraints=LinearConstraint(vstack(matrices).tocsr(), np.concatenate(lows), np.concatenate(highs)),
        )  # fmt: skip
        if found.x is None:
            if found.status == 1:
                raise TimeoutError("constraints: found no subset that fulfils them in a minute")
            return None
        member: NDArray[np.bool_] = found.x > 0.5
        if all(satisfies(part.inequalities, member) for part in parts):
            return member
        # The solver's tolerance is wider than rounding: without this one, another.
        matrices.append(csr_array(member[None].astype(np.float64)))
        lows.append(np.array([-np.inf]))
        highs.append(np.array([size - 1.0]))


def conflict(num_units: int, size: int, parts: Sequence[Part]) -> list[str]:
    """Names of parts that no subset fulfils together, while it would without any one of them: a deletion filter."""
    needed = list(parts)
    for part in parts:
        fewer = [other for other in needed if other is not part]
        if solve(num_units, size, fewer) is None:
            needed = fewer
    return [part.name for part in needed]
