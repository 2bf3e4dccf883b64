"""The laboratory: bias, variance, error and cost of gradient estimators, on problems whose gradient is known.

A problem of one's own needs torch alone; those of the literature and the tables need the extra ``experiments``.
"""

from ksubset.lab.measurements import Measurement, measure
from ksubset.lab.problems import Problem, decoder, enumerated, network, quadratic, threshold, toy

__all__ = ["Measurement", "Problem", "decoder", "enumerated", "measure", "network", "quadratic", "threshold", "toy"]
