"""Whether there is a subset at all: mixed-integer programming by HiGHS, and which arguments are to blame if not."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, diags_array, vstack

from ksubset.search.constraints import Inequalities

__all__ = ["Part", "conflict", "satisfies", "solve"]

# Sums in a different order differ by rounding; of numbers that fulfil a limit exactly, none may be refused.
_ROUNDING = 1e-9
_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """Something asked of subsets, by its name in an error message.

    Arguments:
        name: As in "constraints[1] = Budget(costs, 5)".
        inequalities: On all units.
    """

    name: str
    inequalities: Inequalities


def tolerance(inequalities: Inequalities) -> NDArray[np.float64]:
    """What rounding may add to each of the sums, `(m)`."""
    largest: NDArray[np.float64] = abs(inequalities.matrix).max(axis=1).toarray()
    return _ROUNDING * np.maximum(largest, 1e-300)


def satisfies(inequalities: Inequalities, member: NDArray[np.bool_]) -> bool:
    """Whether a mask `(n)` fulfils them."""
    sums = inequalities.matrix @ member.astype(np.float64)
    slack = tolerance(inequalities)
    return bool((sums >= inequalities.low - slack).all() and (sums <= inequalities.high + slack).all())


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
    for part in parts:
        rows = part.inequalities
        # The solver's tolerance is absolute, so that large coefficients would be taken less seriously.
        largest = np.maximum(abs(rows.matrix).max(axis=1).toarray(), 1e-300)
        matrices.append(diags_array(1 / largest) @ rows.matrix)
        lows.append(rows.low / largest)
        highs.append(rows.high / largest)
    cost = np.zeros(num_units) if objective is None else objective
    while True:
        found = milp(
            cost, integrality=np.ones(num_units), bounds=Bounds(0, 1), options={"time_limit": _SECONDS},
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
