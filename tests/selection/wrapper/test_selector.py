"""KSubsetSelector as its users meet it; cases that broke other selectors name where they were reported."""

import itertools
import math
import os
import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.cluster import KMeans
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_selection import SelectorMixin, SequentialFeatureSelector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    StratifiedKFold,
    TimeSeriesSplit,
    check_cv,
    cross_val_score,
)
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ksubset.selection import KSubsetSelector, Progress
from ksubset.selection.wrapper.cache import ScoreStore
from ksubset.selection.wrapper.evaluation import fresh_splitters
from ksubset.selection.wrapper.problem import default_budget

TREE = DecisionTreeClassifier(max_depth=4, random_state=0)


class Recorder(ClassifierMixin, BaseEstimator):
    """Predicts the first column, and notes what it was fitted with."""

    fits: ClassVar[list[tuple[Any, Any, dict[str, Any]]]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Recorder":
        self.fits.append((X, y, {"sample_weight": sample_weight}))
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        first = X.to_numpy()[:, 0] if hasattr(X, "to_numpy") else X[:, 0]
        return self.classes_[np.asarray(first).astype(int) % len(self.classes_)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return float(np.average(self.predict(X) == y, weights=sample_weight))


@pytest.fixture(autouse=True)
def _forget() -> None:
    Recorder.fits.clear()


def selector(estimator: Any = TREE, k: Any = 2, **parameters: Any) -> KSubsetSelector:
    return KSubsetSelector(
        estimator, n_features_to_select=k, **{"cv": 3, "max_evaluations": 300, "random_state": 0, **parameters}
    )


def test_no_columns_is_an_error(numbers: Any) -> None:  # scikit-learn#3010
    with pytest.raises(ValueError, match=r"n_features_to_select: expected 1 to 20, .* got 0"):
        selector(k=0).fit(*numbers)


def test_more_columns_than_there_are_is_an_error(numbers: Any) -> None:  # scikit-learn#28725, #27540
    with pytest.raises(ValueError, match=r"n_features_to_select: expected 1 to 20, .* got 21"):
        selector(k=21).fit(*numbers)


def test_labels_are_strings() -> None:  # scikit-learn#33760
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 10)), np.array(["Class_A", "Class_B", "Class_C"])[rng.integers(0, 3, 200)]
    fitted = selector(HistGradientBoostingClassifier(max_iter=5, early_stopping=True), 9, max_evaluations=9).fit(X, y)
    assert fitted.classes_.tolist() == ["Class_A", "Class_B", "Class_C"]
    assert set(fitted.predict(X)) <= set(y)


class Categorical(Recorder):
    """Predicts the category, if there is such a column; it refuses anything but DataFrames."""

    def predict(self, X: Any) -> Any:
        return (X["c"] == "v").astype(int).to_numpy() if "c" in X else np.zeros(len(X), dtype=int)


def test_categories_reach_the_model(numbers: Any) -> None:  # scikit-learn#30785, #34227, #25711; mlxtend#943
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.random(40), "c": pd.Categorical(["u", "v"] * 20), "z": rng.random(40)})
    fitted = selector(Categorical(), 1).fit(X, [0, 1] * 20)
    assert fitted.get_feature_names_out().tolist() == ["c"]
    assert all(isinstance(seen, pd.DataFrame) for seen, *_ in Recorder.fits)
    assert {str(seen.dtypes["c"]) for seen, *_ in Recorder.fits if "c" in seen} == {"category"}
    assert fitted.score(X, [0, 1] * 20) == 1.0


def test_text_and_categories_of_polars_reach_the_model() -> None:
    X = pl.DataFrame({"x": [0.5] * 39 + [1.0], "c": ["u", "v"] * 20})

    class Text(Recorder):
        def predict(self, X: Any) -> Any:
            return (X["c"] == "v").to_numpy().astype(int) if "c" in X.columns else np.zeros(len(X), dtype=int)

    fitted = selector(Text(), 1).set_output(transform="polars").fit(X, [0, 1] * 20)
    assert fitted.transform(X).equals(X[["c"]])
    assert all(isinstance(seen, pl.DataFrame) for seen, *_ in Recorder.fits)
    assert fitted.score(X, [0, 1] * 20) == 1.0


def test_names_types_and_index_are_kept() -> None:  # scikit-learn#25102; boruta_py#145
    X = pd.DataFrame({"a": [0, 1, 0, 1], "b c": [1, 1, 0, 0], "f3": pd.Categorical(list("uvwu"))}, [10, 20, 30, 40])
    fitted = selector(Recorder(), 2, cv=2, exclude=["b c"]).fit(X, [0, 1, 0, 1])
    assert fitted.get_support().tolist() == [True, False, True]
    assert fitted.get_feature_names_out().tolist() == ["a", "f3"]
    pd.testing.assert_frame_equal(fitted.set_output(transform="pandas").transform(X), X[["a", "f3"]])
    numbered = selector(Recorder(), 2, cv=2, exclude=[1]).fit(X.set_axis([0, 1, 2], axis=1), [0, 1, 0, 1])
    assert numbered.get_feature_names_out().tolist() == ["x0", "x2"]
    with pytest.raises(TypeError, match="string names"):
        selector(Recorder(), 2, cv=2).fit(X.set_axis(["a", 1, "b"], axis=1), [0, 1, 0, 1])


