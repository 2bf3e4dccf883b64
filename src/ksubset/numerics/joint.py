"""Second-order quantities of the k-subset distribution: pairs of items."""

import math

import torch
from torch import Tensor

from ksubset.numerics.checks import check_feasible, check_items, check_size
from ksubset.numerics.covariance import covariance_product_of, pair_moments_of
from ksubset.numerics.moments import attach, moments
from ksubset.numerics.quadrature import Solution, solve

__all__ = [
    "covariance", "covariance_product", "covariance_product_from", "joint_inclusion_probabilities", "joint_of_items",
]  # fmt: skip

# Entries of a block of conditional distributions in float64: bounds the working memory to a few times 8 MiB.
_BLOCK = 2**20
# Of the probability of a pair: above it, an error of 1e-16 leaves eight digits.
_RARE = 1e-8


def covariance_product(logits: Tensor, k: int | Tensor, vector: Tensor) -> Tensor:
    r"""Covariance times a vector, :math:`\operatorname{Cov}(z)\, v = \nabla_w^2 \log e_k \, v`, in O(n).

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.
        vector: Any, with one number for each item.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say; or the vector has another number of items.
        RuntimeError: On its backward pass, which would need third derivatives.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)`, vector `(*V, *B, n)` -> `(*V, *B, n)`.

    Example:
        >>> logits = torch.tensor([0.5, -0.3, 1.2, 0.0])
        >>> vector = torch.tensor([1.0, 0.0, 0.0, -1.0])
        >>> covariance_product(logits, 2, vector)
        tensor([ 0.3509, -0.0204,  0.0107, -0.3413])
        >>> covariance(logits, 2) @ vector
        tensor([ 0.3509, -0.0204,  0.0107, -0.3413])
    """
    logits, k = _checked(logits, k)
    return covariance_product_from(solve(logits, k, k), logits, vector)


def covariance_product_from(s: Solution, logits: Tensor, vector: Tensor) -> Tensor:
    """The same from a solution of these logits.

    Raises:
        ValueError: The vector has another number of items.
    """
    check_items("vector", vector, logits.shape[-1])
    return covariance_product_of(s, logits.double(), vector.double()).to(logits.dtype)


def joint_inclusion_probabilities(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Probability of each pair of items to be in the subset together, :math:`\pi_{il}`, with :math:`\pi_{ii} = \pi_i`.

    As :math:`\pi_i \pi_{l|i}`, the inclusion probabilities of each of the n distributions in which one item is certain:
    in O(n^2), and with full relative accuracy however small they are. Differentiable.

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n, n)`.

    Example:
        >>> joint_inclusion_probabilities(torch.zeros(4), 2)  # each of the 6 pairs is as likely
        tensor([[0.5000, 0.1667, 0.1667, 0.1667],
                [0.1667, 0.5000, 0.1667, 0.1667],
                [0.1667, 0.1667, 0.5000, 0.1667],
                [0.1667, 0.1667, 0.1667, 0.5000]])
    """
    logits, k = _checked(logits, k)
    joint = _rows(logits, k, torch.arange(logits.shape[-1], device=logits.device))
    return ((joint + joint.mT) / 2).to(logits.dtype)


def joint_of_items(logits: Tensor, k: int, items: Tensor) -> Tensor:
    """The same for m items of a single row, in O(n + m^2), and in O(n) more for each item that has a rare partner.

    Shapes:
        logits `(n)`, items `(m)`, integers -> `(m, m)`, float64.
    """
    s = solve(logits, k, k).completed()
    tilted, flip = s.tilted[items], s.flip_probability[items]
    chosen = (tilted > 0).double()
    sign = 1 - 2 * chosen
    change = sign * flip
    joint = sign[:, None] * sign * pair_moments_of(logits.double()[items], tilted, *s.rule)
    joint = joint + chosen[:, None] * chosen + chosen[:, None] * change + chosen * change[:, None]
    same = items[:, None] == items
    joint = torch.where(same, attach(s, logits).mean[items], joint)
    rare = (joint < _RARE).any(-1)
    if rare.any():
        rows = _rows(logits, k, items[rare])[:, items]
        joint[rare], joint[:, rare] = rows, rows.mT
    return joint


def _rows(logits: Tensor, k: int | Tensor, items: Tensor) -> Tensor:
    """Joint inclusion probabilities of some items with all: logits `(*B, n)`, items `(m)` -> `(*B, m, n)`, float64."""
    m = moments(logits, k)
    open_items = m.tilted.isfinite()
    wide = logits.double()
    sizes = k[..., None] if isinstance(k, Tensor) else k
    rows = []
    item = torch.arange(logits.shape[-1], device=logits.device)
    for some in items.split(max(1, _BLOCK // max(1, logits.numel()))):
        # Nothing follows from an item that was certain before.
        given = (item == some[:, None]) & open_items[..., some, None]
        rows.append(moments(torch.where(given, math.inf, wide[..., None, :]), sizes).mean)
    return m.mean[..., items, None] * torch.cat(rows, -2)


def covariance(logits: Tensor, k: int | Tensor) -> Tensor:
    r"""Covariance matrix of the k-hot vector, :math:`\nabla_w^2 \log e_k`; its rows sum to 0.

    Arguments:
        logits: Log-odds; -inf excludes an item, +inf includes it.
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.

    Raises:
        TypeError, ValueError: As `check_size` and `check_feasible` say.
        RuntimeError: On its backward pass, which would need third derivatives.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n, n)`.

    Example:
        >>> logits = torch.tensor([0.5, -0.3, 1.2, 0.0])
        >>> covariance(logits, 2)
        tensor([[ 0.2462, -0.0848, -0.0567, -0.1047],
                [-0.0848,  0.2090, -0.0597, -0.0644],
                [-0.0567, -0.0597,  0.1839, -0.0674],
                [-0.1047, -0.0644, -0.0674,  0.2366]])
    """
    logits, k = _checked(logits, k)
    n = logits.shape[-1]
    return covariance_from(solve(logits, k, k), solve(-logits, n - k, n - k), logits)


def covariance_from(s: Solution, complement: Solution, logits: Tensor) -> Tensor:
    """The same from solutions of these logits and of the complement."""
    s = s.completed()
    pairs = pair_moments_of(logits.double(), s.tilted, *s.rule)
    sign = torch.where(s.tilted > 0, -1.0, 1.0)
    matrix = (
        sign[..., None]
        * sign[..., None, :]
        * (pairs - s.flip_probability[..., None] * s.flip_probability[..., None, :])
    )
    variance = attach(s, logits).mean * attach(complement, -logits).mean
    on_diagonal = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return torch.where(on_diagonal, variance[..., None], matrix).to(logits.dtype)


def _checked(logits: Tensor, k: int | Tensor) -> tuple[Tensor, int | Tensor]:
    """Logits and sizes of one batch shape."""
    check_size(logits, k)
    check_feasible(logits, k)
    if isinstance(k, Tensor):
        batch = torch.broadcast_shapes(k.shape, logits.shape[:-1])
        return logits.expand(*batch, -1), k.to(logits.device, torch.int64).expand(batch)
    return logits, k
