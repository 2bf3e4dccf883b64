"""Equations that were found."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.sparse import eye_array

from ksubset.equations.arguments import (
    check_axes,
    check_increasing,
    check_long_enough,
    check_state,
    names_of_columns,
    names_of_entries,
    ordered,
)
from ksubset.equations.derivatives import along, difference_matrix
from ksubset.equations.library import Term

__all__ = ["Equations", "Path"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Path:
    """The best equation of each number of terms, for one variable.

    Attributes:
        sizes: Numbers of terms, `(m)`, from 1 on.
        coefficients: Of all terms of the library, `(m, n)`, zero where a term is not in the equation.
        errors: Root of the mean squared residual, as part of the root mean square of the left side, `(m)`.
        held_out: The same over times that were left out, of equations found without them, `(m)`; None if the number of
            terms was given.
        optimal: Whether it is proved that no other terms of this number fit better, `(m)`.

    Example:
        >>> from ksubset.equations import discover_equations
        >>> t = np.linspace(0, 10, 401)
        >>> x = np.exp(-0.1 * t)[:, None] * np.stack([np.cos(2 * t), np.sin(2 * t)], 1)
        >>> path = discover_equations(x, t, max_terms=3).paths[0]  # of the first variable
        >>> path.sizes, path.held_out.round(3)  # two terms are enough
        (array([1, 2, 3]), array([0.053, 0.   , 0.   ]))
    """

    sizes: NDArray[np.int64]
    coefficients: Array
    errors: Array
    held_out: Array | None
    optimal: NDArray[np.bool_]


@dataclass(frozen=True)
class Equations:
    """One equation for each variable, a sum of so many terms; `print` writes them.

    Attributes:
        variables: Names of the variables, `(d)`.
        space: Names of the axes of space, `(m)`.
        terms: Of the library, `(n)`.
        coefficients: Of each equation, `(d, n)`, zero where a term is not in it.
        paths: For each variable, the best equations of other numbers of terms, too.
        half_widths: Of the test functions, in steps: along the time of each trajectory, and along each axis of space;
            empty for the strong form.

    Example:
        >>> from ksubset.equations import discover_equations
        >>> t = np.linspace(0, 10, 401)
        >>> x = np.exp(-0.1 * t)[:, None] * np.stack([np.cos(2 * t), np.sin(2 * t)], 1)
        >>> found = discover_equations(x, t, 2)
        >>> found.names
        (('x', 'y'), ('x', 'y'))
        >>> found.predict([[1.0, 0.0]]).round(4)
        array([[-0.1,  2. ]])
        >>> bool(np.allclose(found.simulate([1.0, 0.0], t), x, atol=1e-6))
        True
    """

    variables: tuple[str, ...]
    space: tuple[str, ...]
    terms: tuple[Term, ...]
    coefficients: Array
    paths: tuple[Path, ...]
    half_widths: tuple[int, ...]

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Names of the terms of each equation, `(d)` of `(k)`."""
        return tuple(tuple(self.terms[place].name for place in np.flatnonzero(row)) for row in self.coefficients)

    def __str__(self) -> str:
        return "\n".join(
            f"{variable}{'_t' if self.space else chr(39)} = {self._written(row)}"
            for variable, row in zip(self.variables, self.coefficients, strict=True)
        )

    __repr__ = __str__

    def _written(self, row: Array) -> str:
        text = ""
        for term, value in zip(self.terms, row, strict=True):
            if value:
                sign = ("-" if value < 0 else "") if not text else " - " if value < 0 else " + "
                text += f"{sign}{abs(value):#.4g}" + ("" if term.name == "1" else f" {term.name}")
        return text or "0"

    def predict(self, x: Any, space: Any = None) -> Array:
        """Derivatives in time; those in space are by differences of the nearest points.

        Arguments:
            x: States `(T, d)`, or `(T, N_1, ..., N_m, d)` on a grid; without the last axis if d is 1. Columns of a data
                frame go by their names, which must be those of the variables.
            space: Coordinates `(N)` along each axis of space, several as a list.

        Returns:
            `(T, d)` or `(T, N_1, ..., N_m, d)`.

        Raises:
            TypeError, ValueError: For arguments of a wrong kind, shape or number; the message names them.
        """
        values = x if self.space else ordered("x", x, names_of_columns(x), self.variables)
        state = check_state("x", values, len(self.space), len(self.variables))
        axes = check_axes(space, len(self.space), state.shape[1:-1])
        result = np.zeros(state.shape)
        time = eye_array(len(state), format="csr")
        for term, values in zip(self.terms, self.coefficients.T, strict=True):
            if values.any():
                for points, order in zip(axes, term.orders, strict=True):
                    check_long_enough("space", len(points), order)
                matrices = [difference_matrix(points, order) for points, order in zip(axes, term.orders, strict=True)]
                result += along(term.function(state), [time, *matrices])[..., None] * values
        return result

    def simulate(self, x0: Any, t: Any, *, rtol: float = 1e-8, atol: float = 1e-10) -> Array:
        """Solve the equations from a state on, by the method of Dormand and Prince of order 8; without space.

        Arguments:
            x0: State at the first time, `(d)`; a row of a data frame goes by its names.
            t: Times, increasing, `(T)`.
            rtol: Relative tolerance of the solver.
            atol: Its absolute tolerance.

        Returns:
            States `(T, d)`.

        Raises:
            TypeError, ValueError: For arguments of a wrong kind or shape, or equations of fields; the message says so.
            ArithmeticError: The solution leaves all bounds before the last time.
        """
        if self.space:
            raise ValueError("simulate: expected equations without derivatives in space")
        state = ordered("x0", x0, names_of_entries(x0), self.variables)
        start = check_state("x0", [state], 0, len(self.variables))[0]
        times = check_increasing("t", t, max(1, np.size(t)))
        if len(times) == 1:
            # The solver returns no state for an interval of no length.
            return np.array([start])
        with np.errstate(over="ignore", invalid="ignore"):
            solved = solve_ivp(
                self._derivative, (times[0], times[-1]), start, method="DOP853", t_eval=times, rtol=rtol, atol=atol
            )
        if not solved.success or not np.isfinite(solved.y).all():
            last = solved.t[-1] if len(solved.t) else times[0]
            raise ArithmeticError(f"simulate: the solution leaves all bounds after t = {last:g}")
        states: Array = solved.y.T
        return states

    def _derivative(self, _: float, state: Array) -> Array:
        derivative = np.zeros(len(state))
        for term, values in zip(self.terms, self.coefficients.T, strict=True):
            if values.any():
                derivative += values * term.function(state)
        return derivative