def test_missing_values_of_a_dataframe_pass_where_the_model_took_them() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((40, 3)), columns=["a", "b", "c"]).mask(rng.random((40, 3)) < 0.2)
    # Its tags say that it takes none.
    filled = make_column_transformer((SimpleImputer(), make_column_selector()))
    fitted = selector(make_pipeline(filled, LogisticRegression()), 1).fit(X, X["b"].fillna(0) > 0)
    np.testing.assert_array_equal(fitted.transform(X), X[["b"]])


def test_six_hundred_columns_are_distinct() -> None:  # Concrete-Autoencoders#2, #3
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2000))
    fitted = selector(Ridge(), 600, max_evaluations=40).fit(X, X[:, 0])
    assert fitted.get_support().sum() == 600
    assert all(len(set(columns.tolist())) == 600 for columns in fitted.cv_results_["columns"])


def test_exactly_seven() -> None:  # pyHSICLasso#34; lime#118; lassonet#25
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 20))
    assert selector(LinearRegression(), 7).fit(X, X @ np.ones(20)).transform(X).shape == (60, 7)


def test_exclusive_or_of_two_of_six() -> None:
    X = np.array(list(itertools.product([0, 1], repeat=6)))
    fitted = selector().fit(X, X[:, 0] ^ X[:, 1])
    assert fitted.get_support(indices=True).tolist() == [0, 1]
    assert fitted.best_score_ == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_exclusive_or_of_two_of_twenty(seed: int) -> None:
    X = np.random.default_rng(seed).integers(0, 2, (200, 20))
    fitted = selector(max_evaluations=None, cv=5, random_state=seed).fit(X, X[:, 4] ^ X[:, 11])
    assert fitted.get_support(indices=True).tolist() == [4, 11]


def test_forward_selection_fails_where_two_columns_count_together() -> None:
    """Of the searches above all find both: here a first column is chosen by luck."""
    found = 0
    for seed in range(20):
        X = np.random.default_rng(seed).integers(0, 2, (200, 20))
        y = X[:, 4] ^ X[:, 11]
        # The first of two columns is the one that would be chosen alone: the second is sought only where it matters.
        (first,) = SequentialFeatureSelector(TREE, n_features_to_select=1, cv=5).fit(X, y).get_support(indices=True)
        if first in (4, 11):
            forward = SequentialFeatureSelector(TREE, n_features_to_select=2, cv=5).fit(X, y)
            found += forward.get_support(indices=True).tolist() == [4, 11]
    assert found <= 5


def test_a_constant_column_is_no_choice() -> None:  # mifs#5; probatus#229
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.random((9000, 20)), np.ones(9000)]), rng.integers(0, 2, 9000)
    fitted = selector(GaussianNB(), 5, max_evaluations=60).fit(X, y)
    assert fitted.get_support().sum() == 5
    assert not fitted.get_support()[20]
    assert selector(GaussianNB(), 21, max_evaluations=60).fit(X[:90], y[:90]).get_support().all()


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array, pd.DataFrame, pl.DataFrame])
def test_constant_columns_of_every_container(container: Any) -> None:
    X = np.zeros((40, 3))
    X[::2, 1] = 1
    fitted = selector(BernoulliNB(), 1).fit(container(X), [1, 0] * 20)
    assert fitted.get_support(indices=True).tolist() == [1]


def test_missing_and_infinite_values() -> None:
    X, y = load_iris(return_X_y=True)
    X[::7, 2], X[::11, 3] = np.nan, np.inf
    fitted = selector(HistGradientBoostingClassifier(max_iter=3), 3, max_evaluations=12).fit(X, y)
    assert fitted.transform(X).shape == (150, 3)
    assert sklearn.utils.get_tags(fitted).input_tags.allow_nan
    with pytest.raises(ValueError, match="NaN"):
        selector(Ridge(), 3).fit(X, y)


def test_a_column_of_missing_values_is_constant() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 6)), np.arange(60) % 2
    X[:, 4] = np.nan
    model = HistGradientBoostingClassifier(max_iter=3)
    for container in (np.asarray, lambda X: X.astype(object), pd.DataFrame):
        assert not selector(model, 5, max_evaluations=12).fit(container(X), y).get_support()[4]


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame])
def test_what_is_excluded_may_miss_values(container: Any, numbers: Any) -> None:
    X, y = numbers
    X[0, 2] = np.nan
    fitted = selector(GaussianNB(), 2, exclude=[2], max_evaluations=60).fit(container(X), y)
    assert fitted.transform(container(X)).shape == (120, 2)
    assert fitted.predict(container(X)).shape == (120,)


