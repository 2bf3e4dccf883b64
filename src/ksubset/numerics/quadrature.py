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

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset.numerics.checks import all_known, check_feasible, check_size
from ksubset.numerics.covariance import covariance_product_of
from ksubset.numerics.nodes import rule
from ksubset.numerics.tilt import sizes, tilt, tilt_to_range

__all__ = [
    "Moments",
    "Solution",
    "attach",
    "exclusion_probabilities",
    "inclusion_probabilities",
    "log_density",
    "log_esp",
    "log_normalizer",
    "log_poisson_binomial",
    "moments",
    "solve",
]

# L of the module's docstring, and the largest number of nodes it leaves over all v (reached near v = L / 2).
_DOUBLE, _SINGLE = (38.0, 28), (20.0, 15)


# Entries of one (nodes, items) block in float64: bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20


class Moments(NamedTuple):
    """What the quadrature knows of a distribution of subsets, in float64 and differentiable.

    Shapes: tilted and flip_probability `(*B, n)`, shift, reference, price and residual `(*B)`.
    """

    tilted: Tensor
    """The logits plus the shift; +-inf for items whose membership is certain."""
    shift: Tensor
    """The constant added to the logits; no gradient."""
    reference: Tensor
    """The size k, or the end of the range that the shift leads to: the size to which it adds nothing."""
    price: Tensor
    """What each item beyond that is charged, the shift; 0 where the size is known."""
    residual: Tensor
    r"""`log e_k(exp tilted) - sum(max(tilted, 0))`: the log normaliser without its large, cancelling part."""
    flip_probability: Tensor
    """Probability of each item not to be in its majority state, the one that its tilted logit makes the likelier."""

    @property
    def deviation(self) -> Tensor:
        """The mean less the majority states, without the rounding of a mean close to 1."""
        return torch.where(self.tilted > 0, -self.flip_probability, self.flip_probability)

    @property
    def mean(self) -> Tensor:
        """The inclusion probabilities."""
        return torch.where(self.tilted > 0, 1 - self.flip_probability, self.flip_probability)


def moments(logits: Tensor, k: int | Tensor) -> Moments:
    """Run the quadrature once for subsets of k items; everything else follows from its result.

    Twice differentiable in `logits`. A row is assumed feasible: at most k logits at +inf, at least k above -inf.

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it. The error is at rounding level of their dtype.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)`.
    """
    if isinstance(k, Tensor):
        batch = torch.broadcast_shapes(k.shape, logits.shape[:-1])
        logits, k = logits.expand(*batch, -1), k.to(logits.device, torch.int64).expand(batch)
    return attach(solve(logits, k, k), logits)


