"""The compiled covariance product against its twin in eager torch."""

import math
from typing import Any

import pytest
import torch

from ksubset import AtMostKSubset, KSubset
from ksubset.numerics import compiled

pytestmark = pytest.mark.skipif(not compiled.usable(torch.zeros(1)), reason="numba is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("build", [KSubset, AtMostKSubset])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch, dtype: Any, shape: Any, build: Any, scale: float) -> None:
    logits = scale * torch.randn(*shape, 40, dtype=dtype)
    logits[..., 0], logits[..., 1] = math.inf, -math.inf
    vector = torch.randn(5, *shape, 40, dtype=dtype)
    taken = []
    for way in (True, False):
        monkeypatch.setattr(compiled, "usable", lambda logits, way=way: way)
        taken.append(build(7, logits).covariance_product(vector))
    assert taken[0].dtype == taken[1].dtype
    torch.testing.assert_close(taken[0], taken[1], rtol=1e-6 if dtype == torch.float32 else 1e-11, atol=1e-13)


def test_it_has_rows_of_any_number_and_order() -> None:
    for rows in (0, 1, 3):
        assert KSubset(2, torch.randn(rows, 6)).covariance_product(torch.ones(rows, 6)).shape == (rows, 6)
    logits = torch.randn(6, 4).T
    vector = torch.randn(6, 4).T
    product = KSubset(2, logits).covariance_product(vector)
    torch.testing.assert_close(product, KSubset(2, logits.contiguous()).covariance_product(vector.contiguous()))
