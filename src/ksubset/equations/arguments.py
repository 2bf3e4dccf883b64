"""Arguments: states, their times, and the grid that they are on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset.search.arguments import check_integer

__all__ = [
    "check_axes", "check_even", "check_increasing", "check_long_enough", "check_names", "check_sizes", "check_state",
    "check_trajectories", "given_names", "names_of_columns", "names_of_entries", "ordered",
]  # fmt: skip

Array = NDArray[np.float64]
# How far a step may be from the mean, as part of it.
_EVEN = 1e-3


def check_trajectories(x: Any, t: Any, num_axes: int) -> tuple[list[Array], list[Array]]:
    """States `(T, N_1, ..., N_m, d)` and times `(T)` of one trajectory or a list of several.

    Raises:
        TypeError, ValueError: They are not finite, not of these shapes, or times do not increase.
    """
    several = isinstance(x, list)
    given = x if several else [x]
    clocks = t if isinstance(t, list) and several else [t] * len(given)
    if not given or len(clocks) != len(given):
        raise ValueError(f"t: expected times of each of {len(given)} trajectories, 1 or more, got {len(clocks)}")
    states = [check_state("x", state, num_axes) for state in given]
    shape = states[0].shape[1:]
    times = []
    for state, clock in zip(states, clocks, strict=True):
        if state.shape[1:] != shape:
            raise ValueError(f"x: expected trajectories of the same states, got shapes {shape} and {state.shape[1:]}")
        times.append(check_increasing("t", clock, len(state)))
    return states, times


def given_names(x: Any) -> tuple[Any, ...] | None:
    """Names of the columns of one trajectory, or of several; None where they have none, or numbers for names.

    Raises:
        ValueError: Trajectories have different names.
    """
    named = [names for state in (x if isinstance(x, list) else [x]) if (names := names_of_columns(state)) is not None]
    if not named:
        return None
    for names in named:
        if names != named[0]:
            raise ValueError(f"x: expected trajectories of the same columns, got {list(named[0])} and {list(names)}")
    return named[0]


def names_of_columns(value: Any) -> tuple[Any, ...] | None:
    """Names of a data frame's columns, or a series' own one; None without names, or with numbers for names."""
    names = tuple(value.columns) if hasattr(value, "columns") else (getattr(value, "name", None) or None,)
    return names if any(isinstance(name, str) for name in names) else None


def names_of_entries(value: Any) -> tuple[Any, ...] | None:
    """Names of the entries of a row of a data frame; None without names, or with numbers for names."""
    names = tuple(value.keys()) if hasattr(value, "keys") else ()
    return names if any(isinstance(name, str) for name in names) else None


def ordered(name: str, values: Any, given: tuple[Any, ...] | None, variables: Sequence[str]) -> Any:
    """Values whose last axis has the given names, in the order of the variables; unchanged if they have no names.

    Raises:
        ValueError: The names are not those of the variables.
    """
    if given is None:
        return values
    if sorted(map(str, given)) != sorted(variables):
        raise ValueError(
            f"{name}: expected the variables {list(variables)}, got {list(given)}; without names, as of "
            f"{name}.to_numpy(), they are taken in their order"
        )
    places = [list(map(str, given)).index(variable) for variable in variables]
    # The one variable of a series has no axis.
    return values if len(places) == 1 else np.asarray(values)[..., places]


def check_state(name: str, value: Any, num_axes: int, num_variables: int | None = None) -> Array:
    """Finite states `(T, N_1, ..., N_m, d)`; where the last axis is left out, there is one variable."""
    state = _numbers(name, value)
    if state.ndim == num_axes + 1:
        state = state[..., None]
    if state.ndim != num_axes + 2 or not state.size:
        grid = "".join(f", N_{place + 1}" for place in range(num_axes))
        raise ValueError(f"{name}: expected shape (T{grid}, d), none of them 0, got {np.shape(value)}")
    if num_variables is not None and state.shape[-1] != num_variables:
        raise ValueError(f"{name}: expected {num_variables} variables, got {state.shape[-1]}")
    return state


def check_increasing(name: str, value: Any, count: int) -> Array:
    """Increasing finite numbers, so many."""
    points = _numbers(name, value)
    if points.shape != (count,):
        raise ValueError(f"{name}: expected shape {(count,)}, got {points.shape}")
    if (np.diff(points) <= 0).any():
        raise ValueError(f"{name}: expected increasing numbers")
    return points


def check_even(name: str, points: Array) -> float:
    """The step between evenly spaced points."""
    steps = np.diff(points)
    if np.ptp(steps) > _EVEN * steps.mean():
        raise ValueError(
            f"{name}: expected evenly spaced points for the weak form, got steps from {steps.min():g} to "
            f"{steps.max():g}; the strong form takes any"
        )
    return float(steps.mean())


def check_long_enough(name: str, count: int, order: int) -> None:
    """Whether there are points enough for a derivative of this order, on both sides of some of them."""
    if count < order + 6:
        raise ValueError(f"{name}: expected {order + 6} points or more for a derivative of order {order}, got {count}")


def check_axes(space: Any, num_axes: int, shape: Sequence[int] | None = None) -> list[Array]:
    """Increasing coordinates along each axis of space; `shape` `(m)` are the lengths that the states have."""
    given = [] if space is None else list(space) if isinstance(space, list | tuple) else [space]
    if len(given) != num_axes:
        raise ValueError(f"space: expected coordinates along {num_axes} axes, got {len(given)}")
    lengths = [np.size(points) for points in given] if shape is None else shape
    return [check_increasing("space", points, count) for points, count in zip(given, lengths, strict=True)]


def check_names(argument: str, names: Any, defaults: Sequence[str]) -> tuple[str, ...]:
    """Distinct names, one for each of the defaults, which are taken for None."""
    if names is None:
        return tuple(defaults)
    listed = tuple(names)
    if len(listed) != len(defaults) or len(set(listed)) != len(listed) or not all(isinstance(n, str) for n in listed):
        raise ValueError(f"{argument}: expected {len(defaults)} distinct names, got {names!r}")
    return listed


def check_sizes(k: Any, variables: Sequence[str], num_terms: int) -> list[int] | None:
    """Numbers of terms of each variable's equation; None for "auto"."""
    if isinstance(k, str):
        if k != "auto":
            raise ValueError(f"k: expected an integer, one for each equation or 'auto', got {k!r}")
        return None
    given = (
        ordered("k", k, names_of_entries(k), variables)
        if isinstance(k, Sequence) or np.ndim(k)
        else [k] * len(variables)
    )
    sizes = [check_integer("k", size, 1) for size in given]
    if len(sizes) != len(variables):
        raise ValueError(f"k: expected one number of terms for each of {len(variables)} equations, got {len(sizes)}")
    if max(sizes) > num_terms:
        raise ValueError(f"k: expected at most the {num_terms} terms of the library, got {max(sizes)}")
    return sizes


def _numbers(name: str, value: Any) -> Array:
    try:
        given = np.asarray(value)
        # Dates and text would become numbers, those of dates in whatever unit they have.
        text = given.dtype == object and any(isinstance(entry, str | bytes) for entry in given.flat)
        if given.dtype.kind not in "biufO" or text:
            raise TypeError("text" if text else given.dtype)
        numbers = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected real numbers, got {error}") from error
    if np.ma.is_masked(value) or not np.isfinite(numbers).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN, infinity or masked ones")
    return numbers
