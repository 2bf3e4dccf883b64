"""Distributions over subsets."""

from ksubset.distributions import divergence  # noqa: F401 - registers itself
from ksubset.distributions.at_most import AtMostKSubset
from ksubset.distributions.base import SubsetDistribution
from ksubset.distributions.ksubset import KSubset
from ksubset.distributions.partitioned import PartitionedKSubset

__all__ = ["AtMostKSubset", "KSubset", "PartitionedKSubset", "SubsetDistribution"]
