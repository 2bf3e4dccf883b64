"""What scikit-learn asks of every estimator, nothing left out."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import ksubset
from ksubset.selection import KSubsetSelector, NeuralSubsetSelector

SMALL = {"n_features_to_select": 1, "cv": 2, "max_evaluations": 40, "random_state": 0}
SHORT = {"hidden_layer_sizes": (8,), "steps": 10, "batch_size": 16, "device": "cpu", "random_state": 0}
SELECTORS = [
    KSubsetSelector(LogisticRegression(), **SMALL),
    KSubsetSelector(Ridge(), **SMALL),
    *(NeuralSubsetSelector(1, task=task, **SHORT) for task in ("classification", "regression", "reconstruction", None)),
]
# scikit-learn runs this one only if SCIPY_ARRAY_API was set before SciPy was imported.
IN_ITS_OWN_PROCESS = "check_array_api_input"


@pytest.mark.filterwarnings("default")  # checks fit to data that models warn of
@parametrize_with_checks(SELECTORS)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    name = check.func.__name__
    if name == IN_ITS_OWN_PROCESS:
        number = next(number for number, selector in enumerate(SELECTORS) if repr(selector) == repr(estimator))
        done = in_their_own_process()
        assert f"{number} passed" in done.stdout.splitlines(), done.stderr
        return
    try:
        check(estimator)
    except SkipTest as skip:
        pytest.fail(f"{name} was skipped: {skip}")


@functools.cache
def in_their_own_process() -> subprocess.CompletedProcess[str]:
    """For all selectors at once, as the imports take longer than the checks."""
    path = os.pathsep.join([str(Path(ksubset.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", __file__]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


if __name__ == "__main__":
    for number, selector in enumerate(SELECTORS):
        for estimator, check in estimator_checks_generator(selector):
            if check.func.__name__ == IN_ITS_OWN_PROCESS:
                check(estimator)  # a skipped one raises SkipTest
                print(f"{number} passed")
