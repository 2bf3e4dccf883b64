"""The search on scores made up for it, whose best subset is known by enumeration."""

import math
import resource
import sys
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ksubset.selection.wrapper.racing import RacingSearch

Score = Callable[[NDArray[np.int64]], NDArray[np.float64]]


class Folds:
    """A score, plus noise that is new in every evaluation; counts what is evaluated."""

    def __init__(self, score: Score, noise: float = 0.0, fold_effect: float = 0.0) -> None:
        self.score, self.noise, self.fold_effect = score, noise, fold_effect
        self.rng = np.random.default_rng(0)
        self.calls: Counter[tuple[int, tuple[int, ...]]] = Counter()

    def __call__(self, subsets: NDArray[np.int64], folds: NDArray[np.intp]) -> NDArray[np.float64]:
        self.calls.update(zip(folds.tolist(), map(tuple, subsets.tolist()), strict=True))
        return self.score(subsets) + folds * self.fold_effect + self.noise * self.rng.standard_normal(len(subsets))


def searched(
    folds: Folds, n: int, k: int, budget: int, *, num_folds: int = 3, seed: int = 0, fresh: int = 5, **how: Any
) -> RacingSearch:
    search = RacingSearch(folds, n, k, [100] * num_folds, budget, seed, num_fresh=fresh * num_folds, **how)
    for _ in search.run():
        pass
    return search


def best_of(search: RacingSearch) -> list[int]:
    return search.table.subsets[search.best].tolist()


