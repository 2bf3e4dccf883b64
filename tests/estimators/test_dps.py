"""Deep probabilistic subsampling: its gradient against k softmaxes, one after the other."""

import math

import pytest
import torch
from torch import Tensor

from ksubset import DPS, GumbelTopK, KSubset
from ksubset.numerics.topk import remaining_top_k, top_k


def one_by_one(keys: Tensor, k: int, temperature: float) -> Tensor:
    """The paper's relaxation of one row: each softmax is over what the ones before have not drawn."""
    chosen, drawn = torch.zeros_like(keys), keys.argsort(descending=True)
    for place in range(k):
        left = keys.index_fill(0, drawn[:place], -math.inf)
        chosen = chosen + torch.softmax(left / temperature, -1)
    return chosen


@pytest.mark.parametrize("k", [0, 1, 4, 9])
@pytest.mark.parametrize("temperature", [0.05, 0.5, 5.0])
def test_the_relaxation_is_the_papers(k: int, temperature: float) -> None:
    keys = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(5, 9, dtype=torch.float64)
    slow = torch.stack([one_by_one(row, k, temperature) for row in keys]) + 0 * keys
    fast = remaining_top_k(keys, k, temperature)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad((chosen * weights).sum(), keys)[0] for chosen in (fast, slow)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_sizes_by_row_certain_items_and_tiny_temperatures() -> None:
    keys = torch.tensor([[700.0, 0.0, 1.0, 2.0, math.inf, -math.inf]] * 3, requires_grad=True)
    k = torch.tensor([1, 2, 4])
    for temperature in (1e-36, 1e-3):
        chosen = remaining_top_k(keys, k, temperature)
        torch.testing.assert_close(chosen, top_k(keys.detach(), k))
    chosen = remaining_top_k(keys, k, 3.0)
    torch.testing.assert_close(chosen.sum(-1), k.float())
    assert chosen[:, -2:].tolist() == [[1.0, 0.0]] * 3
    (grad,) = torch.autograd.grad((chosen * torch.randn(6)).sum(), keys)
    assert grad.isfinite().all()
    assert grad[0].abs().max() == 0


def sample(estimator: DPS | GumbelTopK, k: int) -> tuple[Tensor, Tensor]:
    """Samples, and what weights of them send back."""
    logits = torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_()
    torch.manual_seed(3)
    z = estimator.sample(KSubset(k, logits), 50)
    (grad,) = torch.autograd.grad((z * torch.linspace(0, 1, 7)).sum(), logits)
    return z.detach(), grad


def test_samples_are_those_of_gumbel_top_k_and_gradients_for_one_item_alone() -> None:
    for k in (1, 3):
        (z, grad), (other, others) = sample(DPS(0.5), k), sample(GumbelTopK(0.5, straight_through=True), k)
        assert torch.equal(z, other)
        assert torch.allclose(grad, others, rtol=1e-9) == (k == 1)


@pytest.mark.parametrize(("temperature", "error"), [(0.0, ValueError), (math.inf, ValueError), ("1", TypeError)])
def test_bad_temperature(temperature: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="temperature must be a"):
        DPS(temperature)  # type: ignore[arg-type]
