"""Equations from data of known ones."""

import itertools
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad, solve_ivp
from scipy.io import loadmat

from ksubset.equations import Equations, Library, discover_equations
from ksubset.equations.derivatives import (
    along,
    difference_axis,
    difference_matrix,
    half_width,
    least_half_width,
    weak_axis,
)
from ksubset.equations.discover import _axes, _folds, _rows

Array = NDArray[np.float64]


def solved(system: Callable[[float, Array], Sequence[float]], start: Sequence[float], t: Array) -> Array:
    found = solve_ivp(system, (t[0], t[-1]), start, method="DOP853", t_eval=t, rtol=1e-11, atol=1e-12)
    states: Array = found.y.T
    return states


def lorenz(_: float, s: Array) -> list[float]:
    return [10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]]


def prey(_: float, s: Array) -> list[float]:
    return [s[0] - 0.5 * s[0] * s[1], 0.5 * s[0] * s[1] - s[1]]


def oscillator(_: float, s: Array) -> list[float]:
    return [2 * s[1], -2 * s[0] - 0.2 * s[1]]


KNOWN: list[tuple[Any, list[float], Array, list[int], list[dict[str, float]]]] = [
    (
        lorenz, [-8, 7, 27], np.linspace(0, 10, 1001), [2, 3, 2],
        [{"x": -10, "y": 10}, {"x": 28, "y": -1, "x z": -1}, {"x y": 1, "z": -8 / 3}],
    ),
    (prey, [4, 1.5], np.linspace(0, 20, 401), [2, 2], [{"x": 1, "x y": -0.5}, {"y": -1, "x y": 0.5}]),
    (oscillator, [2, 0], np.linspace(0, 25, 501), [1, 2], [{"y": 2}, {"x": -2, "y": -0.2}]),
]  # fmt: skip
SYSTEMS = pytest.mark.parametrize(("system", "start", "t", "k", "right"), KNOWN, ids=["lorenz", "prey", "oscillator"])


def coefficients(equations: Equations) -> list[dict[str, float]]:
    return [
        {term.name: value for term, value in zip(equations.terms, row, strict=True) if value}
        for row in equations.coefficients
    ]


def close(found: list[dict[str, float]], right: list[dict[str, float]], rel: float) -> None:
    assert [set(each) for each in found] == [set(each) for each in right]
    for each, known in zip(found, right, strict=True):
        assert each == pytest.approx(known, rel=rel)


@SYSTEMS
def test_known_equations_are_found(system: Any, start: Any, t: Array, k: list[int], right: Any) -> None:
    x = solved(system, start, t)
    close(coefficients(discover_equations(x, t, k)), right, 1e-6)
    close(coefficients(discover_equations(x, t, k, form="strong")), right, 1e-3)
    found = discover_equations(x, t, library=Library(degree=2))
    close(coefficients(found), right, 1e-6)
    np.testing.assert_allclose(found.simulate(x[0], t[:100]), x[:100], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.predict(x), np.transpose(system(0.0, x.T)), rtol=1e-5, atol=1e-4)


@SYSTEMS
def test_known_terms_are_found_in_noise(system: Any, start: Any, t: Array, k: list[int], right: Any) -> None:
    x = solved(system, start, t)
    x = x + 0.02 * x.std(0) * np.random.default_rng(0).standard_normal(x.shape)
    assert list(map(set, discover_equations(x, t, k, library=Library(degree=2)).names)) == list(map(set, right))


@pytest.mark.parametrize("form", ["weak", "strong"])
def test_the_terms_are_those_of_enumeration(form: str) -> None:
    t = np.linspace(0, 5, 201)
    x = solved(prey, [4, 1.5], t)
    x = x + 0.2 * np.random.default_rng(1).standard_normal(x.shape)
    library = Library(degree=3)
    found = discover_equations(x, t, 3, library=library, form=form)
    rows = _rows([x], _axes([x], [t], [], form, None, 4), library.terms(["x", "y"]))
    for variable, path in enumerate(found.paths):
        left = rows.left[:, variable]
        for row, size in enumerate(path.sizes):
            best: tuple[float, tuple[int, ...]] = (math.inf, ())
            for columns in itertools.combinations(range(len(found.terms)), size):
                part = rows.right[:, columns]
                residual = left - part @ np.linalg.lstsq(part, left, rcond=None)[0]
                best = min(best, (float(residual @ residual), columns))
            assert np.flatnonzero(path.coefficients[row]).tolist() == list(best[1])
            assert path.errors[row] == pytest.approx(math.sqrt(best[0] / (left @ left)))
        assert path.optimal.all()
        np.testing.assert_array_equal(path.coefficients[-1], found.coefficients[variable])


