r"""The normaliser and the inclusion probabilities of the k-subset distribution in O(n), from one short quadrature.

For logits `w` and subsets `z` of size k, `log p(z) = <w, z> - log e_k(exp w)` with the elementary symmetric polynomial
`e_k`. After the tilt (`ksubset.numerics.tilt`) every item has a majority state `h_i` and a flip probability
`r_i <= 1/2`; a subset has size k exactly if the signed number of deviations is `d = k - sum(h)`, and

    P(S = k) = (1/N) sum_j Phi(t_j) exp(-i d t_j),    Phi(t) = prod_i g_i(t),    g_i(t) = 1 - r_i + r_i exp(+-i t),

at `t_j = 2 pi j / N`, for any N: the only error is aliasing, `P(S = k + m N)` summed over `m != 0`. Bernstein's
inequality bounds it by `exp(-L)` for `N = L/3 + sqrt(L^2/9 + 2 L v)` with `v = sum r_i (1 - r_i)`, and
`|Phi(t)| <= exp(-2 v sin^2(t/2))` makes the nodes with `sin^2(t/2) > L / (2 v)` as negligible. What remains are at most
28 complex nodes in float64 and 15 in float32, whatever n and k are.

A size that is only known to lie in a range, `low <= S <= high`, needs the sum of such probabilities, which is a
geometric series under each node, and twice the nodes. With the tilted draws of shift c,

    sum_{k = low}^{high} e_k(exp w) = prod_i (1 + exp(w_i + c)) sum_k exp(-c k) P_c(S = k),

where c is 0 if the expected size of the untilted draws lies in the range, and otherwise moves it to the nearest end:
the terms then fall from there, and none of them is large and cancels.

The closed form of the Poisson-binomial probability is by Fernandez and Williams (2010),
https://doi.org/10.1109/TAES.2010.5461658; the tilt and the truncation are what makes it exact and short.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset.numerics import compiled, recursion
from ksubset.numerics.nodes import number_of_nodes, rule
from ksubset.numerics.tilt import possible_sizes, sizes, tilt, tilt_to_range

__all__ = ["Solution", "solve"]

# L of the module's docstring, and the largest number of nodes it leaves over all v (reached near v = L / 2).
_DOUBLE, _SINGLE = (38.0, 28), (20.0, 15)
# The compiled loops run on one thread. On more threads than this eager torch is faster, but for so few items that its
# calls cost more.
_THREADS, _FEW = 2, 2**14
# Entries of one (nodes, items) block in float64: bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20


class Solution(NamedTuple):
    """All that is known of a distribution of subsets, in float64 and without gradients.

    Shapes: flip_probability and tilted `(*B, n)`, residual, shift, reference and price `(*B)`; the rule `(*B, J)`:
    sin(t/2) and cos(t/2) of the nodes, and the parts of their weights `Phi(t) exp(-i d t) / (N P)`, or sums of it.
    Without a rule the sine is None, and the other parts, too; `completed` adds it.
    """

    residual: Tensor
    log_normalizer: Tensor
    flip_probability: Tensor
    tilted: Tensor
    shift: Tensor
    reference: Tensor
    price: Tensor
    sine: Tensor | None = None
    cosine: Tensor | None = None
    real: Tensor | None = None
    imag: Tensor | None = None

    @property
    def rule(self) -> tuple[Any, ...]:
        """The nodes and their weights; four times None if there is none."""
        return self.sine, self.cosine, self.real, self.imag

    def completed(self) -> "Solution":
        """The same distribution with a rule, and with the tilt that the rule is of."""
        if self.sine is not None:
            return self
        other = Solution(*_solve(self.tilted, self.reference, None, _SINGLE))
        return other._replace(log_normalizer=self.log_normalizer, shift=self.shift + other.shift)


def solve(logits: Tensor, low: int | Tensor, high: int | Tensor) -> Solution:
    """Solve in float64, to the precision of the logits' dtype, for subsets of `low` to `high` items.

    By the quadrature, or where rows are short and many by the recursion, which has no rule.

    Arguments:
        logits: Log-odds `(*B, n)`.
        low: Smallest size, an integer or `(*B)`.
        high: Largest size; the very same object as `low` where the size is known, which takes half the nodes.
    """
    if low is high and recursion.applies(logits, low):
        return _by_recursion(logits.detach(), low)
    precision = _DOUBLE if logits.dtype == torch.float64 else _SINGLE
    arguments = logits.detach().double(), low, None if low is high else high, precision
    if low is high and _loops_are_faster(logits):
        return _by_loops(arguments[0], low, precision)
    # Custom functions bring a rule for vmap, which torch.compile refuses, and needs not.
    return Solution(*(_solve(*arguments) if torch.compiler.is_compiling() else _Solve.apply(*arguments)))


def _loops_are_faster(logits: Tensor) -> bool:
    return compiled.usable(logits) and (torch.get_num_threads() <= _THREADS or logits.numel() <= _FEW)


def _by_recursion(logits: Tensor, k: int | Tensor) -> Solution:
    *fields, clear = recursion.solve_short(logits, k)
    size = sizes(k, logits)
    if not clear.all():
        rest = logits[~clear].double(), size[~clear]
        others = _by_loops(*rest, _SINGLE) if _loops_are_faster(rest[0]) else _solve(*rest, None, _SINGLE)
        for field, value in zip(fields, others[: len(fields)], strict=True):
            field[~clear] = value
    residual, log_normalizer, flip_probability, tilted, shift = fields
    price = torch.zeros_like(shift)
    return Solution(residual, log_normalizer, flip_probability, tilted, shift, size, price)


def _by_loops(logits: Tensor, k: int | Tensor, precision: tuple[float, int]) -> Solution:
    from ksubset.numerics.compiled.quadrature import solve_rows  # noqa: PLC0415 - numba takes a second to import

    n, size = logits.shape[-1], sizes(k, logits)
    rows = logits.reshape(-1, n).contiguous().numpy(), size.reshape(-1).contiguous().numpy()
    *parts, clear = solve_rows(*rows, precision[0], number_of_nodes(n, precision[1]))
    of_item, of_row, nodes = (torch.from_numpy(x) for x in parts)
    tilted, flip_probability = of_item.view(2, *logits.shape)
    residual, log_normalizer, shift, price = of_row.view(4, *size.shape)
    of_node = nodes.view(4, *size.shape, nodes.shape[-1])
    fields = residual, log_normalizer, flip_probability, tilted, shift, size, price, *of_node
    if not clear.all():
        others = torch.from_numpy(~clear).view(size.shape)
        for field, value in zip(fields, _solve(logits[others], size[others], None, precision), strict=True):
            if field is not size:  # known already, and a view where it is the caller's
                field[others] = value
    return Solution(*fields)


def _solve(logits: Tensor, low: int | Tensor, high: int | Tensor | None, precision: tuple[float, int]) -> Any:
    """The fields of a `Solution`, of float64 logits; `high` is None where `low` is the size."""
    if high is None:
        tilted, shift = tilt(logits, low)
        first = reference = sizes(low, logits)
        last, price = None, torch.zeros_like(shift)
    else:
        first, last = possible_sizes(logits, low, high)
        tilted, shift, reference = tilt_to_range(logits, first, last)
        price = torch.where(first < last, shift, 0.0)
    flip, majority = torch.sigmoid(-tilted.abs()), tilted > 0
    probability, sine, cosine, real, imag = rule(flip, majority, first, last, price, *precision)
    residual = torch.log(probability) - torch.log1p(-flip).sum(-1)
    # With a logit of +inf the sum is infinite, and so is the normaliser.
    positive = torch.where(majority, logits, 0.0).sum(-1)
    log_normalizer = positive + (majority.sum(-1) - reference) * shift + residual
    sign = torch.where(majority, -1.0, 1.0)
    moment = torch.stack([real, 2 * sine.square() * real, 2 * sine * cosine * imag], dim=-2)
    squared = cosine.square()[..., None]
    parts = []
    # A program that is exported must not depend on the number of rows.
    block = logits.shape[-1] if torch.compiler.is_exporting() else max(1, _BLOCK // max(1, sine.numel()))
    for r, s in zip(*(x.split(block, -1) for x in (flip, sign)), strict=True):
        # |g|^2 = (1 - 2r)^2 + 4 r (1 - r) cos^2(t/2): a sum of squares, exact also near t = pi.
        factor = torch.addcmul((1 - 2 * r).square()[..., None, :], (4 * r * (1 - r))[..., None, :], squared)
        a, b, c = (moment @ factor.reciprocal_()).unbind(-2)
        parts.append(r * (a - (1 - r) * (b + s * c)))
    # The clamp takes off rounding errors of 1e-16 alone, and adding 0 the sign of a zero.
    flip_probability = torch.cat(parts, -1).clamp(0, 1) + 0.0
    return residual, log_normalizer, flip_probability, tilted, shift, reference, price, sine, cosine, real, imag


class _Solve(torch.autograd.Function):
    """`_solve` with a rule for vmap: its own operations would not all pass through one."""

    @staticmethod
    def forward(
        logits: Tensor, low: int | Tensor, high: int | Tensor | None, precision: tuple[float, int]
    ) -> tuple[Tensor, ...]:
        fields: tuple[Tensor, ...] = _solve(logits, low, high, precision)
        return fields

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        logits: Tensor,
        low: int | Tensor,
        high: int | Tensor | None,
        precision: tuple[float, int],
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        logits = logits.expand(info.batch_size, *logits.shape) if in_dims[0] is None else logits.movedim(in_dims[0], 0)
        if isinstance(low, Tensor) and in_dims[1] is not None:
            low = low.movedim(in_dims[1], 0)
        if isinstance(high, Tensor) and in_dims[2] is not None:
            high = high.movedim(in_dims[2], 0)
        return _Solve.apply(logits, low, high, precision), (0,) * len(Solution._fields)
