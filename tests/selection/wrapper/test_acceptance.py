"""What a model does not take is an error before the search, not columns that are silently lost."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ksubset.selection import KSubsetSelector

LINEAR = make_pipeline(StandardScaler(), LogisticRegression())


def table() -> tuple[pd.DataFrame, pd.Series]:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:200, :6].copy(), y[:200]


def selector(estimator: Any, k: int = 2, **parameters: Any) -> KSubsetSelector:
    return KSubsetSelector(estimator, n_features_to_select=k, cv=3, max_evaluations=30, random_state=0, **parameters)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(("value", "message"), [(np.nan, "contains NaN"), (np.inf, "contains infinity")])
def test_a_gap_that_the_model_does_not_take(library: str, value: float, message: str) -> None:
    X, y = table()
    X.loc[3, "mean texture"] = value
    data = X if library == "pandas" else pl.from_pandas(X)
    with pytest.raises(ValueError, match=message):
        selector(LINEAR).fit(data, y)
    left_out = selector(LINEAR, exclude=["mean texture"]).fit(data, y)
    assert "mean texture" not in left_out.get_feature_names_out()


def test_a_gap_that_the_model_takes() -> None:
    X, y = table()
    X.loc[3, "mean texture"] = np.nan
    assert selector(DecisionTreeClassifier(random_state=0)).fit(X, y).support_.sum() == 2


def test_text_that_the_model_does_not_take() -> None:
    X, y = table()
    with pytest.raises(ValueError, match="could not convert string to float"):
        selector(LINEAR).fit(X.assign(kind=np.where(y == 0, "a", "b")), y)


def test_arguments_of_fit_reach_the_model_that_is_asked() -> None:
    class Careful(DecisionTreeClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None, columns: Any = None) -> Any:
            assert len(sample_weight) == len(X)
            assert len(columns) == X.shape[1]
            return super().fit(X, y, sample_weight)

    X, y = table()
    X.loc[3, "mean texture"] = np.nan
    chosen = selector(Careful(), column_params=lambda columns: {"columns": columns})
    assert chosen.fit(X, y, sample_weight=np.ones(len(y))).support_.sum() == 2


@pytest.mark.parametrize("columns", [["kind"], "kind", [6], [False] * 6 + [True], slice(6, 7)])
def test_columns_that_a_subset_may_lack(columns: Any) -> None:
    X, y = table()
    X["kind"] = np.where(np.arange(200) % 3, "a", "b")
    encoded = ColumnTransformer([("kind", OneHotEncoder(drop="if_binary"), columns)], remainder="passthrough")
    model = make_pipeline(encoded, StandardScaler(), LogisticRegression())
    with pytest.raises(ValueError, match="estimator: expected a ColumnTransformer that takes columns by a function"):
        selector(model).fit(X, y)


def test_columns_that_are_made_before() -> None:
    X, y = table()
    second = ColumnTransformer([("first", StandardScaler(), [0])], remainder="passthrough")
    model = make_pipeline(PCA(2), second, LogisticRegression())
    assert selector(model, 3).fit(X, y).support_.sum() == 3


@pytest.mark.parametrize(
    "columns", [[0, 1], slice(0, 2), slice(1, 2), slice("mean radius", "mean texture"), 0, "mean radius"]
)
def test_places_and_ranges_that_no_subset_lacks(columns: Any) -> None:
    X, y = table()
    one = columns in (0, "mean radius")
    made = FunctionTransformer(pd.Series.to_frame) if one else MinMaxScaler()
    model = make_pipeline(ColumnTransformer([("first", made, columns)]), StandardScaler(), LogisticRegression())
    always = ["mean radius", "mean texture"]
    assert selector(model, 3, always_include=always).fit(X, y).support_.sum() == 3
    with pytest.raises(ValueError, match="estimator: expected a ColumnTransformer"):
        selector(GridSearchCV(model, {}, cv=3), 3, always_include=["mean area"]).fit(X, y)


def test_columns_that_no_subset_lacks() -> None:
    X, y = table()
    X["kind"] = np.where(np.arange(200) % 3, "a", "b")
    by_type = make_column_transformer(
        (OneHotEncoder(drop="if_binary"), make_column_selector(dtype_include=[object, "string"])),
        remainder="passthrough",
    )
    by_name = make_column_transformer((OneHotEncoder(drop="if_binary"), ["kind"]), remainder="passthrough")
    for encoded, always in ((by_type, None), (by_name, ["kind"])):
        model = make_pipeline(encoded, StandardScaler(), LogisticRegression())
        assert selector(model, always_include=always).fit(X, y).support_.sum() == 2
