import dataclasses

import pytest

from ksubset.lab import tables
from ksubset.lab.results import Result, comparable


def test_tables(result: Result) -> None:
    text = tables.tables({"toy": result})
    assert "| Hybrid(ReplayedSlope) | 4 (2) |" in text  # the geometric mean of 2 and 8, and the least
    assert "| LeaveOneOut | 2 |" in text  # the mean mse at S = 8; S = 1, 32, 128 were not measured
    assert "| LeaveOneOut | 0.5 ± 0.25 | 0.125 | 0.1 | 0.2 | 2 | 2 | 8 + 0 | 16 |" in text
    # At 8 evaluations what was measured, at 32 nothing; within 3 ms nothing, within 10 ms two samples, then eight.
    assert "| LeaveOneOut | 2 | – | – | – | – | 8 | 2 | 2 |" in text
    assert "torch 9.9" in text
    assert "Instances: 2 (seeds 1, 2). Estimates: 100 at S = 2, 100 at S = 8." in text


def test_a_noisy_reference_is_told(result: Result) -> None:
    text = tables.tables({"toy": dataclasses.replace(result, reference_error=0.031)})
    assert "relative standard error 0.031" in text


def test_values_between_measured_ones() -> None:
    points = [(2, 16.0), (8, 4.0), (32, 0.25)]
    assert tables._interpolated(points, 4) == pytest.approx(8.0)
    assert tables._interpolated(points, 16) == pytest.approx(1.0)
    assert tables._interpolated(points, 33) is None
    assert tables._interpolated(points, 1) is None
    assert [tables._interpolated(points[:1], at) for at in (1, 2, 4)] == [None, pytest.approx(16.0), None]


def test_means_are_over_the_same_instances(result: Result) -> None:
    one = result.measurements[0]
    first = [dataclasses.replace(one, estimator=name, seed=1) for name in ("LeaveOneOut", "SIMPLE")]
    second = dataclasses.replace(one, seed=2, mse=100 * one.mse)
    partial = dataclasses.replace(result, measurements=[*first, second])
    assert comparable(partial).measurements == first
    complete = [*first, second, dataclasses.replace(second, estimator="SIMPLE")]
    assert comparable(dataclasses.replace(result, measurements=complete)).measurements == complete
    # Nothing is in common, and so nothing is left out.
    apart = [first[1], second]
    assert comparable(dataclasses.replace(result, measurements=apart)).measurements == apart


def test_no_variance_at_all_has_tables(result: Result) -> None:
    none = [dataclasses.replace(one, variance=0.0) for one in result.measurements]
    assert "Variance of LeaveOneOut" in tables.tables({"threshold": dataclasses.replace(result, measurements=none)})


def of(result: Result, *samples: int) -> Result:
    """A result with the same estimators, those that need two samples at least left out where there is one."""
    return dataclasses.replace(
        result,
        measurements=[
            dataclasses.replace(one, estimator=name, samples=number, evaluations=number)
            for one in result.measurements[:1]
            for number in samples
            for name in ("ScoreFunction", "LeaveOneOut", "Hybrid(ReplayedSlope)")
            if name == "ScoreFunction" or number > 1
        ],
    )


@pytest.mark.parametrize("samples", [(1,), (2,), (3, 5), (1, 300), (1, 2, 8), (32,)], ids=str)
def test_tables_have_columns_whatever_was_measured(result: Result, samples: tuple[int, ...]) -> None:
    text = tables.tables({"toy": of(result, *samples)})
    for block in text.split("\n\n"):
        if block.startswith("|"):
            widths = {line.count("|") for line in block.splitlines()}
            assert len(widths) == 1
            assert widths.pop() > 2
    assert ("over that of the hybrids" in text) == (max(samples) > 1)


def test_problems_that_were_measured_in_different_ways_have_their_own_columns(result: Result) -> None:
    text = tables.tables({"toy": of(result, 2), "network": of(result, 1), "quadratic": of(result, 4, 8)})
    assert "|  | toy, S = 2 | quadratic, S = 8 |\n| --- | --- | --- |\n" in text
    assert "| Hybrid(ReplayedSlope) | 1 (1) | 1 (1) |\n" in text
    assert "| Hybrid(SlopeAtMean) | – | – |\n" in text
