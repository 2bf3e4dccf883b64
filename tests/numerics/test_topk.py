"""Hard, noisy and relaxed top-k."""

import math

import pytest
import torch
from oracle import FALSE_ALARM, binomial_p_value

from ksubset.numerics.topk import gumbel_keys, relaxed_top_k, top_k


def test_ties_go_to_the_lowest_index(device: torch.device) -> None:
    scores = torch.tensor([1.0, 2, 5, 4, 5], device=device)
    assert top_k(scores, 1).tolist() == [0, 0, 1, 0, 0]
    assert top_k(scores, 2).tolist() == [0, 0, 1, 0, 1]
    assert top_k(torch.zeros(2, 300, device=device), 7)[:, :7].min() == 1
    assert top_k(scores.expand(3, 5), torch.tensor([0, 1, 5], device=device)).sum(-1).tolist() == [0, 1, 5]


def test_gumbel_top_k_draws_without_replacement_in_sequence(device: torch.device) -> None:
    # Weights 0.5, 0.3, 0.2 and two successive draws, by hand: P({0, 1}) = 0.5 * 0.3 / 0.5 + 0.3 * 0.5 / 0.7, and so on.
    keys = gumbel_keys(torch.tensor([0.5, 0.3, 0.2], device=device).log(), 2, 100_000)
    left_out = 1 - top_k(keys, 2)
    expected = torch.tensor([0.16071428571, 0.325, 0.51428571429])
    assert binomial_p_value(left_out.sum(0).cpu(), expected, 100_000) > FALSE_ALARM


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.05, 0.005])
def test_relaxed_top_k_sums_to_k_with_finite_gradient(temperature: float, device: torch.device) -> None:
    keys = (3 * torch.randn(50, 12, device=device)).requires_grad_()
    relaxed = relaxed_top_k(keys, 4, temperature)
    torch.testing.assert_close(relaxed.sum(-1), torch.full((50,), 4.0, device=device))
    assert relaxed.min() >= 0
    (relaxed * torch.randn_like(relaxed)).sum().backward()
    assert keys.grad is not None
    assert keys.grad.isfinite().all()


def test_relaxed_top_k_tends_to_the_hard_one(device: torch.device) -> None:
    keys = torch.randperm(10, device=device).double()
    torch.testing.assert_close(relaxed_top_k(keys, 3, 0.01), top_k(keys, 3))


def test_relaxed_top_k_is_the_formula(device: torch.device) -> None:
    keys = torch.randn(6, dtype=torch.float64, device=device)
    first = torch.softmax(keys / 0.7, -1)
    second = torch.softmax((keys + torch.log(1 - first)) / 0.7, -1)
    torch.testing.assert_close(relaxed_top_k(keys, 2, 0.7), first + second)


@pytest.mark.parametrize("temperature", [2.0, 0.5, 0.1])
def test_relaxed_top_k_and_its_gradient_are_those_of_the_formula_left_to_autograd(
    temperature: float, device: torch.device
) -> None:
    keys = torch.randn(3, 20, dtype=torch.float64, device=device).requires_grad_()
    sizes = torch.tensor([1, 7, 4], device=device)
    present, plain = keys, torch.zeros_like(keys)
    for place in range(7):
        share = torch.softmax(present / temperature, -1)
        plain = plain + (place < sizes)[:, None] * share
        present = present + torch.log(1 - share)
    relaxed = relaxed_top_k(keys, sizes, temperature)
    torch.testing.assert_close(relaxed, plain, rtol=1e-9, atol=1e-12)
    direction = torch.randn_like(keys)
    gradients = (torch.autograd.grad((value * direction).sum(), keys)[0] for value in (relaxed, plain))
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


def test_relaxed_top_k_with_infinite_keys_and_sizes_by_row(device: torch.device) -> None:
    keys = torch.tensor([math.inf, -math.inf, 0.0, 1.0], device=device).requires_grad_()
    relaxed = relaxed_top_k(keys, 2, 0.5)
    assert relaxed[:2].tolist() == [1, 0]
    torch.testing.assert_close(relaxed[2:], torch.softmax(torch.tensor([0.0, 2.0], device=device), -1))
    relaxed.square().sum().backward()
    assert keys.grad is not None
    assert keys.grad.isfinite().all()
    sums = relaxed_top_k(torch.zeros(3, 4, device=device), torch.tensor([0, 2, 4], device=device), 1.0).sum(-1)
    torch.testing.assert_close(sums, torch.tensor([0.0, 2.0, 4.0], device=device))
