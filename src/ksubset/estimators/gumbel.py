"""Relaxed and straight-through Gumbel top-k: differentiable samples of a neighbouring distribution."""

from torch import Generator, Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator, positive
from ksubset.numerics.topk import gumbel_keys, relaxed_top_k, top_k

__all__ = ["GumbelTopK"]


class GumbelTopK(Estimator):
    """Relaxed top-k of logits plus Gumbel noise (GS); with `straight_through`, hard samples and its gradient (STGS).

    Biased twice: the samples are relaxed, and as the noise vanishes they are drawn without replacement in sequence,
    which is not the k-subset distribution. f must be differentiable, and without `straight_through` accept fractions.
    It costs O(n k), also where k is close to n. Noise and softmaxes are computed in float32 at least, but gradients
    grow as powers of 1 / temperature: at low temperatures beyond the range of float16 logits, so take others there.

    References:
        Xie and Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations,
        https://arxiv.org/abs/1901.10517.

    Arguments:
        temperature: Above 0; towards 0 the samples become hard and the gradient's variance grows.
        straight_through: Whether to return exactly k-hot samples, the k largest keys, with the relaxed gradient.

    Raises:
        TypeError: The temperature is no number, as which no tensor counts, or `straight_through` is no bool.
        ValueError: The temperature is not positive or not finite.

    Example:
        >>> import torch
        >>> from ksubset import KSubset
        >>> dist = KSubset(2, torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> GumbelTopK(0.5).sample(dist, 100).sum(-1).allclose(torch.tensor(2.0))  # fractions, that sum to k
        True
        >>> GumbelTopK(0.5, straight_through=True).sample(dist, 100).unique()
        tensor([0., 1.])
    """

    needs_gradient = reparameterized = True

    def __init__(self, temperature: float, straight_through: bool = False) -> None:
        super().__init__()
        self.temperature: float = positive("temperature", temperature)
        if not isinstance(straight_through, bool):
            raise TypeError(f"straight_through must be a bool, got {straight_through!r}")
        self.straight_through: bool = straight_through

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}" + ", straight_through=True" * self.straight_through

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        hard, relaxed = [], []
        for logits, k in dist.to_rows(dist.logits):
            keys = gumbel_keys(logits, k, num_samples, generator)
            relaxed.append(relaxed_top_k(keys, k, self.temperature))
            hard.append(top_k(keys.detach(), k))
        soft = dist.from_rows(relaxed)
        if self.straight_through:
            soft = dist.from_rows(hard) + (soft - soft.detach())
        return soft.to(dist.logits.dtype)