class Solution(NamedTuple):
    """All that one run of the quadrature gives, in float64 and without gradients.

    Shapes: flip_probability and tilted `(*B, n)`, residual, shift, reference and price `(*B)`; the rule `(*B, J)`:
    sin(t/2) and cos(t/2) of the nodes, and the parts of their weights `Phi(t) exp(-i d t) / (N P)`, or sums of it.
    """

    residual: Tensor
    flip_probability: Tensor
    tilted: Tensor
    shift: Tensor
    reference: Tensor
    price: Tensor
    sine: Tensor
    cosine: Tensor
    real: Tensor
    imag: Tensor

    @property
    def rule(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The nodes and their weights."""
        return self.sine, self.cosine, self.real, self.imag


def solve(logits: Tensor, low: int | Tensor, high: int | Tensor) -> Solution:
    """Run the quadrature in float64, to the precision of the logits' dtype, for subsets of `low` to `high` items.

    Arguments:
        logits: Log-odds `(*B, n)`.
        low: Smallest size, an integer or `(*B)`.
        high: Largest size; the very same object as `low` where the size is known, which takes half the nodes.
    """
    precision = _DOUBLE if logits.dtype == torch.float64 else _SINGLE
    arguments = logits.detach().double(), low, None if low is high else high, precision
    # Custom functions bring a rule for vmap, which torch.compile refuses, and needs not.
    return Solution(*(_solve(*arguments) if torch.compiler.is_compiling() else _Solve.apply(*arguments)))


def attach(s: Solution, logits: Tensor) -> Moments:
    """What a solution says of the logits that it is of, with their gradients; as often as it is asked for."""
    double = logits.double()
    function = _Attach if torch.compiler.is_compiling() else _TransformableAttach
    residual, flip_probability = function.apply(double, s.residual, s.flip_probability, s.tilted, *s.rule)
    # The gradient is that of the logits, the value that of the tilt, which has not been rounded at their common size.
    free = torch.where(s.tilted.isinf(), 0.0, double)
    return Moments(s.tilted + (free - free.detach()), s.shift, s.reference, s.price, residual, flip_probability)


def log_esp(m: Moments, logits: Tensor) -> Tensor:
    """The log normaliser, `log e_k(exp logits)` or that of a range, from the moments of these very logits, in float64.

    Shapes:
        logits `(*B, n)` -> `(*B)`.
    """
    majority = m.tilted > 0
    excess = majority.sum(-1) - m.reference
    return torch.where(majority, logits.double(), 0.0).sum(-1) + excess * m.shift + m.residual


def log_normalizer(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Log elementary symmetric polynomial, :math:`\log e_k(\exp(\text{logits}))`.

    Its gradient is the vector of inclusion probabilities, its Hessian their covariance.

    Arguments:
        logits: Log-odds; see `moments`. With a logit of +inf the result is +inf.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B)`.
    """
    check_size(logits, k)
    check_feasible(logits, k)
    return log_esp(moments(logits, k), logits).to(logits.dtype)


def inclusion_probabilities(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Probability of each item to be in the subset, :math:`\pi = \nabla \log e_k(\exp(\text{logits}))`.

    Small probabilities keep their relative accuracy; for `1 - pi` near 0 take `exclusion_probabilities`.

    Arguments:
        logits: Log-odds; see `moments`.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`.
    """
    check_size(logits, k)
    check_feasible(logits, k)
    return moments(logits, k).mean.to(logits.dtype)


def exclusion_probabilities(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Probability of each item not to be in the subset, :math:`1 - \pi`, with relative accuracy where it is small.

    The complement of a k-subset has logits `-w` and size `n - k`.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`.
    """
    check_size(logits, k)
    check_feasible(logits, k)
    return moments(-logits, logits.shape[-1] - k).mean.to(logits.dtype)


def log_poisson_binomial(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Log-probability of a sum of independent Bernoulli draws to be k, :math:`\log P(\sum_i b_i = k)`.

    The quantity that the paper takes from a Fourier transform (equation 2), here without underflow: only where k is
    impossible, because of infinite logits, it is -inf. Its gradient is `pi - sigmoid(logits)`.

    Arguments:
        logits: Log-odds of the draws.
        k: The sum, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` says, or a logit is NaN.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B)`.
    """
    check_size(logits, k)
    if all_known(~logits.isnan()) is False:
        raise ValueError("logits must not be NaN")
    size = k.to(logits.device, torch.int64) if isinstance(k, Tensor) else k
    impossible = (logits.isposinf().sum(-1) > size) | ((logits > -math.inf).sum(-1) < size)
    # An impossible row is replaced by one that has a finite result and no gradient.
    safe = torch.where(impossible[..., None], 0.0, logits)
    m = moments(safe, k)
    majority = m.tilted > 0
    excess = majority.sum(-1) - m.reference
    own = torch.nn.functional.logsigmoid(torch.where(majority, safe, -safe).double()).sum(-1)
    return torch.where(impossible, -math.inf, own + excess * m.shift + m.residual).to(logits.dtype)


def log_density(deviation: Tensor, m: Moments) -> Tensor:
    r"""The exponent :math:`\langle w, z\rangle - \log e_k(\exp w)` of the family, for a point z of the support's hull.

    The point is given by its difference to the majority states, `deviation = z - [tilted > 0]`. At a k-hot vector this
    is its log-probability, at `m.deviation` it is the negative entropy. All terms of the sum have one sign, so nothing
    cancels when `<w, z>` and the normaliser are both large. A point that contradicts a certain item scores -inf.

    Shapes:
        deviation `(*S, *B, n)`, m of batch shape `(*B)` -> `(*S, *B)`.
    """
    fixed = m.tilted.isinf()
    exponent = (deviation * torch.where(fixed, 0.0, m.tilted)).sum(-1) - m.residual
    excess = deviation.sum(-1) + (m.tilted > 0).sum(-1) - m.reference
    # The mean excess is nothing where each further item costs so much, and its rounding must not be multiplied.
    excess = torch.where(m.price.abs() < 64, excess, excess.round())
    exponent = exponent - torch.where(m.price == 0, 0.0, m.price * excess)
    # Rounding may leave a point mass at log-probability 1e-16; a probability above one would be worse than the ulp.
    exponent = exponent - exponent.detach().clamp(min=0)
    return torch.where((fixed & (deviation != 0)).any(-1), -math.inf, exponent)


def _solve(logits: Tensor, low: int | Tensor, high: int | Tensor | None, precision: tuple[float, int]) -> Any:
    """The fields of a `Solution`, of float64 logits; `high` is None where `low` is the size."""
    if high is None:
        tilted, shift = tilt(logits, low)
        first = reference = sizes(low, logits)
        last, price = None, torch.zeros_like(shift)
    else:
        first, last = sizes(low, logits), sizes(high, logits)
        tilted, shift, reference = tilt_to_range(logits, first, last)
        price = torch.where(first < last, shift, 0.0)
    flip, majority = torch.sigmoid(-tilted.abs()), tilted > 0
    probability, sine, cosine, real, imag = rule(flip, majority, first, last, price, *precision)
    residual = torch.log(probability) - torch.log1p(-flip).sum(-1)
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
    return residual, flip_probability, tilted, shift, reference, price, sine, cosine, real, imag


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


class _Attach(torch.autograd.Function):
    """The residual and the flip probability of a solution as functions of its logits.

    The gradient of the residual is the signed flip probability, `mean - [tilted > 0]`; that of the mean the covariance.
    With the tilt held fixed the shift drops out of both, because the distribution does not depend on it.
    """

    # Each argument by its name: torch.compile misplaces the outputs of a function with `*rule`.
    @staticmethod
    def forward(
        logits: Tensor,
        residual: Tensor,
        flip_probability: Tensor,
        tilted: Tensor,
        sine: Tensor,
        cosine: Tensor,
        real: Tensor,
        imag: Tensor,
    ) -> tuple[Tensor, Tensor]:
        return residual.clone(), flip_probability.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        logits, _, _, tilted, *rule = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, output[1], tilted, *rule)
        ctx.save_for_forward(logits, output[1], tilted, *rule)

    @staticmethod
    def backward(ctx: Any, grad_residual: Tensor | None, grad_flip: Tensor | None) -> tuple[Any, ...]:
        logits, flip_probability, tilted, *rule = ctx.saved_tensors
        sign = torch.where(tilted > 0, -1.0, 1.0)
        grad = None
        if grad_residual is not None:
            grad = grad_residual[..., None] * sign * flip_probability
        if grad_flip is not None:
            product = covariance_product_of(logits, flip_probability, tilted, *rule, sign * grad_flip)
            grad = product if grad is None else grad + product
        return grad, *(None,) * 7


class _TransformableAttach(_Attach):
    """The same with rules for `torch.func`."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        logits, flip_probability, tilted, *rule = ctx.saved_tensors
        sign = torch.where(tilted > 0, -1.0, 1.0)
        product = covariance_product_of(logits, flip_probability, tilted, *rule, tangent)
        return (tangent * sign * flip_probability).sum(-1), sign * product

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        moved = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(arguments, in_dims, strict=True)
        )
        return _TransformableAttach.apply(*moved), (0, 0)
