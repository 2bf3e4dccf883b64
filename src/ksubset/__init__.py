"""Learning with k-subsets: exactly k of n items, chosen inside a model that is trained by gradients."""

from ksubset import estimators
from ksubset.distributions import AtMostKSubset, KSubset, PartitionedKSubset, SubsetDistribution
from ksubset.estimators import *  # noqa: F403 - a new estimator is exported in one place
from ksubset.schedules import ExponentialSchedule, LinearSchedule

__all__ = [
    "AtMostKSubset",
    "ExponentialSchedule",
    "KSubset",
    "LinearSchedule",
    "PartitionedKSubset",
    "SubsetDistribution",
    "__version__",
]
__all__ += estimators.__all__

__version__ = "0.2.0"
