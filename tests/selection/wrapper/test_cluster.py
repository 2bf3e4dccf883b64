"""Fits in processes of their own, and on a Ray cluster, find what one process finds."""

from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from ksubset.selection import KSubsetSelector


def fitted() -> KSubsetSelector:
    """Two columns of twelve matter; where fits run is the caller's affair."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 12))
    y = X[:, 3] - X[:, 7] + rng.standard_normal(80)
    return KSubsetSelector(
        LinearRegression(), n_features_to_select=[2, 3], cv=3, max_evaluations=60, random_state=0
    ).fit(X, y)


@pytest.fixture(scope="module")
def alone() -> KSubsetSelector:
    return fitted()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two workers on this machine."""
    ray = pytest.importorskip("ray", reason="ray is not installed, so that no search runs on a cluster of it")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def check_the_same(alone: KSubsetSelector, together: KSubsetSelector) -> None:
    np.testing.assert_array_equal(alone.support_, together.support_)
    assert alone.n_fits_ == together.n_fits_
    assert alone.cv_results_.keys() == together.cv_results_.keys()
    for name, values in alone.cv_results_.items():
        if name == "columns":
            assert list(map(list, values)) == list(map(list, together.cv_results_[name]))
        else:
            np.testing.assert_array_equal(values, together.cv_results_[name])


def test_processes_change_nothing(alone: KSubsetSelector) -> None:
    with joblib.parallel_config("loky", n_jobs=2):
        check_the_same(alone, fitted())


def test_a_cluster_changes_nothing(alone: KSubsetSelector, ray: Any) -> None:
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_config("ray", n_jobs=-1):
        assert joblib.effective_n_jobs() == 2
        check_the_same(alone, fitted())
