"""ReinMax: a straight-through gradient of second order, carried over from one-hot vectors to k-subsets."""

from torch import Generator, Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator

__all__ = ["ReinMax"]


class ReinMax(Estimator):
    r"""Exact samples forward, and backward the trapezoidal rule between two of them.

    .. math:: \tfrac12 \Big((z - \pi)(z - \pi)^\top + \operatorname{Cov}(z)\Big) \nabla_z f(z)

    Biased, unless f is a polynomial of degree 2, also between the subsets: then its mean is the exact gradient, for
    every k and every distribution of this package, where `SIMPLE`, twice the second half, is exact for degree 1. f must
    be differentiable, and sees hard subsets only. It costs what `SIMPLE` does, and has more variance: take several
    samples, of which :math:`\langle z - \pi, \nabla f(z)\rangle` has a leave-one-out baseline, the mean of the others'.

    For k = 1 it is the published estimator, at its temperature of 1: with D the sample and J(p) the Jacobian of the
    softmax at the probabilities p, :math:`2 J((\pi + D)/2) - J(\pi)/2` is the matrix above. For other k it is ours, by
    the same derivation: :math:`\nabla_w E[f(z)] = \frac12 E[(z - z')(f(z) - f(z'))]` for independent z and z', where
    :math:`f(z) - f(z')` is replaced by :math:`\frac12 \langle \nabla f(z) + \nabla f(z'), z - z'\rangle` and the mean
    over z' is taken exactly. The error is the third derivative of f along :math:`z - z'`, over 12. The baseline is
    ours, too; it changes no mean.

    References:
        Liu, Dong, Liu, Yu and Gao (2023), Bridging Discrete and Backpropagation: Straight-Through and Beyond, section 3
        and algorithm 2, https://arxiv.org/abs/2304.08612.

    Example:
        >>> import torch
        >>> from ksubset import KSubset, expectation
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> dist = KSubset(2, logits)
        >>> expectation(lambda z: z[..., 0] * z[..., 1], dist, ReinMax(), num_samples=20_000).backward()
        >>> torch.allclose(logits.grad, torch.tensor([1.0, 1.0, -1.0, -1.0]) / 12, atol=0.01)  # quadratic: no bias
        True
    """

    needs_gradient = reparameterized = True

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        sample, mean = dist.sample((num_samples,), generator=generator), dist.mean
        log_prob = dist.log_density(sample)
        # Of the value 0, with the score as the gradient.
        score = (log_prob - log_prob.detach()).to(mean.dtype)[..., None]
        if num_samples > 1:
            # What a loss sends back to one sample, it now takes off the others.
            score = (score - score.mean(0)) * (num_samples / (num_samples - 1))
        return sample + 0.5 * (mean - mean.detach() + (sample - mean.detach()) * score)
