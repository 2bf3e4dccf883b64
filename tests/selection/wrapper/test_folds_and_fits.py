"""Folds mean what scikit-learn means by them, no fit is lost, and what a model takes reaches it."""

import contextlib
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneOut, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from ksubset.selection import KSubsetSelector, Progress

TREE = DecisionTreeClassifier(random_state=0)


def selector(estimator: Any = TREE, k: Any = 2, **parameters: Any) -> KSubsetSelector:
    return KSubsetSelector(
        estimator, n_features_to_select=k, **{"cv": 3, "max_evaluations": 120, "random_state": 0, **parameters}
    )


def test_many_folds_of_one_row_decide_nothing_alone() -> None:
    r = np.random.default_rng(0)
    X = r.normal(size=(40, 10))
    y = X[:, :3].sum(1) + 0.5 * r.normal(size=40)
    fitted = KSubsetSelector(
        Ridge(1e-3), n_features_to_select=3, cv=LeaveOneOut(), scoring="neg_mean_squared_error", random_state=0
    ).fit(X, y)
    assert fitted.get_support(indices=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_ordered_rows_stay_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(20.0), 15)
    level = rng.standard_normal(20)[block.astype(int)]
    X = np.column_stack([block, *(0.3 * level[:, None] + rng.standard_normal((300, 5))).T])
    model = DecisionTreeClassifier(max_depth=6, random_state=0)
    y = (level > 0).astype(int)
    ours = KSubsetSelector(model, n_features_to_select=1, random_state=0).fit(X, y)
    theirs = SequentialFeatureSelector(model, n_features_to_select=1, cv=5).fit(X, y)
    assert ours.get_support(indices=True).tolist() == theirs.get_support(indices=True).tolist()


def test_the_parity_of_three_in_thirty_is_found_with_the_budget_for_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (300, 30))
    members = rng.choice(30, 3, replace=False)
    y = X[:, members].sum(1) % 2
    fitted = selector(DecisionTreeClassifier(max_depth=4, random_state=0), 3, max_evaluations=6000).fit(X, y)
    assert fitted.get_support(indices=True).tolist() == sorted(members.tolist())


def test_the_budget_that_was_asked_for_is_used() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 30)), rng.integers(0, 2, 60)
    fitted = selector(k=5, max_evaluations=900).fit(X, y)
    assert 890 < fitted.n_fits_ <= 900


def test_copies_of_a_column_are_kept_once() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 10))
    y = (X @ rng.standard_normal(10) > 0).astype(int)
    frame = pd.DataFrame(np.hstack([X, X])).add_prefix("c")
    for data in (frame.to_numpy(), frame):
        kept = selector(LogisticRegression(), 8).fit(data, y).get_support(indices=True)
        assert len(set((kept % 10).tolist())) == 8
    kept = selector(LogisticRegression(), 8, exclude=list(range(10))).fit(frame.to_numpy(), y).get_support(indices=True)
    assert (kept >= 10).all()
    assert selector(LogisticRegression(), 15).fit(frame, y).n_features_ == 15


def test_a_fraction_of_the_columns(numbers: Any) -> None:
    assert selector(k=0.5).fit(*numbers).n_features_ == 10
    assert selector(k=0.01).fit(*numbers).n_features_ == 1
    assert selector(k=0.29, max_evaluations=3).fit(np.tile(numbers[0], 5), numbers[1]).n_features_ == 29


def test_sizes_in_an_array(numbers: Any) -> None:
    fitted = selector(k=np.array([1, 2, 3]), max_evaluations=30).fit(*numbers)
    assert fitted.path_["n_features_to_select"].tolist() == [1, 2, 3]


