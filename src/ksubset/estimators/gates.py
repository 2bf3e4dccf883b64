"""Stochastic gates: clipped Gaussian gates, as many of them open on average as the subset has items."""

import math

import torch
from torch import Generator, Tensor

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator, positive
from ksubset.numerics.checks import all_known
from ksubset.numerics.tilt import sizes

__all__ = ["StochasticGates"]

# Newton within a bracket that is halved where it fails: enough also for logits that are far apart.
_STEPS = 60
_NEAR = 1e-9
# Differences of such logits are still finite.
_FAR = 1e300


class StochasticGates(Estimator):
    r"""Stochastic gates (STG), on a budget: the expected number of open gates is k.

    .. math:: z_i = \min(\max(\mu_i + \sigma \varepsilon_i, 0), 1), \quad \varepsilon_i \sim N(0, 1), \qquad
              \mu_i = w_i + c, \quad \sum_i \Phi(\mu_i / \sigma) = k

    The gates and their probability :math:`\Phi(\mu_i / \sigma)` of being open are the paper's, which adds the expected
    number of open gates to the loss, with a weight :math:`\lambda` that has to be tuned until some k are left. Here the
    shift c is solved for and differentiated through, which is the same gradient at the one :math:`\lambda` that leaves
    the expected number as it is. So a constant added to the logits changes nothing, as in a `KSubset`, and the k
    largest logits are the likeliest subset. Biased; the samples are fractions, whose sum is not k. f must be
    differentiable, and accept fractions.

    References:
        Yamada, Lindenbaum, Negahban and Kluger (2020), Feature Selection using Stochastic Gates, section 3,
        https://arxiv.org/abs/1810.04247.

    Arguments:
        sigma: Standard deviation of the noise, above 0; the default is the paper's.

    Raises:
        TypeError: `sigma` is no number.
        ValueError: `sigma` is not positive or not finite.

    Example:
        >>> from ksubset import KSubset
        >>> gates = StochasticGates().sample(KSubset(2, torch.tensor([0.5, -0.3, 1.2, 0.0])), 100_000)
        >>> torch.allclose((gates > 0).double().mean(0).sum(), torch.tensor(2.0).double(), atol=0.02)
        True
    """

    needs_gradient = reparameterized = True

    def __init__(self, sigma: float = 0.5) -> None:
        super().__init__()
        self.sigma: float = positive("sigma", sigma)

    def extra_repr(self) -> str:
        return f"sigma={self.sigma}"

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        drawn = [self._gates(logits, k, num_samples, generator) for logits, k in dist.to_rows(dist.logits)]
        return dist.from_rows(drawn).to(dist.logits.dtype)

    def _gates(self, logits: Tensor, k: int | Tensor, num_samples: int, generator: Generator | None) -> Tensor:
        free = ~logits.isinf()
        included = logits.isposinf()
        # Infinite logits fix their items, which leaves the rest to the others.
        number = (sizes(k, logits) - included.sum(-1))[..., None].double()
        w = (torch.where(free, logits, 0.0).double() / self.sigma).clamp(-_FAR, _FAR)
        mean = (w + _shift(w, free, number)).to(torch.promote_types(logits.dtype, torch.float32))
        places = mean.detach().expand(num_samples, *mean.shape)
        noise = torch.empty_like(places, memory_format=torch.contiguous_format).normal_(generator=generator)
        gates = (self.sigma * (mean + noise)).clamp(0, 1)
        # Where there is no choice, there is no gate.
        choices = free.sum(-1, keepdim=True)
        gates = torch.where(number >= choices, 1.0, torch.where(number <= 0, 0.0, gates))
        return torch.where(free, gates, included.to(gates.dtype))


def _shift(w: Tensor, free: Tensor, number: Tensor) -> Tensor:
    """The c with `sum of ndtr(w + c) = number` over the free items, differentiable; finite where there is none.

    Shapes:
        w and free `(*B, n)`, number `(*B, 1)` -> `(*B, 1)`.
    """

    def expected(shift: Tensor) -> tuple[Tensor, Tensor]:
        """The sum, and its slope, which is never 0."""
        at = w + shift
        density = torch.exp(-at.detach().square() / 2) / math.sqrt(2 * math.pi)
        total, slope = (torch.where(free, x, 0.0).sum(-1, keepdim=True) for x in (torch.special.ndtr(at), density))
        return total, slope.clamp(min=torch.finfo(w.dtype).tiny)

    with torch.no_grad():
        choices = free.sum(-1, keepdim=True)
        some = (number > 0) & (number < choices)
        # If all were equal, this would be the place of each.
        place = torch.special.ndtri(torch.where(some, number / choices, 0.5))
        low = place - torch.where(free, w, -math.inf).amax(-1, keepdim=True)
        high = place - torch.where(free, w, math.inf).amin(-1, keepdim=True)
        low, high = (torch.where(some, x, 0.0) for x in (low, high))
        shift = (low + high) / 2
        for _ in range(_STEPS):
            total, slope = expected(shift)
            excess = total - number
            if w.is_cpu and all_known(~some | (excess.abs() < _NEAR)):
                break
            low, high = torch.where(excess < 0, shift, low), torch.where(excess < 0, high, shift)
            newton = shift - excess / slope
            shift = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
    total, slope = expected(shift)
    # One more step of Newton, whose gradient is that of the root.
    return shift - torch.where(some, total - number, 0.0) / slope
