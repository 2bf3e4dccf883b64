"""Logits of given inclusion probabilities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ksubset import KSubset
from ksubset.numerics import inclusion_probabilities, logits_from_marginals


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 40), st.data())
def test_there_and_back(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n - 1))
    scale = data.draw(st.sampled_from([0.1, 1.0, 5.0, 12.0]))
    seed = data.draw(st.integers(0, 10**6))
    logits = scale * torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    marginals = inclusion_probabilities(logits, k)
    found, size = logits_from_marginals(marginals)
    assert size == k
    # Log-odds are matched to 1e-13, and a probability moves by a quarter of that at most.
    torch.testing.assert_close(inclusion_probabilities(found, k), marginals, rtol=0, atol=5e-14)


def test_a_batch_at_the_size_of_the_paper(device: torch.device) -> None:
    logits = 2 * torch.randn(3, 784, dtype=torch.float64, device=device)
    k = torch.tensor([1, 30, 700], device=device)
    logits = logits - logits.mean(-1, keepdim=True)
    found, size = logits_from_marginals(inclusion_probabilities(logits, k))
    assert size.tolist() == k.tolist()
    torch.testing.assert_close(found, logits, rtol=0, atol=1e-9)


def test_float_dust_in_the_sum() -> None:
    logits, k = logits_from_marginals(torch.tensor([0.1] * 10, dtype=torch.float64))
    assert k == 1
    assert logits.tolist() == [0] * 10


def test_zero_and_one() -> None:
    logits, k = logits_from_marginals(torch.tensor([0, 1, 0.5, 0.5]))
    assert k == 2
    assert logits.tolist() == [-math.inf, math.inf, 0, 0]
    logits, k = logits_from_marginals(torch.tensor([[0.0, 1], [1, 1]]))
    assert k.tolist() == [1, 2]
    assert logits.tolist() == [[-math.inf, math.inf], [math.inf, math.inf]]


@pytest.mark.parametrize(
    ("k", "logits"), [(1, [40.0, 0, 1]), (2, [20.0, 20, 1, 0, -1]), (2, [50.0, 50, 1, 0, -1]), (2, [90.0, 0, 0, -90])]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_marginals_rounded_to_one(k: int, logits: list[float], dtype: torch.dtype) -> None:
    mean = KSubset(k, torch.tensor(logits, dtype=dtype)).mean
    torch.testing.assert_close(KSubset.from_marginals(mean).mean, mean, rtol=0, atol=2 * torch.finfo(dtype).eps)
    torch.testing.assert_close(KSubset.from_marginals(1 - mean).mean, 1 - mean, rtol=0, atol=2 * torch.finfo(dtype).eps)


def test_the_class_method() -> None:
    marginals = torch.tensor([[0.2, 0.3, 0.5], [0.9, 0.6, 0.5]])
    dist = KSubset.from_marginals(marginals)
    assert dist.k.tolist() == [1, 2]
    torch.testing.assert_close(dist.mean, marginals)
    assert KSubset.from_marginals(marginals[0]).k == 1
    assert KSubset.from_marginals(torch.empty(0, 3)).batch_shape == (0,)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"sum to an integer within a tolerance of 1.0e-05, got 3.04"):
        KSubset.from_marginals(torch.tensor([0.07, 0.17, 0.41, 0.61, 0.83, 0.95]))
    assert KSubset.from_marginals(torch.tensor([0.5, 0.52]), tolerance=0.05).k == 1
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got values from -0.5 to 1.5"):
        logits_from_marginals(torch.tensor([-0.5, 1.5]))
    with pytest.raises(TypeError, match="floating-point tensor, got list"):
        logits_from_marginals([0.5, 0.5])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n >= 1"):
        logits_from_marginals(torch.zeros(2, 0))
