"""Terms that an equation may have: functions of the state, and their derivatives in space."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset.search.arguments import check_integer, check_positive, listed

__all__ = ["Library", "Term"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """A function of the state, differentiated in space.

    Attributes:
        name: As it is printed.
        function: Of states `(..., d)`, with values `(...)`.
        orders: Of the derivative along each axis of space, `(m)`, empty without space.

    Example:
        >>> term = Library(degree=2).terms(["u"], ["x"])[-3]
        >>> term.name, term.orders
        ('(u^2)_xxx', (3,))
        >>> term.function(np.array([[2.0], [3.0]]))  # before it is differentiated
        array([4., 9.])
    """

    name: str
    function: Callable[[Array], Array]
    orders: tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """The functions g of which an equation is made: monomials, sines and cosines, and others.

    With space, the terms are g and all its derivatives, as of `(u^2)_x`, which is 2 u u_x: such terms can be integrated
    against a test function without a derivative of the data.

    Arguments:
        degree: Of the monomials of all variables at most, 0 or more.
        constant: Whether 1 is among the terms.
        frequencies: For each, in radians by unit, the sine and cosine of each variable.
        functions: Others by name; each takes states `(..., d)` and returns values `(...)`.
        derivatives: Highest order of a derivative in space, all axes together.

    Raises:
        TypeError: A number is no integer, or `functions` are no functions by name.
        ValueError: `degree` or `derivatives` is below 0, a frequency is not above 0; or, when used, two terms have one
            name, or a function returns another shape.

    Example:
        >>> library = Library(degree=2, functions={"|v|": lambda state: abs(state[..., 1])})
        >>> [term.name for term in library.terms(["x", "v"])]
        ['1', 'x', 'v', 'x^2', 'x v', 'v^2', '|v|']
    """

    degree: int = 3
    constant: bool = True
    frequencies: Sequence[float] = ()
    functions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    derivatives: int = 4

    def __post_init__(self) -> None:
        check_integer("degree", self.degree, 0)
        check_integer("derivatives", self.derivatives, 0)
        for frequency in listed("frequencies", self.frequencies):
            check_positive("frequencies", frequency)
        if not isinstance(self.functions, Mapping):
            raise TypeError(f"functions: expected functions by name, got {self.functions!r}")
        for name, function in self.functions.items():
            if not isinstance(name, str) or not callable(function):
                raise TypeError(f"functions: expected functions by name, got {name!r}: {function!r}")

    def terms(self, variables: Sequence[str], space: Sequence[str] = ()) -> list[Term]:
        """All terms: first the constant, then those without a derivative.

        Arguments:
            variables: Names of the variables, `(d)`.
            space: Names of the axes of space, `(m)`.
        """
        none = (0,) * len(space)
        found = self._functions(variables)
        listed = [Term("1", _one, none)] if self.constant else []
        for orders in _orders(len(space), self.derivatives):
            suffix = "".join(name * order for name, order in zip(space, orders, strict=True))
            for name, function in found:
                shown = name if not suffix else f"{name}_{suffix}" if name in variables else f"({name})_{suffix}"
                listed.append(Term(shown, function, orders))
        shared = [name for name, count in Counter(term.name for term in listed).items() if count > 1]
        if shared:
            raise ValueError(f"library: expected a name of its own for each term, got several named {shared[0]!r}")
        return listed

    def _functions(self, variables: Sequence[str]) -> list[tuple[str, Callable[[Array], Array]]]:
        found: list[tuple[str, Callable[[Array], Array]]] = []
        for degree in range(1, self.degree + 1):
            for members in itertools.combinations_with_replacement(range(len(variables)), degree):
                powers = [(name, members.count(place)) for place, name in enumerate(variables)]
                name = " ".join(name if power == 1 else f"{name}^{power}" for name, power in powers if power)
                found.append((name, partial(_monomial, members)))
        for frequency in self.frequencies:
            factor = "" if frequency == 1 else f"{frequency:g} "
            for place, variable in enumerate(variables):
                found.append((f"sin({factor}{variable})", partial(_wave, place, frequency, 0)))
                found.append((f"cos({factor}{variable})", partial(_wave, place, frequency, math.pi / 2)))
        return [*found, *((name, partial(_checked, name, function)) for name, function in self.functions.items())]


def _orders(num_axes: int, most: int) -> list[tuple[int, ...]]:
    """Orders along each axis, together `most` at most, the lowest first."""
    every = itertools.product(range(most + 1), repeat=num_axes)
    return sorted((orders for orders in every if sum(orders) <= most), key=lambda orders: (sum(orders), orders[::-1]))


def _one(state: Array) -> Array:
    return np.ones(state.shape[:-1])


def _monomial(members: tuple[int, ...], state: Array) -> Array:
    product: Array = state[..., list(members)].prod(-1)
    return product


def _wave(place: int, frequency: float, phase: float, state: Array) -> Array:
    values: Array = np.sin(frequency * state[..., place] + phase)
    return values


def _checked(name: str, function: Callable[[Any], Any], state: Array) -> Array:
    values = np.asarray(function(state), dtype=np.float64)
    if values.shape != state.shape[:-1]:
        raise ValueError(f"functions: expected values of shape {state.shape[:-1]} of {name!r}, got {values.shape}")
    return values
