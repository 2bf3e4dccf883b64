"""ReinMax against the published formula for one-hot vectors, and its bias by enumeration."""

from collections.abc import Callable

import pytest
import torch
from oracle import gradient, probabilities, subsets
from torch import Tensor

from ksubset import (
    SIMPLE,
    AtMostKSubset,
    Estimator,
    KSubset,
    PartitionedKSubset,
    ReinMax,
    SubsetDistribution,
    expectation,
)

N = 6
LOGITS, LINE, *SQUARE_ROWS = torch.randn(N + 2, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SQUARE = torch.stack(SQUARE_ROWS)


def quadratic(z: Tensor) -> Tensor:
    return ((z @ SQUARE) * z).sum(-1) + z @ LINE


def cubic(z: Tensor) -> Tensor:
    return quadratic(z) * (z @ LINE)


def at(z: Tensor, f: Callable[[Tensor], Tensor], dist: SubsetDistribution, estimator: Estimator) -> Tensor:
    """The estimate that is made of each of the subsets `(N, n)`, of rows that are alike."""
    rows = dist.logits
    dist.sample = lambda *_, **__: z[None]  # type: ignore[method-assign]
    (grad,) = torch.autograd.grad(expectation(f, dist, estimator).sum(), rows)
    return grad


def rows(number: int) -> Tensor:
    return LOGITS.repeat(number, 1).requires_grad_()


def published(z: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """Algorithm 2 of the paper, line by line, at the temperature 1, for a one-hot sample."""
    logits = LOGITS.clone().requires_grad_()
    first = logits.softmax(-1)
    shifted = (z + first) / 2
    shifted = torch.softmax(shifted.log().detach() - logits.detach() + logits, -1)
    second = 2 * shifted - first / 2
    (grad,) = torch.autograd.grad(f(second - second.detach() + z), logits)
    return grad


def test_one_of_n_is_the_published_estimator() -> None:
    z = subsets(N, 1)
    found = at(z, cubic, KSubset(1, rows(N)), ReinMax())
    torch.testing.assert_close(found, torch.stack([published(one, cubic) for one in z]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_mean_is_exact_for_a_quadratic_f(k: int) -> None:
    z, p = subsets(N, k), probabilities(LOGITS, k)
    found = p @ at(z, quadratic, KSubset(k, rows(len(z))), ReinMax())
    torch.testing.assert_close(found, gradient(quadratic, LOGITS, k), rtol=1e-11, atol=1e-12)
    # Not so of first order.
    first = p @ at(z, quadratic, KSubset(k, rows(len(z))), SIMPLE())
    assert (first - found).norm() > 0.05 * found.norm()
    # And a third derivative is too much.
    third, exact = p @ at(z, cubic, KSubset(k, rows(len(z))), ReinMax()), gradient(cubic, LOGITS, k)
    assert (third - exact).norm() > 0.02 * exact.norm()


@pytest.mark.parametrize(
    "make", [lambda w: AtMostKSubset(3, w), lambda w: PartitionedKSubset([0, 1, 0, 1, 1, 0], [1, 2], w)]
)
def test_the_mean_is_exact_for_a_quadratic_f_of_other_subsets(make: Callable[[Tensor], SubsetDistribution]) -> None:
    one = make(LOGITS.clone().requires_grad_())
    z = one.enumerate_support()
    p = one.log_density(z).exp()
    (exact,) = torch.autograd.grad(p @ quadratic(z), one.logits, retain_graph=True)
    torch.testing.assert_close(
        p.detach() @ at(z, quadratic, make(rows(len(z))), ReinMax()), exact, rtol=1e-11, atol=1e-12
    )


def test_two_samples_have_the_mean_of_one() -> None:
    # No statistics: the estimates of all pairs, weighted with their probabilities.
    z, p = subsets(N, 3), probabilities(LOGITS, 3)
    i, j = torch.cartesian_prod(*2 * [torch.arange(len(p))]).T
    dist = KSubset(3, rows(len(i)))
    dist.sample = lambda *_, **__: torch.stack([z[i], z[j]])  # type: ignore[method-assign]
    (grad,) = torch.autograd.grad(expectation(cubic, dist, ReinMax(), 2).sum(), dist.logits)
    one = p @ at(z, cubic, KSubset(3, rows(len(z))), ReinMax())
    torch.testing.assert_close((p[i] * p[j]) @ grad, one, rtol=1e-11, atol=1e-12)


def test_samples_are_compared_with_the_others() -> None:
    logits = LOGITS.clone().requires_grad_()
    dist = KSubset(3, logits)
    z = dist.sample((5,))
    dist.sample = lambda *_, **__: z  # type: ignore[method-assign]
    (found,) = torch.autograd.grad(expectation(cubic, dist, ReinMax(), 5), logits)
    at_sample = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(cubic(at_sample).sum(), at_sample)
    deviation, product = z - dist.mean.detach(), ((z - dist.mean.detach()) * slope).sum(-1)
    others = (product.sum() - product) / 4
    expected = (deviation.mT @ (product - others) + dist.covariance_matrix @ slope.sum(0)) / 10
    torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-12)


def test_the_formula() -> None:
    z, dist = subsets(N, 3), KSubset(3, LOGITS)
    slope = torch.randn(N, dtype=torch.float64)
    deviation = z - dist.mean
    matrix = (deviation[:, :, None] * deviation[:, None, :] + dist.covariance_matrix) / 2
    found = at(z, lambda z: z @ slope, KSubset(3, rows(len(z))), ReinMax())
    torch.testing.assert_close(found, matrix @ slope, rtol=1e-11, atol=1e-12)