def test_held_out_errors_are_those_of_equations_without_the_block() -> None:
    t = np.linspace(0, 20, 401)
    x = solved(prey, [4, 1.5], t) + 0.1 * np.random.default_rng(0).standard_normal((401, 2))
    library = Library(degree=2)
    found = discover_equations(x, t, library=library, half_widths=[20], max_terms=3)
    rows = _rows([x], _axes([x], [t], [], "weak", [20], 4), library.terms(["x", "y"]))
    errors = np.zeros((5, 3))
    for fold, test in enumerate(np.array_split(np.arange(len(rows.left)), 5)):
        # Supports of half-width 20 share no time with those of the block.
        distance = np.abs(rows.centres[:, None] - rows.centres[test]).min(1)
        part = np.flatnonzero(distance >= 40)
        assert 10 < len(part) < len(rows.left) - len(test)
        for size in (1, 2, 3):
            fits = []
            for columns in itertools.combinations(range(6), size):
                inner = rows.right[np.ix_(part, columns)]
                fit, residual, *_ = np.linalg.lstsq(inner, rows.left[part, 0], rcond=None)
                wrong = rows.left[test, 0] - rows.right[np.ix_(test, columns)] @ fit
                fits.append((float(residual[0]), float(np.mean(wrong**2))))
            errors[fold, size - 1] = min(fits)[1]
    relative = errors / np.mean(rows.left[:, 0] ** 2)
    np.testing.assert_allclose(found.paths[0].held_out, np.sqrt(relative.mean(0)))
    worse = relative - relative[:, [relative.mean(0).argmin()]]
    allowed = worse.std(0, ddof=1) / math.sqrt(5)
    assert len(found.names[0]) == 1 + int((worse.mean(0) <= allowed + 1e-8).argmax())


def test_weak_derivatives_are_analytic_integrals() -> None:
    t = np.linspace(1, 3, 81)
    axis = weak_axis(t[1] - t[0], 81, 20, 3)
    radius = 20 * (t[1] - t[0])
    power = math.ceil(math.log(1e-10) / math.log(39 / 400))
    mass = quad(lambda s: (1 - s * s) ** power, -1, 1)[0] * radius
    for order in range(4):
        # The weak derivative of a sine is the integral of the derivative itself.
        found = axis.matrices[order] @ np.sin(5 * t)
        for row, centre in enumerate(t[axis.centres]):

            def weighted(point: float, centre: float = centre, order: int = order) -> float:
                window = (1 - ((point - centre) / radius) ** 2) ** power
                return window * 5**order * math.sin(5 * point + order * math.pi / 2) / mass

            assert found[row] == pytest.approx(quad(weighted, centre - radius, centre + radius)[0], abs=1e-6 * 5**order)


@pytest.mark.parametrize("highest", range(9))
def test_partial_integration_holds_for_sums_over_any_support(highest: int) -> None:
    for half in [*range(least_half_width(highest), 40), 200]:
        step = 0.3 / half
        axis = weak_axis(step, 2 * half + 1, half, highest)
        offsets = step * np.arange(-half, half + 1)
        window = axis.matrices[0].toarray()[0]
        assert window.sum() == pytest.approx(1)
        for order, matrix in enumerate(axis.matrices):
            weights = matrix.toarray()[0]
            for degree in range(highest + 4):
                power = np.polynomial.Polynomial.basis(degree)
                terms = weights * power(offsets)
                expected = window @ power.deriv(order)(offsets)
                assert terms.sum() == pytest.approx(expected, rel=0, abs=1e-13 * abs(terms).sum())


