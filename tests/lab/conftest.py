"""Measurements made by hand."""

import pytest

from ksubset.lab.measurements import Measurement
from ksubset.lab.results import Result, Settings


def measurement(estimator: str, samples: int, seed: int, mse: float, gradients: int = 0) -> Measurement:
    return Measurement(
        bias=0.5,
        bias_noise=0.25,
        bias_cos=0.125,
        var_cos=0.1,
        error_cos=0.2,
        variance=mse,
        mse=mse,
        problem="toy",
        seed=seed,
        estimator=estimator,
        samples=samples,
        repeats=100,
        seconds=0.002 * samples,
        evaluations=samples,
        gradients=gradients,
    )


@pytest.fixture
def result() -> Result:
    return Result(
        Settings(samples=(2, 8), repeats=100, seeds=(1, 2)),
        {"torch": "9.9", "device": "CPU"},
        0.0,
        [
            measurement("LeaveOneOut", 2, 1, 6.0),
            measurement("LeaveOneOut", 8, 1, 1.0),
            measurement("LeaveOneOut", 2, 2, 10.0),
            measurement("LeaveOneOut", 8, 2, 3.0),
            measurement("SIMPLE", 8, 1, 0.5, gradients=8),
            measurement("Hybrid(ReplayedSlope)", 8, 1, 0.5),
            measurement("Hybrid(ReplayedSlope)", 8, 2, 3 / 8),
        ],
    )