def test_sparse_as_dense() -> None:  # boruta_py#69
    rng = np.random.default_rng(0)
    X = (rng.random((200, 1000)) < 0.1).astype(float)
    y = (X[:, 5] + X[:, 17] > 0).astype(int)
    dense = selector(BernoulliNB(), 10, max_evaluations=400).fit(X, y)
    sparse = selector(BernoulliNB(), 10, max_evaluations=400).fit(sp.csr_array(X), y)
    np.testing.assert_array_equal(dense.get_support(), sparse.get_support())
    assert sparse.transform(sp.csr_array(X)).format == "csr"
    assert sparse.transform(sp.csr_array(X)).shape == (200, 10)
    assert sparse.score(sp.csr_array(X), y) == dense.score(X, y)


def test_one_size_as_in_a_path(numbers: Any) -> None:  # abess#502
    X = np.column_stack([numbers[0], np.ones(120)])
    path = selector(k=[1, 2, 21]).fit(X, numbers[1]).path_
    single = selector(k=2).fit(X, numbers[1])
    np.testing.assert_array_equal(path["support"][1], single.support_)
    assert path["mean_test_score"][1] == single.best_score_
    np.testing.assert_array_equal(path["inclusion_probabilities"][1], single.inclusion_probabilities_)


def test_all_columns() -> None:  # boruta_py#61
    X, y = load_iris(return_X_y=True)
    assert selector(k=4).fit(X, y).get_support().all()


class WithoutTags:
    """As written for scikit-learn before 1.6: no base class, an `_estimator_type`."""

    _estimator_type = "classifier"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def set_params(self) -> "WithoutTags":
        return self

    def fit(self, X: Any, y: Any) -> "WithoutTags":
        self.model_ = GaussianNB().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)

    def score(self, X: Any, y: Any) -> float:
        return float(self.model_.score(X, y))


class MixinsOnTheRight(BaseEstimator, ClassifierMixin):
    """As many libraries have it, so that the tags do not say that it is a classifier."""

    fit, predict = WithoutTags.fit, WithoutTags.predict


@pytest.mark.parametrize("model", [WithoutTags(), MixinsOnTheRight()])
def test_estimators_with_unusual_tags(model: Any, numbers: Any) -> None:  # scikit-learn#30450, #30479, #30324
    fitted = selector(model, max_evaluations=None).fit(*numbers)
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    assert fitted.predict(numbers[0]).shape == (120,)
    order = KSubsetSelector.__mro__.index
    assert order(SelectorMixin) < order(BaseEstimator)
    assert order(MetaEstimatorMixin) < order(BaseEstimator)


def test_attributes(numbers: Any) -> None:
    X, y = numbers
    splitter = StratifiedKFold(3, shuffle=True, random_state=0)
    fitted = selector(cv=splitter).fit(X, y)
    assert fitted.support_.tolist() == [column in (3, 7) for column in range(20)]
    assert (fitted.n_features_, fitted.n_features_in_) == (2, 20)
    assert fitted.inclusion_probabilities_.sum() == pytest.approx(2)
    assert set(np.argsort(fitted.inclusion_probabilities_)[-2:]) == {3, 7}
    assert fitted.estimator_.n_features_in_ == 2
    results = fitted.cv_results_
    assert len({tuple(columns) for columns in results["columns"].tolist()}) == len(results["columns"])
    folds = np.stack([results[f"split{fold}_test_score"] for fold in range(3)])
    np.testing.assert_allclose(np.nanmean(folds, 0), results["mean_test_score"])
    np.testing.assert_array_equal((~np.isnan(folds)).sum(0), results["n_splits"])
    assert fitted.n_fits_ <= 300
    row = [columns.tolist() for columns in results["columns"]].index([3, 7])
    assert results["mean_fresh_score"][row] == fitted.best_score_ == fitted.path_["mean_test_score"][0]
    # A score is that of the model on the columns.
    train, test = next(splitter.split(X, y))
    expected = clone(TREE).fit(X[train][:, [3, 7]], y[train]).score(X[test][:, [3, 7]], y[test])
    assert folds[0, row] == expected
    np.testing.assert_array_equal(fitted.predict(X), fitted.estimator_.predict(X[:, [3, 7]]))
    assert fitted.predict_proba(X).shape == (120, 2)
    assert not hasattr(fitted, "decision_function")


def test_the_default_budget_is_that_of_forward_selection() -> None:
    assert default_budget(500, 5, 3) == 3 * (500 + 499 + 498 + 497 + 496)
    assert (default_budget(5, 2, 5), default_budget(10_000, 20, 5)) == (1_000, 10_000)


