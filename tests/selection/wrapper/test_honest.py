"""Scores of a search on rows that had no part in it, and of searches where there is nothing to be found."""

from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit, cross_val_score
from sklearn.naive_bayes import GaussianNB

from ksubset.selection import KSubsetSelector, Progress
from ksubset.selection.wrapper.honest import crossfitted_score, shuffled, smallest_within_one_standard_error


def selector(estimator: Any = None, k: Any = 2, **parameters: Any) -> KSubsetSelector:
    given = {"cv": 3, "max_evaluations": 60, "random_state": 0, **parameters}
    return KSubsetSelector(GaussianNB() if estimator is None else estimator, n_features_to_select=k, **given)


def noise(rows: int, columns: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, columns)), np.arange(rows) % 2


def test_the_score_is_that_of_nested_cross_validation() -> None:
    """scikit-learn's own, of the whole selector."""
    X, y = noise(90, 8, 0)
    X[:, 3] += y
    fitted = selector(outer_cv=4).fit(X, y)
    nested = cross_val_score(selector(), X, y, cv=4)
    np.testing.assert_allclose(fitted.outer_scores_, nested[None])
    assert fitted.score_ == pytest.approx(nested.mean())
    alone = selector().fit(X, y)
    np.testing.assert_array_equal(fitted.support_, alone.support_)
    assert fitted.best_score_ == alone.best_score_
    assert np.isnan(alone.score_)
    assert np.isnan(alone.p_value_)
    assert alone.outer_scores_.shape == (1, 0)


def test_noise_is_reported_as_noise() -> None:
    """60 rows and 500 columns: the search goes by .75 and more, and the truth is .5.

    Four standard errors of a mean of six are a false alarm in 100.
    """
    best, honest, p_values = [], [], []
    for seed in range(6):
        X, y = noise(60, 500, seed)
        fitted = selector(k=5, cv=5, max_evaluations=100, outer_cv=3, n_permutations=4, random_state=seed).fit(X, y)
        best.append(fitted.best_score_)
        honest.append(fitted.score_)
        p_values.append(fitted.p_value_)
    error = np.std(honest, ddof=1) / 6**0.5
    assert np.mean(best) > 0.72
    assert abs(np.mean(honest) - 0.5) < 4 * error < 0.2
    # Five p-values are possible, each as likely: made continuous, and rejected once in 1,000 times.
    rng = np.random.default_rng(0)
    assert kstest(np.array(p_values) - rng.random(6) / 5, "uniform").pvalue > 0.001


def test_signal_is_reported_as_signal() -> None:
    X, y = noise(80, 200, 0)
    X[:, [7, 90]] += 1.5 * y[:, None]
    fitted = selector(max_evaluations=150, outer_cv=3, n_permutations=9).fit(X, y)
    assert fitted.get_support(indices=True).tolist() == [7, 90]
    assert fitted.p_value_ == 0.1
    assert (fitted.null_scores_ < fitted.best_score_).all()
    assert fitted.score_ > 0.75


def test_auto_takes_a_size_by_outer_scores() -> None:
    X, y = noise(100, 16, 1)
    X[:, [5, 9]] += 1.2 * y[:, None]
    fitted = selector(k="auto", cv=StratifiedKFold(3, shuffle=True, random_state=0)).fit(X, y)
    assert fitted.outer_scores_.shape == (5, 3)
    size = smallest_within_one_standard_error(fitted.outer_scores_)
    assert fitted.path_["n_features_to_select"][size] == fitted.n_features_
    assert fitted.score_ == crossfitted_score(fitted.outer_scores_)
    # A list of sizes is not searched again unless that is asked for, nor is "auto" where rows cannot be split again.
    assert selector(k=[1, 2]).fit(X, y).outer_scores_.shape == (2, 0)
    splits = list(KFold(3).split(X))
    assert selector(k="auto", cv=splits).fit(X, y).outer_scores_.shape == (5, 0)