def peak_memory() -> int:
    """Of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def quadratic(n: int, seed: int) -> Score:
    rng = np.random.default_rng(seed)
    linear, pairs = rng.standard_normal(n), rng.standard_normal((n, n)) / 2
    return lambda z: linear[z].sum(-1) + (pairs + pairs.T)[z[:, :, None], z[:, None, :]].sum((-1, -2))


def exclusive_or(z: NDArray[np.int64]) -> NDArray[np.float64]:
    """What a tree scores where the target is the exclusive or of the items 0 and 1."""
    return 0.5 + 0.45 * ((z < 2).sum(-1) == 2)


def every(n: int, k: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(n), k)), dtype=np.int64)


@pytest.mark.parametrize("max_seconds", [None, 1e6])
@pytest.mark.parametrize("k", [0, 1, 3, 6])
def test_few_subsets_are_all_evaluated_on_all_folds(k: int, max_seconds: float | None) -> None:
    folds = Folds(quadratic(6, 1))
    search = searched(folds, 6, k, 1000, max_seconds=max_seconds)
    assert max(folds.calls.values()) == 1
    assert len(search.table.subsets) == math.comb(6, k)
    assert np.isfinite(search.table.scores).all()
    assert best_of(search) == every(6, k)[folds.score(every(6, k)).argmax()].tolist()


def test_best_of_42504_subsets_by_a_quadratic_score() -> None:
    found = 0
    for seed in range(8):
        score = quadratic(24, seed)
        search = searched(Folds(score), 24, 5, 1500, num_folds=2, seed=seed)
        found += score(search.table.subsets[[search.best]])[0] == score(every(24, 5)).max()
    assert found >= 6  # from 2 in 100 subsets


@pytest.mark.parametrize("seed", range(8))
def test_exclusive_or_under_noise_beyond_enumeration(seed: int) -> None:
    # 38 of 9,880 subsets are right, and no item helps alone.
    search = searched(Folds(exclusive_or, noise=0.03), 40, 3, 3000, num_folds=5, seed=seed)
    assert {0, 1} <= set(best_of(search))


@pytest.mark.parametrize("budget", [8_000, 1_000_000])
def test_what_may_end_before_all_subsets_goes_the_best_way_first(budget: int) -> None:
    found = 0
    for seed in range(4):
        score = quadratic(20, seed)
        search = RacingSearch(Folds(score), 20, 4, [100] * 2, budget, seed, num_fresh=10, max_seconds=1e6)
        for _ in search.run():
            if search.evaluations >= 600:
                break
        found += score(search.table.subsets[[search.best]])[0] == score(every(20, 4)).max()
    assert found >= 3  # in random order one of 16


@pytest.mark.parametrize("max_seconds", [None, 1e6])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_no_fold_of_a_subset_twice_and_never_over_budget(noise: float, max_seconds: float | None) -> None:
    for seed, (n, k, budget) in enumerate(
        [(12, 4, 100), (12, 4, 1100), (12, 4, 2000), (60, 5, 777), (9, 2, 3), (5, 5, 50)]
    ):
        folds = Folds(quadratic(n, seed), noise)
        search = searched(folds, n, k, budget, seed=seed, max_seconds=max_seconds)
        assert max(folds.calls.values()) == 1
        assert search.evaluations == sum(folds.calls.values()) <= budget
        assert len({tuple(subset) for subset in search.table.subsets.tolist()}) == len(search.table.subsets)


@pytest.mark.parametrize("budget", range(5, 40))
def test_one_subset_has_all_its_scores_however_small_the_budget(budget: int) -> None:
    search = searched(Folds(quadratic(30, 0), 0.1), 30, 4, budget, num_folds=5)
    assert search.table.incumbent is not None
    assert search.evaluations <= budget


def test_scores_that_are_never_finite_end_the_search() -> None:
    search = searched(Folds(lambda z: np.full(len(z), np.nan)), 30, 4, 200, num_folds=5)
    assert search.table.incumbent is None
    assert search.evaluations <= 200


def test_same_seed_same_search() -> None:
    one, two = (searched(Folds(quadratic(30, 0), 0.1), 30, 4, 900, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.table.subsets, two.table.subsets)
    np.testing.assert_array_equal(one.table.scores, two.table.scores)
    assert one.fresh == two.fresh
    other = searched(Folds(quadratic(30, 0)), 30, 4, 900, seed=8)
    assert not np.array_equal(one.table.subsets[:9], other.table.subsets[:9])


def test_racing_spends_folds_on_the_good() -> None:
    folds = Folds(quadratic(40, 0), noise=0.1, fold_effect=3.0)
    search = searched(folds, 40, 5, 3000, num_folds=5)
    seen, values = (~np.isnan(search.table.scores)).sum(1), folds.score(search.table.subsets)
    assert seen.mean() < 2.5
    assert values[seen == 5].mean() > values[seen == 1].mean() + values.std() / 2
    assert seen[values.argmax()] == 5


def test_fresh_folds_decide_not_luck() -> None:
    lucky = np.array([0, 1])

    class Lucky(Folds):
        def __call__(self, subsets: NDArray[np.int64], folds: NDArray[np.intp]) -> NDArray[np.float64]:
            luck = 5.0 * (folds < 3) * (subsets == lucky).all(-1)
            return super().__call__(subsets, folds) + luck

    score: Score = lambda z: z.sum(-1) / 10  # noqa: E731
    assert best_of(searched(Lucky(score), 10, 2, 1000)) == [8, 9]
    assert best_of(searched(Lucky(score), 10, 2, 1000, fresh=0)) == [0, 1]


def test_fresh_folds_without_a_score_are_left_out() -> None:
    class Undefined(Folds):
        """Where fold 4 has no score at all, or fold 5 none of the best."""

        def __init__(self, score: Score, folds: list[int], of: NDArray[np.int64] | None = None) -> None:
            super().__init__(score)
            self.folds, self.of = folds, of

        def __call__(self, subsets: NDArray[np.int64], folds: NDArray[np.intp]) -> NDArray[np.float64]:
            undefined = np.isin(folds, self.folds) & (self.of is None or (subsets == self.of).all(-1))
            return np.where(undefined, np.nan, super().__call__(subsets, folds))

    score: Score = lambda z: z.sum(-1) / 10  # noqa: E731
    search = searched(Undefined(score, [4]), 10, 2, 1000)
    assert best_of(search) == [8, 9]
    assert max(map(len, search.fresh.values())) == 14
    # Of a subset that has none in the first round, and of all.
    assert best_of(searched(Undefined(score, [5], np.array([8, 9])), 10, 2, 1000)) == [7, 9]
    none = searched(Undefined(score, list(range(3, 18))), 10, 2, 1000)
    assert best_of(none) == [8, 9]
    assert not none.fresh


def test_a_likeliest_subset_is_a_finalist() -> None:
    search = searched(Folds(quadratic(40, 0), noise=3.0), 40, 5, 2000)
    modes = [row for row in search.modes if np.isfinite(search.table.scores[row]).all()]
    assert max(modes, key=lambda row: search.table.scores[row].mean()) in search.fresh
    assert len(search.fresh) == 8
    assert sorted(map(len, search.fresh.values())) == [3] * 4 + [6] * 2 + [15] * 2


def test_scores_that_are_not_finite_are_the_worst() -> None:
    bad: Score = lambda z: np.where((z == 3).any(-1), np.nan, quadratic(30, 2)(z))  # noqa: E731
    search = searched(Folds(bad), 30, 4, 900)
    assert 3 not in best_of(search)
    assert search.proposal.inclusion.isfinite().all()


def test_a_search_can_be_left_at_any_batch() -> None:
    search = RacingSearch(Folds(quadratic(30, 0)), 30, 4, [100] * 3, 900, 0)
    for batch, _ in enumerate(search.run()):
        assert 0 <= search.best < len(search.table.subsets)
        if batch == 3:
            break


def test_ten_thousand_items_in_little_memory() -> None:
    good = np.zeros(10_000)
    good[:20] = 1.0
    before = peak_memory()
    search = searched(Folds(lambda z: good[z].sum(-1), noise=0.1), 10_000, 20, 6000, num_folds=5)
    assert peak_memory() - before < 150 * 2**20  # a matrix of all subsets has 300 MiB
    assert good[search.table.subsets[search.best]].sum() >= 14  # chance: 0.04


CHANCE = np.full(5, 0.5)


@pytest.mark.parametrize(
    ("chance", "most", "expected"), [(CHANCE, 5_000, 5_000), (CHANCE, 1_000, 400), (None, 5_000, 400)]
)
def test_a_search_that_finds_nothing_tries_all_subsets(
    chance: NDArray[np.float64] | None, most: int, expected: int
) -> None:
    def parity(z: NDArray[np.int64]) -> NDArray[np.float64]:
        return 0.5 + 0.4 * (z < 3).all(-1)

    folds = Folds(parity, noise=0.03)
    search = RacingSearch(folds, 24, 3, [100] * 5, 400, 0, chance=chance, most=most)
    for _ in search.run():
        pass
    assert (search.budget, max(folds.calls.values())) == (expected, 1)
    if expected == 5_000:
        assert len(search.table.subsets) == math.comb(24, 3)
        assert best_of(search) == [0, 1, 2]


def test_a_search_that_finds_something_ends() -> None:
    good: Score = lambda z: 0.5 + 0.1 * (z < 3).sum(-1)  # noqa: E731
    search = RacingSearch(Folds(good, noise=0.03), 24, 3, [100] * 5, 400, 0, chance=CHANCE, most=5_000)
    for _ in search.run():
        pass
    assert (search.budget, best_of(search)) == (400, [0, 1, 2])
