"""What follows from a solution: log-probabilities, the normaliser and inclusion probabilities, with their gradients."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ksubset.numerics.checks import all_known, check_feasible, check_size, differentiated, inside_transform
from ksubset.numerics.covariance import covariance_product_of
from ksubset.numerics.quadrature import Solution, solve

__all__ = [
    "Moments",
    "attach",
    "entropy",
    "exclusion_probabilities",
    "inclusion_probabilities",
    "log_density",
    "log_normalizer",
    "log_poisson_binomial",
    "moments",
]


class Moments(NamedTuple):
    """What is known of a distribution of subsets, in float64 and differentiable.

    Shapes: logits, tilted and flip_probability `(*B, n)`, all else `(*B)`.
    """

    logits: Tensor
    tilted: Tensor
    """The logits plus the shift; +-inf for items whose membership is certain; no gradient."""
    shift: Tensor
    """The constant added to the logits; no gradient."""
    reference: Tensor
    """The size k, or the end of the range that the shift leads to: the size to which it adds nothing."""
    price: Tensor
    """What each item beyond that is charged, the shift; 0 where the size is known."""
    residual: Tensor
    r"""`log e_k(exp tilted) - sum(max(tilted, 0))`: the log normaliser without its large, cancelling part."""
    log_normalizer: Tensor
    """Logarithm of the sum of `exp<w, z>` over all subsets z."""
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
    """Solve once for subsets of k items; everything else follows.

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


def attach(s: Solution, logits: Tensor) -> Moments:
    """What a solution says of the logits that it is of, with their gradients; as often as it is asked for."""
    double = logits.double()
    if inside_transform():
        s = s.completed()
    elif not (torch.compiler.is_compiling() or differentiated(logits)):
        # Nobody may change what is kept; all else is not handed out.
        fields = s.residual, s.log_normalizer.clone(), s.flip_probability
        return Moments(double, s.tilted, s.shift, s.reference, s.price, *fields)
    function = _Attach if torch.compiler.is_compiling() else _TransformableAttach
    known = s.residual, s.log_normalizer, s.flip_probability, s.tilted, s.reference
    attached = function.apply(double, *known, *s.rule)
    return Moments(double, s.tilted, s.shift, s.reference, s.price, *attached)


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

    Example:
        >>> log_normalizer(torch.zeros(50), 2).exp().round()  # with weights of 1 the number of subsets, 50 over 2
        tensor(1225.)
    """
    check_size(logits, k)
    check_feasible(logits, k)
    return moments(logits, k).log_normalizer.to(logits.dtype)


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

    Example:
        >>> logits = torch.tensor([0.5, -0.3, 1.2, 0.0])
        >>> inclusion_probabilities(logits, 2)
        tensor([0.5613, 0.2975, 0.7571, 0.3841])
        >>> inclusion_probabilities(logits, torch.tensor([0, 4]))  # of sizes 0 and 4 there is one subset each
        tensor([[0., 0., 0., 0.],
                [1., 1., 1., 1.]])
    """
    check_size(logits, k)
    check_feasible(logits, k)
    return moments(logits, k).mean.to(logits.dtype)


