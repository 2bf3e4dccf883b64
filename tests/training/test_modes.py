"""What a program has set in torch changes no fit."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB
from torch import nn

from ksubset._support.modes import default_modes
from ksubset.applications.explain import SubsetExplainer
from ksubset.applications.neighbours import SubsetNeighborsClassifier
from ksubset.selection import KSubsetSelector, NeuralSubsetSelector

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 6)).astype(np.float32)
Y = X[:, 1] * X[:, 2]
COMMON: dict[str, Any] = {"steps": 10, "device": "cpu", "random_state": 0}


@contextmanager
def float64() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def half_precision() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@contextmanager
def another_device() -> Any:
    with torch.device("meta"):
        yield


def values(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows[:, :2].sum(1, keepdims=True)
    return found


def regression() -> np.ndarray:
    predicted: np.ndarray = NeuralSubsetSelector(2, **COMMON).fit(X, Y).predict(X)
    return predicted


def classification() -> np.ndarray:
    predicted: np.ndarray = NeuralSubsetSelector(2, **COMMON).fit(X, Y > 0).predict_proba(X)
    return predicted


def reconstruction() -> np.ndarray:
    return NeuralSubsetSelector(2, **COMMON).fit(X).predict(X)


def neighbours() -> np.ndarray:
    return SubsetNeighborsClassifier(3, **COMMON).fit(X, Y > 0).transform(X)


def explanation() -> np.ndarray:
    explainer = SubsetExplainer(values, 2, output="values", surrogate_steps=10, **COMMON).fit(X)
    found = explainer.explain(X)
    return np.column_stack([found.inclusion, explainer.predict(X, found.mask)])


def labels() -> np.ndarray:
    explainer = SubsetExplainer(None, 2, surrogate_steps=10, **COMMON).fit(X, Y > 0)
    found = explainer.explain(X)
    return np.column_stack([found.inclusion, explainer.predict(X, found.mask)])


@pytest.mark.parametrize("mode", [float64, torch.no_grad, torch.inference_mode, half_precision, another_device])
@pytest.mark.parametrize("fit", [regression, classification, reconstruction, neighbours, explanation, labels])
def test_modes_of_a_program_change_no_fit(
    fit: Callable[[], np.ndarray], mode: Callable[[], AbstractContextManager[None]]
) -> None:
    expected = fit()
    with mode():
        np.testing.assert_array_equal(fit(), expected)


def test_another_device_changes_no_search() -> None:
    selector = KSubsetSelector(GaussianNB(), n_features_to_select=2, max_evaluations=60, random_state=0)
    expected = selector.fit(X, Y > 0).cv_results_["mean_test_score"]
    with another_device():
        np.testing.assert_array_equal(selector.fit(X, Y > 0).cv_results_["mean_test_score"], expected)


def test_a_module_in_double_precision_is_taken() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    fitted = NeuralSubsetSelector(2, module=module, **COMMON).fit(X, Y)
    assert np.isfinite(fitted.predict(X)).all()
    assert module[0].weight.dtype == torch.float64
    points = SubsetNeighborsClassifier(3, embedding=module, **COMMON).fit(X, Y > 0).transform(X)
    assert np.isfinite(points).all()


class Casting(nn.Module):
    """Takes rows in float32, and computes in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 1).double()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(rows.double()).float()
        return found


def test_a_module_that_casts_its_rows_is_left_alone() -> None:
    fitted = NeuralSubsetSelector(2, module=Casting(), **COMMON).fit(X, Y)
    assert fitted.module_.linear.weight.dtype == torch.float64
    assert np.isfinite(SubsetNeighborsClassifier(3, embedding=Casting(), **COMMON).fit(X, Y > 0).transform(X)).all()


def test_fits_in_threads_leave_the_default_of_the_program() -> None:
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        with default_modes():
            inside.set()
            go.wait(10)

    with float64():
        thread = threading.Thread(target=first)
        thread.start()
        inside.wait(10)
        with default_modes():
            go.set()
            thread.join()
            assert torch.get_default_dtype() == torch.float32