def test_parity_of_three_is_found_by_default() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 18))
    y = X[:, [2, 11, 17]].sum(1) % 2
    fitted = selector(k=3, max_evaluations=None).fit(X, y)
    assert fitted.get_support(indices=True).tolist() == [2, 11, 17]
    assert 816 < fitted.n_fits_ < 10_000
    # Where something is found, or nothing can be said of chance, forward selection's fits do.
    assert default_budget(18, 3, 3) == 153
    assert selector(k=3, max_evaluations=None).fit(X, X[:, 3]).n_fits_ <= 153
    size = selector(k=3, max_evaluations=None, scoring=lambda model, X, y: len(model.tree_.value))
    assert size.fit(X, y).n_fits_ <= 153


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"k": "all"}, TypeError, "n_features_to_select: expected integers, fractions or .* got 'all'"),
        ({"k": 2.0}, TypeError, r"n_features_to_select: .* got 2\.0"),
        ({"k": []}, TypeError, "n_features_to_select: .* got"),
        ({"max_evaluations": 2}, ValueError, "max_evaluations: expected 3 or more, .* got 2"),
        ({"max_evaluations": 1e3}, TypeError, r"max_evaluations: expected an integer or None, got 1000\.0"),
        ({"callbacks": [3]}, TypeError, r"callbacks: expected .* got \[3\]"),
        ({"callbacks": 3}, TypeError, "callbacks: expected .* got 3"),
        ({"scoring": ["r2", "accuracy"]}, TypeError, r"scoring: expected one scorer, .* got \['r2'"),
        ({"always_include": "x"}, TypeError, "always_include: expected a sequence, got 'x'"),
        ({"always_include": ["x"]}, ValueError, "always_include: expected indices, .* got 'x'"),
        ({"exclude": [20]}, ValueError, "exclude: expected indices from 0 to 19, got 20"),
        ({"exclude": [1.5]}, TypeError, r"exclude: expected names or indices of columns, got 1\.5"),
        ({"exclude": [1], "always_include": [1]}, ValueError, r"exclude: .* got columns \[1\]"),
        ({"exclude": [1], "always_include": [0], "feature_groups": [[0, 1]]}, ValueError, r"exclude: .* \[0, 1\]"),
        ({"feature_groups": [[0, 1], [1, 2]]}, ValueError, r"feature_groups\[1\]: .* got \[1, 2\]"),
        ({"feature_groups": [[]]}, ValueError, r"feature_groups\[0\]: .* got \[\]"),
        ({"always_include": [0, 1, 2]}, ValueError, "n_features_to_select: expected 3 to 20, .* got 2"),
    ],
)
def test_wrong_arguments_are_named(parameters: Any, error: type[Exception], message: str, numbers: Any) -> None:
    with pytest.raises(error, match=message):
        selector(**parameters).fit(*numbers)


def test_groups_stand_or_fall_together(numbers: Any) -> None:
    fitted = selector(feature_groups=[[3, 0], [7, 5, 6]]).fit(*numbers)
    assert fitted.get_support(indices=True).tolist() == [0, 3, 5, 6, 7]
    assert fitted.n_features_ == 5
    for group in ([0, 3], [5, 6, 7]):
        assert len(set(fitted.inclusion_probabilities_[group])) == 1


def test_included_and_excluded_columns(numbers: Any) -> None:
    X = pd.DataFrame(numbers[0]).add_prefix("column ")
    fitted = selector(k=3, always_include=["column 0"], exclude=["column 3"]).fit(X, numbers[1])
    assert {"column 0", "column 7"} <= set(fitted.get_feature_names_out())
    assert fitted.inclusion_probabilities_[[0, 3]].tolist() == [1.0, 0.0]
    assert all(0 in columns and 3 not in columns for columns in fitted.cv_results_["columns"])
    only = selector(k=1, always_include=["column 0"]).fit(X, numbers[1])
    assert only.get_feature_names_out().tolist() == ["column 0"]


def test_everything_included(numbers: Any) -> None:
    assert selector(k=20, always_include=range(20)).fit(*numbers).get_support().all()


def test_path_takes_the_smallest_within_one_standard_error(numbers: Any) -> None:
    X = numbers[0]
    noise = np.random.default_rng(1).standard_normal(len(X))
    fitted = selector(LinearRegression(), "auto", max_evaluations=200).fit(X, X[:, 3] + X[:, 7] + 0.3 * noise)
    path = fitted.path_
    assert path["n_features_to_select"].tolist() == [1, 2, 4, 8, 16, 20]
    best = path["mean_test_score"].argmax()
    enough = path["mean_test_score"] >= path["mean_test_score"][best] - path["standard_error"][best]
    assert fitted.n_features_ == path["n_features_to_select"][enough].min() == 2


def test_no_target_where_the_model_needs_none() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((60, 5)), np.repeat([0.0, 100.0], 30)])
    fitted = selector(KMeans(2, n_init=1, random_state=0), 1, cv=KFold(3, shuffle=True, random_state=0)).fit(X)
    assert fitted.score(X) <= 0
    with pytest.raises(ValueError, match="y: Ridge requires y"):
        selector(Ridge(), 1).fit(X)


