"""The paper's method names, and the estimator behind each of them.

A new method is one entry of :data:`METHODS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ksubset.estimators import Estimator, GumbelTopK, LeaveOneOut, ScoreFunction

__all__ = ["METHODS", "Method", "annealed", "find"]


@dataclass(frozen=True)
class Method:
    """A column of the paper's tables.

    Arguments:
        label: the column's head in tables and figures.
        estimator: gives the estimator for a temperature; methods without one ignore it.
    """

    label: str
    estimator: Callable[[float], Estimator]


METHODS = {
    "gs": Method("GS", GumbelTopK),
    "stgs": Method("STGS", lambda temperature: GumbelTopK(temperature, straight_through=True)),
    "sfess": Method("SFESS", lambda _: ScoreFunction()),
    "sfess-v": Method("SFESS-V", lambda _: LeaveOneOut()),
}


def find(name: str) -> Method:
    """The method of this name.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
    """
    if name not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]


def annealed(progress: float, start: float, end: float) -> float:
    """The temperature after a share ``progress`` in [0, 1] of the training, exponential from ``start`` to ``end``.

    Source: the paper's appendix on optimization and hyperparameters.
    """
    return float(start * (end / start) ** progress)
