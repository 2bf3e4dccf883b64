from typing import Any

import pytest

from ksubset.estimators import IMLE, NCPSS, SIMPLE, GumbelTopK, Hybrid, LeaveOneOut, ScoreFunction
from ksubset.experiments import methods
from ksubset.experiments.config import RunConfig


def at(name: str, progress: float, **knobs: Any) -> Any:
    return methods.find(name).prepare(RunConfig(**knobs))(progress)


def test_names_and_estimators() -> None:
    labels = ["GS", "STGS", "SFESS", "SFESS-V", "SIMPLE", "I-MLE", "NCPSS", "Hybrid"]
    assert [method.label for method in methods.METHODS.values()] == labels
    classes = [GumbelTopK, GumbelTopK, ScoreFunction, LeaveOneOut, SIMPLE, IMLE, NCPSS, Hybrid]
    assert [type(at(name, 0.0)) for name in methods.METHODS] == classes


def test_the_temperature_falls_exponentially() -> None:
    assert [at("gs", progress).temperature for progress in (0, 1)] == [1.0, 0.01]
    assert not at("gs", 0.5).straight_through
    assert at("stgs", 0.5).straight_through
    assert at("stgs", 0.5).temperature == pytest.approx(0.1)


def test_what_remembers_is_one_for_a_run() -> None:
    run = methods.find("hybrid").prepare(RunConfig())
    assert run(0.0) is run(1.0)
    assert run(0.0) is not at("hybrid", 0.0)


def test_an_unknown_method_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"expected one of gs, stgs, sfess, .*, hybrid, got 'magic'"):
        methods.find("magic")
