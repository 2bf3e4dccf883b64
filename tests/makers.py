"""Every estimator once, with nothing in its memory."""

from collections.abc import Callable

from ksubset import (
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    LeaveOneOut,
    ReplayedSlope,
    ScoreFunction,
    SlopeAtMean,
    SlopeAtSamples,
    UnorderedSet,
)

MAKERS: dict[str, Callable[[], Estimator]] = {
    "ScoreFunction": ScoreFunction,
    "LeaveOneOut": LeaveOneOut,
    "UnorderedSet": UnorderedSet,
    "Hybrid(SlopeAtMean)": lambda: Hybrid(SlopeAtMean()),
    "Hybrid(SlopeAtSamples)": lambda: Hybrid(SlopeAtSamples()),
    "Hybrid(ReplayedSlope)": lambda: Hybrid(ReplayedSlope(64)),
    "SIMPLE": SIMPLE,
    "GumbelTopK": lambda: GumbelTopK(0.5),
    "straight-through": lambda: GumbelTopK(0.5, straight_through=True),
    "IMLE": IMLE,
    "NCPSS": NCPSS,
}
