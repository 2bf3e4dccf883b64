"""Covariance products of short rows, by the derivative of the recursion."""

import math

import pytest
import torch

from ksubset.numerics import compiled, covariance, covariance_product, recursion
from ksubset.numerics.joint import covariance_product_from
from ksubset.numerics.quadrature import solve

pytestmark = pytest.mark.skipif(not compiled.usable(torch.zeros(1)), reason="numba is not installed")


def rows(n: int, scale: float) -> torch.Tensor:
    logits = scale * torch.randn(100, n, generator=torch.Generator().manual_seed(n))
    logits[:3, 0], logits[3:6, 1] = -math.inf, math.inf
    return logits


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 300.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (20, 1), (20, 10), (33, 7), (64, 32)])
def test_they_are_those_of_the_quadrature(n: int, k: int, scale: float) -> None:
    logits, vector = rows(n, scale), torch.randn(3, 100, n)
    assert recursion.applies(logits, k)
    assert solve(logits, k, k).sine is None
    product = covariance_product(logits, k, vector)
    expected = covariance_product(logits.double(), k, vector.double())
    torch.testing.assert_close(product.double(), expected, rtol=1e-5, atol=1e-14)


def test_small_probabilities_keep_their_digits() -> None:
    logits = torch.tensor([-40.0, -20.0, 0.0, 0.5, 25.0, 60.0]).repeat(64, 1)
    product = covariance_product(logits, 3, torch.eye(6)[2].expand(64, 6))
    torch.testing.assert_close(product[0], covariance(logits[:1].double(), 3)[0, 2].float(), rtol=1e-5, atol=0)


def test_a_size_for_each_row() -> None:
    logits, sizes = rows(12, 2.0), torch.arange(100) % 5 + 2
    vector = torch.randn(100, 12)
    product = covariance_product(logits, sizes, vector)
    assert recursion.applies(logits, sizes)
    for row in (0, 17, 99):
        alone = covariance_product(logits[row].double(), int(sizes[row]), vector[row].double())
        torch.testing.assert_close(product[row].double(), alone, rtol=1e-5, atol=1e-14)


def test_a_third_derivative_is_an_error() -> None:
    logits = rows(20, 1.0)[10:].requires_grad_()
    product = covariance_product_from(solve(logits, 4, 4), logits, torch.randn(90, 20))
    with pytest.raises(RuntimeError, match="third derivatives"):
        product.sum().backward()
