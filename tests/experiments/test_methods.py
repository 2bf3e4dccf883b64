import pytest

from ksubset.estimators import GumbelTopK, LeaveOneOut, ScoreFunction
from ksubset.experiments import methods


def test_names_and_estimators_of_the_paper() -> None:
    assert [method.label for method in methods.METHODS.values()] == ["GS", "STGS", "SFESS", "SFESS-V"]
    relaxed = methods.find("gs").estimator(0.3)
    hard = methods.find("stgs").estimator(0.3)
    assert isinstance(relaxed, GumbelTopK)
    assert isinstance(hard, GumbelTopK)
    assert (relaxed.temperature, relaxed.straight_through) == (0.3, False)
    assert (hard.temperature, hard.straight_through) == (0.3, True)
    assert isinstance(methods.find("sfess").estimator(0.3), ScoreFunction)
    assert isinstance(methods.find("sfess-v").estimator(0.3), LeaveOneOut)


def test_the_temperature_falls_exponentially() -> None:
    assert [methods.annealed(progress, 1.0, 0.01) for progress in (0, 0.5, 1)] == pytest.approx([1, 0.1, 0.01])


def test_an_unknown_method_lists_the_known() -> None:
    with pytest.raises(ValueError, match="expected one of gs, stgs, sfess, sfess-v, got 'magic'"):
        methods.find("magic")
