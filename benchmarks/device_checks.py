"""Whether a device computes what the CPU computes: for machines that have an accelerator but no pytest.

Usage: python benchmarks/device_checks.py [cuda]

Each check compares with the float64 recursion, enumeration or exact binomial p-values of tests/oracle.py.
"""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from oracle import FALSE_ALARM, binomial_p_value, gradient, recursion, z_limit

from ksubset import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    GumbelTopK,
    Hybrid,
    KSubset,
    LeaveOneOut,
    ReinMax,
    ScoreFunction,
    SlopeAtMean,
    SlopeAtSamples,
    StochasticGates,
    expectation,
)
from ksubset.numerics import inclusion_probabilities, log_normalizer

ESTIMATORS = (
    ScoreFunction(),
    LeaveOneOut(),
    GumbelTopK(0.5),
    GumbelTopK(0.5, straight_through=True),
    IMLE(2.5),
    SIMPLE(),
    NCPSS(),
    ReinMax(),
    DPS(0.5),
    StochasticGates(),
    Hybrid(SlopeAtMean()),
    Hybrid(SlopeAtSamples()),
)


def normaliser(device: str) -> bool:
    worst = 0.0
    for scale in (1.0, 30.0):
        logits = scale * torch.randn(64, 784, dtype=torch.float64)
        value, mean = recursion(logits, 30)
        worst = max(worst, float((log_normalizer(logits.to(device), 30).cpu() - value).abs().max()) / 100)
        worst = max(worst, float((inclusion_probabilities(logits.to(device), 30).cpu() - mean).abs().max()))
    return worst < 1e-12


def second_derivative(device: str) -> bool:
    logits = torch.randn(2, 7, dtype=torch.float64, device=device, requires_grad=True)
    return torch.autograd.gradgradcheck(lambda w: log_normalizer(w, 3), logits)


def sizes_by_row(device: str) -> bool:
    k = torch.tensor([0, 3, 6])
    dist = KSubset(k, torch.randn(3, 6, device=device))
    return bool((dist.sample((1000,)).sum(-1).cpu() == k).all()) and bool(dist.mean.isfinite().all())


def sampler(device: str) -> bool:
    logits = 1.5 * torch.randn(784, dtype=torch.float64)
    _, mean = recursion(logits, 30)
    counts = KSubset(30, logits.to(device)).sample((100_000,)).sum(0)
    return binomial_p_value(counts, mean, 100_000) > FALSE_ALARM


def never_and_always(device: str) -> bool:
    logits = torch.tensor([0.0, -math.inf, math.inf, 1.0, -1.0], device=device)
    sample = KSubset(2, logits).sample((1_000_000,))
    return bool((sample.sum(-1) == 2).all()) and sample[:, 1].max() == 0 and bool(sample[:, 2].min() == 1)


def generator(device: str) -> bool:
    dist = KSubset(2, torch.zeros(5, device=device))
    draws = [dist.sample((9,), generator=torch.Generator(device).manual_seed(0)) for _ in range(2)]
    return torch.equal(*draws)


def estimators(device: str) -> bool:
    logits = torch.tensor([0.8, -0.5, 0.3, -1.0, 0.0, 0.6], dtype=torch.float64)
    weights = torch.tensor([1.0, -0.6, 0.4, 0.9, -1.2, 0.2], dtype=torch.float64)

    def f(z: torch.Tensor) -> torch.Tensor:
        return torch.cos(2 * (z * weights.to(z.device)).sum(-1))

    verdicts = []
    for estimator in ESTIMATORS:
        rows = logits.to(device).repeat(500_000, 1).requires_grad_()
        expectation(f, KSubset(3, rows), estimator, 4).sum().backward()
        assert rows.grad is not None
        sample = rows.grad.cpu()
        z = (sample.mean(0) - gradient(f, logits, 3)) / (sample.std(0) / math.sqrt(len(sample)))
        verdicts.append(bool((z.abs() < z_limit(6)).all()) == estimator.unbiased)
    return all(verdicts)


def training_step_without_synchronisation(device: str) -> bool:
    """A step of each estimator under torch's own watch for calls that make the host wait."""
    logits = torch.zeros(784, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([logits], fused=True)
    values = torch.randn(784, device=device)
    for estimator in ESTIMATORS:
        for watch in ("default", "error"):  # the first step may set up what later ones find
            torch.cuda.set_sync_debug_mode(watch)
            try:
                dist = KSubset(30, logits, validate_args=False).expand((64,))
                expectation(lambda z: (z * values).sum(-1), dist, estimator, 5).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            except RuntimeError as error:
                print(f"{estimator}: {error}")
                return False
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return True


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    torch.manual_seed(0)
    failed = 0
    checks = [normaliser, second_derivative, sizes_by_row, sampler, never_and_always, generator, estimators]
    if device.startswith("cuda"):
        checks.append(training_step_without_synchronisation)
    for check in checks:
        try:
            passed = check(device)
        except Exception as error:
            print(f"{check.__name__}: {type(error).__name__}: {error}")
            passed = False
        failed += not passed
        print(f"{'passed' if passed else 'FAILED'}: {check.__name__} on {device}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