def test_coefficients_do_not_depend_on_how_wide_supports_are() -> None:
    for count in (*range(8, 65), 401):
        t = 0.025 * np.arange(count)
        close(coefficients(discover_equations(np.exp(-0.5 * t), t, 1)), [{"x": -0.5}], 1e-9)
    t = 0.025 * np.arange(401)
    x = np.exp(-0.1 * t)[:, None] * np.stack([np.cos(2 * t), np.sin(2 * t)], 1)
    for half, count in itertools.product(range(3, 14), (30, 401)):
        found = discover_equations(x[:count], t[:count], 2, half_widths=[half])
        close(coefficients(found), [{"x": -0.1, "y": -2}, {"x": 2, "y": -0.1}], 1e-6)


@pytest.mark.parametrize("count", [40, 56, 64, 100])
def test_fourth_derivatives_on_few_points(count: int) -> None:
    t, x = np.linspace(0, 1, 61), np.linspace(0, 6, count)
    u = np.sin(x) * np.exp(-t)[:, None] + 0.5 * np.sin(1.7 * x + 0.3) * np.exp(-(1.7**4) * t)[:, None]
    close(coefficients(discover_equations(u, t, 1, space=x)), [{"u_xxxx": -1}], 1e-6)


@pytest.mark.parametrize("form", ["weak", "strong"])
def test_a_block_that_is_left_out_shares_no_point_with_the_rest(form: str) -> None:
    grids = _axes([X], [T], [], form, None, 1)
    points = abs(grids[0][0].matrices[0]) + abs(grids[0][0].matrices[1])
    rows = _rows([X], grids, Library(degree=1).terms(["x", "y"]))
    for train, test in _folds(rows, 2):
        assert not (points[train].sum(0) * points[test].sum(0)).any()
        # Nothing is left out for no reason: the nearest place that is kept is as near as it may be.
        distance = abs(rows.centres[:, None] - rows.centres[test]).min(1)
        assert distance[train].min() <= grids[0][0].reach + grids[0][0].half_width // 8


def test_differences_are_right_for_polynomials_on_uneven_points() -> None:
    points = np.sort(np.random.default_rng(0).uniform(-1, 1, 15))
    for order in range(5):
        polynomial = np.polynomial.Polynomial([1.0, -2, 3, 0.5, -1, 2, 1, -1][: order + 4])
        expected = polynomial.deriv(order)(points)
        np.testing.assert_allclose(difference_matrix(points, order) @ polynomial(points), expected, rtol=1e-5)
        axis = difference_axis(points, order)
        np.testing.assert_allclose(axis.matrices[order] @ polynomial(points), expected[axis.centres], rtol=1e-5)


def test_matrices_along_axes_are_a_tensor_product() -> None:
    rng = np.random.default_rng(0)
    data, matrices = rng.normal(size=(3, 4, 5)), [rng.normal(size=(2, count)) for count in (3, 4, 5)]
    np.testing.assert_allclose(along(data, matrices), np.einsum("abc,ia,jb,kc->ijk", data, *matrices))


def test_noise_does_not_make_test_functions_as_narrow_as_itself() -> None:
    t = np.linspace(0, 10, 1001)
    smooth = np.sin(2 * np.pi * t)[:, None]
    noisy = smooth + 0.1 * np.random.default_rng(0).standard_normal(smooth.shape)
    assert 20 < half_width(noisy, 1) <= 125
    assert half_width(np.sin(40 * np.pi * t)[:, None], 1) < half_width(smooth, 1)


def heat(t: Array, x: Array, y: Array) -> Array:
    """A solution of u_t = 0.5 u_xx + 0.2 u_yy - u_x."""
    shifted = x - t[:, None]
    waves = [(1.0, 1.0, 1.0), (0.5, 2.0, 1.0), (0.7, 1.0, 3.0)]
    parts = [
        a * np.exp(-(0.5 * p**2 + 0.2 * q**2) * t)[:, None, None] * np.sin(p * shifted)[:, :, None] * np.cos(q * y)
        for a, p, q in waves
    ]
    total: Array = np.sum(parts, 0)
    return total


@pytest.mark.parametrize("form", ["weak", "strong"])
def test_fields_in_two_dimensions(form: str) -> None:
    t, x, y = np.linspace(0, 1, 41), np.linspace(0, 6, 61), np.linspace(0, 5, 51)
    u = heat(t, x, y)
    found = discover_equations(u, t, 3, space=[x, y], library=Library(degree=2, derivatives=2), form=form)
    assert found.names == (("u_x", "u_xx", "u_yy"),)
    close(coefficients(found), [{"u_x": -1, "u_xx": 0.5, "u_yy": 0.2}], 1e-3)
    assert str(found).startswith("u_t = -1.000 u_x + 0.5")
    step = 1e-5
    slope = (heat(t + step, x, y) - heat(t - step, x, y)) / (2 * step)
    np.testing.assert_allclose(found.predict(u, [x, y])[..., 0], slope, atol=2e-2)
    with pytest.raises(ValueError, match="simulate: expected equations without"):
        found.simulate([1.0], t)


