"""From inclusion probabilities back to logits."""

import math
import numbers

import torch
from torch import Tensor

from ksubset.numerics.moments import moments

__all__ = ["logits_from_marginals"]

# The error shrinks by a constant factor a step, by half or better: far more than any row needs.
_STEPS = 300


def logits_from_marginals(marginals: Tensor, tolerance: float | None = None) -> tuple[Tensor, Tensor]:
    r"""Logits and size of the k-subset distribution with given inclusion probabilities, the maximum-entropy design.

    Starting from :math:`w = \operatorname{logit} \pi^*`, the log-odds of the inclusion probabilities are matched,

    .. math:: w \leftarrow w + a\, (\operatorname{logit} \pi^* - \operatorname{logit} \pi(w)),

    which would solve for each logit exactly if the others stood still. The linearised map has eigenvalues between 0
    and 2, and with few free items some close to 2: rows that do not converge with `a` close to 1 go on with 1/2.

    References:
        Chen, Dempster and Liu (1994), section 3, https://doi.org/10.1093/biomet/81.3.457.

    Arguments:
        marginals: Inclusion probabilities in [0, 1]; 0 gives a logit of -inf, 1 one of +inf, and so do those next to
            them that the sum leaves no other choice.
        tolerance: How far their sum may be from an integer; by default 1e-5, and what rounding in their dtype adds.

    Returns:
        Logits with mean 0 over the finite ones, and the sizes, int64. No gradient flows through either.

    Raises:
        TypeError: `marginals` is no floating-point tensor, or `tolerance` no number.
        ValueError: A marginal is outside of [0, 1], a sum is further from an integer than the tolerance, or the
            tolerance is negative or not finite.
        RuntimeError: The iteration did not converge.

    Shapes:
        marginals `(*B, n)` -> `(*B, n)`, `(*B)`.

    Example:
        >>> from ksubset.numerics import inclusion_probabilities
        >>> logits, k = logits_from_marginals(torch.tensor([0.8, 0.6, 0.4, 0.2]))
        >>> k
        tensor(2)
        >>> inclusion_probabilities(logits, k)
        tensor([0.8000, 0.6000, 0.4000, 0.2000])
    """
    if not isinstance(marginals, Tensor) or not marginals.is_floating_point():
        came = marginals.dtype if isinstance(marginals, Tensor) else type(marginals).__name__
        raise TypeError(f"marginals must be a floating-point tensor, got {came}")
    if marginals.ndim == 0 or marginals.shape[-1] == 0:
        raise ValueError(f"marginals must have shape (*batch, n) with n >= 1, got {tuple(marginals.shape)}")
    if not ((marginals >= 0) & (marginals <= 1)).all():
        raise ValueError(f"marginals must lie in [0, 1], got values from {marginals.min()} to {marginals.max()}")
    if tolerance is not None:
        if isinstance(tolerance, bool) or not isinstance(tolerance, numbers.Real):
            raise TypeError(f"tolerance must be a number or None, got {tolerance!r}")
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"tolerance must be a finite number of 0 or more, got {tolerance}")
    pi = marginals.detach().double()
    total = pi.sum(-1)
    size = total.round()
    # Each of them may have been rounded by half a unit in its last place.
    rounding = torch.finfo(marginals.dtype).eps / 2 * total
    allowed = 1e-5 + rounding if tolerance is None else torch.full_like(total, tolerance)
    if ((gap := (total - size).abs()) > allowed).any():
        worst = int((gap - allowed).flatten().argmax())
        raise ValueError(
            f"marginals must sum to an integer within a tolerance of {allowed.flatten()[worst]:.1e}, "
            f"got {total.flatten()[worst]:.8g}"
        )

    k = size.long()
    free = (pi > 0) & (pi < 1)
    to_choose = (size - (pi == 1).sum(-1))[..., None]
    # Rounded marginals may leave as many places as free items, or none: these are then certain, or excluded.
    full = to_choose >= free.sum(-1, keepdim=True)
    limit = torch.where((pi == 1) | (free & full), math.inf, -math.inf)
    free = free & ~full & (to_choose > 0)
    target = torch.where(free, torch.logit(torch.where(free, pi, 0.5)), limit)
    count = free.sum(-1, keepdim=True).clamp(min=2)
    gain = (count - 1) / count
    weight = torch.where(free, pi * (1 - pi), 0.0)
    weight = weight / weight.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    # Log-odds that differ by less are the same to the precision of the marginals, or to that of the quadrature.
    goal = max(1e-13, torch.finfo(marginals.dtype).eps / 4)
    logits, before = target, torch.full_like(gain, math.inf, dtype=torch.float64)
    for _ in range(_STEPS):
        odds = moments(logits, k).mean.log() - moments(-logits, logits.shape[-1] - k).mean.log()
        gap = torch.where(free, target - odds, 0.0)
        # A shift of all logits changes nothing: that part of the gap is what the sum of the marginals is off, rounded.
        gap = torch.where(free, gap - (weight * gap).sum(-1, keepdim=True), 0.0)
        error = gap.abs().amax(-1, keepdim=True)
        if (error < goal).all():
            break
        gain = torch.where(error > before / 2, 0.5, gain)
        before = error
        logits = torch.where(free, logits + gain * gap, limit)
    else:
        raise RuntimeError(f"no logits found for these marginals: log-odds still differ by {float(error.max()):.1e}")
    centre = torch.where(free, logits, 0.0).sum(-1, keepdim=True) / free.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(free, logits - centre, limit).to(marginals.dtype), k
