"""Columns given by name or place, to all that takes them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from ksubset.regression import BestSubsetClassifier, BestSubsetRegressor
from ksubset.selection import KSubsetSelector, NeuralSubsetSelector

RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((60, 4)), np.arange(60) % 2
MODELS = [
    KSubsetSelector(Ridge(), n_features_to_select=1, max_evaluations=20, random_state=0),
    NeuralSubsetSelector(1, hidden_layer_sizes=(4,), steps=10, device="cpu", random_state=0),
    BestSubsetRegressor(1),
    BestSubsetClassifier(1),
]
GIVEN = {"exclude": [3], "always_include": np.array([0]), "feature_groups": [[0, 1]]}
CASES = [
    pytest.param(model, argument, columns, id=f"{type(model).__name__}-{argument}")
    for model in MODELS
    for argument, columns in GIVEN.items()
    if argument in model.get_params()
]


@pytest.mark.parametrize(("model", "argument", "columns"), CASES)
def test_integers_that_may_be_names_or_places(model: Any, argument: str, columns: Any) -> None:
    chosen = clone(model).set_params(**{argument: columns})
    with pytest.raises(ValueError, match=rf"^{argument}: expected names, as integers .* the columns \[3, 2, 1\]\.\.\."):
        chosen.fit(pd.DataFrame(X, columns=[3, 2, 1, 0]), LABELS)
    places = chosen.fit(pd.DataFrame(X), LABELS).get_support()  # where names are places
    assert np.array_equal(places, chosen.fit(X, LABELS).get_support())
    model.fit(pd.DataFrame(X, columns=[3, 2, 1, 0]), LABELS)  # without columns there is nothing to mistake


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("names", [["a", "b", "a", "c"], [0, 1, 0, 1]])
def test_two_columns_of_one_name(model: Any, names: list[Any]) -> None:
    with pytest.raises(ValueError, match=f"^X: expected columns of different names, got {names[0]!r} more than once"):
        clone(model).set_params(always_include=[names[0]]).fit(pd.DataFrame(X, columns=names), LABELS)
