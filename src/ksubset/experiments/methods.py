"""Method names of the command line, and the estimator behind each of them.

A new method is one entry of :data:`METHODS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ksubset.estimators import IMLE, NCPSS, SIMPLE, Estimator, GumbelTopK, Hybrid, LeaveOneOut, ScoreFunction
from ksubset.experiments.config import RunConfig
from ksubset.schedules import ExponentialSchedule

__all__ = ["METHODS", "Method", "find"]

Factory = Callable[[RunConfig], Callable[[float], Estimator]]


@dataclass(frozen=True)
class Method:
    """A column of the tables.

    Arguments:
        label: the column's head in tables and figures.
        prepare: gives, for a run, the estimator after a fraction in [0, 1] of its training.
    """

    label: str
    prepare: Factory


def _relaxed(straight_through: bool) -> Factory:
    def prepare(config: RunConfig) -> Callable[[float], Estimator]:
        temperature = ExponentialSchedule(config.temperature_start, config.temperature_end)
        return lambda progress: GumbelTopK(temperature(progress), straight_through)

    return prepare


def _fixed(build: Callable[[], Estimator]) -> Factory:
    def prepare(_: RunConfig) -> Callable[[float], Estimator]:
        estimator = build()  # one for the whole run, as some remember
        return lambda _: estimator

    return prepare


METHODS = {
    "gs": Method("GS", _relaxed(straight_through=False)),
    "stgs": Method("STGS", _relaxed(straight_through=True)),
    "sfess": Method("SFESS", _fixed(ScoreFunction)),
    "sfess-v": Method("SFESS-V", _fixed(LeaveOneOut)),
    "simple": Method("SIMPLE", _fixed(SIMPLE)),
    "imle": Method("I-MLE", _fixed(IMLE)),
    "ncpss": Method("NCPSS", _fixed(NCPSS)),
    "hybrid": Method("Hybrid", _fixed(Hybrid)),
}


def find(name: str) -> Method:
    """The method of this name; else a ValueError with the known names."""
    if name not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
