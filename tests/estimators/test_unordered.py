import math

import pytest
import torch
from oracle import gradient, probabilities, subsets
from torch import Tensor

from ksubset import Estimator, KSubset, LeaveOneOut, UnorderedSet, expectation


def curved(z: Tensor) -> Tensor:
    weights = torch.linspace(-1, 2, z.shape[-1], dtype=z.dtype, device=z.device)
    return torch.cos(2 * (z * weights).sum(-1)) + z[..., 0] * z[..., -1]


def test_weights_sum_to_one(device: torch.device) -> None:
    slope = torch.tensor(2.0, dtype=torch.float64, device=device, requires_grad=True)
    for scale in (0.0, 1.0, 10.0, 1000.0):
        logits = scale * torch.randn(20, 7, dtype=torch.float64, device=device)
        value = expectation(lambda z: slope * z.sum(-1) / 3, KSubset(3, logits), UnorderedSet(), 5)
        torch.testing.assert_close(value, slope.detach().expand(20))
        (grad,) = torch.autograd.grad(value.sum(), slope)
        assert grad.item() == pytest.approx(20)


@pytest.mark.parametrize("scale", [0.0, 1.0, 6.0, 100.0])
def test_all_subsets_give_the_exact_value_and_gradient(scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(6, dtype=torch.float64)
    leaf = logits.to(device).requires_grad_()
    value = expectation(curved, KSubset(3, leaf), UnorderedSet(), 20)
    value.backward()
    assert leaf.grad is not None
    exact = (probabilities(logits, 3) * curved(subsets(6, 3))).sum()
    torch.testing.assert_close(value.detach().cpu(), exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(leaf.grad.cpu(), gradient(curved, logits, 3), rtol=1e-9, atol=1e-12)


def test_two_samples_are_unbiased_over_all_pairs() -> None:
    # No statistics: the estimates of all pairs, weighted with the probabilities of the pairs.
    logits = torch.randn(5, dtype=torch.float64)
    p, z = probabilities(logits, 2), subsets(5, 2)
    i, j = torch.triu_indices(len(p), len(p), 1)
    chance = p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j]))
    rows = logits.repeat(len(i), 1).requires_grad_()
    pairs = torch.stack([z[i], z[j]])
    value = UnorderedSet().surrogate(curved(pairs), pairs, KSubset(2, rows)).mean(0)
    assert (chance @ value).item() == pytest.approx((p @ curved(z)).item(), rel=1e-10)
    (grad,) = torch.autograd.grad(value.sum(), rows)
    torch.testing.assert_close(chance @ grad, gradient(curved, logits, 2), rtol=1e-9, atol=1e-12)


def test_low_entropy_has_less_variance_than_independent_samples(device: torch.device) -> None:
    logits = 6 * torch.randn(10, dtype=torch.float64)
    exact = gradient(curved, logits, 5)

    def squared_error(estimator: Estimator) -> float:
        rows = logits.to(device).repeat(20_000, 1).requires_grad_()
        expectation(curved, KSubset(5, rows), estimator, 8).sum().backward()
        assert rows.grad is not None
        return float((rows.grad.cpu() - exact).square().sum(-1).mean())

    assert squared_error(UnorderedSet()) < 0.1 * squared_error(LeaveOneOut())


def test_a_batch_of_sizes_and_shapes(device: torch.device) -> None:
    logits = torch.randn(4, 1, 8, device=device).requires_grad_()
    k = torch.tensor([1, 3, 5], device=device)
    dist = KSubset(k, logits)
    sample = UnorderedSet().sample(dist, 6)
    assert sample.shape == (6, 4, 3, 8)
    assert sample.dtype == torch.float32
    assert (sample.sum(-1) == k).all()
    expectation(curved, dist, UnorderedSet(), 6).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().max() > 0


def test_expanded_rows_have_sets_of_their_own() -> None:
    sample = UnorderedSet().sample(KSubset(3, torch.zeros(2, 1, 12)).expand((2, 5)), 4)
    assert len({tuple(row) for row in sample.reshape(4, 10, 12).transpose(0, 1).flatten(1).tolist()}) == 10


def test_an_empty_batch() -> None:
    assert expectation(curved, KSubset(2, torch.zeros(0, 5)), UnorderedSet(), 3).shape == (0,)


def test_more_samples_than_subsets() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -math.inf])
    with pytest.raises(ValueError, match="there must be 4 or more subsets to draw distinct ones, got 3 in a row"):
        expectation(curved, KSubset(2, logits), UnorderedSet(), 4)