@pytest.mark.parametrize(
    ("file", "field", "right"),
    [
        ("burgers.mat", "usol", {"(u^2)_x": -0.5, "u_xx": 0.1}),
        ("kdv.mat", "usol", {"(u^2)_x": -3, "u_xxx": -1}),
        ("kuramoto_sivishinky.mat", "uu", {"(u^2)_x": -0.5, "u_xx": -1, "u_xxxx": -1}),
    ],
)
def test_simulated_fields_with_noise(data_folder: Any, file: str, field: str, right: dict[str, float]) -> None:
    stored = loadmat(data_folder / "pde" / file)
    u, t = stored[field].T.real, stored["tt" if field == "uu" else "t"].ravel()
    close(coefficients(discover_equations(u, t, len(right), space=stored["x"].ravel())), [right], 1e-3)
    noisy = u + 0.1 * u.std() * np.random.default_rng(0).standard_normal(u.shape)
    close(coefficients(discover_equations(noisy, t, space=stored["x"].ravel())), [right], 1e-2)


def test_several_trajectories_of_different_lengths() -> None:
    times = [np.linspace(0, 6, 121), np.linspace(0, 4, 161)]
    states = [solved(prey, start, t) for start, t in zip([[4, 1.5], [1, 3]], times, strict=True)]
    found = discover_equations(states, times, 2)
    close(coefficients(found), KNOWN[1][-1], 1e-5)
    assert len(found.half_widths) == 2
    same = discover_equations([states[0], states[0]], times[0], 2)
    np.testing.assert_allclose(same.coefficients, discover_equations(states[0], times[0], 2).coefficients, rtol=1e-9)


def test_other_functions() -> None:
    t = np.linspace(0, 20, 801)
    x = solved(lambda _, s: [s[1], -math.sin(s[0]) - 0.1 * s[1] * abs(s[1])], [2.5, 0], t)
    library = Library(degree=3, frequencies=[1, 2], functions={"v |v|": lambda s: s[..., 1] * abs(s[..., 1])})
    found = discover_equations(x, t, [1, 2], library=library, variables=["a", "v"])
    close(coefficients(found), [{"v": 1}, {"sin(a)": -1, "v |v|": -0.1}], 1e-5)
    assert str(found) == "a' = 1.000 v\nv' = -1.000 sin(a) - 0.1000 v |v|"


def test_data_frames_name_the_variables() -> None:
    t = np.linspace(0, 10, 401)
    x = np.exp(-0.1 * t)[:, None] * np.stack([np.cos(2 * t), np.sin(2 * t)], 1)
    expected = "prey' = -0.1000 prey - 2.000 hunters\nhunters' = 2.000 prey - 0.1000 hunters"
    frame = pd.DataFrame(x, columns=["prey", "hunters"])
    for states in (frame, pl.from_pandas(frame), [frame, x], [frame, pl.from_pandas(frame)]):
        found = discover_equations(states, t, 2)
        assert repr(found) == str(found) == expected
    assert discover_equations(frame, t, 2, variables=["a", "b"]).variables == ("a", "b")
    assert discover_equations(pd.DataFrame(x), t, 2).variables == ("x", "y")
    with pytest.raises(ValueError, match=r"same columns, got \['prey', 'hunters'\] and \['hunters', 'prey'\]"):
        discover_equations([frame, frame[["hunters", "prey"]]], t, 2)
    with pytest.raises(ValueError, match=r"variables: expected 2 distinct names, got \('prey', 3\)"):
        discover_equations(frame.set_axis(["prey", 3], axis=1), t, 2)


def test_the_columns_of_a_field_are_points() -> None:
    t, points = np.linspace(0, 2, 101), np.linspace(0, 6, 121)
    waves = pd.DataFrame(np.sin(points - t[:, None]) + np.sin(2 * (points - t[:, None])), columns=map(str, points))
    assert discover_equations(waves, t, 1, space=points).variables == ("u",)


