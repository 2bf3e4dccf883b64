"""The unordered-set estimator: distinct subsets, each evaluated once."""

import math

import torch
from torch import Generator, Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator
from ksubset.numerics.distinct import first_two

__all__ = ["UnorderedSet"]


class UnorderedSet(Estimator):
    r"""Score function on S distinct subsets, drawn without replacement, with the built-in baseline.

    .. math:: \sum_s w_s\, (1 - p(z_s)) \Big(f(z_s) - \sum_{r \neq s} w_{r|s} f(z_r)\Big) \nabla \log p(z_s)

    with :math:`w_s` the probability that :math:`z_s` was drawn first, given the set, and :math:`w_{r|s}` that
    :math:`z_r` was drawn next if :math:`z_s` was first. The expectation of f is :math:`\sum_s w_s f(z_s)`. With all
    subsets in the set, both are exact.

    No evaluation is spent on a subset that comes again: for distributions that are nearly settled, whose likely subsets
    are about S or fewer. Where repeats are rare it is little better than `LeaveOneOut`, which costs less. f should be a
    fixed function: a random one is evaluated once at a likely subset, where `LeaveOneOut` averages several values.

    References:
        Kool, van Hoof and Welling (2020), Estimating Gradients for Discrete Random Variables by Sampling without
        Replacement, https://openreview.net/forum?id=rklEj2EFvB.

    Raises:
        ValueError: When used, a row has fewer than S subsets.

    Example:
        >>> from ksubset import KSubset, expectation
        >>> dist = KSubset(2, torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> expectation(lambda z: z[..., 0], dist, UnorderedSet(), num_samples=6)  # there are no more, so it is exact
        tensor(0.5613)
        >>> dist.mean[0]
        tensor(0.5613)
    """

    unbiased, min_samples = True, 2

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        return dist.sample_distinct(num_samples, generator=generator)

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        log_prob = dist.log_density(sample)
        shape = len(loss), math.prod(loss.shape[1:])
        rows, value = (x.detach().double().reshape(shape).mT for x in (log_prob, loss))
        first, second = first_two(rows)
        # Relative to one of the losses: of a constant f nothing is left, not even rounding errors.
        value = value - value[:, :1]
        weighted = -torch.expm1(rows) * (value - (second @ value[..., None]).squeeze(-1)) * first
        # A mean over the samples follows.
        weight, advantage = (len(loss) * part.mT.reshape(loss.shape) for part in (first, weighted))
        return weight.to(loss.dtype) * loss + (advantage * (log_prob - log_prob.detach())).to(loss.dtype)
