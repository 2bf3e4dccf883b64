r"""Short rows by the recursion of the elementary symmetric polynomials, where that takes less than the quadrature.

With weights `u_i = exp(w_i - max w)` and `g_i(j)` the factor with which `a_i(j) = e_j(u_1, ..., u_i)` enters e_k:

    a_i(j) = a_{i-1}(j) + u_i a_{i-1}(j - 1),    g_{i-1}(j) = g_i(j) + u_i g_i(j + 1),
    pi_i e_k = u_i sum_j a_{i-1}(j - 1) g_i(j),    (1 - pi_i) e_k = sum_j a_{i-1}(j) g_i(j).

All terms are positive, so nothing cancels, and the gradient takes no graph. No tilt is needed: any shift is valid, and
here it is the one between the logits of items that are rather in the subset and those of items that are rather not.
"""

import math

import torch
from torch import Tensor

from ksubset.numerics import compiled
from ksubset.numerics.checks import inside_transform
from ksubset.numerics.compiled import CLEAR, SMALL, TINY
from ksubset.numerics.tilt import largest_size, sizes

__all__ = ["applies", "differentiate_short", "solve_short"]

# Entries of a row's table, and rows, with which it has the better of the quadrature: compiled loops do 64 rows at once,
# and in eager torch each item is a step of its own.
_COMPILED, _EAGER = (2**15, 32), (2**11, 512)


def applies(logits: Tensor, k: int | Tensor) -> bool:
    """Whether it is the faster way: for float32 and less, of which it has all digits, and at most half of the items."""
    if torch.compiler.is_compiling() or inside_transform() or logits.dtype == torch.float64 or not logits.numel():
        return False
    if isinstance(k, Tensor) and not k.is_cpu:
        return False
    n, most = logits.shape[-1], largest_size(k, logits.shape[-1])
    least = int(k.min()) if isinstance(k, Tensor) else k
    if not 1 <= least <= most <= max(n // 2, 1):
        return False
    entries, rows = _COMPILED if compiled.usable(logits) else _EAGER
    return n * (most + 1) <= entries and logits.numel() >= rows * n


def solve_short(logits: Tensor, k: int | Tensor) -> tuple[Tensor, ...]:
    """Residuals, log normalisers, flip probabilities, tilted logits, shifts, and which rows have them: others are for
    the quadrature.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B)` twice, `(*B, n)` twice, `(*B)` twice.
    """
    double = logits.double()
    largest = double.amax(-1)
    relative = double - largest[..., None]
    size = sizes(k, logits)
    solve_rows = _compiled if compiled.usable(logits) else _eager
    tilted, flip, total, origin, residual, clear = solve_rows(relative.exp(), relative, size)
    return residual, total.log() + size * largest, flip, tilted, -largest - origin, clear


def differentiate_short(tilted: Tensor, flip: Tensor, size: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance times a vector, and which rows have it: others are for the quadrature.

    Only by compiled loops: without them the quadrature is faster.

    Shapes:
        tilted and flip `(*B, n)`, size `(*B)`, vector `(*V, *B, n)` -> `(*V, *B, n)`, `(*V, *B)`.
    """
    from ksubset.numerics.compiled.products import differentiate_rows  # noqa: PLC0415 - numba takes a second to import

    n = tilted.shape[-1]
    batch = torch.broadcast_shapes(tilted.shape, vector.shape)[:-1]
    wide = [x.detach().double().expand(*batch, n).reshape(-1, n) for x in (tilted, flip, vector)]
    sizes = size.expand(batch).reshape(-1)
    product, clear = torch.empty_like(wide[0]), torch.empty_like(sizes, dtype=torch.bool)
    arguments = (wide[0], wide[1], sizes, wide[2], product, clear)
    differentiate_rows(*(x.numpy() for x in arguments))
    return product.view(*batch, n), clear.view(batch)


def _compiled(weight: Tensor, relative: Tensor, size: Tensor) -> tuple[Tensor, ...]:
    from ksubset.numerics.compiled.recursion import solve_rows  # noqa: PLC0415 - numba takes a second to import

    n = weight.shape[-1]
    flip = torch.empty_like(weight)
    total, origin, residual = weight.new_empty(3, *size.shape)
    clear = torch.empty_like(size, dtype=torch.bool)
    rows = [weight.reshape(-1, n), relative.view(-1, n), size.reshape(-1), flip.view(-1, n)]
    solve_rows(*(x.numpy() for x in (*rows, total.view(-1), origin.view(-1), residual.view(-1), clear.view(-1))))
    return relative, flip, total, origin, residual, clear


def _eager(weight: Tensor, relative: Tensor, size: Tensor) -> tuple[Tensor, ...]:
    # Sizes lead, so that all slices are contiguous in the rows.
    place = torch.arange(int(size.max()) + 1, device=size.device).reshape(-1, *(1,) * size.ndim)
    steps = weight.movedim(-1, 0).contiguous()
    before = [torch.where(place == 0, torch.ones_like(weight[..., 0]), 0.0)]
    for u in steps:
        last = before[-1]
        before.append(torch.cat([last[:1], torch.addcmul(last[1:], u, last[:-1])]))
    total = before.pop().gather(0, size[None]).squeeze(0)
    after = torch.where(place == size, 1 / total, 0.0)
    chances, others = [], []
    for u, a in zip(reversed(steps), reversed(before), strict=True):
        chances.append(u * (a[:-1] * after[1:]).sum(0))
        others.append((a * after).sum(0))
        after = torch.cat([torch.addcmul(after[:-1], u, after[1:]), after[-1:]])
    chance, other = torch.stack(chances[::-1], -1), torch.stack(others[::-1], -1)

    chosen = chance > 0.5
    least = torch.where(chosen, relative, math.inf).amin(-1)
    most = torch.where(chosen, -math.inf, relative).amax(-1)
    origin = torch.where(least.isinf(), 0.0, torch.where(most.isinf(), least - 1, (least + most) / 2))
    tilted = relative - origin[..., None]
    residual = total.log() - size * origin - tilted.clamp(min=0).sum(-1)
    clear = ((weight > TINY) | relative.isneginf()).all(-1) & (total > SMALL) & (residual > CLEAR)
    return tilted, torch.where(chosen, other, chance).clamp(max=1), total, origin, residual, clear
