"""The table of scores."""

import math
from itertools import combinations

import numpy as np

from ksubset.selection.wrapper.scores import ScoreTable


def filled(scores: list[list[float]]) -> ScoreTable:
    """A table of pairs with these scores on each fold; NaN is not scored."""
    given = np.array(scores)
    table = ScoreTable(2, given.shape[1])
    subsets = np.array(list(combinations(range(9), 2))[: len(given)], dtype=np.int64)
    for subset, row in zip(subsets, given, strict=True):
        folds = np.flatnonzero(~np.isnan(row))
        added = table.add(subset[None])
        table.scores[added[0], folds] = row[folds]
    return table


def test_what_is_added_is_known() -> None:
    table = ScoreTable(2, 3)
    assert len(table) == 0
    assert table.incumbent is None
    assert table.add(np.array([[0, 1], [2, 5]])).tolist() == [0, 1]
    table.scores[:, 1] = 0.5, -np.inf
    assert table.add(np.array([[1, 2], [3, 4]])).tolist() == [2, 3]
    table.scores[2, 0] = 0.25
    table.drop_unscored()
    assert np.array([3, 4]) not in table
    assert len(table) == 3
    assert np.array([2, 5]) in table
    assert np.array([2, 4]) not in table
    expected = [[np.nan, 0.5, np.nan], [np.nan, -np.inf, np.nan], [0.25, np.nan, np.nan]]
    np.testing.assert_array_equal(table.scores, expected)


def test_the_incumbent_has_a_finite_score_on_every_fold() -> None:
    table = filled([[9.0, math.nan], [1.0, 2.0], [2.0, 3.0], [8.0, -math.inf]])
    assert table.complete.tolist() == [1, 2]
    assert table.incumbent == 2
    assert table.deviation_of_leads() == math.inf


def test_deviation_of_leads() -> None:
    # Over the best, the third, the others lead by -2 and -4, and by -3 and -5: by one more or less than their mean.
    table = filled([[1.0, 1.0], [0.0, 0.0], [3.0, 5.0]])
    assert table.deviation_of_leads() == math.sqrt(4 / 2)
    assert filled([[1.0], [0.0], [3.0]]).deviation_of_leads() == math.inf


def test_values_do_not_depend_on_which_folds_were_seen() -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(30)
    scores = expected[:, None] + 100.0 * np.arange(3)
    scores[10:][rng.random((20, 3)) < 0.4] = np.nan
    scores = scores[~np.isnan(scores).all(1)]
    values = filled(scores.tolist()).values()
    known = np.nanmean(scores - 100.0 * np.arange(3), 1)
    np.testing.assert_allclose(values - known, (values - known).mean(), atol=1e-10)
    assert len(values) > 25


def test_outliers_are_cut_and_nothing_known_is_all_the_same() -> None:
    values = filled([[float(score)] for score in [*range(1, 9), -1000]]).values()
    assert values.argmin() == 8
    assert values[8] == 2.0 - 3 * 4.0
    assert filled([[-math.inf], [-math.inf]]).values().tolist() == [0.0, 0.0]


def test_fewer_near_copies_are_preferred_where_nothing_is_lost() -> None:
    table = filled([[0.9, 0.8, 0.7], [0.91, 0.77, 0.69], [0.8, 0.7, 0.6], [0.5, np.nan, np.nan], [0.99, 0.6, 0.75]])
    assert table.incumbent == 0
    # Of the second the loss is 0.010 ± 0.012, of the third 0.1 ± 0, of the last 0.02 ± 0.09.
    for numbers, expected in (
        ([0, 0, 0, 0, 0], 0), ([2, 2, 2, 0, 2], 0), ([2, 0, 0, 0, 0], 1), ([2, 3, 0, 0, 3], 0),
        ([2, 3, 3, 0, 0], 4), ([3, 2, 0, 0, 2], 1), ([3, 2, 3, 0, 0], 4),
    ):  # fmt: skip
        copies = {subset.tobytes(): number for subset, number in zip(table.subsets, numbers, strict=True)}
        assert table.preferred(lambda subset, copies=copies: copies[subset.tobytes()]) == expected
    one = filled([[0.9], [0.8], [0.9]])  # the pairs 0 1, 0 2 and 0 3
    assert one.preferred(lambda subset: int(subset[1] == 1)) == 2
    assert ScoreTable(2, 3).preferred(lambda _: 1) is None


def test_deviation_of_leads_over_chance() -> None:
    rng = np.random.default_rng(0)
    chance = 10 * rng.standard_normal(200)
    scores = rng.standard_normal((30, 1)) + chance + 0.7 * rng.standard_normal((30, 200))
    assert abs(filled(scores.tolist()).deviation_over(chance) - 0.7) < 0.03
    assert filled([[0.5, np.nan]]).deviation_over(np.zeros(2)) == math.inf
    assert filled([[0.5], [0.4]]).deviation_over(np.zeros(1)) == math.inf
