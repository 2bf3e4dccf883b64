"""Method names of the command line, and the estimator behind each of them.

A new method is one entry of :data:`METHODS`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ksubset.estimators import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    LeaveOneOut,
    ReinMax,
    ScoreFunction,
    SlopeAtSamples,
    StochasticGates,
)
from ksubset.experiments.config import RunConfig
from ksubset.nn import ConcreteSelector
from ksubset.schedules import ExponentialSchedule

__all__ = ["METHODS", "Method", "find"]

Factory = Callable[[RunConfig], Callable[[float], Estimator]]


@dataclass(frozen=True)
class Method:
    """A column of the tables.

    Arguments:
        label: the column's head in tables and figures.
        prepare: gives, for a run, the estimator after a fraction in [0, 1] of its training.
        selector: makes the module that holds the parameters, for a number of items and k, where these are not a logit
            of each item; such a method has one subset for all examples.
    """

    label: str
    prepare: Factory
    selector: Callable[[int, int], nn.Module] | None = None


def _annealed(build: Callable[[float], Estimator]) -> Factory:
    def prepare(config: RunConfig) -> Callable[[float], Estimator]:
        temperature = ExponentialSchedule(config.temperature_start, config.temperature_end)
        return lambda progress: build(temperature(progress))

    return prepare


def _fixed(build: Callable[[], Estimator]) -> Factory:
    def prepare(_: RunConfig) -> Callable[[float], Estimator]:
        estimator = build()  # one for the whole run, as some remember
        return lambda _: estimator

    return prepare


METHODS = {
    "gs": Method("GS", _annealed(GumbelTopK)),
    "stgs": Method("STGS", _annealed(functools.partial(GumbelTopK, straight_through=True))),
    "sfess": Method("SFESS", _fixed(ScoreFunction)),
    "sfess-v": Method("SFESS-V", _fixed(LeaveOneOut)),
    "simple": Method("SIMPLE", _fixed(SIMPLE)),
    "imle": Method("I-MLE", _fixed(IMLE)),
    "ncpss": Method("NCPSS", _fixed(NCPSS)),
    "hybrid": Method("Hybrid", _fixed(Hybrid)),
    "reinmax": Method("ReinMax", _fixed(ReinMax)),
    "dps": Method("DPS", _annealed(DPS)),
    "stg": Method("STG", _fixed(StochasticGates)),
    "concrete": Method("Concrete", _annealed(GumbelTopK), functools.partial(ConcreteSelector, validate_args=False)),
    "hybrid-pathwise": Method("Hybrid, pathwise", _fixed(lambda: Hybrid(SlopeAtSamples()))),
}


def find(name: str) -> Method:
    """The method of this name; else a ValueError with the known names."""
    if name not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
