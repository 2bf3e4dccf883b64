"""Second-order quantities of the k-subset distribution: pairs of items."""

import torch
from torch import Tensor

from ksubset.numerics.checks import check_feasible, check_size
from ksubset.numerics.covariance import covariance_product_of, pair_moments_of
from ksubset.numerics.quadrature import Solution, solve

__all__ = ["covariance", "covariance_product", "joint_inclusion_probabilities"]


def covariance_product(logits: Tensor, k: int | Tensor, vector: Tensor) -> Tensor:
    r"""Covariance times a vector, :math:`\operatorname{Cov}(z)\, v = \nabla_w^2 \log e_k \, v`, in O(n).

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say; or the vector has another number of items.
        RuntimeError: On its backward pass, which would need third derivatives.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)`, vector `(*V, *B, n)` -> `(*V, *B, n)`.
    """
    check_size(logits, k)
    check_feasible(logits, k)
    if vector.ndim == 0 or vector.shape[-1] != logits.shape[-1]:
        raise ValueError(f"vector must have shape (..., {logits.shape[-1]}), got {tuple(vector.shape)}")
    s = solve(logits, k)
    product = covariance_product_of(s.logits, s.departure, s.tilted, s.sine, s.cosine, s.real, s.imag, vector.double())
    return product.to(logits.dtype)


def joint_inclusion_probabilities(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Probability of each pair of items to be in the subset together, :math:`\pi_{il}`, with :math:`\pi_{ii} = \pi_i`.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.
        RuntimeError: On its backward pass, which would need third derivatives.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n, n)`.
    """
    s, pairs = _solve_pairs(logits, k)
    # z = h + sign * y with the likelier states h and the deviations y.
    likely = (s.tilted > 0).double()
    sign = 1 - 2 * likely
    change = sign * s.departure
    outer = likely[..., None] * (likely + change)[..., None, :] + change[..., None] * likely[..., None, :]
    joint = outer + sign[..., None] * sign[..., None, :] * pairs
    # Pairs that exclude each other come out at +-1e-17.
    return _with_diagonal(joint.clamp(min=0), likely + change).to(logits.dtype)


def covariance(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Covariance matrix of the k-hot vector, :math:`\nabla_w^2 \log e_k`; its rows sum to 0.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.
        RuntimeError: On its backward pass, which would need third derivatives.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n, n)`.
    """
    s, pairs = _solve_pairs(logits, k)
    sign = torch.where(s.tilted > 0, -1.0, 1.0)
    matrix = sign[..., None] * sign[..., None, :] * (pairs - s.departure[..., None] * s.departure[..., None, :])
    return _with_diagonal(matrix, s.departure * (1 - s.departure)).to(logits.dtype)


def _solve_pairs(logits: Tensor, k: int | Tensor) -> tuple[Solution, Tensor]:
    check_size(logits, k)
    check_feasible(logits, k)
    s = solve(logits, k)
    return s, pair_moments_of(s.logits, s.tilted, s.sine, s.cosine, s.real, s.imag)


def _with_diagonal(matrix: Tensor, diagonal: Tensor) -> Tensor:
    on_diagonal = torch.eye(diagonal.shape[-1], dtype=torch.bool, device=diagonal.device)
    return torch.where(on_diagonal, diagonal[..., None], matrix)
