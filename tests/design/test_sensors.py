"""The selector against enumeration, in scikit-learn, and with bad input."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

from ksubset.design import SensorSelector, plot_field
from ksubset.design.decoding import Decoding
from ksubset.search import Apart, AtMost, Budget

N = 24
PLACE = np.linspace(0, 1, N)


@pytest.fixture
def field() -> np.ndarray:
    """A wave whose place and width vary, with noise."""
    rng = np.random.default_rng(2)
    middle, width = rng.uniform(0.2, 0.8, (60, 1)), rng.uniform(0.1, 0.3, (60, 1))
    waves: np.ndarray = np.exp(-(((PLACE - middle) / width) ** 2)) + 0.01 * rng.normal(size=(60, N)) + 3
    return waves


def test_search_finds_the_least_error_of_all_sets(field: np.ndarray) -> None:
    selector = SensorSelector(3, noise=0.02, max_evaluations=5000, random_state=0).fit(field)
    decoding = Decoding(torch.from_numpy(field), torch.from_numpy(field), 0.02)
    errors = decoding.errors(torch.tensor(list(combinations(range(N), 3))))
    assert selector.error_ == pytest.approx(float(errors.min()) ** 0.5, rel=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda field: np.lib.stride_tricks.as_strided(field, writeable=False),
        lambda field: field[::-1].copy()[::-1],
        lambda field: field.astype(">f8"),
    ],
    ids=["locked", "backwards", "swapped"],
)
def test_arrays_as_they_lie_in_memory(field: np.ndarray, change: Any) -> None:
    # torch takes none of these, or warns of them, by default once in a process.
    torch.set_warn_always(True)
    try:
        for y in (None, field[:, :2]):
            expected = SensorSelector(3, method="qr").fit(field, y)
            found = SensorSelector(3, method="qr").fit(change(field), None if y is None else change(y.copy()))
            np.testing.assert_array_equal(found.sensors_, expected.sensors_)
            np.testing.assert_allclose(found.predict(change(field)), expected.predict(field))
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("noise", [None, 0.02])
def test_search_is_no_worse_than_where_it_begins(field: np.ndarray, noise: float | None) -> None:
    errors = [
        SensorSelector(5, method=method, noise=noise, max_evaluations=200, random_state=0).fit(field).error_
        for method in ("search", "greedy", "qr")
    ]
    assert errors[0] <= errors[1] * (1 + 1e-9)
    assert errors[0] <= errors[2] * (1 + 1e-9)


def test_what_is_chosen_decodes_and_says_so(field: np.ndarray) -> None:
    selector = SensorSelector(4, random_state=0).fit(field[:40])
    sensors = selector.get_support(indices=True)
    assert sensors.tolist() == selector.sensors_.tolist()
    assert len(sensors) == 4
    readings = selector.transform(field[40:])
    np.testing.assert_array_equal(readings, field[40:, sensors])
    told = selector.predict(field[40:])
    np.testing.assert_array_equal(told, selector.reconstruct(readings))
    # The same ridge regression by its definition.
    mean = field[:40].mean(0)
    x, decoding = (
        field[:40, sensors] - mean[sensors],
        Decoding(torch.from_numpy(field[:40]), torch.from_numpy(field[:40]), None),
    )
    decoding.choose_ridge(torch.from_numpy(sensors))
    coefficients = np.linalg.solve(x.T @ x + decoding.ridge * np.eye(4), x.T @ (field[:40] - mean))
    np.testing.assert_allclose(told, mean + (readings - mean[sensors]) @ coefficients, rtol=1e-6)
    wrong = np.square(told - field[40:]).sum() / np.square(field[40:] - mean).sum()
    assert selector.score(field[40:]) == pytest.approx(1 - wrong)
    assert wrong < 0.1


def test_constraints_are_kept(field: np.ndarray) -> None:
    costs = 1.0 + np.arange(N) % 3
    constraints = [Budget(costs, 8.0), Apart(0.15, coordinates=PLACE), AtMost(2, range(12))]
    for method in ("qr", "greedy", "search"):
        selector = SensorSelector(
            4, method=method, always=[20], exclude=range(14, 17), constraints=constraints, max_evaluations=300,
            random_state=0,
        ).fit(field)  # fmt: skip
        chosen = selector.sensors_
        assert 20 in chosen
        assert not set(chosen) & {14, 15, 16}
        assert costs[chosen].sum() <= 8
        assert np.diff(PLACE[chosen]).min() >= 0.15
        assert (chosen < 12).sum() <= 2


def test_noise_asks_for_sensors_that_agree(field: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    errors = []
    for noise in (None, 0.3):
        selector = SensorSelector(4, method="greedy", noise=noise).fit(field)
        readings = np.tile(field[:, selector.sensors_], (50, 1))
        told = selector.reconstruct(readings + 0.3 * rng.normal(size=readings.shape))
        errors.append(np.square(told - np.tile(field, (50, 1))).mean())
    assert errors[1] < 0.7 * errors[0]


def test_a_nonlinear_decoder_of_the_field(field: np.ndarray) -> None:
    selector = SensorSelector(3, estimator=KNeighborsRegressor(3), max_evaluations=30, random_state=0).fit(field[:45])
    assert selector.predict(field[45:]).shape == (15, N)
    # The best in cross-validation on 45 rows is not the best on 15 others.
    assert selector.score(field[45:]) > 0.3
    assert selector.modes_.shape[1] == N


def test_search_with_an_estimator_minimises_the_error_of_the_field() -> None:
    """Not that of modes that hold next to nothing."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        amplitudes = rng.normal(size=(80, 6)) * 0.3 ** np.arange(6)
        field = amplitudes @ np.linalg.qr(rng.normal(size=(N, 6)))[0].T + 1e-3 * rng.normal(size=(80, N))
        errors = {}
        for method in ("qr", "search"):
            selector = SensorSelector(
                2, estimator=KNeighborsRegressor(3), n_modes=6, method=method, max_evaluations=276, random_state=0
            ).fit(field)
            told = cross_val_predict(KNeighborsRegressor(3), field[:, selector.sensors_], field)
            errors[method] = np.square(told - field).sum()
        assert errors["search"] <= errors["qr"]