def test_several_targets() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 9))
    fitted = selector(LinearRegression()).fit(X, np.column_stack([X[:, 2], X[:, 6]]))
    assert fitted.get_support(indices=True).tolist() == [2, 6]
    assert fitted.predict(X).shape == (80, 2)


def test_metadata_is_routed_and_cut_to_the_folds() -> None:
    rng = np.random.default_rng(0)
    X, groups, weight = rng.integers(0, 2, (60, 6)), np.repeat(np.arange(6), 10), np.arange(60.0)
    X[:, 5] = np.arange(60)  # the row
    y = X[:, 2]
    with sklearn.config_context(enable_metadata_routing=True):
        model = Recorder().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        fitted = selector(model, 2, cv=GroupKFold(3), always_include=[5], max_evaluations=60)
        fitted.fit(X, y, sample_weight=weight, groups=groups)
        assert fitted.score(X, y, sample_weight=weight) <= 1
    for seen, _, others in Recorder.fits:
        np.testing.assert_array_equal(others["sample_weight"], weight[seen[:, -1]])
        assert len(set(groups[seen[:, -1]])) in (4, 6)
    Recorder.fits.clear()
    fitted.fit(X, y, sample_weight=weight, groups=groups)
    for seen, _, others in Recorder.fits:
        np.testing.assert_array_equal(others["sample_weight"], weight[seen[:, -1]])
        assert len(set(groups[seen[:, -1]])) in (4, 6)


@pytest.mark.parametrize("routing", [True, False])
def test_outer_splits_have_groups(routing: bool) -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((60, 4)), np.repeat(np.arange(6), 10)
    y = (X[:, 2] > 0).astype(int)
    with sklearn.config_context(enable_metadata_routing=routing):
        for cv in (GroupKFold(2), 2) if routing else (GroupKFold(2),):
            fitted = selector(GaussianNB(), 1, cv=cv, outer_cv=GroupKFold(3), max_evaluations=20)
            assert fitted.fit(X, y, groups=groups).outer_scores_.shape == (1, 3)


@pytest.mark.parametrize("routing", [True, False])
def test_splits_from_a_generator(routing: bool, numbers: Any) -> None:
    with sklearn.config_context(enable_metadata_routing=routing):
        assert selector(GaussianNB(), 2, cv=KFold(3).split(*numbers), max_evaluations=30).fit(*numbers).n_features_ == 2


def test_fresh_folds_only_where_the_splitter_shuffles() -> None:
    def count(cv: Any) -> int:
        return len(fresh_splitters(check_cv(cv), 0, 5))

    assert count(KFold(3, shuffle=True)) == count(GroupShuffleSplit(3)) == 5
    assert (
        count(3)
        == count(None)
        == count(KFold(3))
        == count(GroupKFold(3))
        == count(TimeSeriesSplit(3))
        == count([([0], [1])])
        == 0
    )


def test_scoring_is_used(numbers: Any) -> None:
    fitted = selector(GaussianNB(), scoring="neg_log_loss").fit(*numbers)
    assert -1 < fitted.best_score_ < 0
    with pytest.raises(ValueError, match="scoring: expected finite scores"):
        selector(scoring=lambda *_: np.nan).fit(*numbers)


def test_pipelines_searches_copies_and_pickles(numbers: Any) -> None:
    X, y = numbers
    inside = make_pipeline(StandardScaler(), selector(max_evaluations=60), TREE).fit(X, y)
    assert inside[-1].n_features_in_ == 2
    around = selector(make_pipeline(StandardScaler(), TREE), max_evaluations=60).fit(pd.DataFrame(X).add_prefix("c"), y)
    assert around.estimator_.n_features_in_ == 2
    grid = GridSearchCV(selector(max_evaluations=40), {"n_features_to_select": [1, 2]}, cv=2).fit(X, y)
    assert grid.best_estimator_.n_features_ in (1, 2)
    again = clone(around).fit(pd.DataFrame(X).add_prefix("c"), y)
    np.testing.assert_array_equal(again.support_, around.support_)
    loaded = pickle.loads(pickle.dumps(around))
    np.testing.assert_array_equal(loaded.predict(X), around.estimator_.predict(X[:, around.support_]))


pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")


def test_workers_change_nothing(numbers: Any) -> None:
    alone = selector(max_evaluations=100).fit(*numbers)
    with joblib.parallel_config("threading", n_jobs=2):
        together = selector(max_evaluations=100).fit(*numbers)
    np.testing.assert_array_equal(alone.support_, together.support_)
    np.testing.assert_array_equal(alone.cv_results_["mean_test_score"], together.cv_results_["mean_test_score"])


def test_progress_is_told(numbers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Progress] = []
    fitted = selector(verbose=1, callbacks=told.append).fit(*numbers)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(told) > 3
    assert lines[-1].startswith(f"[KSubsetSelector] search, k = 2: {fitted.n_fits_} of at most 300 fits, ")
    fits = [progress.n_fits for progress in told]
    assert fits == sorted(fits)
    assert fits[-1] == fitted.n_fits_
    assert (told[-1].support == fitted.support_).all()
    assert told[-1].best_score == fitted.best_score_


