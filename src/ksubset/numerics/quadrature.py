r"""The normaliser and the inclusion probabilities of the k-subset distribution in O(n), from one short quadrature.

For logits `w` and subsets `z` of size k, `log p(z) = <w, z> - log e_k(exp w)` with the elementary symmetric polynomial
`e_k`. After the tilt (`ksubset.numerics.tilt`) every item has a more likely state `h_i` and a deviation probability
`r_i <= 1/2`; a subset has size k exactly if the signed number of deviations is `d = k - sum(h)`, and

    P(S = k) = (1/N) sum_j Phi(t_j) exp(-i d t_j),    Phi(t) = prod_i g_i(t),    g_i(t) = 1 - r_i + r_i exp(+-i t),

at `t_j = 2 pi j / N`, for any N: the only error is aliasing, `P(S = k + m N)` summed over `m != 0`. Bernstein's
inequality bounds it by `exp(-L)` for `N = L/3 + sqrt(L^2/9 + 2 L v)` with `v = sum r_i (1 - r_i)`, and
`|Phi(t)| <= exp(-2 v sin^2(t/2))` makes the nodes with `sin^2(t/2) > L / (2 v)` as negligible. What remains are at most
28 complex nodes in float64 and 15 in float32, whatever n and k are.

The closed form of the Poisson-binomial probability is by Fernandez and Williams (2010),
https://doi.org/10.1109/TAES.2010.5461658; the tilt and the truncation are what makes it exact and short.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset.numerics.checks import all_known, check_feasible, check_size
from ksubset.numerics.covariance import covariance_product_of
from ksubset.numerics.tilt import sizes, tilt

__all__ = [
    "Moments",
    "Solution",
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

# Items multiplied as polynomials before the result is evaluated at the nodes; a power of two.
_GROUP = 8

# Entries of one (nodes, items) block in float64: bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20


class Moments(NamedTuple):
    """What the quadrature knows of a k-subset distribution, in float64 and differentiable.

    Shapes: tilted `(*B, n)`, shift `(*B)`, residual `(*B)`, departure `(*B, n)`.
    """

    tilted: Tensor
    """The logits plus the shift; +-inf for items whose membership is certain."""
    shift: Tensor
    """The constant added to the logits; no gradient."""
    residual: Tensor
    r"""`log e_k(exp tilted) - sum(max(tilted, 0))`: the log normaliser without its large, cancelling part."""
    departure: Tensor
    """Probability of each item not to be in the state that its tilted logit makes the likelier one."""

    @property
    def change(self) -> Tensor:
        """The mean less the likelier states, without the rounding of a mean close to 1."""
        return torch.where(self.tilted > 0, -self.departure, self.departure)

    @property
    def mean(self) -> Tensor:
        """The inclusion probabilities."""
        return torch.where(self.tilted > 0, 1 - self.departure, self.departure)


def moments(logits: Tensor, k: int | Tensor) -> Moments:
    """Run the quadrature once; everything else follows from its result.

    Twice differentiable in `logits`. A row is assumed feasible: at most k logits at +inf, at least k above -inf.

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it. The error is at rounding level of their dtype.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)`.
    """
    double, residual, departure, tilted, shift, *_ = solve(logits, k)
    # The gradient is that of the logits, the value that of the tilt, which has not been rounded at their common size.
    free = torch.where(tilted.isinf(), 0.0, double)
    return Moments(tilted + (free - free.detach()), shift, residual, departure)


class Solution(NamedTuple):
    """All that one run of the quadrature gives; only `logits`, `residual` and `departure` carry gradients.

    Shapes: logits, departure and tilted `(*B, n)`, residual and shift `(*B)`; the rule `(*B, J)`: sin(t/2) and cos(t/2)
    of the nodes, and the parts of their weights `Phi(t) exp(-i d t) / (N P)`.
    """

    logits: Tensor
    residual: Tensor
    departure: Tensor
    tilted: Tensor
    shift: Tensor
    sine: Tensor
    cosine: Tensor
    real: Tensor
    imag: Tensor


def solve(logits: Tensor, k: int | Tensor) -> Solution:
    """Run the quadrature in float64, to the precision of the logits' dtype; see `moments`."""
    double = logits.double()
    if isinstance(k, Tensor):
        batch = torch.broadcast_shapes(k.shape, logits.shape[:-1])
        double, k = double.expand(*batch, -1), k.to(logits.device, torch.int64).expand(batch)
    precision = _DOUBLE if logits.dtype == torch.float64 else _SINGLE
    # torch.compile refuses functions with rules for vmap and forward mode, and needs none of them.
    quadrature = _Quadrature if torch.compiler.is_compiling() else _TransformableQuadrature
    return Solution(double, *quadrature.apply(double, k, precision))


def log_esp(m: Moments, logits: Tensor, k: int | Tensor) -> Tensor:
    """`log e_k(exp logits)` from the moments of these very logits and k, in float64.

    Shapes:
        logits `(*B, n)` -> `(*B)`.
    """
    likely = m.tilted > 0
    excess = likely.sum(-1) - sizes(k, m.tilted)
    return torch.where(likely, logits.double(), 0.0).sum(-1) + excess * m.shift + m.residual


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
    return log_esp(moments(logits, k), logits, k).to(logits.dtype)


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
    likely = m.tilted > 0
    excess = likely.sum(-1) - sizes(k, m.tilted)
    own = torch.nn.functional.logsigmoid(torch.where(likely, safe, -safe).double()).sum(-1)
    return torch.where(impossible, -math.inf, own + excess * m.shift + m.residual).to(logits.dtype)


def log_density(change: Tensor, m: Moments) -> Tensor:
    r"""The exponent :math:`\langle w, z\rangle - \log e_k(\exp w)` of the family, for a point z that sums to k.

    The point is given by its difference to the likelier states, `change = z - [tilted > 0]`. At a k-hot vector this is
    its log-probability, at `m.change` it is the negative entropy. All terms of the sum have one sign, so nothing
    cancels when `<w, z>` and the normaliser are both large. A point that contradicts a certain item scores -inf.

    Shapes:
        change `(*S, *B, n)`, m of batch shape `(*B)` -> `(*S, *B)`.
    """
    fixed = m.tilted.isinf()
    exponent = (change * torch.where(fixed, 0.0, m.tilted)).sum(-1) - m.residual
    # Rounding may leave a point mass at log-probability 1e-16; a probability above one would be worse than the ulp.
    exponent = exponent - exponent.detach().clamp(min=0)
    return torch.where((fixed & (change != 0)).any(-1), -math.inf, exponent)


def _rule(deviation: Tensor, likely: Tensor, k: int | Tensor, exponent: float, nodes: int) -> tuple[Tensor, ...]:
    """P(S = k), and for each node sin(t/2), cos(t/2) and the two parts of `Phi(t) exp(-i d t) / (N P)`.

    Shapes:
        deviation and likely `(*B, n)` -> `(*B)`, then `(*B, J)` four times.
    """
    n = deviation.shape[-1]
    variance = (deviation * (1 - deviation)).sum(-1, keepdim=True)
    period = exponent / 3 + torch.sqrt(exponent**2 / 9 + 2 * exponent * variance)
    # Odd, so that no node falls on t = pi, where a factor with r = 1/2 vanishes; past n + 1 there is no aliasing.
    period = (2 * torch.ceil(period / 2) + 1).clamp(max=n + 1 + n % 2)
    j = torch.arange(min(nodes, (n + 1 + n % 2) // 2 + 1), dtype=deviation.dtype, device=deviation.device)
    angle = 2 * math.pi * j / period
    turn = (sizes(k, deviation) - likely.sum(-1))[..., None] * angle
    share = torch.where(2 * j < period, torch.where(j == 0, 1.0, 2.0), 0.0)
    value = _characteristic_function(deviation, likely, angle) * torch.polar(share.to(turn.dtype), -turn)
    real, imag = value.real, value.imag
    # Summed before it is divided, so that a point mass has a probability of exactly 1.
    total = real.sum(-1, keepdim=True)
    return (total / period).squeeze(-1), torch.sin(angle / 2), torch.cos(angle / 2), real / total, imag / total


def _characteristic_function(deviation: Tensor, likely: Tensor, angle: Tensor) -> Tensor:
    """The product `prod_i (1 - r_i + r_i exp(+-i t))`, the sign being minus where `likely`.

    Groups of items are multiplied out as Laurent polynomials in `exp(i t)`, whose positive coefficients lose no
    accuracy, so that only one factor per group and node is complex.

    Shapes: deviation and likely `(*B, n)`, angle `(*B, J)` -> complex `(*B, J)`.
    """
    deviation = torch.nn.functional.pad(deviation, (0, -deviation.shape[-1] % _GROUP))
    likely = torch.nn.functional.pad(likely, (0, -likely.shape[-1] % _GROUP))
    # Coefficients lead, and an item is paired with the one half a row away: all slices are contiguous in the items.
    pmf = torch.stack([torch.where(likely, deviation, 0.0), 1 - deviation, torch.where(likely, 0.0, deviation)])
    while (width := len(pmf)) < 2 * _GROUP + 1:
        left, right = pmf.chunk(2, -1)
        pmf = left.new_zeros(2 * width - 1, *left.shape[1:])
        for i in range(width):
            pmf[i : i + width].addcmul_(left[i], right)
    multiple = angle[..., None] * torch.arange(-_GROUP, _GROUP + 1, dtype=angle.dtype, device=angle.device)
    groups = pmf.movedim(0, -2)
    return torch.complex(torch.cos(multiple) @ groups, torch.sin(multiple) @ groups).prod(-1)


class _Quadrature(torch.autograd.Function):
    """`(residual, departure, tilted, shift)` of logits, and the rule `(sine, cosine, real, imag)` that gave them.

    The gradient of the residual is the signed departure, `mean - [tilted > 0]`; that of the mean is the covariance.
    With the tilt held fixed the shift drops out of both, because the distribution does not depend on it.
    """

    @staticmethod
    def forward(logits: Tensor, k: int | Tensor, precision: tuple[float, int]) -> tuple[Tensor, ...]:
        tilted, shift = tilt(logits, k)
        deviation, likely = torch.sigmoid(-tilted.abs()), tilted > 0
        probability, sine, cosine, real, imag = _rule(deviation, likely, k, *precision)
        residual = torch.log(probability) - torch.log1p(-deviation).sum(-1)
        sign = torch.where(likely, -1.0, 1.0)
        moment = torch.stack([real, 2 * sine.square() * real, 2 * sine * cosine * imag], dim=-2)
        squared = cosine.square()[..., None]
        parts = []
        for r, s in zip(*(x.split(max(1, _BLOCK // max(1, sine.numel())), -1) for x in (deviation, sign)), strict=True):
            # |g|^2 = (1 - 2r)^2 + 4 r (1 - r) cos^2(t/2): a sum of squares, exact also near t = pi.
            factor = torch.addcmul((1 - 2 * r).square()[..., None, :], (4 * r * (1 - r))[..., None, :], squared)
            a, b, c = (moment @ factor.reciprocal_()).unbind(-2)
            parts.append(r * (a - (1 - r) * (b + s * c)))
        # The clamp takes off rounding errors of 1e-16 alone, and adding 0 the sign of a zero.
        departure = torch.cat(parts, -1).clamp(0, 1) + 0.0
        return residual, departure, tilted, shift, sine, cosine, real, imag

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, departure, tilted, shift, *rule = output
        ctx.mark_non_differentiable(tilted, shift, *rule)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], departure, tilted, *rule)
        ctx.save_for_forward(inputs[0], departure, tilted, *rule)

    @staticmethod
    def backward(ctx: Any, grad_residual: Tensor | None, grad_departure: Tensor | None, *_: None) -> tuple[Any, ...]:
        logits, departure, tilted, *rule = ctx.saved_tensors
        sign = torch.where(tilted > 0, -1.0, 1.0)
        grad = None
        if grad_residual is not None:
            grad = grad_residual[..., None] * sign * departure
        if grad_departure is not None:
            product = covariance_product_of(logits, departure, tilted, *rule, sign * grad_departure)
            grad = product if grad is None else grad + product
        return grad, None, None


class _TransformableQuadrature(_Quadrature):
    """The same with rules for `torch.func`."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Any, ...]:
        logits, departure, tilted, *rule = ctx.saved_tensors
        sign = torch.where(tilted > 0, -1.0, 1.0)
        product = covariance_product_of(logits, departure, tilted, *rule, tangent)
        return (tangent * sign * departure).sum(-1), sign * product, *(None,) * 6

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], logits: Tensor, k: int | Tensor, precision: tuple[float, int]
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        logits = logits.expand(info.batch_size, *logits.shape) if in_dims[0] is None else logits.movedim(in_dims[0], 0)
        if isinstance(k, Tensor) and in_dims[1] is not None:
            k = k.movedim(in_dims[1], 0)
        return _TransformableQuadrature.apply(logits, k, precision), (0,) * 8
