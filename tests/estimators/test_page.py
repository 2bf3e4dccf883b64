"""The estimators that the page shows how to write work, for every distribution."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import z_limit

from ksubset import AtMostKSubset, KSubset, PartitionedKSubset, SubsetDistribution, expectation
from ksubset.nn import SubsetLayer

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"
DISTRIBUTIONS = {
    "k": lambda w: KSubset(2, w),
    "at most": lambda w: AtMostKSubset(2, w),
    "groups": lambda w: PartitionedKSubset([0, 1, 0, 1], 1, w),
}
WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    section = PAGE.read_text().partition("## Write your own")[2]
    namespace: dict[str, Any] = {}
    exec("".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)), namespace)
    return namespace


def gradients(estimator: Any, make: Any, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimates by row, and the exact gradient of a linear f."""
    w = torch.tensor([0.3, -0.2, 0.0, 0.5])
    logits = w.repeat(rows, 1).requires_grad_()
    torch.manual_seed(0)
    expectation(lambda z: z @ WEIGHTS, make(logits), estimator, 2).sum().backward()
    assert logits.grad is not None
    dist: SubsetDistribution = make(w)
    return logits.grad, dist.covariance_product(WEIGHTS)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_baseline(page: dict[str, Any], name: str) -> None:
    estimates, exact = gradients(page["ConstantBaseline"](5.0), DISTRIBUTIONS[name], 20_000)
    error = estimates.std(0) / len(estimates) ** 0.5
    assert ((estimates.mean(0) - exact).abs() < z_limit(4) * error + 1e-6).all()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_perturbed_maximum(page: dict[str, Any], name: str) -> None:
    dist = DISTRIBUTIONS[name](torch.tensor([0.3, -0.2, 0.0, 0.5]))
    sample = page["NoisyTopK"]().sample(dist, 1000)
    assert dist.support.check(sample).all()
    assert len(sample.unique(dim=0)) > 3
    estimates, _ = gradients(page["NoisyTopK"](), DISTRIBUTIONS[name], 5)
    torch.testing.assert_close(estimates, WEIGHTS.expand(5, 4))
    assert SubsetLayer(2, page["NoisyTopK"]())(torch.zeros(7, 4)).sum(-1).tolist() == [2] * 7


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_known_slope(page: dict[str, Any], name: str) -> None:
    estimator = page["estimator"]
    assert not estimator.needs_gradient
    gradients(estimator, DISTRIBUTIONS[name], 100)  # measures how much the slope explains
    estimates, exact = gradients(estimator, DISTRIBUTIONS[name], 100)
    torch.testing.assert_close(estimates, exact.expand(100, 4), rtol=1e-4, atol=1e-5)
