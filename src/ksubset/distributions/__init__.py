"""Distributions over subsets."""

from ksubset.distributions.ksubset import KSubset

__all__ = ["KSubset"]
