"""The nodes of the quadrature and their weights; `ksubset.numerics.quadrature` says why so few suffice."""

import math

import torch
from torch import Tensor

__all__ = ["number_of_nodes", "rule"]

# Items multiplied as polynomials before the result is evaluated at the nodes; a power of two.
_GROUP = 8


def rule(
    flip: Tensor, majority: Tensor, low: Tensor, high: Tensor | None, price: Tensor, exponent: float, nodes: int
) -> tuple[Tensor, ...]:
    """P(S = low), or its sum over a range of sizes, and for each node sin(t/2), cos(t/2) and the parts of its weight.

    In a range each item beyond the end at which nothing is paid has a factor of `exp(-|price|)`.

    Shapes:
        flip and majority `(*B, n)`, low, high and price `(*B)` -> `(*B)`, then `(*B, J)` four times.
    """
    n = flip.shape[-1]
    variance = (flip * (1 - flip)).sum(-1, keepdim=True)
    period = exponent / 3 + torch.sqrt(exponent**2 / 9 + 2 * exponent * variance)
    # Sizes are counted by deviations.
    end = (low - majority.sum(-1))[..., None]
    if high is not None:
        # Of a range all that is probable, and none of it may be the alias of anything that is probable.
        mean = torch.where(majority, -flip, flip).sum(-1, keepdim=True)
        first = torch.maximum(end.double(), (mean - period).floor())
        last = torch.minimum((high - majority.sum(-1))[..., None].double(), (mean + period).ceil())
        price, number = price[..., None], last - first + 1
        end = torch.where(price < 0, last, first)
        period, nodes = period + torch.maximum(mean - first, last - mean), 2 * nodes + 1
    # Odd, so that no node falls on t = pi, where a factor with r = 1/2 vanishes; past n + 1 there is no aliasing.
    period = (2 * torch.ceil(period / 2) + 1).clamp(max=n + 1 + n % 2)
    j = torch.arange(number_of_nodes(n, nodes), dtype=flip.dtype, device=flip.device)
    angle = 2 * math.pi * j / period
    share = torch.where(2 * j < period, torch.where(j == 0, 1.0, 2.0), 0.0)
    turn = end * angle
    value = _characteristic_function(flip, majority, angle) * torch.polar(share.to(turn.dtype), -turn)
    if high is not None:
        value = value * _geometric_series(price.abs(), torch.where(price < 0, -angle, angle), number)
    real, imag = value.real, value.imag
    # Summed before it is divided, so that a point mass has a probability of exactly 1.
    total = real.sum(-1, keepdim=True)
    return (total / period).squeeze(-1), torch.sin(angle / 2), torch.cos(angle / 2), real / total, imag / total


def number_of_nodes(n: int, most: int) -> int:
    """How many nodes a rule for n items has, the last of them without weight where the period is short."""
    return min(most, (n + 1 + n % 2) // 2 + 1)


def _geometric_series(price: Tensor, angle: Tensor, number: Tensor) -> Tensor:
    """The sum of `exp(-(price + i angle) m)` over m from 0 to number - 1, all its parts without cancellation."""

    def one_less_power(price: Tensor, angle: Tensor) -> Tensor:
        decay = torch.exp(-price)
        return torch.complex(2 * decay * torch.sin(angle / 2).square() - torch.expm1(-price), decay * torch.sin(angle))

    alone = (price == 0) & (angle == 0)
    ratio = one_less_power(number * price, number * angle) / one_less_power(torch.where(alone, 1.0, price), angle)
    return torch.where(alone, number.to(ratio.dtype), ratio)


def _characteristic_function(flip: Tensor, majority: Tensor, angle: Tensor) -> Tensor:
    """The product `prod_i (1 - r_i + r_i exp(+-i t))`, the sign being minus where `majority`.

    Groups of items are multiplied out as Laurent polynomials in `exp(i t)`, whose positive coefficients lose no
    accuracy, so that only one factor per group and node is complex.

    Shapes: flip and majority `(*B, n)`, angle `(*B, J)` -> complex `(*B, J)`.
    """
    flip = torch.nn.functional.pad(flip, (0, -flip.shape[-1] % _GROUP))
    majority = torch.nn.functional.pad(majority, (0, -majority.shape[-1] % _GROUP))
    # Coefficients lead, and an item is paired with the one half a row away: all slices are contiguous in the items.
    pmf = torch.stack([torch.where(majority, flip, 0.0), 1 - flip, torch.where(majority, 0.0, flip)])
    while (width := len(pmf)) < 2 * _GROUP + 1:
        left, right = pmf.chunk(2, -1)
        pmf = left.new_zeros(2 * width - 1, *left.shape[1:])
        for i in range(width):
            pmf[i : i + width].addcmul_(left[i], right)
    multiple = angle[..., None] * torch.arange(-_GROUP, _GROUP + 1, dtype=angle.dtype, device=angle.device)
    groups = pmf.movedim(0, -2)
    return torch.complex(torch.cos(multiple) @ groups, torch.sin(multiple) @ groups).prod(-1)
