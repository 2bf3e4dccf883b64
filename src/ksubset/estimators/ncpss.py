"""Neural conditional Poisson subset sampling: subsets of about k items, of a size that can be learned."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ksubset.distributions.ksubset import KSubset
from ksubset.estimators.base import Estimator
from ksubset.numerics.checks import all_known
from ksubset.numerics.tilt import sizes

__all__ = ["NCPSS"]


@dataclass(frozen=True, eq=False)
class NCPSS(Estimator):
    r"""Subsets of about k items by repeated Bernoulli draws, with a straight-through gradient.

    The Bernoulli parameters :math:`p = \sigma(w)` are scaled to an expected size of k,

    .. math:: q_i = p_i\, \frac{k}{\sum p} \text{ if } k \le \sum p, \qquad
              1 - q_i = (1 - p_i)\, \frac{n - k}{n - \sum p} \text{ else,}

    and drawn independently; in further rounds the items that are missing are drawn in the same way from those left
    out, and the items that are too many from those drawn. The gradient is that of q. Biased, and NOT of exactly k
    items; nor is it the same for logits that are shifted. f must be differentiable, and sees hard subsets only.

    References:
        Pervez, Lippe and Gavves (2023), Scalable Subset Sampling with Neural Conditional Poisson Networks,
        https://openreview.net/forum?id=p8hMBcPtvju; the order of the rounds follows the authors' published code.

    Arguments:
        size: Expected size, a tensor `()` or `(*B)` in [0, n] that may require a gradient, in place of the
            distribution's k; a loss should then ask for small ones.
        rounds: Draws and corrections; the default is the authors'.

    Raises:
        TypeError: `size` is no floating-point tensor, or `rounds` no integer.
        ValueError: `rounds` is below 1; or, when used, a size is outside of [0, n].
    """

    size: Tensor | None = None
    rounds: int = 5

    def __post_init__(self) -> None:
        if self.size is not None and not (isinstance(self.size, Tensor) and self.size.is_floating_point()):
            raise TypeError(f"size must be a floating-point tensor or None, got {self.size!r}")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int):
            raise TypeError(f"rounds must be an integer, got {self.rounds!r}")
        if self.rounds < 1:
            raise ValueError(f"rounds must be 1 or more, got {self.rounds}")

    def sample(self, dist: KSubset, num_samples: int) -> Tensor:
        logits = dist.logits
        dtype = torch.promote_types(logits.dtype, torch.float32)
        free = logits.isfinite()
        size = sizes(dist.k, logits) if self.size is None else _checked(self.size, dist)
        # Infinite logits fix their items, which leaves the rest to the others.
        open_places = (size.to(dtype) - logits.isposinf().sum(-1))[..., None]
        p = torch.where(free, logits, 0.0).to(dtype).sigmoid()
        q = _scaled(p, free, open_places)
        with torch.no_grad():
            chosen = _draw(q.expand(num_samples, *q.shape))
            for _ in range(self.rounds - 1):
                missing = open_places - chosen.sum(-1, keepdim=True)
                add = _draw(_scaled(p, free & (chosen == 0), missing.clamp(min=0)))
                drop = _draw(_scaled(1 - p, chosen == 1, (-missing).clamp(min=0)))
                chosen = chosen + add - drop
        sample = torch.where(free, chosen + (q - q.detach()), (logits == math.inf).to(dtype))
        return sample.to(logits.dtype)


def _checked(size: Tensor, dist: KSubset) -> Tensor:
    n = dist.event_shape[0]
    if all_known((size >= 0) & (size <= n)) is False:
        raise ValueError(f"size must be between 0 and the number of items, {n}, got {size.tolist()}")
    return size.to(dist.logits.device).expand(dist.batch_shape)


def _scaled(p: Tensor, allowed: Tensor, total: Tensor) -> Tensor:
    """Bernoulli parameters of the allowed items that sum to the total: p, scaled up towards 1 or down towards 0.

    Shapes: p, allowed `(*B, n)`, total `(*B, 1)` -> `(*B, n)`.
    """
    room = allowed.sum(-1, keepdim=True).to(p.dtype)
    p = torch.where(allowed, p, 0.0)
    total = torch.minimum(total, room)
    mean = p.sum(-1, keepdim=True)
    tiny = torch.finfo(p.dtype).tiny
    down = p * (total / mean.clamp(min=tiny))
    up = 1 - (1 - p) * ((room - total) / (room - mean).clamp(min=tiny))
    return torch.where(allowed, torch.where(total <= mean, down, up), 0.0)


def _draw(probability: Tensor) -> Tensor:
    return (torch.rand_like(probability) < probability).to(probability.dtype)
