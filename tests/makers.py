"""Every estimator once, with nothing in its memory."""

from collections.abc import Callable

from ksubset import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    LeaveOneOut,
    ReinMax,
    ReplayedSlope,
    ScoreFunction,
    SlopeAtMean,
    SlopeAtSamples,
    StochasticGates,
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
    "ReinMax": ReinMax,
    "DPS": lambda: DPS(0.5),
    "StochasticGates": StochasticGates,
}
