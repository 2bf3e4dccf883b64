"""Bias, variance, error and cost of an estimator, from many independent estimates of one gradient."""

import copy
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ksubset.distributions import KSubset, SubsetDistribution
from ksubset.estimators import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    LeaveOneOut,
    ReinMax,
    ReplayedSlope,
    ScoreFunction,
    SlopeAtMean,
    SlopeAtSamples,
    StochasticGates,
    UnorderedSet,
    expectation,
)
from ksubset.lab.problems import Problem

__all__ = ["ESTIMATORS", "Measurement", "Quality", "cells", "estimates", "measure", "quality"]


class _OfLogTheta(GumbelTopK):
    """As published code has it that perturbs `log theta`, not its log-odds: other samples, and smaller gradients."""

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        assert isinstance(dist, KSubset)
        log_theta = torch.nn.functional.logsigmoid(dist.logits)
        return super().sample(KSubset(dist.k, log_theta, validate_args=False), num_samples, generator)


ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    "ScoreFunction": ScoreFunction,
    "LeaveOneOut": LeaveOneOut,
    "GumbelTopK(0.5)": lambda: GumbelTopK(0.5),
    "GumbelTopK(2)": lambda: GumbelTopK(2.0),
    "GumbelTopK(0.5, log theta)": lambda: _OfLogTheta(0.5),
    "GumbelTopK(0.5, straight-through)": lambda: GumbelTopK(0.5, straight_through=True),
    "GumbelTopK(2, straight-through)": lambda: GumbelTopK(2.0, straight_through=True),
    "DPS(0.5)": lambda: DPS(0.5),
    "StochasticGates(0.5)": lambda: StochasticGates(0.5),
    "IMLE(2.5)": lambda: IMLE(beta=2.5, temperature=1.0, terms=10),
    "SIMPLE": SIMPLE,
    "ReinMax": ReinMax,
    "NCPSS": NCPSS,
    "UnorderedSet": UnorderedSet,
    "Hybrid(SlopeAtMean)": lambda: Hybrid(SlopeAtMean()),
    "Hybrid(SlopeAtSamples)": lambda: Hybrid(SlopeAtSamples()),
    "Hybrid(ReplayedSlope)": lambda: Hybrid(ReplayedSlope()),
}
"""Makers of the estimators by their names in tables."""

# Entries of the subsets in one call: few enough to stay near the cache, and far from filling the memory.
_ENTRIES = 300_000
_FEWEST = 100
# What an estimator that remembers sees before it is measured, at most: a hybrid's memory is full then, and its scale
# settled.
_WARM_CALLS, _WARM_ROWS = 8, 128
# A replayed slope is computed anew every 256 evaluations, which the time must hold.
_TIMED_CALLS, _TIMED_EVALUATIONS = 8, 256


@dataclass(frozen=True)
class Quality:
    """What estimates of a gradient are worth; the fields are those of `Measurement`."""

    bias: float
    bias_noise: float
    bias_cos: float
    var_cos: float
    error_cos: float
    variance: float
    mse: float


@dataclass(frozen=True)
class Measurement(Quality):
    """What estimates `g` of an estimator at one problem are worth, the exact gradient being `e`, and what they cost.

    Arguments:
        bias: `|mean g - e| / |e|`; without any bias about `bias_noise`.
        bias_noise: Standard error of that, from the estimates and from the reference.
        bias_cos: `1 - cos(mean g, e)`.
        var_cos: Variance of `cos(g, mean g)`.
        error_cos: Mean of `1 - cos(g, e)`.
        variance: Total variance of g over `|e|^2`.
        mse: Mean of `|g - e|^2` over `|e|^2`.
        problem, seed: The problem.
        estimator: Its name.
        samples: Samples S of one estimate.
        repeats: Estimates that were made.
        seconds: Mean processor time of one estimate, in a call of its own.
        evaluations: Evaluations of f for one estimate.
        gradients: Evaluations of the gradient of f for one estimate.

    Example:
        >>> from ksubset import SIMPLE
        >>> from ksubset.lab import measure, quadratic
        >>> found = measure(quadratic(1234), SIMPLE(), samples=4, repeats=100)
        >>> found.estimator, found.evaluations, found.gradients
        ('SIMPLE', 4, 4)
    """

    problem: str
    seed: int
    estimator: str
    samples: int
    repeats: int
    seconds: float
    evaluations: int
    gradients: int


def cells(differentiable: bool, samples: Sequence[int]) -> list[tuple[str, int]]:
    """What can be measured at a problem: names of estimators, each with the numbers of samples that suit it."""
    made = {name: make() for name, make in ESTIMATORS.items()}
    return [
        (name, number)
        for name, estimator in made.items()
        if differentiable or not estimator.needs_gradient
        for number in samples
        if number >= estimator.min_samples
    ]


