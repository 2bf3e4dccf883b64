"""SIMPLE: exact samples forward, exact inclusion probabilities backward."""

from torch import Generator, Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator

__all__ = ["SIMPLE"]


class SIMPLE(Estimator):
    r"""The gradient of the sample, approximated by that of the inclusion probabilities.

    .. math:: \nabla_w \pi\; \nabla_z f(z) = \operatorname{Cov}(z)\, \nabla_z f(z)

    Biased, unless f is affine also between the subsets; the bias does not fall with the number of samples. f must be
    differentiable, and sees hard subsets only. The samples are exact, where published code draws them by Gumbel top-k.

    References:
        Ahmed, Zeng, Niepert and Van den Broeck (2023), SIMPLE: A Gradient Estimator for k-Subset Sampling,
        https://arxiv.org/abs/2210.01941.

    Example:
        >>> import torch
        >>> from ksubset import KSubset, expectation
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> expectation(lambda z: z[..., 0], KSubset(2, logits), SIMPLE()).backward()  # linear: one sample is exact
        >>> logits.grad
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
    """

    needs_gradient = reparameterized = True

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        mean = dist.mean
        return dist.sample((num_samples,), generator=generator) + (mean - mean.detach())