def test_a_callback_ends_the_search(numbers: Any) -> None:
    told: list[Progress] = []
    fitted = selector(k=[2, 3], callbacks=[told.append, lambda progress: progress.n_fits > 150]).fit(*numbers)
    assert told[-2].n_fits <= 150 < told[-1].n_fits == fitted.n_fits_
    assert fitted.predict(numbers[0]).shape == (120,)
    assert fitted.path_["n_features_to_select"].tolist() == [2]
    fitted = selector(k=[1, 3], callbacks=lambda progress: progress.n_features_to_select == 3).fit(*numbers)
    assert fitted.path_["n_features_to_select"].tolist() == [1]


class Interrupted(Recorder):
    """A user loses patience at a fit."""

    after: ClassVar[int] = 0

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        if len(self.fits) == self.after:
            Interrupted.after = 0
            raise KeyboardInterrupt
        return super().score(X, y)


@pytest.mark.parametrize("after", [40, 100])
def test_an_interrupt_keeps_the_best_so_far(numbers: Any, after: int, tmp_path: Path) -> None:
    Interrupted.after = after
    with pytest.warns(UserWarning, match="interrupted: the selector keeps the best"):
        fitted = selector(Interrupted(), checkpoint=tmp_path / "scores.db").fit(*numbers)
    assert fitted.n_fits_ == after - 1
    assert fitted.transform(numbers[0]).shape == (120, 2)


def test_an_interrupt_of_the_first_fit_is_one(numbers: Any) -> None:
    Interrupted.after = 1
    with pytest.raises(KeyboardInterrupt):
        selector(Interrupted()).fit(*numbers)