def test_units_do_not_matter() -> None:
    system, start, t, k, right = KNOWN[0]
    x = solved(system, start, t)
    for scale in (1e-7, 1e7):
        found = coefficients(discover_equations(scale * x, t, k))
        degrees = [{name: scale ** len(name.split()) / scale for name in each} for each in right]
        scaled = [
            {name: each[name] * factor[name] for name in each} for each, factor in zip(found, degrees, strict=True)
        ]
        close(scaled, right, 1e-5)


def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("ksubset.regression.heuristic._ENUMERATED", 6)
    monkeypatch.setattr("ksubset.regression.heuristic.descend", interrupted)
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="interrupted"):
        discover_equations(X, T, 2, library=Library(degree=2))


def test_strong_form_takes_uneven_times() -> None:
    t = np.sort(np.random.default_rng(0).uniform(0, 10, 2001))
    x = np.exp(-0.3 * t)[:, None]
    close(coefficients(discover_equations(x, t, 1, form="strong")), [{"x": -0.3}], 1e-4)


@pytest.mark.parametrize("form", ["weak", "strong"])
@pytest.mark.parametrize("k", [1, 2, "auto"])
@pytest.mark.parametrize("value", [0.0, 1.0, math.pi, -1e9])
def test_a_variable_that_never_changes_has_no_term(value: float, k: Any, form: str) -> None:
    t = np.linspace(0, 10, 401)
    found = discover_equations(np.full((401, 1), value), t, k, form=form)
    assert str(found) == "x' = 0"
    np.testing.assert_array_equal(found.predict([[value]]), 0)
    assert found.paths[0].optimal.all()
    assert not found.paths[0].errors.any()
    beside = discover_equations(np.stack([np.full(401, value), np.exp(-t)], 1), t, k, form=form)
    assert beside.names[0] == ()
    np.testing.assert_allclose(beside.predict([[value, 0.5]]), [[0, -0.5]], atol=1e-4)
    field = discover_equations(np.full((41, 61), value), t[:41], k, space=t[:61], form=form)
    assert str(field) == "u_t = 0"


def test_a_solution_that_leaves_all_bounds_is_an_error() -> None:
    t = np.linspace(0, 0.5, 101)
    found = discover_equations(1 / (1 - t), t, 1)
    assert found.names == (("x^2",),)
    with pytest.raises(ArithmeticError, match="leaves all bounds after t = 1"):
        found.simulate([1.0], np.linspace(0, 3, 31))
    with pytest.raises(ArithmeticError, match="leaves all bounds after t = 2"):
        found.simulate([1e200], [2.0, 3.0])


def test_at_one_time_the_state_is_the_first() -> None:
    found = discover_equations(X, T, 2)
    np.testing.assert_array_equal(found.simulate([1.0, 0.5], [3.0]), [[1.0, 0.5]])
    np.testing.assert_array_equal(found.simulate([1.0, 0.5], [3.0, 3.5])[:1], found.simulate([1.0, 0.5], [3.0]))


