from typing import Any

import pytest

from ksubset.estimators import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    GumbelTopK,
    Hybrid,
    LeaveOneOut,
    ReinMax,
    ReplayedSlope,
    ScoreFunction,
    SlopeAtSamples,
    StochasticGates,
)
from ksubset.experiments import methods, runner
from ksubset.experiments.config import RunConfig


def at(name: str, progress: float, **knobs: Any) -> Any:
    return methods.find(name).prepare(RunConfig(**knobs))(progress)


def test_names_and_estimators() -> None:
    labels = ["GS", "STGS", "SFESS", "SFESS-V", "SIMPLE", "I-MLE", "NCPSS", "Hybrid"]
    labels += ["ReinMax", "DPS", "STG", "Concrete", "Hybrid, pathwise"]
    assert [method.label for method in methods.METHODS.values()] == labels
    classes = [GumbelTopK, GumbelTopK, ScoreFunction, LeaveOneOut, SIMPLE, IMLE, NCPSS, Hybrid]
    classes += [ReinMax, DPS, StochasticGates, GumbelTopK, Hybrid]
    assert [type(at(name, 0.0)) for name in methods.METHODS] == classes


def test_the_temperature_falls_exponentially() -> None:
    assert [at("gs", progress).temperature for progress in (0, 1)] == [1.0, 0.01]
    assert not at("gs", 0.5).straight_through
    assert at("stgs", 0.5).straight_through
    assert [at(name, 0.5).temperature for name in ("stgs", "dps", "concrete")] == pytest.approx([0.1] * 3)


def test_what_remembers_is_one_for_a_run() -> None:
    run = methods.find("hybrid").prepare(RunConfig())
    assert run(0.0) is run(1.0)
    assert run(0.0) is not at("hybrid", 0.0)
    assert [type(at(name, 0.0).slope) for name in ("hybrid", "hybrid-pathwise")] == [ReplayedSlope, SlopeAtSamples]


def test_an_unknown_method_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"expected one of gs, stgs, .*, concrete, hybrid-pathwise, got 'magic'"):
        methods.find("magic")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            {"task": "explain", "dataset": "xor"},
            "method: concrete has one subset for all examples, where explain",
        ),
        ({"k_start": 20}, "k_start: expected None, as concrete has as many units as items, got 20"),
    ],
)
def test_a_selector_of_its_own_does_not_fit_everywhere(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.resolve(RunConfig(method="concrete", **knobs))
