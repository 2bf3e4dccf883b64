import math

import numpy as np
import pytest
import torch
from oracle import z_limit

from ksubset import NCPSS, KSubset, expectation


def sample(logits: torch.Tensor, k: int, num_samples: int, estimator: NCPSS | None = None) -> torch.Tensor:
    return (estimator or NCPSS()).sample(KSubset(k, logits), num_samples).detach()


@pytest.mark.parametrize("k", [1, 3, 9])
def test_subsets_are_hard_and_of_nearly_k_items(k: int) -> None:
    z = sample(torch.randn(10, dtype=torch.float64), k, 50_000)
    assert set(z.unique().tolist()) <= {0.0, 1.0}
    size = z.sum(-1)
    assert size.mean().item() == pytest.approx(k, abs=0.1)
    assert size.std() < 1


def test_rounds_bring_the_size_closer() -> None:
    logits = torch.randn(50)
    spreads = [sample(logits, 10, 20_000, NCPSS(rounds=rounds)).sum(-1).std().item() for rounds in (1, 2, 5)]
    assert spreads[0] > 2 * spreads[1] > 2 * spreads[2]


def test_one_round_has_the_stated_probabilities() -> None:
    logits = torch.tensor([1.0, -0.5, 0.2, -2.0], dtype=torch.float64)
    p = logits.sigmoid()
    for k in (1, 3):
        q = p * k / p.sum() if k <= p.sum() else 1 - (1 - p) * (4 - k) / (4 - p.sum())
        z = sample(logits, k, 400_000, NCPSS(rounds=1))
        z_score = (z.mean(0) - q) / (q * (1 - q) / len(z)).sqrt()
        assert z_score.abs().max() < z_limit(4)


def test_the_gradient_is_that_of_the_probabilities() -> None:
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    value = torch.randn(6, dtype=torch.float64)
    p = logits.sigmoid()
    (expected,) = torch.autograd.grad((p * (2 / p.sum()) * value).sum(), logits)
    (grad,) = torch.autograd.grad((NCPSS().sample(KSubset(2, logits), 3) * value).sum(-1).mean(), logits)
    torch.testing.assert_close(grad, expected)


def test_infinite_logits_are_kept() -> None:
    z = sample(torch.tensor([math.inf, -math.inf, 3.0, 3.0, -3.0]), 3, 1000)
    assert (z[:, 0] == 1).all()
    assert (z[:, 1] == 0).all()


def test_the_size_can_be_learned() -> None:
    # Each item is worth 1 and costs 2 c / 10 where c items are chosen already: five are best.
    logits = torch.zeros(10)
    size = torch.tensor(2.0, requires_grad=True)
    optimizer = torch.optim.Adam([size], lr=0.1)
    for _ in range(300):
        loss = expectation(
            lambda z: z.sum(-1).square() / 10 - z.sum(-1), KSubset(2, logits), NCPSS(size=size), num_samples=32
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert size.item() == pytest.approx(5, abs=0.5)


def test_a_size_for_each_row() -> None:
    size = torch.tensor([1.0, 4.0])
    z = sample(torch.zeros(2, 8), 2, 5000, NCPSS(size=size))
    torch.testing.assert_close(z.sum(-1).mean(0), size, atol=0.1, rtol=0)


@pytest.mark.parametrize("size", [3, 3.0, np.float32(3), np.int64(3)])
def test_a_size_that_is_a_number(size: float) -> None:
    drawn, expected = (
        NCPSS(size=given).sample(KSubset(1, torch.zeros(8)), 100, torch.Generator().manual_seed(0))
        for given in (size, torch.tensor(3.0))
    )
    torch.testing.assert_close(drawn, expected)
    assert repr(NCPSS(size)) == "NCPSS(size=3, rounds=5)"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": "3"}, TypeError, "size must be a number, a floating-point tensor or None, got '3'"),
        ({"size": True}, TypeError, "size must be a number, a floating-point tensor or None, got True"),
        ({"size": torch.tensor(3)}, TypeError, r"a floating-point tensor or None, got tensor\(3"),
        ({"rounds": 0}, ValueError, "rounds must be 1 or more, got 0"),
        ({"rounds": 1.5}, TypeError, "rounds must be an integer, got 1.5"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        NCPSS(**arguments)  # type: ignore[arg-type]


def test_a_size_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"size must be between 0 and the number of items, 4, got 5\.0"):
        NCPSS(size=torch.tensor(5.0)).sample(KSubset(2, torch.zeros(4)), 1)
    dist = KSubset(2, torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"size must broadcast over the batch, \(3,\), got shape \(2,\)"):
        NCPSS(torch.ones(2)).sample(dist, 1)
