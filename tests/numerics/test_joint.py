"""Second moments against enumeration."""

import math

import pytest
import torch
from oracle import probabilities, subsets

from ksubset import KSubset
from ksubset.numerics import (
    covariance,
    covariance_product,
    inclusion_probabilities,
    joint_inclusion_probabilities,
    log_normalizer,
)
from ksubset.numerics.joint import joint_of_items


@pytest.mark.parametrize("k", [0, 1, 3, 5, 6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0])
def test_pairs_equal_enumeration(k: int, scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(3, 6, dtype=torch.float64)
    z, p = subsets(6, k), probabilities(logits, k)
    joint = torch.einsum("bs,si,sl->bil", p, z, z)
    expected = joint - (p @ z)[:, :, None] * (p @ z)[:, None, :]
    moved = logits.to(device)
    torch.testing.assert_close(joint_inclusion_probabilities(moved, k).cpu(), joint, rtol=0, atol=2e-15)
    torch.testing.assert_close(covariance(moved, k).cpu(), expected, rtol=0, atol=2e-15)
    vector = torch.randn(4, 3, 6, dtype=torch.float64)
    product = torch.einsum("bil,vbl->vbi", expected, vector)
    torch.testing.assert_close(covariance_product(moved, k, vector.to(device)).cpu(), product, rtol=0, atol=1e-14)
    torch.testing.assert_close(KSubset(k, moved).covariance_matrix.cpu(), expected, rtol=0, atol=2e-15)


def test_at_the_size_of_the_paper(device: torch.device) -> None:
    logits = torch.randn(784, dtype=torch.float64, device=device)
    matrix, joint, mean = (
        covariance(logits, 30),
        joint_inclusion_probabilities(logits, 30),
        inclusion_probabilities(logits, 30),
    )
    torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=1e-16)
    assert matrix.sum(-1).abs().max() < 1e-13
    torch.testing.assert_close(joint.sum(-1), 30 * mean, rtol=1e-12, atol=0)
    assert (joint - mean[:, None] * mean < 1e-15).fill_diagonal_(True).all()
    vector = torch.randn(784, dtype=torch.float64, device=device)
    torch.testing.assert_close(covariance_product(logits, 30, vector), matrix @ vector, rtol=0, atol=1e-13)
    # Closed form where the weights differ: (pi_i v_l - pi_l v_i) / (v_l - v_i).
    i, l = logits.argmax(), logits.argmin()  # noqa: E741
    v = logits.exp()
    expected = (mean[i] * v[l] - mean[l] * v[i]) / (v[l] - v[i])
    torch.testing.assert_close(joint[i, l], expected, rtol=1e-12, atol=0)


def test_pairs_with_certain_and_excluded_items(device: torch.device) -> None:
    logits = torch.tensor([math.inf, 0.0, 0.0, -math.inf], dtype=torch.float64, device=device)
    joint = torch.tensor([[1, 0.5, 0.5, 0], [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(joint_inclusion_probabilities(logits, 2).cpu(), joint, rtol=0, atol=1e-15)
    assert covariance(logits, 2)[0].abs().max() == 0


def test_no_probability_is_negative() -> None:
    logits = torch.randn(500, 8, dtype=torch.float64)
    for k in (1, 2, 7):
        assert joint_inclusion_probabilities(logits, k).min() >= 0
    assert not inclusion_probabilities(logits, 0).signbit().any()


def test_product_is_the_second_derivative(device: torch.device) -> None:
    logits = torch.randn(12, device=device, dtype=torch.float64)
    vector = torch.randn(12, device=device, dtype=torch.float64)
    _, expected = torch.autograd.functional.vhp(lambda w: log_normalizer(w, 5), logits, vector)
    torch.testing.assert_close(covariance_product(logits, 5, vector), expected, rtol=0, atol=1e-15)


def test_bad_input() -> None:
    logits = torch.zeros(4, requires_grad=True)
    with pytest.raises(ValueError, match=r"vector must have shape \(..., 4\), got \(3,\)"):
        covariance_product(logits, 2, torch.zeros(3))
    for function in (covariance, joint_inclusion_probabilities, lambda w, k: covariance_product(w, k, torch.zeros(4))):
        with pytest.raises(ValueError, match="k must be between 0 and"):
            function(logits, 5)
        if function is not joint_inclusion_probabilities:
            with pytest.raises(RuntimeError, match="third derivatives"):
                function(logits, 2).sum().backward()


def test_joint_probabilities_are_differentiable() -> None:
    logits = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: joint_inclusion_probabilities(w, 3), logits)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_some_items_have_the_digits_of_all(k: int) -> None:
    # One of a rare pair is nearly certain: its probability must not come from a difference.
    logits = torch.tensor([137.0, 35, -68, -129, -188, -198], dtype=torch.float64)
    items = torch.tensor([3, 2, 0, 5, 4])
    expected = joint_inclusion_probabilities(logits, k)[items][:, items]
    assert (expected < 1e-29).any()
    torch.testing.assert_close(joint_of_items(logits, k, items), expected, rtol=1e-7, atol=0)
