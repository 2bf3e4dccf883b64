"""Second moments of the k-subset distribution from the nodes of its quadrature.

With weights `W_j = Phi(t_j) exp(-i d t_j) / (N P)` and `c_ij = r_i exp(+-i t_j) / g_i(t_j)`, the deviations `y` of the
items from their majority states have, for different items,

    E[y_i] = Re sum_j W_j c_ij,    E[y_i y_l] = Re sum_j W_j c_ij c_lj :

under each node they are independent, with a complex probability.
"""

from typing import Any

import torch
from torch import Tensor

from ksubset.numerics import compiled

__all__ = ["covariance_product_of", "pair_moments_of"]

_NO_THIRD = "third derivatives of the k-subset log normaliser are not available"


def covariance_product_of(*arguments: Tensor) -> Tensor:
    """Covariance times a vector; arguments as in `_CovarianceProduct.forward`."""
    function = _CovarianceProduct if torch.compiler.is_compiling() else _TransformableCovarianceProduct
    product: Tensor = function.apply(*arguments)
    return product


def pair_moments_of(*arguments: Tensor) -> Tensor:
    """The moments `E[y_i y_l]` of the deviations; arguments as in `_PairMoments.forward`."""
    function = _PairMoments if torch.compiler.is_compiling() else _TransformablePairMoments
    moments: Tensor = function.apply(*arguments)
    return moments


def _conditional(tilted: Tensor, sine: Tensor, cosine: Tensor) -> Tensor:
    """The numbers `c_ij`: tilted `(*B, n)`, sine and cosine `(*B, J)` -> complex `(*B, n, J)`."""
    flip = torch.sigmoid(-tilted.abs())[..., None]
    turn = torch.complex(cosine.square() - sine.square(), 2 * sine * cosine)[..., None, :]
    step = flip * torch.where((tilted > 0)[..., None], turn.conj(), turn)
    return step / (1 - flip + step)


class _Second(torch.autograd.Function):
    """A second derivative of the log normaliser, of which no further derivative is available."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        raise RuntimeError(_NO_THIRD)


class _TransformableSecond(_Second):
    """The same with rules for `torch.func`."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        raise RuntimeError(_NO_THIRD)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *arguments: Tensor) -> tuple[Tensor, int]:
        moved = (x[None] if dim is None else x.movedim(dim, 0) for x, dim in zip(arguments, in_dims, strict=True))
        return cls.apply(*moved), 0


class _CovarianceProduct(_Second):
    """`Cov(z) v`, by `E[y_i <v, y>] = Re sum_j W_j c_ij (V_j + v_i (1 - c_ij))` with `V_j = sum_i v_i c_ij`."""

    @staticmethod
    def forward(
        logits: Tensor,
        flip_probability: Tensor,
        tilted: Tensor,
        sine: Tensor,
        cosine: Tensor,
        real: Tensor,
        imag: Tensor,
        vector: Tensor,
    ) -> Tensor:
        if not torch.compiler.is_compiling() and compiled.usable(tilted):
            return _compiled_product(flip_probability, tilted, sine, cosine, real, imag, vector)
        sign = torch.where(tilted > 0, -1.0, 1.0)
        conditional = _conditional(tilted, sine, cosine)
        weight = torch.complex(real, imag)[..., None, :]
        signed = (sign * vector)[..., None]
        total = (signed * conditional).sum(-2, keepdim=True)
        second = (weight * conditional * (total + signed * (1 - conditional))).real.sum(-1)
        return sign * (second - flip_probability * (signed.squeeze(-1) * flip_probability).sum(-1, keepdim=True))


def _compiled_product(
    flip_probability: Tensor, tilted: Tensor, sine: Tensor, cosine: Tensor, real: Tensor, imag: Tensor, vector: Tensor
) -> Tensor:
    from ksubset.numerics.compiled.covariance import product_rows  # noqa: PLC0415 - numba takes a second to import

    shape = torch.broadcast_shapes(tilted.shape, vector.shape)
    product = torch.empty(shape, dtype=torch.float64)
    items = (flip_probability, tilted, vector.double())
    flip, tilted, vector = (x.expand(shape).reshape(-1, shape[-1]) for x in items)
    rule = (x.expand(*shape[:-1], x.shape[-1]).reshape(-1, x.shape[-1]) for x in (sine, cosine, real, imag))
    rows = [flip, tilted, *rule, vector, product.view(-1, shape[-1])]
    product_rows(*(x.contiguous().numpy() for x in rows))
    return product


class _PairMoments(_Second):
    """`E[y_i y_l]` for all pairs; the diagonal is meaningless."""

    @staticmethod
    def forward(logits: Tensor, tilted: Tensor, sine: Tensor, cosine: Tensor, real: Tensor, imag: Tensor) -> Tensor:
        conditional = _conditional(tilted, sine, cosine)
        weighted = conditional * torch.complex(real, imag)[..., None, :]
        return weighted.real @ conditional.real.mT - weighted.imag @ conditional.imag.mT


class _TransformableCovarianceProduct(_CovarianceProduct, _TransformableSecond):
    pass


class _TransformablePairMoments(_PairMoments, _TransformableSecond):
    pass
