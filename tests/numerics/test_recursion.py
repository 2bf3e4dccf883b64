"""Short rows by the recursion, compiled and in eager torch, against the quadrature in float64 and 60 digits."""

import math

import mpmath
import pytest
import torch
from oracle import recursion as slow_recursion
from torch import Tensor
from torch.func import vmap

from ksubset import KSubset
from ksubset.numerics import covariance_product, recursion
from ksubset.numerics.quadrature import solve

ROWS = 600  # enough of them for either way

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture
def logits() -> Tensor:
    return 3 * torch.randn(ROWS, 12)


def same(known: Tensor, exact: Tensor, rounding: float = 1e-37) -> None:
    """As close as float32 is to the exact value, relatively, but for what the exact value has been rounded by."""
    torch.testing.assert_close(known, exact.float(), rtol=2e-7, atol=rounding)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (8, 2), (12, 6), (40, 5), (100, 1), (100, 4)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 20.0])
def test_everything_as_the_quadrature_in_float64(n: int, k: int, scale: float) -> None:
    logits = scale * torch.randn(ROWS, n)
    assert recursion.applies(logits, k)
    dist, exact = KSubset(k, logits), KSubset(k, logits.double())
    assert dist._solutions[0].sine is None
    same(dist.log_normalizer, exact.log_normalizer)
    same(dist.mean, exact.mean)
    same(dist.variance, exact.variance)
    same(dist.entropy(), exact.entropy(), rounding=1e-15)
    z = exact.sample()
    same(dist.log_prob(z.float()), exact.log_prob(z), rounding=1e-15)


def test_digits_of_small_and_large_probabilities() -> None:
    row = torch.tensor([0.0, 5.0, -5.0, 20.0, -40.0, -80.0, 1.0, -math.inf])
    residual, log_normalizer, flip, tilted, _, clear = recursion.solve_short(row.expand(ROWS, -1), 3)
    with mpmath.workdps(60):
        weights = [mpmath.exp(mpmath.mpf(float(w))) for w in row]

        def esp(items: list[int], k: int) -> mpmath.mpf:
            table = [mpmath.mpf(1)] + [mpmath.mpf(0)] * k
            for i in items:
                for j in range(k, 0, -1):
                    table[j] += weights[i] * table[j - 1]
            return table[k]

        everything = list(range(8))
        total = esp(everything, 3)
        for i in everything:
            others = [j for j in everything if j != i]
            inside, outside = weights[i] * esp(others, 2) / total, esp(others, 3) / total
            exact = float(outside if tilted[0, i] > 0 else inside)
            assert float(flip[0, i]) == pytest.approx(exact, rel=1e-14, abs=0)
            assert (tilted[0, i] > 0) == (inside > 0.5)
        assert float(log_normalizer[0]) == pytest.approx(float(mpmath.log(total)), rel=1e-15)
        shifted = mpmath.log(total) - 3 * (mpmath.mpf(float(row[0])) - mpmath.mpf(float(tilted[0, 0])))
        positive = sum(mpmath.mpf(float(t)) for t in tilted[0] if t > 0)
        assert float(residual[0]) == pytest.approx(float(shifted - positive), rel=1e-12)
    assert clear.all()


def test_sizes_of_rows_and_masks(logits: Tensor) -> None:
    k = torch.arange(ROWS) % 6 + 1
    logits[:, 3] = -math.inf
    logits[::7, 5:] = -math.inf
    k[::7] = 2
    dist, exact = KSubset(k, logits), KSubset(k, logits.double())
    assert dist._solutions[0].sine is None
    same(dist.log_normalizer, exact.log_normalizer)
    same(dist.mean, exact.mean)
    for row in range(6):
        value, mean = slow_recursion(logits[row].double(), int(k[row]))
        same(dist.log_normalizer[row], value)
        same(dist.mean[row], mean)


def test_rows_that_are_for_the_quadrature(logits: Tensor) -> None:
    logits[0] = torch.linspace(-2000, 2000, 12)
    logits[1, 2] = math.inf
    logits[2] = torch.tensor([300.0] * 3 + [-300.0] * 9)
    logits[3] = torch.tensor([1e30] * 6 + [-1e30] * 6)
    logits[4, :9] = -math.inf
    *_, clear = recursion.solve_short(logits, 3)
    assert clear.tolist()[:5] == [False] * 5
    assert clear[5:].float().mean() > 0.9
    dist, exact = KSubset(3, logits), KSubset(3, logits.double())
    same(dist.log_normalizer, exact.log_normalizer)
    same(dist.mean, exact.mean)
    same(dist.entropy(), exact.entropy(), rounding=1e-15)
    same(dist.log_prob(dist.mode), exact.log_prob(exact.mode))


def test_gradients_of_all_orders(logits: Tensor) -> None:
    z, weight = KSubset(3, logits).sample(), torch.randn(ROWS, 12)
    results = []
    for dtype in (torch.float32, torch.float64):
        w = logits.to(dtype).requires_grad_()
        dist = KSubset(3, w)
        (score,) = torch.autograd.grad(dist.log_prob(z.to(dtype)).sum(), w, create_graph=True)
        (second,) = torch.autograd.grad((score * weight.to(dtype)).sum(), w)
        (of_mean,) = torch.autograd.grad((KSubset(3, w).mean * weight.to(dtype)).sum(), w)
        (of_entropy,) = torch.autograd.grad(KSubset(3, w).entropy().sum(), w)
        results.append((score, second, of_mean, of_entropy, covariance_product(w.detach(), 3, weight.to(dtype))))
    for ours, exact in zip(*results, strict=True):
        torch.testing.assert_close(ours, exact.float(), rtol=1e-5, atol=1e-6)


def test_half_precision() -> None:
    logits = torch.randn(ROWS, 12).to(torch.bfloat16)
    assert torch.equal(KSubset(3, logits).mean, KSubset(3, logits.double()).mean.to(torch.bfloat16))


def test_where_it_does_not_apply(logits: Tensor, way: str) -> None:
    assert recursion.applies(logits, 6)
    assert recursion.applies(logits, torch.full((ROWS,), 6))
    assert not recursion.applies(logits, 7)
    assert not recursion.applies(logits, 0)
    assert not recursion.applies(logits, torch.tensor(7))
    assert not recursion.applies(logits.double(), 3)
    assert not recursion.applies(logits[:2], 3)
    assert not recursion.applies(logits[:0], 3)
    assert not recursion.applies(torch.zeros(ROWS, 4096), 64)
    assert recursion.applies(torch.zeros(ROWS, 784), 30) == (way == "compiled")
    assert vmap(lambda w: w + recursion.applies(w, 3))(logits).eq(logits).all()


def test_a_solution_made_outside_of_a_transform(logits: Tensor) -> None:
    dist, exact = KSubset(3, logits), KSubset(3, logits.double())
    assert dist.mean.shape == logits.shape
    scaled = vmap(lambda x: dist.mean * x)(torch.ones(2))
    same(scaled[1], exact.mean)


def test_a_rule_is_added_when_it_is_needed(logits: Tensor) -> None:
    s = solve(logits, 3, 3)
    completed = s.completed()
    assert completed.completed() is completed
    torch.testing.assert_close(completed.tilted - completed.shift[:, None], logits.double(), rtol=1e-12, atol=1e-12)
    assert torch.equal(completed.log_normalizer, s.log_normalizer)