def test_the_size_of_a_split_is_chosen_by_the_others() -> None:
    # Size 1 is best on the first split alone, and has no part in its own praise.
    scores = np.array([[0.9, 0.1, 0.1], [0.2, 0.5, 0.5]])
    chosen = [smallest_within_one_standard_error(np.delete(scores, split, 1)) for split in range(3)]
    assert chosen == [1, 0, 0]
    assert crossfitted_score(scores) == pytest.approx((0.2 + 0.1 + 0.1) / 3)
    assert np.isnan(crossfitted_score(scores[:, :1]))
    assert smallest_within_one_standard_error(np.array([[np.nan, 0.9], [0.5, 0.5]])) == 1
    assert smallest_within_one_standard_error(np.array([[np.nan, 0.9], [0.5, -np.inf]])) is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_a_split_without_a_score_says_nothing() -> None:
    """The last rows are of one class, which has no ROC AUC."""
    X, y = noise(90, 6, 0)
    y[60:] = 0
    X[:, 3] += y
    fitted = selector(k=[1, 2], scoring="roc_auc", cv=StratifiedKFold(3), outer_cv=KFold(3))
    with pytest.warns(UserWarning, match="score_ leaves out 1 of 3 outer splits"):
        fitted.fit(X, y)
    assert np.isnan(fitted.outer_scores_).tolist() == [[False, False, True]] * 2
    assert fitted.score_ == crossfitted_score(fitted.outer_scores_[:, :2])
    assert fitted.get_support()[3]
    assert np.isnan(crossfitted_score(np.full((2, 3), np.nan)[:, :0]))


class Undefined(GaussianNB):  # type: ignore[misc]
    """Has no score for the targets that come at one place of all that it meets."""

    orders: ClassVar[list[bytes]] = []
    undefined = 0

    def score(self, X: Any, y: Any) -> float:
        if y.tobytes() not in self.orders:
            self.orders.append(y.tobytes())
        return float(np.nan) if self.orders.index(y.tobytes()) == self.undefined else float(super().score(X, y))


@pytest.mark.filterwarnings("ignore:score_ leaves out 1 of 4")
def test_a_search_without_a_score_is_left_out() -> None:
    X, y = noise(60, 6, 0)
    y = np.random.default_rng(0).permutation(y)
    folds = list(KFold(3).split(X))
    Undefined.orders, Undefined.undefined = [], 3
    with pytest.warns(UserWarning, match="permutation 1 of 3 is left out: scoring: expected finite scores"):
        fitted = selector(Undefined(), cv=folds, n_permutations=3).fit(X, y)
    assert fitted.null_scores_.shape == (2,)
    assert fitted.p_value_ in (1 / 3, 2 / 3, 1.0)
    # And so is an outer split.
    Undefined.orders, Undefined.undefined = [], 2
    given = {"cv": KFold(2), "outer_cv": KFold(4)}
    with pytest.warns(UserWarning, match="outer split 1 of 4 is left out: scoring: expected finite scores"):
        fitted = selector(Undefined(), **given).fit(X, y)
    assert np.isnan(fitted.outer_scores_).tolist() == [[True, False, False, False]]
    assert np.isfinite(fitted.score_)


class Narrow(GaussianNB):
    """Fails on four columns, and on three of fewer than 60 rows."""

    def fit(self, X: Any, y: Any) -> "Narrow":
        if X.shape[1] > 3 or (X.shape[1] == 3 and len(X) < 60):
            raise MemoryError("too many")
        super().fit(X, y)
        return self


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_a_size_without_a_score_is_left_out() -> None:
    X, y = noise(120, 6, 0)
    X[:, 3] += y
    with pytest.warns(UserWarning, match="search: a size is left out: scoring: expected finite scores .* at size 4"):
        fitted = selector(Narrow(), [1, 4, 2]).fit(X, y)
    assert fitted.path_["n_features_to_select"].tolist() == [1, 2]
    np.testing.assert_array_equal(fitted.support_, selector(Narrow(), [1, 2]).fit(X, y).support_)
    # And one that outer splits have too few rows for has no score there.
    told = "outer split . of 2: a size is left out: .* at size 3"
    with pytest.warns(UserWarning, match=told):
        fitted = selector(Narrow(), [2, 3], outer_cv=2).fit(X, y)
    assert np.isfinite(fitted.outer_scores_).tolist() == [[True, True], [False, False]]
    assert fitted.n_features_ == 2
    assert np.isfinite(fitted.score_)


