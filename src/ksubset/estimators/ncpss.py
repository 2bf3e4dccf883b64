"""Neural conditional Poisson subset sampling: subsets of about k items, of a size that can be learned."""

import numbers

import torch
from torch import Generator, Tensor

from ksubset.distributions import KSubset, SubsetDistribution
from ksubset.estimators.base import Estimator
from ksubset.numerics.checks import all_known
from ksubset.numerics.random import uniform
from ksubset.numerics.tilt import sizes

__all__ = ["NCPSS"]


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
        size: Expected size in [0, n], a number or a tensor `()` or `(*B)`, in place of the distribution's k. A tensor
            may require a gradient, as a `Parameter` does, to learn the size; a loss should then ask for small ones.
        rounds: Draws and corrections; the default is the authors'.

    Raises:
        TypeError: `size` is neither a number nor a floating-point tensor, or `rounds` no integer.
        ValueError: `rounds` is below 1; or, when used, a size is outside of [0, n].

    Example:
        >>> from ksubset import expectation
        >>> size = torch.tensor(2.0, requires_grad=True)  # the size is learned, too
        >>> dist = KSubset(2, torch.zeros(8))
        >>> expectation(lambda z: (z.sum(-1) - 5).square(), dist, NCPSS(size), num_samples=100).backward()
        >>> bool(size.grad < 0)  # larger subsets would cost less
        True
    """

    needs_gradient = reparameterized = True

    def __init__(self, size: float | Tensor | None = None, rounds: int = 5) -> None:
        super().__init__()
        if isinstance(size, numbers.Real) and not isinstance(size, bool):
            size = torch.tensor(float(size), dtype=torch.float64, device="cpu")
        if size is not None and not (isinstance(size, Tensor) and size.is_floating_point()):
            raise TypeError(f"size must be a number, a floating-point tensor or None, got {size!r}")
        if isinstance(rounds, bool) or not isinstance(rounds, numbers.Integral):
            raise TypeError(f"rounds must be an integer, got {rounds!r}")
        if rounds < 1:
            raise ValueError(f"rounds must be 1 or more, got {rounds}")
        # A parameter of the caller's becomes one of this module; any other tensor is a constant, or made by a network.
        self.size: Tensor | None = size
        self.rounds: int = int(rounds)

    def extra_repr(self) -> str:
        if self.size is None:
            return f"rounds={self.rounds}"
        size = tuple(self.size.shape) if self.size.ndim else f"{self.size.item():g}"
        return f"size={size}, rounds={self.rounds}"

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        if self.size is not None and not isinstance(dist, KSubset):
            raise TypeError(f"size takes the place of the k of a KSubset, which a {type(dist).__name__} does not have")
        drawn = [self._draw(logits, k, num_samples, generator) for logits, k in dist.to_rows(dist.logits)]
        return dist.from_rows(drawn).to(dist.logits.dtype)

    def _draw(self, logits: Tensor, k: int | Tensor, num_samples: int, generator: Generator | None) -> Tensor:
        free, included = ~logits.isinf(), logits.isposinf()
        size = sizes(k, logits) if self.size is None else _checked(self.size, logits)
        # Infinite logits fix their items, which leaves the rest to the others.
        open_places = (size.double() - included.sum(-1))[..., None]
        # In double precision, with both ends: the complement of a probability near 1 is what its gradient is made of.
        w = torch.where(free, logits, 0.0).double()
        p, absent = w.sigmoid(), (-w).sigmoid()
        q = _scaled(p, absent, free, open_places)

        def draw(probability: Tensor) -> Tensor:
            drawn = uniform(probability.shape, probability.device, probability.dtype, generator)
            return (drawn < probability).to(probability.dtype)

        with torch.no_grad():
            chosen = draw(q.expand(num_samples, *q.shape))
            for _ in range(self.rounds - 1):
                missing = open_places - chosen.sum(-1, keepdim=True)
                add = draw(_scaled(p, absent, free & (chosen == 0), missing.clamp(min=0)))
                drop = draw(_scaled(absent, p, chosen == 1, (-missing).clamp(min=0)))
                chosen = chosen + add - drop
        return torch.where(free, chosen + (q - q.detach()), included.to(q.dtype))


def _checked(size: Tensor, logits: Tensor) -> Tensor:
    n = logits.shape[-1]
    if all_known((size >= 0) & (size <= n)) is False:
        raise ValueError(f"size must be between 0 and the number of items, {n}, got {size.tolist()}")
    try:
        return size.to(logits.device).expand(logits.shape[:-1])
    except RuntimeError:
        raise ValueError(
            f"size must broadcast over the batch, {tuple(logits.shape[:-1])}, got shape {tuple(size.shape)}"
        ) from None


def _scaled(p: Tensor, absent: Tensor, allowed: Tensor, total: Tensor) -> Tensor:
    """Bernoulli parameters of the allowed items that sum to the total: p, scaled up towards 1 or down towards 0.

    Shapes: p, absent = 1 - p and allowed `(*B, n)`, total `(*B, 1)` -> `(*B, n)`.
    """
    room = allowed.sum(-1, keepdim=True).to(p.dtype)
    p, absent = torch.where(allowed, p, 0.0), torch.where(allowed, absent, 0.0)
    total = torch.minimum(total, room)
    mean, lack = p.sum(-1, keepdim=True), absent.sum(-1, keepdim=True)
    shrinks = total <= mean
    tiny = torch.finfo(p.dtype).tiny
    # The branch that is not used must have a finite gradient too, or masking it would give 0 * inf.
    down = p * (total / torch.where(shrinks, mean, 1.0).clamp(min=tiny))
    up = 1 - absent * ((room - total) / torch.where(shrinks, 1.0, lack).clamp(min=tiny))
    return torch.where(allowed, torch.where(shrinks, down, up), 0.0)
