"""Gradient estimators of the expectation of f over k-subsets, with one entry point, `expectation`."""

from ksubset.estimators.base import Estimator, expectation
from ksubset.estimators.dps import DPS
from ksubset.estimators.gates import StochasticGates
from ksubset.estimators.gumbel import GumbelTopK
from ksubset.estimators.hybrid import Hybrid, ReplayedSlope, Slope, SlopeAtMean, SlopeAtSamples
from ksubset.estimators.imle import IMLE
from ksubset.estimators.ncpss import NCPSS
from ksubset.estimators.reinmax import ReinMax
from ksubset.estimators.score import LeaveOneOut, ScoreFunction
from ksubset.estimators.simple import SIMPLE
from ksubset.estimators.unordered import UnorderedSet

__all__ = [
    "DPS",
    "IMLE",
    "NCPSS",
    "SIMPLE",
    "Estimator",
    "GumbelTopK",
    "Hybrid",
    "LeaveOneOut",
    "ReinMax",
    "ReplayedSlope",
    "ScoreFunction",
    "Slope",
    "SlopeAtMean",
    "SlopeAtSamples",
    "StochasticGates",
    "UnorderedSet",
    "expectation",
]
