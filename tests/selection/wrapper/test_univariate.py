"""The F-tests that a search starts from, against scipy's, and in every container."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import scipy.stats
from sklearn.linear_model import Ridge

from ksubset.selection import KSubsetSelector
from ksubset.selection.wrapper.univariate import univariate_scores


@pytest.fixture
def numbers() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    X[:, 3] = 1.0
    return X, X[:, 0] + 0.3 * X[:, 1] + rng.standard_normal(200)


def as_score(p: float) -> float:
    return float(np.clip(scipy.stats.norm.isf(p), 0, 8))


def test_numbers_against_numbers_are_tested_by_correlation(numbers: tuple[Any, Any]) -> None:
    X, y = numbers
    expected = [as_score(scipy.stats.pearsonr(X[:, column], y).pvalue) for column in range(3)]
    np.testing.assert_allclose(univariate_scores(X, y, classify=False), [*expected, 0.0], rtol=1e-6)


def test_numbers_against_classes_are_tested_by_variance(numbers: tuple[Any, Any]) -> None:
    X, y = numbers
    labels = np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])]
    groups = [X[labels == label] for label in "abc"]
    expected = [as_score(scipy.stats.f_oneway(*(group[:, column] for group in groups)).pvalue) for column in range(3)]
    np.testing.assert_allclose(univariate_scores(X, labels, classify=True), [*expected, 0.0], rtol=1e-6)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_text_is_tested_by_the_target_in_each_category(numbers: tuple[Any, Any], frame: Any) -> None:
    X, y = numbers
    text = np.array(["low", "middle", "high"])[np.digitize(y + X[:, 2], [-1, 1])]
    table = frame({"number": X[:, 0], "text": text, "id": [f"row {row}" for row in range(200)]})
    groups = [y[text == level] for level in np.unique(text)]
    expected = [as_score(scipy.stats.pearsonr(X[:, 0], y).pvalue), as_score(scipy.stats.f_oneway(*groups).pvalue), 0.0]
    np.testing.assert_allclose(univariate_scores(table, y, classify=False), expected, rtol=1e-6)
    classes = (y > 0).astype(int)
    assert univariate_scores(table, classes, classify=True)[1] > 5
    assert univariate_scores(table, np.random.default_rng(1).permutation(classes), classify=True)[1] < 3


def test_containers_agree(numbers: tuple[Any, Any]) -> None:
    X, y = numbers
    expected = univariate_scores(X, y, classify=False)
    for other in (pd.DataFrame(X), pl.DataFrame(X), X.astype(object), scipy.sparse.csr_array(X)):
        np.testing.assert_allclose(univariate_scores(other, y, classify=False), expected, rtol=1e-6)


def test_missing_numbers_count_as_the_mean(numbers: tuple[Any, Any]) -> None:
    X, y = numbers
    X[:20, 0] = np.nan
    filled = np.where(np.isnan(X), np.nanmean(X, 0), X)
    np.testing.assert_allclose(univariate_scores(X, y, classify=False), univariate_scores(filled, y, classify=False))
    nullable = pd.DataFrame({"x": pd.array([None, *range(199)], dtype="Int64")})
    assert univariate_scores(nullable, np.arange(200.0), classify=False)[0] == 8.0


def test_a_copy_of_the_target_is_as_sure_as_can_be(numbers: tuple[Any, Any]) -> None:
    X, y = numbers
    for copy in (y, -3 * y + 0.1, X[:, 0] / 7):
        assert univariate_scores(np.stack([copy, X[:, 1]], 1), copy, classify=False)[0] == 8


def test_of_many_rows_some_are_enough() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 3))
    y = (X[:, 0] + 20 * rng.standard_normal(20_000) > 0).astype(int)
    # Of rows in order the first ones would be of one class.
    order = np.argsort(y)
    assert univariate_scores(X[order], y[order], classify=True)[0] > 1


def test_of_several_targets_the_strongest_counts(numbers: tuple[Any, Any]) -> None:
    X, y = numbers
    both = np.stack([y, X[:, 2]], 1)
    each = [univariate_scores(X, target, classify=False) for target in both.T]
    np.testing.assert_array_equal(univariate_scores(X, both, classify=False), np.maximum(*each))


def test_without_a_target_or_without_dependence_there_is_none() -> None:
    X = np.random.default_rng(0).standard_normal((500, 1000))
    assert not univariate_scores(X, None, classify=False).any()
    # One-sided scores of 1,000 columns: half are 0, and one above 4.5 is an accident of 1 in 300.
    scores = univariate_scores(X, np.random.default_rng(1).standard_normal(500), classify=False)
    assert 0.4 < (scores == 0).mean() < 0.6
    assert scores.max() < 4.5


def test_with_it_the_search_finds_few_columns_among_thousands() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3000))
    y = X[:, :5].sum(1) + rng.standard_normal(300)
    # Without it, a column is in one of the 300 subsets that this explores, or in none.
    selector = KSubsetSelector(Ridge(), n_features_to_select=5, cv=2, max_evaluations=1000, random_state=0)
    assert selector.fit(X, y).get_support(indices=True).tolist() == [0, 1, 2, 3, 4]