def test_a_p_value_counts_the_search_itself() -> None:
    X, y = noise(40, 6, 3)
    fitted = selector(n_permutations=3).fit(X, y)
    assert fitted.null_scores_.shape == (3,)
    assert fitted.p_value_ == (1 + (fitted.null_scores_ >= fitted.best_score_).sum()) / 4
    again = selector(n_permutations=3).fit(X, y)
    np.testing.assert_array_equal(again.null_scores_, fitted.null_scores_)


def test_groups_are_exchanged_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(6), 4))
    labels = np.array([0, 0, 0, 1, 1, 1])[groups]
    differs = 0
    for _ in range(20):
        target = labels[shuffled(labels, groups, rng)]
        per_group = [set(target[groups == group]) for group in range(6)]
        assert all(len(values) == 1 for values in per_group)
        assert sorted(next(iter(values)) for values in per_group) == [0, 0, 0, 1, 1, 1]
        differs += (target != labels).any()
    assert differs > 10
    numbers = rng.standard_normal(24)
    assert sorted(shuffled(numbers, None, rng)) == list(range(24))
    before = sorted(sorted(numbers[groups == group]) for group in range(6))
    for _ in range(20):
        target = numbers[shuffled(numbers, groups, rng)]
        assert sorted(sorted(target[groups == group]) for group in range(6)) == before
        assert (target != numbers).any()


def test_one_mixed_group_does_not_keep_all_others_as_they_are() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(21), 5)
    labels = np.r_[np.repeat(np.arange(20) % 2, 5), 0, 1, 0, 1, 1]
    same = []
    for _ in range(20):
        target = labels[shuffled(labels, groups, rng)]
        assert all(len(set(target[groups == group])) == 1 for group in range(20))
        assert sorted(target[groups == 20]) == [0, 0, 1, 1, 1]
        assert target.sum() == labels.sum()
        same.append((target == labels)[:100].mean())
    assert np.mean(same) < 0.7


def test_groups_of_other_sizes_keep_their_own_targets() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat([3, 1, 2, 0], [2, 3, 4, 3])
    numbers = np.arange(12)
    for _ in range(20):
        target = shuffled(numbers, groups, rng)
        assert set(target[groups == 3]) == {0, 1}
        assert set(target[groups == 2]) == {5, 6, 7, 8}
        assert {frozenset(target[groups == 1]), frozenset(target[groups == 0])} == {
            frozenset({2, 3, 4}),
            frozenset({9, 10, 11}),
        }


class Weighted(GaussianNB):  # type: ignore[misc]
    """Knows what weight each class has."""

    def fit(self, X: Any, y: Any, sample_weight: Any) -> "Weighted":
        assert np.array_equal(sample_weight, np.where(y == 1, 4.0, 1.0))
        super().fit(X, y, sample_weight)
        return self


