"""Gradient estimators of the expectation of f over k-subsets, behind one door, `expectation`."""

from ksubset.estimators.base import Estimator, expectation
from ksubset.estimators.gumbel import GumbelTopK
from ksubset.estimators.imle import IMLE
from ksubset.estimators.score import LeaveOneOut, ScoreFunction

__all__ = ["IMLE", "Estimator", "GumbelTopK", "LeaveOneOut", "ScoreFunction", "expectation"]
