"""Deep probabilistic subsampling: hard Gumbel top-k, with the gradient of softmaxes over what is left."""

from torch import Generator, Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator, positive
from ksubset.numerics.topk import gumbel_keys, remaining_top_k, top_k

__all__ = ["DPS"]


class DPS(Estimator):
    r"""Deep probabilistic subsampling without replacement (DPS-topK).

    A sample is the k largest of the logits plus Gumbel noise, one after the other, :math:`i_1, \dots, i_k`, and its
    gradient that of

    .. math:: \sum_{j=1}^{k} \operatorname{softmax}\Big(\tfrac{1}{\tau}(w + \varepsilon) \text{ without }
              i_1, \dots, i_{j-1}\Big)

    The samples are those of `GumbelTopK` with `straight_through`, and for k = 1 the gradients, too; for larger k that
    one lowers what a softmax has chosen by :math:`\log(1 - p)`, where this one takes the item that was drawn off the
    list. So it costs O(n + k^2) in place of O(n k), and is the faster one where each example has subsets of its own.
    Biased; the samples are not those of the k-subset distribution. f must be differentiable, and sees hard subsets
    only.

    The paper's other form, k draws with replacement from k distributions (DPS-top1), is `GumbelTopK(temperature,
    straight_through=True)` on the distribution of a `ksubset.nn.ConcreteSelector`.

    References:
        Huijben, Veeling and van Sloun (2020), Deep Probabilistic Subsampling for Task-Adaptive Compressed Sensing,
        section 3, https://openreview.net/forum?id=SJeq9JBFvH.

    Arguments:
        temperature: Above 0; towards 0 the gradient's variance grows.

    Raises:
        TypeError: The temperature is no number.
        ValueError: The temperature is not positive or not finite.

    Example:
        >>> import torch
        >>> from ksubset import KSubset
        >>> dist = KSubset(2, torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> DPS(0.5).sample(dist, 100).sum(-1).unique()
        tensor([2.])
    """

    needs_gradient = reparameterized = True

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature: float = positive("temperature", temperature)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        hard, relaxed = [], []
        for logits, k in dist.to_rows(dist.logits):
            keys = gumbel_keys(logits, k, num_samples, generator)
            relaxed.append(remaining_top_k(keys, k, self.temperature))
            hard.append(top_k(keys.detach(), k))
        soft = dist.from_rows(relaxed)
        return (dist.from_rows(hard) + (soft - soft.detach())).to(dist.logits.dtype)