def test_folds_are_those_of_scikit_learn(field: np.ndarray) -> None:
    arguments: dict[str, Any] = {"estimator": KNeighborsRegressor(3), "max_evaluations": 20, "random_state": 0}
    expected = SensorSelector(2, cv=KFold(3), **arguments).fit(field)
    for folds in (iter(KFold(3).split(field)), list(KFold(3).split(field))):
        assert SensorSelector(2, cv=folds, **arguments).fit(field).sensors_.tolist() == expected.sensors_.tolist()


@pytest.mark.parametrize("labels", [["low", "high"], ["low", "middle", "high"]])
def test_classes(field: np.ndarray, labels: list[str]) -> None:
    place = field.argmax(1)
    y = np.array(labels)[np.searchsorted(np.quantile(place, np.arange(1, len(labels)) / len(labels)), place)]
    selector = SensorSelector(
        3, estimator=LinearDiscriminantAnalysis(), max_evaluations=20, scoring="accuracy", cv=3, random_state=0
    )
    selector.fit(field, y)
    assert selector.score(field, y) > 0.85
    assert set(selector.predict(field)) == set(labels)


def test_another_quantity_is_told_without_an_estimator(field: np.ndarray) -> None:
    y = field[:, 3] - 2 * field[:, 17]
    selector = SensorSelector(2, method="greedy").fit(field, y)
    assert selector.sensors_.tolist() == [3, 17]
    assert selector.score(field, y) == pytest.approx(1)
    assert selector.predict(field).shape == (60,)


def test_scikit_learn_clones_it_and_takes_it_into_a_pipeline(field: np.ndarray) -> None:
    selector = SensorSelector(3, method="greedy", exclude=[1])
    assert clone(selector).get_params()["exclude"] == [1]
    model = make_pipeline(selector, KNeighborsRegressor()).fit(field, field[:, 0])
    assert model.predict(field).shape == (60,)