T = np.linspace(0, 10, 101)
X = np.stack([np.sin(T), np.cos(T)], 1)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"x": np.where(X > 0.99, np.nan, X)}, ValueError, "x: expected finite"),
        ({"x": np.ma.masked_greater(X, 0.99)}, ValueError, "x: expected finite"),
        ({"x": X * 1j}, TypeError, "x: expected real"),
        ({"x": "data"}, TypeError, "x: expected real"),
        (
            {"t": pd.date_range("2020", periods=101, freq="100ms")},
            TypeError,
            r"t: expected real numbers, got datetime64",
        ),
        ({"t": pd.to_timedelta(T, unit="s")}, TypeError, r"t: expected real numbers, got timedelta64"),
        ({"t": T.astype(str)}, TypeError, "t: expected real numbers, got <U"),
        ({"x": X.astype(str).astype(object)}, TypeError, "x: expected real numbers, got text"),
        ({"random_state": "a"}, ValueError, "random_state: expected an integer from 0 .* got 'a'"),
        ({"random_state": -1}, ValueError, "random_state: expected an integer from 0 .* got -1"),
        ({"x": X[None, None]}, ValueError, r"x: expected shape \(T, d\)"),
        ({"x": [X, X[:, :1]]}, ValueError, "x: expected trajectories of the same"),
        ({"x": []}, ValueError, "t: expected times of each of 0"),
        ({"t": T[:-1]}, ValueError, r"t: expected shape \(101,\)"),
        ({"t": -T}, ValueError, "t: expected increasing"),
        ({"t": T**2}, ValueError, "t: expected evenly spaced"),
        ({"x": X[:5], "t": T[:5]}, ValueError, "t: expected 7 points"),
        ({"x": X[:12], "t": T[:12], "k": 8}, ValueError, "t: expected more times"),
        ({"x": X[:18], "t": T[:18], "k": "auto"}, ValueError, "k: 'auto' leaves out"),
        ({"k": 11}, ValueError, "k: expected at most the 10 terms"),
        ({"k": 0}, ValueError, "k: expected 1 or more"),
        ({"k": [1]}, ValueError, "k: expected one number"),
        ({"k": 1.5}, TypeError, "k: expected an integer"),
        ({"k": np.array(2.0)}, TypeError, "k: expected an integer"),
        ({"k": "many"}, ValueError, "k: expected an integer, one"),
        ({"form": "middle"}, ValueError, "form: expected"),
        ({"library": 3}, TypeError, "library: expected a Library"),
        (
            {"library": Library(functions={"1/0": lambda s: 1 / (0 * s[..., 0])})},
            ValueError,
            "library: expected finite",
        ),
        ({"library": Library(functions={"s": lambda s: s})}, ValueError, "functions: expected values of shape"),
        (
            {"library": Library(functions={"x": lambda s: s[..., 0]})},
            ValueError,
            "library: expected a name of its own",
        ),
        ({"library": Library(functions={"1": lambda s: s[..., 0]})}, ValueError, "library: expected a name of its own"),
        ({"library": Library(frequencies=[2, 2])}, ValueError, "library: expected a name of its own"),
        ({"library": Library(0, constant=False)}, ValueError, "library: expected a term"),
        ({"half_widths": [60]}, ValueError, "t: expected more than 120"),
        ({"half_widths": [2]}, ValueError, r"half_widths\[0\]: expected 3 or more, got 2"),
        ({"half_widths": [6.5]}, TypeError, r"half_widths\[0\]: expected an integer"),
        (
            {"half_widths": [3, 5], "space": [np.arange(20)], "x": np.zeros((101, 20, 1))},
            ValueError,
            r"half_widths\[1\]: expected 6 or more, got 5",
        ),
        ({"half_widths": [6, 6]}, ValueError, "half_widths: expected 1"),
        ({"half_widths": 6}, TypeError, "half_widths: expected a sequence"),
        ({"half_widths": [6], "form": "strong"}, ValueError, "half_widths: expected None"),
        ({"variables": ["a", "a"]}, ValueError, "variables: expected 2 distinct"),
        ({"max_terms": 0}, ValueError, "max_terms: expected 1"),
        ({"space": T}, ValueError, r"space: expected shape \(2,\)"),
        ({"space": [T, T, T, T]}, ValueError, "space: expected at most 3 axes"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match), np.errstate(divide="ignore"):
        discover_equations(**({"x": X, "t": T, "k": 2} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"degree": -1}, ValueError, "degree: expected"),
        ({"derivatives": 1.5}, TypeError, "derivatives: expected"),
        ({"frequencies": [0]}, ValueError, "frequencies: expected"),
        ({"frequencies": 1.0}, TypeError, "frequencies: expected a sequence, got 1.0"),
        ({"functions": {"f": 3}}, TypeError, "functions: expected"),
        ({"functions": [np.sin]}, TypeError, "functions: expected functions by name, got"),
    ],
)
def test_bad_libraries_are_named(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Library(**arguments)


def test_bad_states_of_found_equations_are_named() -> None:
    found = discover_equations(X, T, 2)
    with pytest.raises(ValueError, match="x: expected 2 variables"):
        found.predict(X[:, :1])
    with pytest.raises(ValueError, match="space: expected coordinates along 0"):
        found.predict(X, T)
    with pytest.raises(ValueError, match="x0: expected 2"):
        found.simulate([1.0], T)
    with pytest.raises(ValueError, match="t: expected increasing"):
        found.simulate([1.0, 0.0], -T)


def speed(state: Array) -> Array:
    norms: Array = np.linalg.norm(state, axis=-1)
    return norms


def test_found_equations_are_pickled() -> None:
    found = discover_equations(X, T, 2, library=Library(2, frequencies=[2.0], functions={"|v|": speed}))
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    np.testing.assert_array_equal(again.predict(X), found.predict(X))


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_units_of_variables_do_not_change_widths(unit: float) -> None:
    t = np.linspace(0, 20, 500)
    waves = np.stack([np.sin(t), np.sin(9 * t)], 1) + 0.01 * np.random.default_rng(0).normal(size=(500, 2))
    assert half_width(waves * [1.0, unit], 1) == half_width(waves, 1)
    grid = np.moveaxis(np.stack([waves, 2 * waves]), 0, 1)
    assert half_width(grid * [1.0, unit], 1) == half_width(grid, 1)


def test_a_constant_variable_does_not_change_the_width() -> None:
    noisy = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)
    alone = discover_equations(noisy, T, 2).half_widths
    assert discover_equations(np.column_stack([noisy, np.full(len(T), 1e5)]), T, 2).half_widths == alone


