"""Score-function estimators: unbiased, with exact samples, for any f."""

import torch
from torch import Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator

__all__ = ["LeaveOneOut", "ScoreFunction"]


class ScoreFunction(Estimator):
    r"""The score-function estimator, SFESS of the paper.

    .. math:: \frac{1}{S} \sum_s f(z_s)\, \nabla \log p(z_s), \qquad \nabla_w \log p(z) = z - \pi

    References:
        Wijk, Vinuesa and Azizpour (2024), section 2, https://arxiv.org/abs/2407.16058.
        Williams (1992), https://doi.org/10.1007/BF00992696.

    Example:
        >>> from ksubset import KSubset, expectation
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> dist = KSubset(2, logits)
        >>> loss = expectation(lambda z: z[..., 0].round(), dist, ScoreFunction(), num_samples=20_000)
        >>> loss.backward()  # rounding has no gradient, and none is needed
        >>> torch.allclose(logits.grad, dist.covariance_matrix[0].detach(), atol=0.03)
        True
    """

    unbiased = True

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        log_prob = dist.log_density(sample)
        # In single precision at least: a product in half precision would round each of the losses.
        dtype = torch.promote_types(loss.dtype, torch.float32)
        return loss + (loss.detach().to(dtype) * (log_prob - log_prob.detach()).to(dtype)).to(loss.dtype)


class LeaveOneOut(Estimator):
    r"""Score function with a leave-one-out baseline, SFESS-V of the paper.

    .. math:: \frac{1}{S} \sum_s \Big(f(z_s) - \frac{1}{S - 1} \sum_{r \neq s} f(z_r)\Big) \nabla \log p(z_s)

    Each loss is compared with the mean of the others. The advantages sum to zero, so the normaliser cancels and is
    never computed: the estimate is the sample covariance of f and z.

    References:
        Wijk, Vinuesa and Azizpour (2024), section 2, https://arxiv.org/abs/2407.16058.
        Kool, van Hoof and Welling (2019), Buy 4 REINFORCE Samples, Get a Baseline for Free!

    Example:
        >>> from ksubset import KSubset, expectation
        >>> costs = torch.tensor([3.0, 1.0, 2.0, 0.0, 4.0])
        >>> logits = torch.zeros(5, requires_grad=True)
        >>> optimizer = torch.optim.Adam([logits], lr=0.1)
        >>> for _ in range(100):
        ...     optimizer.zero_grad()
        ...     expectation(lambda z: z @ costs, KSubset(2, logits), LeaveOneOut(), num_samples=8).backward()
        ...     optimizer.step()
        >>> KSubset(2, logits).mode
        tensor([0., 1., 0., 1., 0.])
    """

    unbiased, min_samples = True, 2

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        dtype = torch.promote_types(loss.dtype, torch.float32)
        wide = loss.detach().to(dtype)
        advantage = (wide - wide.mean(0)) * (len(loss) / (len(loss) - 1))
        # Infinite logits fix their items: they have no score, and inf * 0 must not enter the sum. One that is no number
        # stays, as it must not pass for a score of 0.
        free = torch.where(dist.logits.isinf(), 0.0, dist.logits)
        free = free.to(torch.promote_types(free.dtype, torch.float32))
        # Its value is 0, whatever the size of the logits.
        score = (sample.to(free.dtype) * (free - free.detach())).sum(-1)
        return loss + (advantage * score.to(dtype)).to(loss.dtype)
