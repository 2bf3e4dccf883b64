"""What scikit-learn asks of every estimator."""

from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksubset.selection import KSubsetSelector

SMALL = {"n_features_to_select": 1, "cv": 2, "max_evaluations": 40, "random_state": 0}
# Checks that scikit-learn itself leaves out, and why.
LEFT_OUT = {
    "check_array_api_input": "arrays of other libraries need SCIPY_ARRAY_API, set before SciPy is imported",
}


@pytest.mark.filterwarnings("default")  # checks fit to data that models warn of
@parametrize_with_checks([KSubsetSelector(LogisticRegression(), **SMALL), KSubsetSelector(Ridge(), **SMALL)])
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    try:
        check(estimator)
    except SkipTest as skip:
        name = check.func.__name__
        if name not in LEFT_OUT:
            pytest.fail(f"{name} was skipped: {skip}")
        pytest.skip(LEFT_OUT[name])
