import dataclasses
import math

import pytest
import torch
from torch import Tensor

from ksubset import SIMPLE, Estimator, GumbelTopK, Hybrid, LeaveOneOut, ReplayedSlope, SlopeAtMean, SubsetDistribution
from ksubset.lab import problems
from ksubset.lab.measurements import ESTIMATORS, cells, estimates, measure, quality

pytestmark = pytest.mark.usefixtures("one_thread")

PROBLEM = problems.quadratic(1234)


def test_leave_one_out_is_unbiased_and_the_relaxation_is_not() -> None:
    unbiased = measure(PROBLEM, LeaveOneOut(), 4, 4000)
    assert unbiased.bias < 2 * unbiased.bias_noise < 0.1
    biased = measure(PROBLEM, GumbelTopK(0.5), 4, 4000)
    assert biased.bias > 10 * biased.bias_noise


@pytest.mark.parametrize(
    ("name", "evaluations", "gradients"),
    [
        ("ScoreFunction", 4, 0),
        ("LeaveOneOut", 4, 0),
        ("GumbelTopK(2, straight-through)", 4, 4),
        ("IMLE(2.5)", 4, 4),
        ("SIMPLE", 4, 4),
        ("ReinMax", 4, 4),
        ("Hybrid(SlopeAtMean)", 5, 1),
        ("Hybrid(SlopeAtSamples)", 4, 4),
        ("Hybrid(ReplayedSlope)", 4, 0),
    ],
)
def test_evaluations_are_counted(name: str, evaluations: int, gradients: int) -> None:
    found = measure(PROBLEM, ESTIMATORS[name](), 4, 2)
    assert (found.evaluations, found.gradients) == (evaluations, gradients)
    assert found.seconds > 0


def test_what_can_be_measured() -> None:
    everything = cells(True, (1, 2))
    assert len(everything) == 2 * len(ESTIMATORS) - 5
    assert ("LeaveOneOut", 1) not in everything
    names = {name for name, _ in cells(False, (2,))}
    assert names == {"ScoreFunction", "LeaveOneOut", "UnorderedSet", "Hybrid(ReplayedSlope)"}


@pytest.mark.parametrize(
    ("name", "samples", "repeats", "message"),
    [
        ("LeaveOneOut", 1, 10, "samples: expected 2 or more for LeaveOneOut, got 1"),
        ("SIMPLE", 0, 10, "samples: expected 1 or more for SIMPLE, got 0"),
        ("SIMPLE", 4, 1, "repeats: expected 2 or more for SIMPLE, got 1"),
    ],
)
def test_what_cannot_be_measured(name: str, samples: int, repeats: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(PROBLEM, ESTIMATORS[name](), samples, repeats)


def test_a_gradient_of_zeros_is_nothing_to_compare_with() -> None:
    flat = dataclasses.replace(PROBLEM, gradient=torch.zeros_like(PROBLEM.gradient))
    with pytest.raises(ValueError, match="expected a gradient to compare with, got one of zeros at quadratic"):
        measure(flat, LeaveOneOut(), 4, 10)


def test_what_is_no_estimator_or_needs_what_is_not_there_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"estimator: expected an instance of Estimator, such as LeaveOneOut\(\), got <"
    ):
        measure(PROBLEM, SIMPLE, 4, 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected one that needs no gradient of f at threshold, got SIMPLE"):
        measure(problems.threshold(0), SIMPLE(), 4, 10)


class _Counting(LeaveOneOut):
    """Remembers how often it was called."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self._see = seen.append

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        self.calls += 1
        self._see(int(self.calls))
        return super().surrogate(loss, sample, dist)


def test_an_estimator_that_remembers_has_seen_eight_calls_and_stays_as_it_is() -> None:
    seen = list[int]()
    estimator = _Counting(seen)
    assert measure(PROBLEM, estimator, 4, 10).estimator == "_Counting"
    # The estimates, the counted one and those that are timed each start where the eight calls have ended.
    assert seen[:8] == [*range(1, 9)]
    assert seen[8:11] == [9, 9, 9]
    assert estimator.calls == 0


def test_measurements_do_not_depend_on_what_came_before() -> None:
    first = measure(PROBLEM, Hybrid(SlopeAtMean()), 4, 10)
    torch.rand(1)
    assert measure(PROBLEM, Hybrid(SlopeAtMean()), 4, 10).mse == first.mse


def test_the_budget_limits_the_repeats() -> None:
    assert measure(PROBLEM, LeaveOneOut(), 128, 10_000).repeats == PROBLEM.budget // 128


@pytest.mark.parametrize("estimator", [LeaveOneOut(), GumbelTopK(1.0), Hybrid(ReplayedSlope())], ids=repr)
def test_estimates_are_as_many_as_asked_for_and_leave_no_trace(estimator: Estimator) -> None:
    torch.manual_seed(0)
    first = estimates(PROBLEM, estimator, 64, 600)
    assert first.shape == (600, 10)
    torch.manual_seed(0)
    assert torch.equal(estimates(PROBLEM, estimator, 64, 600), first)


def test_quality_of_estimates_with_a_known_error() -> None:
    exact = torch.tensor([3.0, 4.0], dtype=torch.float64)
    # Mean (3, 8): off by (0, 4); around it plus and minus (2, 0).
    g = torch.tensor([[5.0, 8.0], [1.0, 8.0]])
    found = quality(g, exact, noise=0.5)
    assert found.bias == pytest.approx(4 / 5)
    # Sample variance of the first entry: (4 + 4) / 1.
    assert found.variance == pytest.approx(8 / 25)
    assert found.bias_noise == pytest.approx(math.sqrt((8 / 2 + 0.5) / 25))
    assert found.mse == pytest.approx((20 - 0.5) / 25)
    cos = [47 / (5 * math.sqrt(89)), 35 / (5 * math.sqrt(65))]
    assert found.error_cos == pytest.approx(1 - sum(cos) / 2)
    assert found.bias_cos == pytest.approx(1 - 41 / (5 * math.sqrt(73)))
    to_mean = [(15 + 64) / math.sqrt(89 * 73), (3 + 64) / math.sqrt(65 * 73)]
    assert found.var_cos == pytest.approx((to_mean[0] - to_mean[1]) ** 2 / 2)
