"""Stochastic gates: the paper's gates and penalty, with the penalty's weight found from the budget."""

import math

import pytest
import torch
from oracle import z_limit
from torch import Tensor

from ksubset import KSubset, StochasticGates, expectation

SIGMA = 0.5


def shifted(logits: Tensor, k: float) -> Tensor:
    """The gates' means, by halving an interval."""
    low, high = torch.tensor(-100.0).double(), torch.tensor(100.0).double()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if torch.special.ndtr((logits + middle) / SIGMA).sum() < k else (low, middle)
    return logits + low


def curved(z: Tensor) -> Tensor:
    return torch.cos(2 * z[..., 0] + z[..., 1]) + z[..., 2] * z[..., 3].square()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_gradient_is_the_papers_at_the_weight_that_keeps_the_budget(k: int) -> None:
    logits = torch.tensor([0.8, -0.5, 0.3, -1.0, 0.0, 0.6], dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    (found,) = torch.autograd.grad(expectation(curved, KSubset(k, logits), StochasticGates(SIGMA), 1000), logits)
    torch.manual_seed(0)
    mean = shifted(logits.detach(), k).requires_grad_()
    gates = (mean + SIGMA * torch.randn(1000, 6, dtype=torch.float64)).clamp(0, 1)
    (of_loss,) = torch.autograd.grad(curved(gates).mean(), mean)
    (of_number,) = torch.autograd.grad(torch.special.ndtr(mean / SIGMA).sum(), mean)
    # Of the paper's loss, f plus lambda times the number of open gates, this moves along the budget.
    weight = -of_loss.sum() / of_number.sum()
    expected = of_loss + weight * of_number
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(found.sum(), torch.tensor(0.0).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_as_many_gates_are_open_as_the_budget_says(scale: float) -> None:
    logits = scale * torch.randn(784, dtype=torch.float64)
    opened = (StochasticGates().sample(KSubset(30, logits + 5), 4000) > 0).double().sum(-1)
    assert abs(float(opened.mean()) - 30) < z_limit(1) * float(opened.std()) / math.sqrt(4000) + 1e-9


def test_rows_far_apart_sizes_by_row_and_infinite_logits() -> None:
    logits = torch.tensor([[30_000.0, 20_000.0, 700.0, 1.0, 0.0], [math.inf, -math.inf, 3.0, 3.0, -3.0]])
    logits = logits.repeat_interleave(2, 0).requires_grad_()
    gates = StochasticGates().sample(KSubset(torch.tensor([2, 5, 1, 4]), logits), 50)
    assert gates.dtype == torch.float32
    assert (gates[:, 0] == torch.tensor([1.0, 1, 0, 0, 0])).all()
    assert (gates[:, 1] == 1).all()
    assert (gates[:, 2] == torch.tensor([1.0, 0, 0, 0, 0])).all()
    assert (gates[:, 3] == torch.tensor([1.0, 0, 1, 1, 1])).all()
    (grad,) = torch.autograd.grad((gates * torch.randn(5)).sum(), logits)
    assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_at_the_ends_of_their_dtype(dtype: torch.dtype) -> None:
    w = torch.zeros(5, dtype=dtype)
    w[0], w[1] = torch.finfo(dtype).min, torch.finfo(dtype).max
    gates = StochasticGates().sample(KSubset(2, w), 4000)
    assert (gates[:, 0] == 0).all()
    assert (gates[:, 1] == 1).all()
    # Three independent gates are open with probability 1/3.
    opened = float((gates[:, 2:] > 0).double().mean())
    assert abs(opened - 1 / 3) < z_limit(1) * math.sqrt(2 / 9 / 12_000)


@pytest.mark.parametrize(("sigma", "error"), [(0.0, ValueError), (math.nan, ValueError), (True, TypeError)])
def test_bad_sigma(sigma: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="sigma must be a"):
        StochasticGates(sigma)  # type: ignore[arg-type]
