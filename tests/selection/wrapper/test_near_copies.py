"""Columns that say nearly the same: found in any container, and not kept together unless both count."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB

from ksubset.selection import KSubsetSelector
from ksubset.selection.groups import SubsetSpace
from ksubset.selection.wrapper.near_copies import NearCopies
from ksubset.selection.wrapper.racing import RacingSearch
from ksubset.selection.wrapper.redundancy import Redundancy


def space(n: int, *, groups: list[list[int]] | None = None, always: tuple[int, ...] = ()) -> SubsetSpace:
    members = [np.array(group) for group in groups or [[column] for column in range(n)]]
    free = np.setdiff1d(np.arange(len(members)), always)
    return SubsetSpace(members, np.array(always, dtype=np.int64), free, 3, n)


def copied(rows: int = 200) -> NDArray[np.float64]:
    """Columns 4 to 7 are copies of 0 to 3 with more and more noise, some upside down, of other units and far from 0."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 4))
    noise = rng.standard_normal((rows, 4)) * [0.01, 0.08, 0.25, 2.0]
    return np.hstack([x, (x + noise) * [-1, 1e-9, 1e9, 1] + [1e4, 0, 0, 0]])


@pytest.mark.parametrize("container", [np.asarray, sp.csc_array, sp.csr_array, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("rows", [200, 3_000])
def test_against_all_correlations(container: Any, rows: int) -> None:
    x = copied(rows)
    known = np.abs(np.corrcoef(x, rowvar=False)) > 0.99
    copies = NearCopies(container(x))
    for seed in range(20):
        subset = np.sort(np.random.default_rng(seed).choice(8, 4, replace=False))
        expected = known[np.ix_(subset, subset)] & ~np.eye(4, dtype=bool)
        np.testing.assert_array_equal(copies.alike(space(8), subset), expected)
    assert copies.alike(space(8), np.arange(8)).any(1).tolist() == [True, True, False, False] * 2


def test_missing_constant_and_text() -> None:
    x = copied()
    x[::7, 0] = np.nan
    x[::5, 4] = np.inf
    frame = pd.DataFrame(x).assign(one=1.0, none=np.nan, text=["a", "b"] * 100, more=["a", "b"] * 100)
    frame.columns = frame.columns.astype(str)
    found = NearCopies(frame).alike(space(12), np.arange(12))
    assert found.any(1).tolist() == [False, True, False, False] * 2 + [False] * 4  # 0 and 4 differ where one is missing
    assert NearCopies(x).alike(space(8), np.zeros(0, dtype=np.int64)).shape == (0, 0)


def test_groups_and_what_is_always_kept() -> None:
    copies = NearCopies(copied())
    found = copies.alike(space(8, groups=[[0, 4], [1], [2], [5, 6]]), np.array([0, 1, 2, 3]))
    assert np.argwhere(found).tolist() == [[1, 3], [3, 1]]
    # The free ones are 1 to 7; 4 is a copy of 0.
    assert np.argwhere(copies.alike(space(8, always=(0,)), np.array([0, 1, 3]))).tolist() == [[2, 2]]


def test_the_first_items_without_near_copies() -> None:
    def alike(items: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (items[:, None] % 10 == items % 10) & (items[:, None] != items) | np.diag(items == 3)

    items = np.array([13, 3, 23, 4, 15, 5, 6, 14])
    assert Redundancy(alike).thinned(items, 3).tolist() == [13, 4, 15]
    assert Redundancy(alike).thinned(items, 5).tolist() == [13, 4, 15, 6, 3]
    assert Redundancy(None).thinned(items, 3).tolist() == [13, 3, 23]
    assert Redundancy(alike).redundant(np.array([3, 4, 5, 15])).tolist() == [3, 5, 15]
    assert (Redundancy(alike).count(np.array([4, 5, 15])), Redundancy(None).count(items)) == (2, 0)


@pytest.mark.parametrize("budget", [400, 2_000])
def test_of_subsets_as_good_the_one_without_near_copies(budget: int) -> None:
    """Items i and i + 10 are near-copies, and of the first six pairs each item is as good: then 4 of 20 are bad."""

    def score(subsets: NDArray[np.int64], folds: NDArray[np.intp]) -> NDArray[np.float64]:
        good = np.array([len(set(subset.tolist()) & set(range(6))) for subset in subsets % 10])
        luck = np.random.default_rng(int(subsets.sum()) + 7 * int(folds.sum())).standard_normal(len(subsets))
        return good / 6 + 0.01 * luck

    def alike(items: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.abs(items[:, None] - items) == 10

    search = RacingSearch(score, 20, 8, [100] * 5, budget, 0, alike=alike)
    for _ in search.run():
        pass
    best = search.table.subsets[search.best]
    assert set(range(6)) <= set((best % 10).tolist())
    assert not alike(best).any()


@pytest.mark.parametrize("seed", range(3))
def test_near_copies_are_not_kept_in_pairs_where_one_serves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((300, 8))
    y = (x[:, :4].sum(1) + rng.standard_normal(300) > 0).astype(int)
    x = np.hstack([x, x + 0.05 * rng.standard_normal(x.shape)])
    kept = KSubsetSelector(GaussianNB(), n_features_to_select=6, max_evaluations=600, random_state=seed).fit(x, y)
    assert len(set((kept.get_support(indices=True) % 8).tolist())) == 6


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_whose_difference_counts_is_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((200, 12))
    x[:, 7] = x[:, 3] + 0.1 * rng.standard_normal(200)
    y = 10 * (x[:, 7] - x[:, 3]) + x[:, 0] + 0.3 * rng.standard_normal(200)
    kept = KSubsetSelector(LinearRegression(), n_features_to_select=3, max_evaluations=500, random_state=seed)
    assert kept.fit(x, y).get_support(indices=True).tolist() == [0, 3, 7]


@pytest.mark.parametrize("correlation", [0.6, 0.9, 0.99])
def test_columns_that_repeat_better_ones(correlation: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 20)) @ rng.standard_normal((20, 40)) + 1e3
    x[:, 30:] = -x[:, :10] + 0.3 * rng.standard_normal((60, 10))
    order = rng.permutation(40)
    known = np.abs(np.corrcoef(x, rowvar=False))
    kept: list[int] = []
    for column in order.tolist():
        if all(known[column, other] <= correlation for other in kept):
            kept.append(column)
    found = NearCopies(x).repeating(order, correlation)
    assert order[~found].tolist() == kept
    assert found.any()


def test_of_more_columns_than_rows_a_search_starts_without_those_that_repeat_better_ones() -> None:
    # Each of eight causes has 30 columns that say it nearly, and the first of them are the best one by one.
    rng = np.random.default_rng(0)
    causes = rng.standard_normal((2_060, 8))
    x = np.repeat(causes, 30, axis=1) + 0.3 * rng.standard_normal((2_060, 240))
    y = causes @ np.linspace(2, 1, 8) + rng.standard_normal(2_060)
    selector = KSubsetSelector(LinearRegression(), n_features_to_select=8, max_evaluations=2_000, random_state=0)
    selector.fit(x[:60], y[:60])
    assert len(set((selector.get_support(indices=True) // 30).tolist())) >= 7
    assert selector.score(x[60:], y[60:]) > 0.7  # 0.59 from the univariate scores as they are
