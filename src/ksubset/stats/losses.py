"""The conditional likelihoods of the models as losses of networks."""

import torch
from torch import Tensor

from ksubset.numerics.moments import log_normalizer

__all__ = ["conditional_logit_loss", "cox_exact_loss"]


def conditional_logit_loss(eta: Tensor, y: Tensor, strata: Tensor) -> Tensor:
    r"""Mean negative conditional log-likelihood of the strata that have both cases and controls.

    For a stratum with k cases, :math:`\log e_k(\exp \eta) - \langle \eta, y\rangle`: what a network says of a row is
    compared within the stratum only, and what all rows of a stratum have in common cannot be learnt. With one case it
    is the cross-entropy of a softmax over the stratum.

    References:
        Breslow and Day (1980), Statistical Methods in Cancer Research I, chapter 7.

    Arguments:
        eta: Logits, finite.
        y: Whether each row is a case, 0 or 1.
        strata: The stratum of each row, integers in any order.

    Raises:
        TypeError: `eta` is no floating-point tensor, or `strata` no integer tensor.
        ValueError: Shapes differ, `eta` is not finite, `y` not 0 or 1, or no stratum has both cases and controls.

    Shapes:
        eta, y and strata `(N)` -> `()`.

    Example:
        >>> eta = torch.tensor([0.5, -0.5, 0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
        >>> y, strata = torch.tensor([1, 0, 0, 1, 0]), torch.tensor([7, 7, 7, 2, 2])
        >>> loss = conditional_logit_loss(eta, y, strata)
        >>> loss.backward()
        >>> round(loss.item(), 4), eta.grad.round(decimals=4).tolist()
        (0.9968, [-0.2468, 0.0932, 0.1536, -0.3655, 0.3655])
    """
    _check(eta, {"y": y, "strata": strata}, y, "y")
    if strata.is_floating_point() or strata.is_complex():
        raise TypeError(f"strata must be an integer tensor, got {strata.dtype}")
    _, group, rows = torch.unique(strata, return_inverse=True, return_counts=True)
    cases = torch.zeros_like(rows).index_add_(0, group, y.to(rows.dtype))
    informative = (cases > 0) & (cases < rows)
    number = informative.sum()
    if not number:
        raise ValueError("no stratum has both cases and controls")
    order = group.argsort(stable=True)
    wide = eta.double()[order]
    first = rows.cumsum(0) - rows
    total = (torch.where((y != 0) & informative[group], eta.double(), 0.0)).sum()
    # Rows are padded to those of strata of similar size, so that memory is in proportion to all rows.
    magnitude = torch.ceil(torch.log2(rows.double()))
    normalizers = []
    for size in magnitude[informative].unique():
        some = torch.nonzero(informative & (magnitude == size)).squeeze(1)
        place = torch.arange(int(rows[some].max()), device=eta.device)
        inside = place < rows[some, None]
        index = torch.where(inside, first[some, None] + place, 0)
        normalizers.append(log_normalizer(torch.where(inside, wide[index], -torch.inf), cases[some]).sum())
    loss: Tensor = (torch.stack(normalizers).sum() - total) / number
    return loss.to(eta.dtype)


def cox_exact_loss(eta: Tensor, time: Tensor, event: Tensor) -> Tensor:
    r"""Mean negative log partial likelihood of Cox's discrete model, with exact ties, by events.

    At a time with d events, of rows D among the rows R at risk, :math:`\log e_d(\exp \eta_R) - \sum_D \eta`. A time
    with one event takes a share in one cumulative sum over all rows; one with several takes memory and time in
    proportion to its risk set.

    References:
        Cox (1972), https://doi.org/10.1111/j.2517-6161.1972.tb00899.x, for the discrete model.

    Arguments:
        eta: Logits of the rows, finite.
        time: When each row had its event or was seen last.
        event: Whether it had its event, 0 or 1.

    Raises:
        TypeError: `eta` is no floating-point tensor.
        ValueError: Shapes differ, `eta` or `time` is not finite, `event` not 0 or 1, or there is no event.

    Shapes:
        eta, time and event `(N)` -> `()`.

    Example:
        >>> eta = torch.tensor([1.0, 0.0, -1.0, 0.5])
        >>> round(cox_exact_loss(eta, torch.tensor([1, 1, 2, 3]), torch.tensor([1, 1, 1, 0])).item(), 4)
        1.0277
    """
    _check(eta, {"time": time, "event": event}, event, "event")
    if not time.isfinite().all():
        raise ValueError("time must be finite in every row")
    happened = event != 0
    if not happened.any():
        raise ValueError("no row has an event")
    order = time.argsort(descending=True, stable=True)
    wide, at, happened = eta.double()[order], time[order], happened[order]
    _, rows = torch.unique_consecutive(at, return_counts=True)
    last = rows.cumsum(0)
    reached = torch.cat([last.new_zeros(1), happened.cumsum(0)[last - 1]])
    events = reached.diff()
    single = last[events == 1]
    loss = torch.logcumsumexp(wide, 0)[single - 1].sum() - wide[happened].sum()
    tied = events > 1
    for end, number in zip(last[tied].tolist(), events[tied].tolist(), strict=True):
        loss = loss + log_normalizer(wide[:end], number)
    return (loss / events.sum()).to(eta.dtype)


def _check(eta: Tensor, others: dict[str, Tensor], binary: Tensor, name: str) -> None:
    if not isinstance(eta, Tensor) or not eta.is_floating_point():
        raise TypeError(f"eta must be a floating-point tensor, got {getattr(eta, 'dtype', type(eta).__name__)}")
    for key, value in others.items():
        if not isinstance(value, Tensor) or value.shape != eta.shape or eta.ndim != 1:
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"eta and {key} must be tensors of one shape (N), got {tuple(eta.shape)} and {came}")
    if not eta.isfinite().all():
        raise ValueError("eta must be finite in every row")
    if not ((binary == 0) | (binary == 1)).all():
        raise ValueError(f"{name} must be 0 or 1 in every row")
