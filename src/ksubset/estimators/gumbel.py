"""Relaxed and straight-through Gumbel top-k: differentiable samples of a neighbouring distribution."""

import math
import numbers
from dataclasses import dataclass

from torch import Tensor

from ksubset.distributions.ksubset import KSubset
from ksubset.estimators.base import Estimator
from ksubset.numerics.topk import gumbel_keys, relaxed_top_k, top_k

__all__ = ["GumbelTopK"]


@dataclass(frozen=True)
class GumbelTopK(Estimator):
    """Relaxed top-k of logits plus Gumbel noise (GS); with `straight_through`, hard samples and its gradient (STGS).

    Biased twice: the samples are relaxed, and as the noise vanishes they are drawn without replacement in sequence,
    which is not the k-subset distribution. f must be differentiable, and without `straight_through` accept fractions.

    References:
        Xie and Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations,
        https://arxiv.org/abs/1901.10517.

    Arguments:
        temperature: Above 0; towards 0 the samples become hard and the gradient's variance grows.
        straight_through: Whether to return exactly k-hot samples, the k largest keys, with the relaxed gradient.

    Raises:
        TypeError: The temperature is no number; a tensor, which could only be confused with a batch, is none.
        ValueError: The temperature is not positive or not finite.
    """

    temperature: float
    straight_through: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.temperature, bool) or not isinstance(self.temperature, numbers.Real):
            raise TypeError(f"temperature must be a number, got {self.temperature!r}")
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be a positive, finite number, got {self.temperature}")

    def sample(self, dist: KSubset, num_samples: int) -> Tensor:
        keys = gumbel_keys(dist.logits, num_samples)
        relaxed = relaxed_top_k(keys, dist.k, float(self.temperature))
        if not self.straight_through:
            return relaxed
        return top_k(keys.detach(), dist.k) + (relaxed - relaxed.detach())