@pytest.mark.parametrize(
    ("arguments", "y", "message"),
    [
        ({"n_sensors": N + 1}, None, "n_sensors: expected at most 24, as many as places, got"),
        ({"n_sensors": 0}, None, "n_sensors: expected 1 or more, got 0"),
        ({"method": "best"}, None, "method: expected one of search, greedy, qr, got 'best'"),
        ({"noise": -1.0}, None, "noise: expected a finite number, 0 or more"),
        ({"n_modes": 0}, None, "n_modes: expected 1 or more"),
        ({"constraints": [AtMost(1, range(N))]}, None, "constraints: no subset of size 3"),
        ({}, ["a"] * 60, "y: expected numbers, or an estimator that classifies"),
        ({"estimator": LogisticRegression()}, ["a"] * 60, "y: expected two classes or more"),
        ({"estimator": LogisticRegression()}, None, "y: expected the classes that LogisticRegression"),
        ({}, [1.0] * 60, r"y: expected values that differ, got \[1.0\] for all snapshots"),
        ({}, [1.0] * 59, "inconsistent numbers of samples"),
    ],
)
def test_bad_input_is_named(field: np.ndarray, arguments: dict[str, Any], y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SensorSelector(**{"n_sensors": 3, **arguments}).fit(field, y)


@pytest.mark.parametrize("argument", ["always", "exclude", "constraints"])
def test_what_is_read_once_is_refused(field: np.ndarray, argument: str) -> None:
    with pytest.raises(TypeError, match=f"{argument}: expected a sequence, as each fit reads it again, got <list_iter"):
        SensorSelector(3, **{argument: iter([1])}).fit(field)


def test_bad_fields_and_readings_are_named(field: np.ndarray) -> None:
    with pytest.raises(ValueError, match="X: expected snapshots that differ"):
        SensorSelector(2).fit(np.ones((5, N)))
    with pytest.raises(ValueError, match="NaN"):
        SensorSelector(2).fit(np.full((5, N), np.nan))
    selector = SensorSelector(2, method="qr").fit(field)
    with pytest.raises(ValueError, match="readings: expected 2 columns, one a sensor, got 3"):
        selector.reconstruct(np.ones((4, 3)))


def test_truth_of_another_shape_is_named(field: np.ndarray) -> None:
    y = field[:, :2]
    selector = SensorSelector(2, method="qr").fit(field, y)
    for wrong, got in ((y.T, r"\(2, 60\)"), (y[:30], r"\(30, 2\)"), (y[:, 0], r"\(60,\)"), (None, "None")):
        with pytest.raises(ValueError, match=rf"y: expected shape \(60, 2\), got {got}"):
            selector.score(field, wrong)
    one = SensorSelector(2, method="qr").fit(field, y[:, 0])
    assert one.score(field, y[:, 0]) == one.score(field, y[:, :1])


def test_fields_are_drawn_with_their_sensors(field: np.ndarray) -> None:
    places = np.stack([PLACE, PLACE**2], 1)
    figure = plot_field(
        places, {"true": field[0], "error": field[0] - field[1]}, [3, 8], difference="error", unit="m/s"
    )
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [panel.get_title() for panel in panels] == ["true", "error"]
    np.testing.assert_array_equal(panels[0].lines[0].get_xydata(), places[[3, 8]])
    masked = plot_field(places, {"true": field[0]}, np.isin(np.arange(N), [3, 8]))
    np.testing.assert_array_equal(masked.axes[0].lines[0].get_xydata(), places[[3, 8]])
    low, high = panels[1].images[0].get_clim()
    assert low == -high == -np.quantile(np.abs(field[0] - field[1]), 0.995)
    # The pixel in the lower left corner is at the first place, and the upper left corner is far from all.
    image = panels[0].images[0].get_array()
    assert image[0, 0] == field[0, 0]
    assert np.isnan(np.ma.filled(image, np.nan)[-1, 0])
    for bad, message in (
        ({"coordinates": PLACE[:, None]}, "coordinates: expected shape"),
        ({"coordinates": PLACE}, r"coordinates: expected shape \(n, 2\), got \(\d+,\)"),
        ({"fields": {"true": field[0][1:]}}, "fields: expected 24 values"),
        ({"fields": {}}, "fields: expected at least one"),
        ({"sensors": [N]}, "sensors: expected indices from 0 to 23"),
        ({"sensors": [1.5]}, "sensors: expected indices from 0 to 23, or a boolean mask of 24"),
        ({"sensors": [True, False]}, "sensors: expected indices from 0 to 23, or a boolean mask of 24"),
        ({"difference": "other"}, "difference: expected one of true"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_field(**{"coordinates": places, "fields": {"true": field[0]}, "sensors": [1], **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [None, 0.02])
@pytest.mark.parametrize("unit", [2.0**-20, 1e160, 1e-170, 1e300, 1e-300])
def test_units_far_from_one(unit: float, noise: float | None) -> None:
    rng = np.random.default_rng(0)
    field = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 30)) + 0.01 * rng.normal(size=(40, 30))
    right = SensorSelector(4, noise=noise, max_evaluations=50, random_state=0).fit(field)
    scaled = None if noise is None else noise * unit
    model = SensorSelector(4, noise=scaled, max_evaluations=50, random_state=0).fit(field * unit)
    assert model.sensors_.tolist() == right.sensors_.tolist()
    assert model.error_ == pytest.approx(right.error_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, right.coef_, rtol=1e-5, atol=1e-8)
    assert model.score(field * unit) == pytest.approx(right.score(field), rel=1e-9)
    about = SensorSelector(4, max_evaluations=50, random_state=0).fit(field, field[:, :2] * unit)
    same = SensorSelector(4, max_evaluations=50, random_state=0).fit(field, field[:, :2])
    assert about.sensors_.tolist() == same.sensors_.tolist()
    np.testing.assert_allclose(about.coef_ / unit, same.coef_, rtol=1e-5, atol=1e-8)