def exclusion_probabilities(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Probability of each item not to be in the subset, :math:`1 - \pi`, with relative accuracy where it is small.

    The complement of a k-subset has logits `-w` and size `n - k`.

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`.

    Example:
        >>> logits = torch.tensor([40.0, 0.0, 0.0])
        >>> exclusion_probabilities(logits, 1)[0]
        tensor(8.4967e-18)
        >>> 1 - inclusion_probabilities(logits, 1)[0]  # rounded away
        tensor(0.)
    """
    check_size(logits, k)
    check_feasible(logits, k)
    return moments(-logits, logits.shape[-1] - k).mean.to(logits.dtype)


def log_poisson_binomial(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Log-probability of a sum of independent Bernoulli draws to be k, :math:`\log P(\sum_i b_i = k)`.

    The quantity that the paper takes from a Fourier transform (equation 2), here without underflow: only where k is
    impossible, because of infinite logits, it is -inf. Its gradient is `pi - sigmoid(logits)`.

    References:
        Wijk, Vinuesa and Azizpour (2024), equation 2, https://arxiv.org/abs/2407.16058.

    Arguments:
        logits: Log-odds of the draws.
        k: The sum, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` says, or a logit is NaN.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B)`.

    Example:
        >>> log_poisson_binomial(torch.zeros(4), torch.arange(5)).exp() * 16  # of four fair coins
        tensor([1., 4., 6., 4., 1.])
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
    is its log-probability. All terms of the sum have one sign, so nothing cancels when `<w, z>` and the normaliser are
    both large. A point that contradicts a certain item scores -inf.

    Shapes:
        deviation `(*S, *B, n)`, m of batch shape `(*B)` -> `(*S, *B)`.
    """
    return _exponent(deviation, _excess(deviation, m), m)


def entropy(m: Moments) -> Tensor:
    """The entropy in nats, the exponent at the mean with the other sign."""
    excess = _excess(m.deviation, m)
    # Where each further item costs so much there is none on average, and rounding must not be multiplied.
    return 0.0 - _exponent(m.deviation, torch.where(m.price.abs() < 64, excess, 0.0), m)


def _excess(deviation: Tensor, m: Moments) -> Tensor:
    """The size of a point beyond the one that is charged nothing."""
    return deviation.sum(-1) + (m.tilted > 0).sum(-1) - m.reference


def _exponent(deviation: Tensor, excess: Tensor, m: Moments) -> Tensor:
    fixed = m.tilted.isinf()
    # The gradient is that of the logits, the value that of the tilt, which has not been rounded at their common size.
    free = torch.where(fixed, 0.0, m.logits)
    tilted = torch.where(fixed, 0.0, m.tilted) + (free - free.detach())
    exponent = (deviation * tilted).sum(-1) - m.residual
    exponent = exponent - torch.where(m.price == 0, 0.0, m.price * excess)
    # Rounding may leave a point mass at log-probability 1e-16; a probability above one would be worse than the ulp.
    exponent = exponent - exponent.detach().clamp(min=0)
    return torch.where((fixed & (deviation != 0)).any(-1), -math.inf, exponent)


class _Attach(torch.autograd.Function):
    """The residual, the log normaliser and the flip probabilities of a solution as functions of its logits.

    The gradient of the log normaliser is the mean, that of the residual the deviation, `mean - [tilted > 0]`, and that
    of the mean the covariance. The shift drops out, because the distribution does not depend on it.
    """

    # Each argument by its name: torch.compile misplaces the outputs of a function with `*rule`.
    @staticmethod
    def forward(
        logits: Tensor,
        residual: Tensor,
        log_normalizer: Tensor,
        flip_probability: Tensor,
        tilted: Tensor,
        reference: Tensor,
        sine: Tensor | None,
        cosine: Tensor | None,
        real: Tensor | None,
        imag: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return residual.clone(), log_normalizer.clone(), flip_probability.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        logits, residual, _, _, *others = inputs
        ctx.set_materialize_grads(False)
        saved = logits, residual, output[2], *others
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(
        ctx: Any, grad_residual: Tensor | None, grad_normalizer: Tensor | None, grad_flip: Tensor | None
    ) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # once, as gradient checkpointing gives them only once
        _, _, flip_probability, tilted, *_ = saved
        majority = tilted > 0
        grad = None
        if grad_residual is not None:
            grad = grad_residual[..., None] * torch.where(majority, -flip_probability, flip_probability)
        if grad_normalizer is not None:
            part = grad_normalizer[..., None] * torch.where(majority, 1 - flip_probability, flip_probability)
            grad = part if grad is None else grad + part
        if grad_flip is not None:
            part = _covariance_product(saved, torch.where(majority, -grad_flip, grad_flip))
            grad = part if grad is None else grad + part
        return grad, *(None,) * 9


class _TransformableAttach(_Attach):
    """The same with rules for `torch.func`."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor, Tensor]:
        saved = ctx.saved_tensors
        _, _, flip_probability, tilted, *_ = saved
        majority = tilted > 0
        of_residual = (tangent * torch.where(majority, -flip_probability, flip_probability)).sum(-1)
        of_normalizer = (tangent * torch.where(majority, 1 - flip_probability, flip_probability)).sum(-1)
        product = _covariance_product(saved, tangent)
        return of_residual, of_normalizer, torch.where(majority, -product, product)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        moved = (
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(arguments, in_dims, strict=True)
        )
        return _TransformableAttach.apply(*moved), (0, 0, 0)


def _covariance_product(saved: tuple[Any, ...], vector: Tensor) -> Tensor:
    """Covariance times a vector, from what `_Attach` has saved."""
    logits, residual, flip_probability, tilted, reference, *rule = saved
    zero = torch.zeros_like(residual)
    s = Solution(residual, zero, flip_probability, tilted, zero, reference, zero, *rule)
    return covariance_product_of(s, logits, vector)
