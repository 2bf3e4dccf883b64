"""The unordered-set estimator: distinct subsets, each evaluated once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset.distributions.ksubset import KSubset
from ksubset.estimators.base import Estimator
from ksubset.numerics.distinct import first_two, sample_distinct
from ksubset.numerics.quadrature import log_density

__all__ = ["UnorderedSet"]


@dataclass(frozen=True)
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
    """

    unbiased, pathwise, min_samples = True, False, 2

    def sample(self, dist: KSubset, num_samples: int) -> Tensor:
        root = dist._root
        table = root._table
        # Rows that `expand` repeats are further sets of one row.
        row = torch.arange(len(table.weights), device=table.weights.device).reshape(root.batch_shape)
        chosen = sample_distinct(table, row.expand(dist.batch_shape).flatten(), num_samples)
        return chosen.movedim(1, 0).reshape(num_samples, *dist.param_shape).to(dist.logits.dtype)

    def surrogate(self, loss: Tensor, sample: Tensor, dist: KSubset) -> Tensor:
        # Not `log_prob`, whose rounding to the logits' type would be that of the weights.
        m = dist._root._moments
        log_prob = log_density(sample.double() - (m.tilted > 0).double(), m)
        rows = log_prob.detach().reshape(len(loss), -1).mT
        value = loss.detach().double().reshape(len(loss), -1).mT
        first, second = first_two(rows)
        # Relative to one of the losses: of a constant f nothing is left, not even rounding errors.
        value = value - value[:, :1]
        weighted = -torch.expm1(rows) * (value - (second @ value[..., None]).squeeze(-1)) * first
        # A mean over the samples follows.
        weight, advantage = (len(loss) * part.mT.reshape(loss.shape) for part in (first, weighted))
        return weight.to(loss.dtype) * loss + (advantage * (log_prob - log_prob.detach())).to(loss.dtype)
