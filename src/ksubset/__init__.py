"""Learning with k-subsets: exactly k of n items, chosen inside a model that is trained by gradients."""

from ksubset.distribution import KSubset
from ksubset.estimators import (
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
    expectation,
)
from ksubset.schedules import ExponentialSchedule, LinearSchedule

__all__ = [
    "IMLE",
    "NCPSS",
    "SIMPLE",
    "Estimator",
    "ExponentialSchedule",
    "GumbelTopK",
    "Hybrid",
    "KSubset",
    "LeaveOneOut",
    "LinearSchedule",
    "ReplayedSlope",
    "ScoreFunction",
    "SlopeAtMean",
    "SlopeAtSamples",
    "__version__",
    "expectation",
]

__version__ = "0.1.0"