@pytest.mark.parametrize("container", [np.asarray, lambda X: pd.DataFrame(X).add_prefix("c"), pl.DataFrame])
def test_a_fit_goes_on_from_its_file(numbers: Any, container: Any, tmp_path: Path) -> None:
    file, numbers = tmp_path / "scores.db", (container(numbers[0]), numbers[1])
    whole = selector(Recorder()).fit(*numbers)
    fits = len(Recorder.fits)
    selector(Recorder(), checkpoint=file, callbacks=lambda progress: progress.n_fits > 100).fit(*numbers)
    before = len(Recorder.fits)
    resumed = selector(Recorder(), checkpoint=str(file)).fit(*numbers)
    # Both ended with a fit to all rows.
    assert (before - fits) + (len(Recorder.fits) - before) == fits + 1
    np.testing.assert_array_equal(resumed.cv_results_["mean_test_score"], whole.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(resumed.support_, whole.support_)
    assert resumed.n_fits_ == whole.n_fits_
    before = len(Recorder.fits)
    selector(Recorder(), checkpoint=file).fit(*numbers)
    assert len(Recorder.fits) == before + 1


def test_the_file_of_an_unseeded_fit_has_its_seed(numbers: Any, tmp_path: Path) -> None:
    one, two = (selector(Recorder(), random_state=None, checkpoint=tmp_path / "f").fit(*numbers) for _ in range(2))
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": GaussianNB()}, {"estimator": clone(TREE).set_params(max_depth=3)}, {"cv": 4}, {"cv": KFold(3)},
        {"scoring": "accuracy"}, {"random_state": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_file_has_many_searches(numbers: Any, tmp_path: Path, change: Any) -> None:
    """Of anything that a score depends on, and each goes on from its own."""
    file = tmp_path / "scores.db"
    one = selector(checkpoint=file, max_evaluations=30).fit(*numbers)
    other = selector(max_evaluations=30).set_params(**change).fit(*numbers)
    for plain, given in ((other, change), (one, {}), (other, change)):
        fitted = selector(checkpoint=file, max_evaluations=30).set_params(**given).fit(*numbers)
        np.testing.assert_array_equal(fitted.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])


def test_a_file_has_searches_of_other_data_and_metadata(numbers: Any, tmp_path: Path) -> None:
    file, (X, y) = tmp_path / "scores.db", numbers
    weights = np.arange(120.0)
    for data, target, params in ((X, y, {}), (-X, y, {}), (X, np.roll(y, 1), {}), (X, y, {"sample_weight": weights})):
        plain = selector(max_evaluations=30).fit(data, target, **params)
        for _ in range(2):
            fitted = selector(checkpoint=file, max_evaluations=30).fit(data, target, **params)
            np.testing.assert_array_equal(fitted.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_cross_validation_has_one_file(numbers: Any, tmp_path: Path, n_jobs: int) -> None:
    """Also of two processes that write at the same time."""
    plain = cross_val_score(selector(max_evaluations=60), *numbers, cv=3)
    for _ in range(2):
        given = selector(max_evaluations=60, checkpoint=tmp_path / "scores.db")
        np.testing.assert_array_equal(cross_val_score(given, *numbers, cv=3, n_jobs=n_jobs), plain)
    before = len(Recorder.fits)
    given = selector(Recorder(), max_evaluations=60, checkpoint=tmp_path / "more.db")
    cross_val_score(given, *numbers, cv=3)
    half = len(Recorder.fits)
    cross_val_score(given, *numbers, cv=3)
    assert half - before > 100
    # The fit to all rows of each.
    assert len(Recorder.fits) == half + 3


PROCESS = """
import sys
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from ksubset.selection import KSubsetSelector

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.standard_normal((60, 8))).add_prefix("c")
X["text"] = pd.Categorical(["u", "v"] * 30)
selector = KSubsetSelector(
    make_pipeline(StandardScaler(), DecisionTreeClassifier(class_weight={1: 2.0, 0: 1.0}, random_state=0)),
    n_features_to_select=2, cv=3, max_evaluations=60, checkpoint=sys.argv[1], exclude=["text"], scoring="accuracy",
)
print(selector.fit(X, X["c3"] > 0).cv_results_["mean_test_score"].tolist())
"""


def test_another_process_resumes(tmp_path: Path) -> None:
    file, found = tmp_path / "scores.db", []
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-W", "ignore", "-c", PROCESS, str(file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        found.append((done.stdout, contents(file)))
    # No seed is given: that the second has the same says that it took the first one's.
    assert found[0] == found[1]


def contents(file: Path) -> list[Any]:
    """All that is in a file of scores."""
    with closing(sqlite3.connect(file)) as opened:
        return [opened.execute(f"SELECT * FROM {table}").fetchall() for table in ("searches", "scores")]


@pytest.mark.parametrize("content", [b"[]", b"not SQLite's, and longer than its header is, which has 100 bytes" * 3])
def test_a_file_of_another_kind_is_an_error(numbers: Any, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "scores.db"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint: expected a file of a selector, got .*scores\.db"):
        selector(checkpoint=file).fit(*numbers)
    assert file.read_bytes() == content


def test_a_file_of_another_program_is_an_error(numbers: Any, tmp_path: Path) -> None:
    file = tmp_path / "scores.db"
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("CREATE TABLE birds (name TEXT)")
    with pytest.raises(ValueError, match=r"checkpoint: expected a file of a selector, got .*, of another program"):
        selector(checkpoint=file).fit(*numbers)


def test_a_damaged_file_is_an_error(numbers: Any, tmp_path: Path) -> None:
    file = tmp_path / "scores.db"
    selector(checkpoint=file, max_evaluations=60).fit(*numbers)
    whole = bytearray(file.read_bytes())
    whole[100:2000] = b"x" * 1900
    file.write_bytes(whole)
    with pytest.raises(ValueError, match=r"checkpoint: expected a file of a selector, got .*scores\.db"):
        selector(checkpoint=file, max_evaluations=60).fit(*numbers)


KILLED = """
import os, signal, sys
from pathlib import Path
from ksubset.selection.wrapper.cache import ScoreStore

scores = ScoreStore(Path(sys.argv[1])).search({"data": "1"}, 3, 3)
for fold in range(10_000):
    scores.known[fold, (1, 2)] = fold / 2
    scores.save()
    if fold == 20:
        print("ready", flush=True)
"""


def test_a_killed_process_leaves_what_it_saved(tmp_path: Path) -> None:
    file = tmp_path / "scores.db"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    process.stdout.close()
    known = ScoreStore(file).search({"data": "1"}, None, 0).known
    assert len(known) > 20
    assert known == {(fold, (1, 2)): fold / 2 for fold in range(len(known))}


def test_a_score_may_be_any_number(tmp_path: Path) -> None:
    file = tmp_path / "scores.db"
    given = {(0, (1, 2)): math.nan, (1, (1, 2)): -math.inf, (0, ()): 0.1 + 0.2}
    scores = ScoreStore(file).search({"data": "1"}, 3, 0)
    scores.known |= given
    scores.save()
    again = ScoreStore(file).search({"data": "1"}, None, 0)
    assert again.seed == 3
    np.testing.assert_equal(dict(sorted(again.known.items())), dict(sorted(given.items())))
    file.unlink()
    scores.save()
    assert len(ScoreStore(file).search({"data": "1"}, 3, 0).known) == 3


def fits_of(fitted: KSubsetSelector, numbers: Any, **change: Any) -> int:
    """Models fitted by another fit, that of `estimator_` aside."""
    before = len(Recorder.fits)
    fitted.set_params(**change).fit(*numbers)
    return len(Recorder.fits) - before - 1


def test_a_warm_start_fits_what_is_new(numbers: Any) -> None:
    fitted = selector(Recorder(), warm_start=True, max_evaluations=100)
    assert fits_of(fitted, numbers) == fitted.n_fits_
    assert fits_of(fitted, numbers) == 0
    assert 0 < fits_of(fitted, numbers, max_evaluations=300) < fitted.n_fits_
    cold = selector(Recorder()).fit(*numbers)
    assert fitted.n_fits_ == cold.n_fits_
    np.testing.assert_array_equal(fitted.cv_results_["mean_test_score"], cold.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(fitted.support_, cold.support_)
    alone = fits_of(selector(Recorder(), 3), numbers)
    assert fits_of(fitted, numbers, n_features_to_select=[2, 3]) == alone
    assert fits_of(pickle.loads(pickle.dumps(fitted)), numbers) == 0
    assert fits_of(clone(fitted), numbers) == fitted.n_fits_


@pytest.mark.parametrize(
    "change", [{"estimator": Interrupted()}, {"cv": 4}, {"scoring": "accuracy"}, {"random_state": 1}]
)
def test_a_warm_start_with_other_things_is_afresh(numbers: Any, change: Any) -> None:
    X, y = numbers
    fitted = selector(Recorder(), warm_start=True, max_evaluations=60).fit(X, y)
    assert fits_of(fitted, numbers, **change) == fitted.n_fits_
    assert fits_of(fitted, (X + 1, y)) == fitted.n_fits_
    assert fits_of(fitted, (X + 1, 1 - y)) == fitted.n_fits_
    assert fits_of(fitted, (X + 1, 1 - y)) == 0


def test_without_a_warm_start_nothing_is_kept(numbers: Any) -> None:
    fitted = selector(Recorder(), max_evaluations=60).fit(*numbers)
    assert fits_of(fitted, numbers, warm_start=True) == fitted.n_fits_
    assert fits_of(fitted, numbers, warm_start=False) == fitted.n_fits_
    assert fits_of(fitted, numbers, warm_start=True) == fitted.n_fits_


def test_a_warm_start_has_the_seed_of_the_fit_before(numbers: Any) -> None:
    fitted = selector(Recorder(), warm_start=True, max_evaluations=60, random_state=None).fit(*numbers)
    scores = fitted.cv_results_["mean_test_score"]
    assert fits_of(fitted, numbers) == 0
    np.testing.assert_array_equal(fitted.cv_results_["mean_test_score"], scores)


def test_a_warm_start_after_an_interrupt(numbers: Any) -> None:
    Interrupted.after = 1
    fitted = selector(Interrupted(), warm_start=True, max_evaluations=60)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(*numbers)
    Recorder.fits.clear()
    Interrupted.after = 50
    with pytest.warns(UserWarning, match="interrupted"):
        fitted.fit(*numbers)
    known = sum(len(search.known) for search in fitted._store._searches.values())
    assert fits_of(fitted, numbers) == fitted.n_fits_ - known


def test_a_warm_start_after_a_fit_that_was_ended(numbers: Any) -> None:
    """What it did not come to is still known."""
    fitted = selector(Recorder(), warm_start=True, max_evaluations=60, outer_cv=3).fit(*numbers)
    fits_of(fitted, numbers, callbacks=lambda _: True)
    # The models of three outer splits alone.
    assert fits_of(fitted, numbers, callbacks=None) == 3
    assert len(fitted._store._earlier) == 0


def test_a_warm_start_has_the_folds_of_the_fit_before(numbers: Any) -> None:
    folds = KFold(3, shuffle=True)
    fitted = selector(Recorder(), warm_start=True, max_evaluations=60, random_state=None, cv=folds).fit(*numbers)
    assert fits_of(fitted, numbers) == 0


def test_a_warm_start_with_a_file(numbers: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    fitted = selector(Recorder(), warm_start=True, max_evaluations=60, random_state=None).fit(*numbers)
    assert fits_of(fitted, numbers, checkpoint=one) == 0
    assert fits_of(selector(Recorder(), max_evaluations=60, random_state=None, checkpoint=one), numbers) == 0
    # The file of a fit with another seed has the word.
    selector(Recorder(), max_evaluations=60, checkpoint=two).fit(*numbers)
    assert fits_of(fitted, numbers, checkpoint=two) == 0
    assert fits_of(fitted, numbers, checkpoint=None) == 0


@pytest.mark.parametrize("parameter", ["warm_start", "checkpoint"])
def test_what_has_no_name_cannot_be_told_from_others(numbers: Any, parameter: str, tmp_path: Path) -> None:
    value = tmp_path / "scores.db" if parameter == "checkpoint" else True
    with pytest.raises(TypeError, match=f"{parameter}: expected an estimator, scoring and .*scoring: .* got .*lambda"):
        selector(scoring=lambda *_: 0.0, **{parameter: value}).fit(*numbers)


def test_regression_beats_chance() -> None:
    X, y = load_diabetes(return_X_y=True)
    fitted = selector(LinearRegression(), 4, max_evaluations=None).fit(X, y)
    subsets = np.array(list(itertools.combinations(range(10), 4)))
    expected = max(fitted.cv_results_["mean_test_score"])
    assert len(fitted.cv_results_["columns"]) == len(subsets)
    assert fitted.best_score_ > expected - 0.05