@pytest.mark.parametrize("groups", [None, np.arange(60) // 4])
def test_weights_go_with_the_targets(groups: Any) -> None:
    X, _ = noise(60, 4, 0)
    y = np.arange(60) // 4 % 3 == 1
    weights = np.where(y, 4.0, 1.0)
    splits = {} if groups is None else {"cv": GroupKFold(3)}
    given = {} if groups is None else {"groups": groups}
    fitted = selector(Weighted(), 1, n_permutations=3, **splits).fit(X, y, sample_weight=weights, **given)
    assert len(set(fitted.null_scores_)) > 1


def test_groups_are_split_again(numbers: Any) -> None:
    X, y = numbers
    groups = np.arange(len(y)) // 4
    fitted = selector(cv=GroupKFold(3), outer_cv=GroupKFold(4), n_permutations=1).fit(
        X, y, groups=groups, sample_weight=np.ones(len(y))
    )
    assert fitted.outer_scores_.shape == (1, 4)


class Targets(Ridge):  # type: ignore[misc]
    """Remembers what it was fitted to."""

    seen: ClassVar[list[Any]] = []

    def fit(self, X: Any, y: Any) -> "Targets":
        Targets.seen.append(y)
        super().fit(X, y)
        return self


def test_the_order_of_time_is_kept() -> None:
    X, _ = noise(40, 2, 0)
    Targets.seen.clear()
    selector(Targets(), 1, cv=TimeSeriesSplit(3), max_evaluations=6, n_permutations=4).fit(X, np.arange(40.0))
    # Targets that are moved along fall once, where the last is followed by the first.
    steps = [set(np.diff(target)) for target in Targets.seen]
    assert all(step <= {1, -39} for step in steps)
    assert {-39} < set.union(*steps)


class Interrupted(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    left = 0

    def fit(self, X: Any, y: Any) -> "Interrupted":
        Interrupted.left -= 1
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return (np.asarray(X)[:, 0] > 0).astype(int)


# A search takes up to 60 fits, and an outer split one more.
@pytest.mark.parametrize(("after", "splits", "nulls"), [(70, 0, 0), (190, 2, 0), (255, 3, 0), (330, 3, 1)])
def test_an_interrupt_keeps_what_was_found(after: int, splits: int, nulls: int) -> None:
    X, y = noise(60, 30, 0)
    Interrupted.left = after
    with pytest.warns(UserWarning, match="interrupted"):
        fitted = selector(Interrupted(), outer_cv=3, n_permutations=4).fit(X, y)
    assert fitted.get_support().sum() == 2
    assert fitted.outer_scores_.shape == (1, splits)
    assert np.isnan(fitted.score_) == (splits < 2)
    assert len(fitted.null_scores_) == nulls


def test_progress_names_its_part(numbers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Progress] = []
    selector(outer_cv=2, n_permutations=1, callbacks=told.append, verbose=1).fit(*numbers)
    parts = list(dict.fromkeys(progress.part for progress in told))
    assert parts == ["search", "outer split 1 of 2", "outer split 2 of 2", "permutation 1 of 1"]
    assert "[KSubsetSelector] permutation 1 of 1, k = 2: " in capsys.readouterr().out


class Counting(GaussianNB):  # type: ignore[misc]
    fits = 0

    def fit(self, X: Any, y: Any) -> "Counting":
        Counting.fits += 1
        super().fit(X, y)
        return self


def test_all_of_it_goes_on_from_a_file(numbers: Any, tmp_path: Any) -> None:
    given = {"outer_cv": 3, "n_permutations": 2, "checkpoint": tmp_path / "scores.db", "random_state": None}
    one = selector(Counting(), **given).fit(*numbers)
    Counting.fits = 0
    two = selector(Counting(), **given).fit(*numbers)
    # The models of three outer splits, and that of all rows.
    assert Counting.fits == 4
    assert (one.score_, one.p_value_, one.n_fits_) == (two.score_, two.p_value_, two.n_fits_)


def test_bad_arguments(numbers: Any) -> None:
    X, y = numbers
    with pytest.raises(ValueError, match=r"outer_cv: expected cv to be a number or a splitter.*got \["):
        selector(cv=list(KFold(3).split(X)), outer_cv=3).fit(X, y)
    with pytest.raises(ValueError, match="outer_cv: expected two splits or more, got 1"):
        selector(outer_cv=[(np.arange(50), np.arange(50, 120))]).fit(X, y)
    with pytest.raises(ValueError, match="n_permutations: expected 0 or more, got -1"):
        selector(n_permutations=-1).fit(X, y)
    with pytest.raises(TypeError, match=r"n_permutations: expected an integer, got 2\.5"):
        selector(n_permutations=2.5).fit(X, y)
    with pytest.raises(ValueError, match="n_permutations: expected 0 without targets, got 2"):
        selector(Unsupervised(), n_permutations=2).fit(X)


class Unsupervised(BaseEstimator):  # type: ignore[misc]
    def fit(self, X: Any, y: Any = None) -> "Unsupervised":
        return self

    def score(self, X: Any, y: Any = None) -> float:
        return float(np.var(X))


def test_numbers_have_honest_scores() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 40))
    y = X[:, 3] - X[:, 4] + rng.standard_normal(80)
    fitted = selector(Ridge(), outer_cv=4, max_evaluations=120, n_permutations=4).fit(X, y)
    assert fitted.p_value_ == 0.2
    assert 0.3 < fitted.score_ < 0.85
