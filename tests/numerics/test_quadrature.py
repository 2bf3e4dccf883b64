"""The quadrature against the float64 recursion and enumeration; test_digits.py has 60 digits."""

import math
import subprocess
import sys

import pytest
import torch
from oracle import log_esp, probabilities, recursion, subsets

from ksubset.numerics import (
    exclusion_probabilities,
    inclusion_probabilities,
    log_normalizer,
    log_poisson_binomial,
)
from ksubset.numerics.quadrature import _DOUBLE, _SINGLE


@pytest.mark.parametrize(("exponent", "nodes"), [_DOUBLE, _SINGLE])
def test_the_number_of_nodes_suffices_for_every_variance(exponent: float, nodes: int) -> None:
    # Nodes within the period's half and before the cut of sin^2(t/2) <= L / (2v), over v from its least value up.
    variance = torch.logspace(math.log10(0.2), 7, 20_000, dtype=torch.float64)[:, None]
    period = exponent / 3 + torch.sqrt(exponent**2 / 9 + 2 * exponent * variance)
    period = 2 * torch.ceil(period / 2) + 1
    j = torch.arange(100, dtype=torch.float64)
    needed = (2 * j < period) & (torch.sin(math.pi * j / period) ** 2 <= exponent / (2 * variance))
    assert needed.sum(-1).max() == nodes


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_float64_at_the_size_of_the_paper(scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(64, 784, dtype=torch.float64)
    normalizer, mean = recursion(logits, 30)
    torch.testing.assert_close(log_normalizer(logits.to(device), 30).cpu(), normalizer, rtol=0, atol=1e-10)
    torch.testing.assert_close(inclusion_probabilities(logits.to(device), 30).cpu(), mean, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_float32_at_the_size_of_the_paper(scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(64, 784)
    normalizer, mean = recursion(logits, 30)
    # At scale 30 the value is around 2,000, where float32 numbers are 1.2e-4 to 2.4e-4 apart: no result can be closer
    # than half of that.
    half_ulp = normalizer.abs() * torch.finfo(torch.float32).eps / 2
    error = (log_normalizer(logits.to(device), 30).cpu().double() - normalizer).abs()
    assert (error <= torch.maximum(half_ulp, torch.tensor(1e-4))).all()
    mine = inclusion_probabilities(logits.to(device), 30).cpu().double()
    torch.testing.assert_close(mine, mean, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("k", [1, 2, 29, 392, 755, 783, 784])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_every_size_of_subset(k: int, scale: float, device: torch.device) -> None:
    logits = scale * torch.randn(4, 784, dtype=torch.float64)
    normalizer, mean = recursion(logits, k)
    # Both sides add up terms as large as n max|w|, and round there.
    rounding = 1e-10 + 784 * float(logits.abs().max()) * torch.finfo(torch.float64).eps
    torch.testing.assert_close(log_normalizer(logits.to(device), k).cpu(), normalizer, rtol=0, atol=rounding)
    torch.testing.assert_close(inclusion_probabilities(logits.to(device), k).cpu(), mean, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("way")
def test_small_probabilities_have_relative_accuracy(device: torch.device) -> None:
    logits = 20 * torch.randn(200, dtype=torch.float64)
    _, mean = recursion(logits, 20)
    assert mean.min() < 1e-30
    torch.testing.assert_close(inclusion_probabilities(logits.to(device), 20).cpu(), mean, rtol=1e-12, atol=0)
    complement = exclusion_probabilities(logits.to(device), 20).cpu()
    _, mean = recursion(-logits, 180)
    torch.testing.assert_close(complement, mean, rtol=1e-12, atol=0)


@pytest.mark.usefixtures("way")
def test_derivatives(device: torch.device) -> None:
    logits = torch.randn(2, 7, dtype=torch.float64, device=device, requires_grad=True)
    for k in (1, 3, 6):
        assert torch.autograd.gradcheck(lambda w, k=k: log_normalizer(w, k), logits)
        assert torch.autograd.gradgradcheck(lambda w, k=k: log_normalizer(w, k), logits)
        assert torch.autograd.gradcheck(lambda w, k=k: inclusion_probabilities(w, k), logits)


@pytest.mark.usefixtures("way")
def test_derivatives_equal_those_of_the_recursion(device: torch.device) -> None:
    logits = (3 * torch.randn(40, dtype=torch.float64)).requires_grad_()
    expected = torch.autograd.functional.hessian(lambda w: log_esp(w, 11)[..., -1], logits)
    moved = logits.detach().to(device).requires_grad_()
    hessian = torch.autograd.functional.hessian(lambda w: log_normalizer(w, 11), moved)
    torch.testing.assert_close(hessian.cpu(), expected, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("way")
def test_hessian_is_the_covariance(device: torch.device) -> None:
    logits = torch.randn(6, dtype=torch.float64)
    z, p = subsets(6, 3), probabilities(logits, 3)
    covariance = (p[:, None] * z).T @ z - torch.outer(p @ z, p @ z)
    hessian = torch.autograd.functional.hessian(lambda w: log_normalizer(w, 3), logits.to(device))
    torch.testing.assert_close(hessian.cpu(), covariance, rtol=0, atol=1e-14)


def test_third_derivative_is_refused() -> None:
    logits = torch.randn(4, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(log_normalizer(logits, 2), logits, create_graph=True)
    (second,) = torch.autograd.grad(first[0], logits, create_graph=True)
    with pytest.raises(RuntimeError, match="third derivatives"):
        second.sum().backward()


@pytest.mark.usefixtures("way")
def test_poisson_binomial(device: torch.device) -> None:
    logits = (5 * torch.randn(7, dtype=torch.float64)).requires_grad_()
    theta = logits.detach().sigmoid()
    pmf = torch.ones(1, dtype=torch.float64)
    for p in theta:
        pmf = torch.nn.functional.pad(pmf, (0, 1)) * (1 - p) + torch.nn.functional.pad(pmf, (1, 0)) * p
    k = torch.arange(8)
    mine = log_poisson_binomial(logits.expand(8, 7).to(device), k.to(device)).cpu()
    torch.testing.assert_close(mine.exp(), pmf, rtol=1e-12, atol=0)
    (grad,) = torch.autograd.grad(log_poisson_binomial(logits, 3), logits)
    torch.testing.assert_close(grad, inclusion_probabilities(logits.detach(), 3) - theta)


def test_poisson_binomial_far_from_the_mean_and_of_certain_draws() -> None:
    logits = torch.randn(784)
    assert -600 < log_poisson_binomial(logits, 30) < -300
    certain = torch.full((100,), math.inf, requires_grad=True)
    pmf = torch.stack([log_poisson_binomial(certain, k) for k in (0, 10, 100)])
    assert pmf.tolist() == [-math.inf, -math.inf, 0]
    pmf[0].backward()
    assert certain.grad is not None
    assert certain.grad.abs().max() == 0


@pytest.mark.usefixtures("way")
def test_single_precision_of_a_million_items(device: torch.device) -> None:
    logits = torch.randn(1_000_000, device=device)
    for k in (10, 1000, 500_000):
        for function in (log_normalizer, inclusion_probabilities, exclusion_probabilities):
            exact = function(logits.double(), k)
            single = function(logits, k)
            # Two units in the last place of the true value.
            assert ((single - exact).abs() <= 2.4e-7 * exact.abs()).all()


@pytest.mark.usefixtures("way")
def test_strided_and_expanded_inputs(device: torch.device) -> None:
    logits = torch.randn(9, 4, dtype=torch.float64, device=device)
    whole = inclusion_probabilities(logits.T.contiguous(), 3)
    assert torch.equal(inclusion_probabilities(logits.T, 3), whole)
    assert torch.equal(inclusion_probabilities(logits.T[:, None].expand(4, 5, 9), 3)[:, 2], whole)
    wide = torch.randn(4, 18, dtype=torch.float64, device=device)
    assert torch.equal(log_normalizer(wide[:, ::2], 3), log_normalizer(wide[:, ::2].contiguous(), 3))


@pytest.mark.usefixtures("way")
def test_properties(device: torch.device) -> None:
    logits = 5 * torch.randn(3, 50, dtype=torch.float64, device=device)
    mean = inclusion_probabilities(logits, 13)
    torch.testing.assert_close(mean.sum(-1), torch.full_like(mean[:, 0], 13), rtol=0, atol=1e-12)
    order = torch.randperm(50, device=device)
    torch.testing.assert_close(inclusion_probabilities(logits[:, order], 13), mean[:, order], rtol=1e-12, atol=0)
    torch.testing.assert_close(inclusion_probabilities(logits + 100, 13), mean, rtol=1e-11, atol=0)
    torch.testing.assert_close(inclusion_probabilities(-logits, 37), 1 - mean, rtol=0, atol=1e-13)
    shifted = log_normalizer(logits + 100, 13)
    torch.testing.assert_close(shifted, log_normalizer(logits, 13) + 1300, rtol=1e-14, atol=0)


@pytest.mark.usefixtures("way")
def test_infinite_logits_reduce_the_problem(device: torch.device) -> None:
    logits = torch.randn(6, dtype=torch.float64, device=device)
    inf = torch.tensor([math.inf], dtype=torch.float64, device=device)
    mean = inclusion_probabilities(torch.cat([logits[:3], inf, -inf, logits[3:], inf]), 4)
    expected = inclusion_probabilities(logits, 2)
    torch.testing.assert_close(mean[[0, 1, 2, 5, 6, 7]], expected, rtol=1e-14, atol=0)
    assert mean[[3, 4, 8]].tolist() == [1, 0, 1]
    torch.testing.assert_close(log_normalizer(torch.cat([logits, -inf]), 2), log_normalizer(logits, 2))
    assert log_normalizer(torch.cat([logits, inf]), 2) == math.inf


@pytest.mark.usefixtures("way")
def test_k_varies_by_row(device: torch.device) -> None:
    logits = torch.randn(2, 5, 9, dtype=torch.float64, device=device)
    k = torch.tensor([0, 1, 4, 8, 9], device=device)
    mean, normalizer = inclusion_probabilities(logits, k), log_normalizer(logits, k)
    for row, size in enumerate(k.tolist()):
        torch.testing.assert_close(mean[:, row], inclusion_probabilities(logits[:, row], size), rtol=0, atol=1e-14)
        torch.testing.assert_close(normalizer[:, row], log_normalizer(logits[:, row], size), rtol=0, atol=1e-13)
    assert inclusion_probabilities(logits[0, 0], k).shape == (5, 9)


MILLION = """
import time, torch
from ksubset import KSubset
logits = torch.randn(1_000_000, dtype=torch.float64)
times = []
for _ in range(3):
    start = time.perf_counter()
    dist = KSubset(1000, logits)
    assert dist.log_normalizer.isfinite() and abs(dist.mean.sum() - 1000) < 1e-6
    times.append(time.perf_counter() - start)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(min(times), int(status["VmHWM"].split()[0]) / 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_a_million_items_take_under_two_seconds_and_two_gibibytes() -> None:
    # In a process of its own, so that the peak memory is that of this work alone.
    result = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=True)
    seconds, gibibytes = map(float, result.stdout.split())
    assert seconds < 2
    assert gibibytes < 2


@pytest.mark.parametrize(
    ("logits", "k", "error", "message"),
    [
        (torch.zeros(3), -1, ValueError, "k must be between 0 and the number of items, 3, got -1"),
        (torch.zeros(3), 4, ValueError, "k must be between 0 and the number of items, 3, got 4"),
        (torch.zeros(3), 1.5, TypeError, "k must be an integer or an integer tensor, got 1.5 of type float"),
        (torch.zeros(3), True, TypeError, "got True of type bool"),
        (torch.zeros(2, 3), torch.tensor([1.0, 2.0]), TypeError, "got a tensor of torch.float32"),
        (torch.zeros(2, 3), torch.tensor([1, 4]), ValueError, "number of items, 3 in row 1, got 4"),
        (torch.zeros(2, 3), torch.tensor([1, 2, 3]), ValueError, r"broadcast over the batch of logits, \(2,\)"),
        (torch.zeros(3, dtype=torch.int64), 1, TypeError, "logits must be a floating-point tensor, got torch.int64"),
        ([0.0, 1.0], 1, TypeError, "logits must be a floating-point tensor, got list"),
        (torch.tensor(0.0), 0, ValueError, r"shape \(\*batch, n\) with n >= 1, got \(\)"),
        (torch.zeros(2, 0), 0, ValueError, r"got \(2, 0\)"),
        (torch.tensor([[0.0, 1], [math.nan, 0]]), 1, ValueError, "logits must not be NaN in row 1"),
        (torch.tensor([math.inf, math.inf, 0]), 1, ValueError, "at most k items, got 2 of them with k = 1"),
        (torch.tensor([-math.inf, 0, 0]), 3, ValueError, "at least k, got 2 possible items with k = 3"),
    ],
)
def test_bad_input_is_named(logits: object, k: object, error: type[Exception], message: str) -> None:
    for function in (log_normalizer, inclusion_probabilities):
        with pytest.raises(error, match=message):
            function(logits, k)  # type: ignore[arg-type]
