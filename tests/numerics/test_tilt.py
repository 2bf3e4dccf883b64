"""The tilt reaches its target, for logits on which Newton's method is slow."""

import math

import pytest
import torch

from ksubset.numerics import tilt
from ksubset.numerics.tilt import _NEAR


def clusters(*parts: tuple[float, int]) -> torch.Tensor:
    return torch.cat([torch.full((number,), value, dtype=torch.float64) for value, number in parts])


CASES = {
    "equal": (clusters((0.0, 784)), 30),
    "few far above many": (clusters((20.0, 10), (0.0, 100_000)), 11),
    "three clusters": (clusters((20.0, 10), (0.0, 50_000), (-10.0, 50_000)), 50_011),
    "spread over thousands": (torch.linspace(-5e3, 5e3, 1000, dtype=torch.float64), 500),
    "range of the dtype": (clusters((1e300, 3), (0.0, 5), (-1e300, 4)), 6),
}


@pytest.mark.parametrize(("logits", "k"), CASES.values(), ids=CASES)
def test_the_mean_size_is_a_half_below_k(logits: torch.Tensor, k: int) -> None:
    tilted, _ = tilt(logits, k)
    assert abs(float(torch.sigmoid(tilted).sum()) - (k - 0.5)) < _NEAR


def test_random_rows_of_every_shape_and_size() -> None:
    values = torch.randn(2000, 60, dtype=torch.float64)
    spread = 10 ** (6 * torch.rand(2000, 1, dtype=torch.float64) - 2)
    logits = torch.cat([spread * values, spread * values**3, spread * values.round()])
    k = torch.randint(1, 60, (len(logits),))
    tilted, shift = tilt(logits, k)
    assert ((torch.sigmoid(tilted).sum(-1) - (k - 0.5)).abs() < _NEAR).all()
    torch.testing.assert_close(tilted, logits + shift[:, None], rtol=1e-12, atol=1e-9)


def test_rows_without_a_choice_become_certain() -> None:
    logits = torch.tensor([[0.0, 1.0, -math.inf], [math.inf, 3.0, 2.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    tilted, _ = tilt(logits, torch.tensor([2, 1, 0]))
    inf = math.inf
    assert tilted.tolist() == [[inf, inf, -inf], [inf, -inf, -inf], [-inf, -inf, -inf]]
