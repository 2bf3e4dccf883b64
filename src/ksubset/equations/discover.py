"""Equations of k terms that data obeys."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset.equations.arguments import (
    check_axes,
    check_even,
    check_long_enough,
    check_names,
    check_sizes,
    check_trajectories,
    given_names,
)
from ksubset.equations.derivatives import Axis, along, difference_axis, half_width, least_half_width, weak_axis
from ksubset.equations.library import Library, Term
from ksubset.equations.results import Equations, Path
from ksubset.regression import BestSubsetRegressor
from ksubset.search.arguments import check_integer
from ksubset.selection.arguments import seed_of

__all__ = ["discover_equations"]

Array = NDArray[np.float64]
# Blocks of time that are left out in turn.
_FOLDS = 5
# Mean squared errors that differ by less than this part of the mean square are the same: those of the solver that made
# the data, or of the sums that stand for integrals.
_SAME = 1e-8


@dataclass(frozen=True)
class _Rows:
    """Both sides of the equations.

    Attributes:
        left: Derivatives in time, `(R, d)`.
        right: The terms, `(R, n)`.
        groups: Of each row the trajectory, `(R)`.
        centres: Of each row the index of its time, `(R)`.
        reach: How far apart rows are, in steps, that share no data.
    """

    left: Array
    right: Array
    groups: NDArray[np.int64]
    centres: NDArray[np.int64]
    reach: NDArray[np.int64]


def discover_equations(
    x: Any,
    t: Any,
    k: int | str | Sequence[int] = "auto",
    *,
    space: Any = None,
    library: Library | None = None,
    form: str = "weak",
    half_widths: Sequence[int] | None = None,
    max_terms: int = 6,
    variables: Sequence[str] | None = None,
    random_state: Any = None,
) -> Equations:
    r"""Find equations x' = f(x), or u_t = f(u, u_x, ...) on a grid, whose right sides have exactly k terms.

    Each equation is a best subset regression: least squares on k terms, chosen by
    :class:`~ksubset.regression.BestSubsetRegressor`, which enumerates them where there are 200,000 subsets or fewer. In
    the weak form both sides are integrated against test functions and derivatives are moved to these, so that noise is
    not differentiated; in the strong form derivatives are differences of neighbours. A variable that never changes has
    the equation x' = 0, without a term.

    "auto" leaves out one of five blocks of time after the other, with what overlaps it, and takes the smallest number
    of terms whose error there is above the least one by no more than a standard error, over blocks, of the difference.
    Information criteria would need independent rows, and those of overlapping test functions are none.

    Arguments:
        x: States `(T, d)`, or of fields `(T, N_1, ..., N_m, d)`, without the last axis if d is 1; a list of arrays for
            several trajectories, on the same grid. States may be data frames with a column for each variable, or, for
            one variable, series.
        t: Times `(T)`, increasing, for the weak form evenly spaced; a list of arrays if they differ by trajectory.
        k: Terms of each equation, one number for all or one for each, by name in a series with an index of names; or
            "auto".
        space: Coordinates `(N)` along each axis of space, several as a list; None for trajectories.
        library: The terms; None are all monomials up to degree 3, on a grid with all derivatives up to the fourth.
        form: "weak" or "strong".
        half_widths: Of the supports of the test functions in steps, along time, 3 or more, and each axis of space, 2
            or more above the highest order of a derivative; None to read them off the spectra of the data, where noise
            begins.
        max_terms: With "auto", the most that are tried.
        variables: Names, `(d)`; None are those of the columns of a data frame or of a series, and otherwise x, y, z, on
            a grid u, v, w, and x1, x2, ... if there are more.
        random_state: Seed of the random starts of searches that are not exhaustive.

    Raises:
        TypeError, ValueError: For arguments of a wrong kind, shape or number, and for too few times; the message names
            them.

    References:
        Brunton, Proctor and Kutz (2016), https://doi.org/10.1073/pnas.1517384113.
        Rudy, Brunton, Proctor and Kutz (2017), https://doi.org/10.1126/sciadv.1602614.
        Reinbold, Gurevich and Grigoriev (2020), https://doi.org/10.1103/PhysRevE.101.010203.
        Messenger and Bortz (2021), https://doi.org/10.1137/20M1343166.

    Example:
        >>> t = np.linspace(0, 10, 401)
        >>> x = np.stack([np.exp(-0.1 * t) * np.cos(2 * t), np.exp(-0.1 * t) * np.sin(2 * t)], 1)
        >>> print(discover_equations(x, t, 2))
        x' = -0.1000 x - 2.000 y
        y' = 2.000 x - 0.1000 y
    """
    axes = check_axes(space, 0 if space is None else len(space) if isinstance(space, list | tuple) else 1)
    if len(axes) > 3:
        raise ValueError(f"space: expected at most 3 axes, got {len(axes)}")
    states, times = check_trajectories(x, t, len(axes))
    axes = check_axes(space, len(axes), states[0].shape[1:-1])
    if library is None:
        library = Library()
    elif not isinstance(library, Library):
        raise TypeError(f"library: expected a Library, got {library!r}")
    if form not in {"weak", "strong"}:
        raise ValueError(f"form: expected 'weak' or 'strong', got {form!r}")
    num_variables = states[0].shape[-1]
    usual = ("u", "v", "w") if axes else ("x", "y", "z")
    # On a grid, the columns of a table would be points.
    columns = None if axes else given_names(x)
    names = check_names(
        "variables", columns if variables is None else variables,
        usual[:num_variables] if num_variables <= 3 else [f"x{place + 1}" for place in range(num_variables)],
    )  # fmt: skip
    if columns is not None and names != columns and set(names) == set(columns):
        raise ValueError(f"variables: expected the names of the columns in their order {list(columns)}, or others")
    space_names = ("x", "y", "z")[: len(axes)]
    terms = library.terms(names, space_names)
    if not terms:
        raise ValueError(f"library: expected a term or more, got {library!r}")
    sizes = check_sizes(k, names, len(terms))
    tried = min(check_integer("max_terms", max_terms, 1), len(terms))
    most = tried if sizes is None else max(sizes)
    grids = _axes(states, times, axes, form, half_widths, library.derivatives)
    rows = _rows(states, grids, terms)
    if len(rows.left) <= most:
        raise ValueError(f"t: expected more times, as {len(rows.left)} rows are too few for {most} terms")
    folds = list(_folds(rows, most)) if sizes is None else None
    seed = seed_of(random_state)
    found = [_path(rows, place, size, folds, seed) for place, size in enumerate(sizes or [most] * num_variables)]
    return Equations(
        tuple(names), space_names, tuple(terms),
        np.array([path.coefficients[chosen] for path, chosen in found]), tuple(path for path, _ in found),
        () if form == "strong" else tuple(axis.half_width for axis in (*grids[0], *grids[1])),
    )  # fmt: skip


def _axes(
    states: Sequence[Array], times: Sequence[Array], axes: Sequence[Array], form: str, half_widths: Any, highest: int
) -> tuple[list[Axis], list[Axis]]:
    """Derivatives along the time of each trajectory, and along the axes of space."""
    for clock in times:
        check_long_enough("t", len(clock), 1)
    for points in axes:
        check_long_enough("space", len(points), highest)
    if form == "strong":
        if half_widths is not None:
            raise ValueError("half_widths: expected None with the strong form, which has no test functions")
        return [difference_axis(clock, 1) for clock in times], [difference_axis(points, highest) for points in axes]
    if half_widths is not None:
        if not isinstance(half_widths, Sequence | np.ndarray):
            raise TypeError(f"half_widths: expected a sequence of integers, got {half_widths!r}")
        if len(half_widths) != len(axes) + 1:
            raise ValueError(f"half_widths: expected {len(axes) + 1}, along time and each axis, got {len(half_widths)}")

    def made(name: str, data: Array, points: Array, place: int, order: int) -> Axis:
        if half_widths is None:
            half = half_width(data, order)
        else:
            half = check_integer(f"half_widths[{place}]", half_widths[place], least_half_width(order))
        if 2 * half >= len(points):
            raise ValueError(f"{name}: expected more than {2 * half} points for half-width {half}, got {len(points)}")
        return weak_axis(check_even(name, points), len(points), half, order)

    return (
        [made("t", state, clock, 0, 1) for state, clock in zip(states, times, strict=True)],
        [
            made("space", np.moveaxis(states[0], place, 0), points, place, highest)
            for place, points in enumerate(axes, start=1)
        ],
    )


def _rows(states: Sequence[Array], grids: tuple[list[Axis], list[Axis]], terms: Sequence[Term]) -> _Rows:
    times, axes = grids
    left, right, groups, centres, reach = [], [], [], [], []
    for group, (state, time) in enumerate(zip(states, times, strict=True)):
        whole = [axis.matrices[0] for axis in axes]
        # Without its start, which has no derivative in time, a state that never changes is exactly 0.
        changes = np.moveaxis(state - state[:1], -1, 0)
        left.append(np.stack([along(values, [time.matrices[1], *whole]).ravel() for values in changes], 1))
        columns = []
        for term in terms:
            values = term.function(state)
            if not np.isfinite(values).all():
                raise ValueError(f"library: expected finite values of all terms, got others of {term.name!r}")
            derivatives = [axis.matrices[order] for axis, order in zip(axes, term.orders, strict=True)]
            columns.append(along(values, [time.matrices[0], *derivatives]).ravel())
        right.append(np.stack(columns, 1))
        centres.append(np.repeat(time.centres, len(right[-1]) // len(time.centres)))
        groups.append(np.full(len(centres[-1]), group))
        reach.append(np.full(len(centres[-1]), time.reach))
    return _Rows(*(np.concatenate(parts) for parts in (left, right, groups, centres, reach)))


def _folds(rows: _Rows, most: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Rows to find equations with, and those in a block of time that share no data with them."""
    for test in np.array_split(np.arange(len(rows.left)), _FOLDS):
        train = np.ones(len(rows.left), dtype=bool)
        for group in np.unique(rows.groups[test]):
            centres = rows.centres[test][rows.groups[test] == group]
            train &= (
                (rows.groups != group)
                | (rows.centres <= centres.min() - rows.reach)
                | (rows.centres >= centres.max() + rows.reach)
            )
        if train.sum() <= most:
            raise ValueError(
                f"k: 'auto' leaves out a fifth of the times, and {train.sum()} rows are too few for {most} terms; give "
                "a number, or more times"
            )
        yield train, test