def test_a_fraction_is_less_than_one(numbers: Any) -> None:
    with pytest.raises(TypeError, match=r"n_features_to_select: .* got 1\.5"):
        selector(k=1.5).fit(*numbers)


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(SimpleImputer(), LogisticRegression()),
        VotingClassifier([("one", make_pipeline(SimpleImputer(), LogisticRegression()))]),
        GridSearchCV(make_pipeline(SimpleImputer(), LogisticRegression()), {"logisticregression__C": [1.0]}, cv=2),
    ],
    ids=["pipeline", "vote", "search"],
)
def test_missing_values_where_the_model_takes_them(model: Any, numbers: Any) -> None:
    X, y = numbers
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.05, np.nan, X)
    fitted = selector(model, max_evaluations=30).fit(X, y)
    assert fitted.predict(X).shape == (120,)
    np.testing.assert_array_equal(fitted.transform(X), X[:, fitted.support_])
    with pytest.raises(ValueError, match="NaN"):
        selector(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        selector(LogisticRegression()).fit(np.nan_to_num(X), y).transform(X)


def test_groups_and_weights_without_routing(numbers: Any) -> None:
    X, y = numbers
    groups, weight = np.repeat(np.arange(12), 10), np.ones(120)
    weight[60:] = 0
    y = np.where(weight > 0, X[:, 3] > 0, X[:, 5] > 0).astype(int)
    assert selector(k=1, cv=GroupKFold(3)).fit(X, y, groups=groups, sample_weight=weight).support_[3]


class Validated(ClassifierMixin, BaseEstimator):
    """Is fitted with rows to validate by, as boosted trees are."""

    def fit(self, X: Any, y: Any, eval_set: Any = None) -> "Validated":
        assert eval_set[0][0].shape[1] == X.shape[1]
        self.model_ = clone(TREE).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


def test_arguments_of_a_fit_that_hold_columns(numbers: Any) -> None:
    X, y = numbers
    more = lambda columns: {"eval_set": [(X[:20, columns], y[:20])]}  # noqa: E731
    fitted = selector(Validated(), column_params=more).fit(X[20:], y[20:])
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    with pytest.raises(TypeError, match="column_params: expected a function"):
        selector(Validated(), column_params=3).fit(X, y)


class Locked(Validated):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def fit(self, X: Any, y: Any) -> "Locked":
        super().fit(X, y, [(X, y)])
        return self


def test_a_model_that_cannot_be_copied(numbers: Any) -> None:
    assert selector(Locked()).fit(*numbers).get_support(indices=True).tolist() == [3, 7]


class Fragile(Validated):
    """Fails, or takes long, where the first column is column 1."""

    def __init__(self, how: str = "fails") -> None:
        self.how = how

    def fit(self, X: Any, y: Any) -> "Fragile":
        if X[0, 0] == 1.0:
            if self.how == "fails":
                raise RuntimeError("singular")
            time.sleep(5)
        super().fit(X, y, [(X, y)])
        return self


@pytest.mark.parametrize(("how", "message"), [("fails", "singular"), ("hangs", "more than 0.2 seconds")])
def test_a_fit_that_fails_does_not_end_the_others(how: str, message: str, numbers: Any) -> None:
    X, y = numbers
    X[:, 1] = 1.0 + 1e-9 * np.arange(120)
    X[0, 1] = X[40, 1] = X[80, 1] = 1.0
    # Rows are taken by folds, and each fold's rows to fit begin with one of these.
    folds = list(KFold(3).split(X))
    timeout = 0.2 if how == "hangs" else None
    fitted = selector(Fragile(how), 1, cv=folds, timeout=timeout)
    with pytest.warns(FitFailedWarning, match=message):
        fitted.fit(X, y)
    assert not fitted.support_[1]
    with pytest.raises((RuntimeError, TimeoutError), match=message):
        selector(Fragile(how), 1, cv=folds, timeout=timeout, error_score="raise").fit(X, y)


class Swallowing(DecisionTreeClassifier):  # type: ignore[misc]
    """Where column 1 is constant, takes what interrupts it for a failure of its own, or has a timer itself."""

    def __init__(self, how: str = "tries on") -> None:
        super().__init__()
        self.how = how

    def fit(self, X: Any, y: Any) -> "Swallowing":
        if (X == 1).all():
            if self.how == "has a timer":
                signal.setitimer(signal.ITIMER_REAL, 0)
            for _ in range(3):
                with contextlib.suppress(Exception):
                    time.sleep(0.15)
        super().fit(X, y)
        return self


@pytest.mark.parametrize("how", ["tries on", "has a timer"])
def test_a_model_that_swallows_what_interrupts_it_has_taken_too_long(how: str, numbers: Any) -> None:
    X, y = numbers
    X = X[:, :4]
    X[:40, 1] = 1.0
    folds = [(np.arange(40), np.arange(40, 120)), *KFold(2).split(X)]
    start = time.monotonic()
    told: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: told.append(time.monotonic() - start))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.warns(FitFailedWarning, match=r"more than 0\.1 seconds"):
            fitted = selector(Swallowing(how), 1, cv=folds, timeout=0.1).fit(X, y)
        time.sleep(0.4)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not fitted.support_[1]
    assert len(told) == 1  # another's timer goes on


@pytest.mark.parametrize("store", ["checkpoint", "warm_start"])
def test_a_fit_that_failed_is_tried_again(store: str, numbers: Any, tmp_path: Path) -> None:
    X, y = numbers
    X[:, 16:] = 1.0 + 1e-9 * np.random.default_rng(0).permuted(np.tile(np.arange(120), (4, 1)), axis=1).T
    X[[0, 40, 80], 16:] = 1.0  # more fits fail than would be hopeless
    given = {store: tmp_path / "scores" if store == "checkpoint" else True}
    fitted = selector(Fragile(), 1, cv=list(KFold(3).split(X)), **given)
    with pytest.warns(FitFailedWarning, match="singular"):
        fitted.fit(X, y)
    with pytest.warns(FitFailedWarning, match="singular"):
        fitted.fit(X, y)
    with pytest.raises(RuntimeError, match="singular"):
        fitted.set_params(error_score="raise").fit(X, y)


