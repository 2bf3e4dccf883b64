"""The tilt: the shift of the logits under which the wanted subset size is a likely one."""

import math

import torch
from torch import Tensor

from ksubset.numerics.checks import all_known, read

__all__ = ["kth_largest", "largest_size", "possible_sizes", "sizes", "tilt", "tilt_to_range"]

# Newton on the logit of the mean size converges within these steps also for mixtures of far clusters (tests); a fixed
# number keeps the computation free of host synchronisation.
_STEPS = 10
_NEAR = 1 / 16


def largest_size(k: int | Tensor, most: int) -> int:
    """The largest subset size of a batch; waits for the device where k is a tensor. Under vmap, which hides its values,
    the most that it can be.
    """
    if not isinstance(k, Tensor):
        return k
    if not k.numel():
        return 0
    largest = read(lambda: int(k.max()))
    return most if largest is None else largest


def sizes(k: int | Tensor, logits: Tensor) -> Tensor:
    """The subset size of each row, `(*B)`; filling a tensor does not make the host wait as copying a number does."""
    if isinstance(k, Tensor):
        return k.to(logits.device, torch.int64).expand(logits.shape[:-1])
    return torch.full(logits.shape[:-1], k, dtype=torch.int64, device=logits.device)


def possible_sizes(logits: Tensor, low: int | Tensor, high: int | Tensor) -> tuple[Tensor, Tensor]:
    """The ends of a range of sizes without those that infinite logits rule out, `(*B)`."""
    least, most = logits.isposinf().sum(-1), (logits > -math.inf).sum(-1)
    return torch.maximum(sizes(low, logits), least), torch.minimum(sizes(high, logits), most)


def kth_largest(logits: Tensor, k: int | Tensor) -> Tensor:
    """The k-th largest logit, or 0 where it is infinite or k is 0: the natural origin of a row's scale.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, 1)`.
    """
    n = logits.shape[-1]
    if isinstance(k, Tensor):
        ranked = logits.sort(-1, descending=True).values
        kth = ranked.gather(-1, (sizes(k, logits)[..., None] - 1).clamp(0, n - 1))
    else:
        kth = logits.kthvalue(min(n - k + 1, n), -1, keepdim=True).values
    return torch.where(kth.isfinite(), kth, 0.0)


def tilt(logits: Tensor, k: int | Tensor) -> tuple[Tensor, Tensor]:
    r"""Shift the logits so that independent Bernoulli draws have an expected sum of :math:`k - 1/2`.

    The conditional distribution given the sum does not depend on the shift, but a sum whose mean is a half-integer has
    a variance of at least 1/4, so that :math:`P(S = k)` is never small, whatever the logits.

    Items whose membership is certain come back as :math:`\pm\infty`: those that were infinite, and all the others of
    a row that leaves no choice (as many or as few items left as places). The root is bracketed around the k-th largest
    logit :math:`w_{(k)}`, within :math:`[-\log(2(n - k) + 1), \log(2k - 1)]`, however far the logits are spread.

    Arguments:
        logits: Log-odds, float64; a feasible row has at most k at +inf and at least k above -inf.
        k: Subset size, an integer or an integer tensor of shape `(*B)`.

    Raises:
        RuntimeError: An integer k is above n, or a tensor does not broadcast. Feasibility is not checked.

    Shapes:
        logits `(*B, n)` -> tilted logits `(*B, n)`, shift `(*B)`.

    Example:
        >>> tilted, shift = tilt(torch.full((4,), 9.0, dtype=torch.float64), 2)
        >>> tilted.sigmoid().sum().round(decimals=1), shift.round(decimals=1)
        (tensor(1.5000, dtype=torch.float64), tensor(-9.5000, dtype=torch.float64))
    """
    size = sizes(k, logits)[..., None]
    finite = logits.isfinite()
    to_choose = size - logits.isposinf().sum(-1, keepdim=True)
    choices = finite.sum(-1, keepdim=True)
    tilted, shift = _shifted(logits, k, (to_choose <= 0) | (to_choose >= choices))
    tilted = torch.where(finite & (to_choose <= 0), -math.inf, tilted)
    tilted = torch.where(finite & (to_choose >= choices), math.inf, tilted)
    return tilted, shift


def tilt_to_range(logits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Shift the logits only as far as it takes for an expected sum within :math:`[low - 1/2, high - 1/2]`.

    Arguments:
        logits: Log-odds, float64.
        low: The smallest of the `possible_sizes`.
        high: The largest of them.

    Shapes:
        logits `(*B, n)`, low and high `(*B)` -> tilted logits `(*B, n)`, shift `(*B)`, and the end of the range that
        the shift leads to, `(*B)`.
    """
    finite, forced = logits.isfinite(), logits.isposinf().sum(-1)
    possible = forced + finite.sum(-1)
    expected = logits.sigmoid().sum(-1)
    # Where all that is possible is allowed, nothing limits the draws.
    below, above = expected < low - 0.5, (expected > high - 0.5) & (high < possible)
    reference = torch.where(above, high, low)
    none, every = (high == forced)[..., None], (low == possible)[..., None]
    free = (~(below | above))[..., None] | none | every
    tilted, shift = _shifted(logits, reference, free)
    # Where next to no shift is needed, one that is nearly right may have the wrong sign.
    free = free | torch.where(above, shift > 0, shift < 0)[..., None]
    tilted, shift = torch.where(free, logits, tilted), torch.where(free.squeeze(-1), 0.0, shift)
    tilted = torch.where(finite & none, -math.inf, torch.where(finite & every, math.inf, tilted))
    return tilted, shift, reference


def _shifted(logits: Tensor, k: int | Tensor, settled: Tensor) -> tuple[Tensor, Tensor]:
    """Logits with an expected sum of k - 1/2, and their shift, but for settled rows, which nobody waits for."""
    n = logits.shape[-1]
    size = sizes(k, logits).to(logits.dtype)[..., None]
    kth = kth_largest(logits, k)
    centred = logits - kth
    low = -torch.log(2 * (n - size) + 1)
    high = torch.log((2 * size - 1).clamp(min=1))
    shift = torch.zeros_like(kth)
    target = size - 0.5
    for _ in range(_STEPS):
        p = torch.sigmoid(centred + shift)
        mean = p.sum(-1, keepdim=True)
        variance = mean - p.square().sum(-1, keepdim=True)
        # The formulas hold for any shift, so near is good enough; off the CPU, asking would cost more than it saves.
        if logits.is_cpu and all_known(settled | ((mean - target).abs() < _NEAR)):
            break
        too_small = mean < target
        low = torch.where(too_small, shift, low)
        high = torch.where(too_small, high, shift)
        gap = torch.log(target * (n - mean) / (mean * (n - target)))
        newton = shift + gap * mean * (n - mean) / (n * variance)
        inside = (newton >= low) & (newton <= high)
        shift = torch.where(inside, newton, (low + high) / 2)
    return centred + shift, (shift - kth).squeeze(-1)