def test_widths_of_long_series_take_no_time() -> None:
    """Looking at each corner in turn took minutes."""
    t = np.linspace(0, 1e4, 200_000)
    wide = half_width(np.sin(t)[:, None] + 0.1 * np.random.default_rng(0).normal(size=(200_000, 1)), 1)
    assert 3 <= wide < 1000


def spiral() -> pd.DataFrame:
    t = np.linspace(0, 10, 401)
    return pd.DataFrame(
        np.exp(-0.1 * t)[:, None] * np.stack([np.cos(2 * t), np.sin(2 * t)], 1), columns=["pos", "vel"], index=t
    )


def test_states_of_tables_go_by_names() -> None:
    frame = spiral()
    found = discover_equations(frame, frame.index, 2)
    swapped = frame[["vel", "pos"]]
    for states in (swapped, pl.from_pandas(swapped)):
        np.testing.assert_array_equal(found.predict(states), found.predict(frame.to_numpy()))
    np.testing.assert_array_equal(
        found.simulate(swapped.iloc[0], frame.index), found.simulate(frame.to_numpy()[0], frame.index)
    )
    np.testing.assert_array_equal(found.predict(frame.set_axis([0, 1], axis=1)), found.predict(frame))
    with pytest.raises(ValueError, match=r"x: expected the variables \['pos', 'vel'\], got \['speed', 'weight'\]"):
        found.predict(frame.set_axis(["speed", "weight"], axis=1))
    with pytest.raises(ValueError, match=r"x0: expected the variables \['pos', 'vel'\], got \['pos', 'pos'\]"):
        found.simulate(pd.Series([1.0, 0.0], index=["pos", "pos"]), frame.index)


def test_numbers_of_terms_go_by_names() -> None:
    frame = spiral()
    found = discover_equations(frame, frame.index, pd.Series({"vel": 1, "pos": 2}))
    assert [len(names) for names in found.names] == [2, 1]
    with pytest.raises(ValueError, match=r"k: expected the variables \['pos', 'vel'\], got \['pos', 'speed'\]"):
        discover_equations(frame, frame.index, pd.Series({"pos": 2, "speed": 2}))


def test_names_of_columns_are_not_exchanged() -> None:
    frame = spiral()
    with pytest.raises(ValueError, match=r"variables: expected the names of the columns in their order \['pos', 'v"):
        discover_equations(frame, frame.index, 2, variables=["vel", "pos"])


def test_a_series_names_its_variable() -> None:
    decay = pd.Series(np.exp(-T), name="level")
    found = discover_equations(decay, T, 1)
    assert str(found) == "level' = -1.000 level"
    np.testing.assert_array_equal(found.predict(decay), found.predict(decay.to_numpy()))
    with pytest.raises(ValueError, match=r"x: expected the variables \['level'\], got \['mass'\]"):
        found.predict(decay.rename("mass"))


def test_seeds_are_drawn_from_generators() -> None:
    expected = discover_equations(X, T, 2, random_state=np.random.RandomState(0))
    found = discover_equations(X, T, 2, random_state=np.random.default_rng(0))
    np.testing.assert_allclose(found.coefficients, expected.coefficients)
