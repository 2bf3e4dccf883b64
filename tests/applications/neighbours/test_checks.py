"""What scikit-learn asks of every estimator, nothing left out."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import ksubset
from ksubset.applications.neighbours import SubsetNeighborsClassifier

SHORT = {"hidden_layer_sizes": (8,), "embedding_size": 4, "steps": 20, "batch_size": 16, "device": "cpu"}
CLASSIFIER = SubsetNeighborsClassifier(1, **SHORT, random_state=0)
# scikit-learn runs this one only if SCIPY_ARRAY_API was set before SciPy was imported.
IN_ITS_OWN_PROCESS = "check_array_api_input"


@pytest.mark.filterwarnings("default")  # checks fit to data that models warn of
@parametrize_with_checks([CLASSIFIER])
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    name = check.func.__name__
    if name == IN_ITS_OWN_PROCESS:
        in_its_own_process()
        return
    try:
        check(estimator)
    except SkipTest as skip:
        pytest.fail(f"{name} was skipped: {skip}")


def in_its_own_process() -> None:
    path = os.pathsep.join([str(Path(ksubset.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "1 passed\n"), done.stderr


if __name__ == "__main__":
    checks = [
        (estimator, check)
        for estimator, check in estimator_checks_generator(CLASSIFIER)
        if check.func.__name__ == IN_ITS_OWN_PROCESS
    ]
    for estimator, check in checks:
        check(estimator)  # a skipped one raises SkipTest
    print(f"{len(checks)} passed")