@pytest.mark.parametrize("cv", [KFold(3, shuffle=True), ShuffleSplit(3)])
def test_folds_that_are_drawn_have_the_seed_of_the_selector(cv: Any, numbers: Any, tmp_path: Path) -> None:
    path = tmp_path / "scores"
    first, again = (selector(k=2, cv=cv, checkpoint=path).fit(*numbers) for _ in range(2))
    assert again.best_score_ == first.best_score_
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM searches").fetchone() == (1,)
    assert cv.random_state is None
    alone = selector(k=2, cv=cv, random_state=None)
    with pytest.raises(ValueError, match=r"cv: expected one with a random_state, or one of the selector, got "):
        clone(alone).set_params(checkpoint=tmp_path / "other").fit(*numbers)
    assert alone.fit(*numbers).n_fits_ > 0


def test_fits_that_all_fail_are_an_error(numbers: Any) -> None:
    X, y = np.ones((30, 12)), np.arange(30) % 2
    X[1:] += np.random.default_rng(0).random((29, 12))
    with pytest.raises(RuntimeError, match="singular") as caught:
        selector(Fragile(), 1, cv=[(np.arange(20), np.arange(20, 30))]).fit(X, y)
    assert caught.value.__notes__ == ["So the first 10 fits have all failed."]
    with pytest.raises(RuntimeError, match="singular"):
        selector(Fragile(), 1, cv=[(np.arange(20), np.arange(20, 30))]).fit(X[:, :3], y)


def test_no_split_is_an_error(numbers: Any) -> None:
    splits = KFold(3).split(numbers[0])
    fitted = selector(cv=splits).fit(*numbers)
    for cv in ([], splits):
        with pytest.raises(ValueError, match="cv: expected one split or more, got none"):
            fitted.set_params(cv=cv).fit(*numbers)


def test_a_score_that_is_nan_on_one_fold_is_one_rule() -> None:
    rng = np.random.default_rng(0)
    for n, k in ((10, 2), (30, 5)):
        X = rng.standard_normal((90, n))
        y = X[:, 0] + 0.1 * rng.standard_normal(90)
        scorer = lambda model, X, y: np.nan if len(y) == 30 and y[0] == first else model.score(X, y)  # noqa: B023, E731
        first = y[30]
        with pytest.raises(ValueError, match="scoring: expected finite scores"):
            selector(LinearRegression(), k, scoring=scorer).fit(X, y)


class Slow(Validated):
    """Takes a fifth of a second, and may be interrupted."""

    fits: ClassVar[list[int]] = []
    stop: ClassVar[int] = 0

    def fit(self, X: Any, y: Any) -> "Slow":
        time.sleep(0.2)
        self.fits.append(1)
        if len(self.fits) == self.stop:
            raise KeyboardInterrupt
        super().fit(X, y, [(X, y)])
        return self


@pytest.fixture(autouse=True)
def _forget() -> None:
    Slow.fits.clear()
    Slow.stop = 0


def test_an_interrupt_of_slow_fits_loses_none(numbers: Any, tmp_path: Path) -> None:
    told: list[Progress] = []
    Slow.stop = 6
    fitted = selector(Slow(), checkpoint=tmp_path / "scores.db", callbacks=told.append)
    with pytest.warns(UserWarning, match="interrupted"):
        fitted.fit(*numbers)
    with closing(sqlite3.connect(tmp_path / "scores.db")) as file:
        ((saved,),) = file.execute("SELECT count(*) FROM scores")
    assert saved == fitted.n_fits_ == 5
    assert [progress.n_fits for progress in told] == [1, 2, 3, 4, 5]
    assert told[-1].seconds_left == pytest.approx(told[-1].seconds * 115 / 5)


@pytest.mark.parametrize("columns", [6, 20])
def test_seconds_that_are_over_at_once_leave_what_was_scored(columns: int, numbers: Any) -> None:
    X, y = numbers
    assert selector(max_seconds=1e-6).fit(X[:, :columns], y).n_features_ == 2


def test_seconds_end_a_search(numbers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        # No matter how busy the machine is.
        patch.setattr(time, "monotonic", lambda: 0.2 * len(Slow.fits))
        fitted = selector(Slow(), max_seconds=1.0).fit(*numbers)
    assert 3 <= fitted.n_fits_ <= 6
    with pytest.raises(ValueError, match="max_seconds: expected a number above 0, got 0"):
        selector(max_seconds=0).fit(*numbers)