def measure(problem: Problem, estimator: Estimator, samples: int, repeats: int = 10_000) -> Measurement:
    """Measure bias, variance, error and cost of an estimator.

    The random numbers are those of the problem's seed, whatever was measured before. An estimator that remembers, in
    buffers, is measured in the state in which eight calls have left a copy of it; their evaluations are not counted.

    Arguments:
        problem: Where to measure.
        estimator: What to measure; it stays as it is. Its name is that of its class.
        samples: Samples S of one estimate.
        repeats: Independent estimates, at most: fewer where the problem's budget says so, but a hundred if asked for.

    Raises:
        TypeError: `estimator` is no instance of Estimator.
        ValueError: There are too few samples or repeats, the gradient is 0, or the estimator needs that of f and there
            is none.

    Example:
        >>> from ksubset import SIMPLE, LeaveOneOut
        >>> from ksubset.lab import measure, toy
        >>> for estimator in (LeaveOneOut(), SIMPLE()):
        ...     found = measure(toy(1234), estimator, samples=8, repeats=2000)
        ...     print(found.estimator, found.bias < 3 * found.bias_noise)
        LeaveOneOut True
        SIMPLE False
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator: expected an instance of Estimator, such as LeaveOneOut(), got {estimator!r}")
    name = type(estimator).__name__
    for what, number, least in (("samples", samples, estimator.min_samples), ("repeats", repeats, 2)):
        if number < least:
            raise ValueError(f"{what}: expected {least} or more for {name}, got {number}")
    if not problem.gradient.any():
        raise ValueError(f"problem: expected a gradient to compare with, got one of zeros at {problem.name}")
    if estimator.needs_gradient and not problem.differentiable:
        raise ValueError(f"estimator: expected one that needs no gradient of f at {problem.name}, got {name}")
    estimator = copy.deepcopy(estimator)
    repeats = min(repeats, max(_FEWEST, problem.budget // samples))
    with torch.random.fork_rng(devices=[]):
        if any(True for _ in estimator.buffers()):
            torch.manual_seed(problem.seed + 1)
            for _ in range(_WARM_CALLS):
                _gradient(problem, estimator, samples, (min(_WARM_ROWS, _rows(problem, samples)),))
        # The same subsets for all estimators with exact samples, so that their ratios hold little noise; neither the
        # stream of the warm-up nor the one that the problem's own numbers come from.
        torch.manual_seed(problem.seed + 2)
        found = quality(estimates(problem, estimator, samples, repeats), problem.gradient, problem.noise)
        counter = _Counter(problem.f)
        _gradient(dataclasses.replace(problem, f=counter), copy.deepcopy(estimator), samples)
        seconds = _seconds(problem, estimator, samples)
    return Measurement(
        **vars(found), problem=problem.name, seed=problem.seed, estimator=name, samples=samples, repeats=repeats,
        seconds=seconds, evaluations=counter.evaluations, gradients=counter.gradients,
    )  # fmt: skip


def estimates(problem: Problem, estimator: Estimator, samples: int, repeats: int) -> Tensor:
    """Independent estimates of the gradient, `(repeats, n)`.

    What the estimator remembers stays as it is, so that no estimate depends on another one's call.
    """
    rows = _rows(problem, samples)
    sizes = [min(rows, repeats - start) for start in range(0, repeats, rows)]
    return torch.cat([_gradient(problem, copy.deepcopy(estimator), samples, (size,)) for size in sizes])


def _rows(problem: Problem, samples: int) -> int:
    """Estimates that one call makes at once."""
    return max(1, _ENTRIES // (samples * len(problem.logits)))


def quality(gradients: Tensor, exact: Tensor, noise: float = 0.0) -> Quality:
    """Compare estimates `(R, n)` with the exact gradient `(n)`.

    A reference that is not exact but has an independent error, of total squared size `noise`, adds it to every squared
    distance: it is taken out of the mean squared error, and is part of `bias_noise`. Bias and cosines keep it.
    """
    gradients = gradients.double()
    mean, norm = gradients.mean(0), float(exact.square().sum())
    variance = float(gradients.var(0).sum())
    cos = torch.cosine_similarity
    return Quality(
        bias=float((mean - exact).square().sum() / norm) ** 0.5,
        bias_noise=((variance / len(gradients) + noise) / norm) ** 0.5,
        bias_cos=1 - float(cos(mean, exact, dim=0)),
        var_cos=float(cos(gradients, mean[None]).var()),
        error_cos=1 - float(cos(gradients, exact[None]).mean()),
        variance=variance / norm,
        mse=(float((gradients - exact).square().sum(-1).mean()) - noise) / norm,
    )


def _gradient(problem: Problem, estimator: Estimator, samples: int, batch: Sequence[int] = ()) -> Tensor:
    """Estimates of the gradient, `(*batch, n)`."""
    # Repeated, not expanded: every row has a gradient of its own.
    logits = problem.logits.repeat(*batch, 1) if batch else problem.logits.clone()
    logits.requires_grad_()
    dist = KSubset(problem.k, logits, validate_args=False)
    # The rows are independent, so the gradient of their sum holds that of each.
    (gradient,) = torch.autograd.grad(expectation(problem.f, dist, estimator, samples).sum(), logits)
    return gradient


def _seconds(problem: Problem, estimator: Estimator, samples: int) -> float:
    estimator = copy.deepcopy(estimator)
    calls = max(_TIMED_CALLS, _TIMED_EVALUATIONS // samples)
    _gradient(problem, estimator, samples)
    # Processor time: on one thread that of the wall clock, but for other processes.
    start = time.process_time()
    for _ in range(calls):
        _gradient(problem, estimator, samples)
    return (time.process_time() - start) / calls


class _Counter:
    """A loss that counts the subsets for which it, or its gradient, is computed."""

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        self._f, self.evaluations, self.gradients = f, 0, 0

    def __call__(self, z: Tensor) -> Tensor:
        self.evaluations += z[..., 0].numel()
        watched = z.view_as(z)
        if watched.requires_grad:
            watched.register_hook(self._count)
        return self._f(watched)

    def _count(self, grad: Tensor) -> None:
        self.gradients += grad[..., 0].numel()