def _path(rows: _Rows, variable: int, most: int, folds: Sequence[Any] | None, seed: int) -> tuple[Path, int]:
    """The best equations of one variable, and which of them is chosen: the last one without blocks to leave out."""
    left, right = rows.left[:, variable], rows.right
    unit = float(left @ left / len(left)) or 1.0
    coefficients, optimal = _fitted(right, left, most, seed)
    errors = np.square(left[:, None] - right @ coefficients.T).mean(0) / unit
    held_out, chosen = None, most - 1
    if folds is not None:
        found = [(_fitted(right[train], left[train], most, seed)[0], test) for train, test in folds]
        blocks = np.array([np.square(left[test, None] - right[test] @ fit.T).mean(0) / unit for fit, test in found])
        held_out = blocks.mean(0)
        worse = blocks - blocks[:, [held_out.argmin()]]
        chosen = int((worse.mean(0) <= worse.std(0, ddof=1) / math.sqrt(_FOLDS) + _SAME).argmax())
        held_out = np.sqrt(held_out)
    return Path(np.arange(1, most + 1), coefficients, np.sqrt(errors), held_out, optimal), chosen


def _fitted(right: Array, left: Array, most: int, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Coefficients of the best subsets of 1 to `most` terms, `(most, n)`, and whether each is proved to be best."""
    if not left.any():
        return np.zeros((most, right.shape[1])), np.ones(most, dtype=bool)
    # Powers of small numbers are much smaller, and must not count as nothing beside other columns.
    scale = np.linalg.norm(right, axis=0)
    scale[scale == 0] = 1
    scaled = right / scale
    model = BestSubsetRegressor(range(1, most + 1), fit_intercept=False, random_state=seed).fit(scaled, left)
    if len(model.path_["k"]) < most:
        raise KeyboardInterrupt
    coefficients = np.zeros((most, right.shape[1]))
    for row, support in zip(coefficients, model.path_["support"], strict=True):
        row[support] = np.linalg.lstsq(scaled[:, support], left, rcond=None)[0] / scale[support]
    return coefficients, model.path_["optimal"]
