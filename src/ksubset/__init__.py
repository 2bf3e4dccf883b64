"""Learning with k-subsets: exactly k of n items, chosen inside a model that is trained by gradients."""

from ksubset.distribution import KSubset
from ksubset.estimators import IMLE, Estimator, GumbelTopK, LeaveOneOut, ScoreFunction, expectation

__all__ = ["IMLE", "Estimator", "GumbelTopK", "KSubset", "LeaveOneOut", "ScoreFunction", "__version__", "expectation"]

__version__ = "0.1.0"
