"""Best subset classification against enumeration by scikit-learn's logistic regression."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksubset.regression import BestSubsetClassifier
from ksubset.regression.logistic import Logistic
from ksubset.regression.swapping import search_logistic

Array = NDArray[np.float64]
ALPHA = 0.01
CLASSES = pytest.mark.parametrize("num_classes", [2, 3])


def made(rows: int, columns: int, num_classes: int = 2, seed: int = 0, noise: float = 1.0) -> tuple[Array, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) + 0.5 * rng.normal(size=(rows, 1))
    score = X[:, :3].sum(1) + noise * rng.logistic(size=rows)
    return X, np.digitize(score, np.quantile(score, np.arange(1, num_classes) / num_classes))


def fitted(X: Array, y: Any, columns: Iterable[int], alpha: float = ALPHA) -> tuple[float, float, Any]:
    """Objective, sum of log losses, and model of scikit-learn, of standardised columns."""
    part = (X[:, list(columns)] - X[:, list(columns)].mean(0)) / X[:, list(columns)].std(0)
    model = LogisticRegression(C=1 / alpha, tol=1e-10, max_iter=2000).fit(part, y)
    loss = log_loss(y, model.predict_proba(part), normalize=False)
    return loss + alpha / 2 * float(np.square(model.coef_).sum()), loss, model


def enumerated(X: Array, y: Any, k: int) -> tuple[float, tuple[int, ...]]:
    return min((fitted(X, y, columns)[0], columns) for columns in itertools.combinations(range(X.shape[1]), k))


def problem(X: Array, y: Any, fixed: Any = (), alpha: float = ALPHA) -> Logistic:
    scaled = torch.from_numpy((X - X.mean(0)) / X.std(0))
    targets = torch.from_numpy((y[:, None] == np.unique(y)).astype(float))
    others = [column for column in range(X.shape[1]) if column not in fixed]
    return Logistic(
        scaled[:, others], scaled[:, list(fixed)], targets[:, 1:] if targets.shape[1] == 2 else targets,
        torch.ones(len(y), dtype=torch.float64), True, alpha,
    )  # fmt: skip


# No column is the best number of columns where the checks have labels of noise.
@pytest.mark.filterwarnings("ignore:No features were selected")
@parametrize_with_checks([BestSubsetClassifier(n_starts=0, criterion="bic", alpha=0.1)])
def test_conventions_of_scikit_learn(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


@CLASSES
@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_optimum_is_that_of_enumeration(num_classes: int, k: int) -> None:
    X, y = made(60, 6, num_classes)
    model = BestSubsetClassifier(k, alpha=ALPHA).fit(X, y)
    value, columns = enumerated(X, y, k)
    assert tuple(np.flatnonzero(model.support_)) == columns
    assert model.optimal_
    _, loss, right = fitted(X, y, columns)
    assert model.loss_ == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(model.coef_[:, columns] * X.std(0)[list(columns)], right.coef_, atol=1e-3)
    part = (X[:, columns] - X[:, columns].mean(0)) / X[:, columns].std(0)
    np.testing.assert_allclose(model.predict_proba(X), right.predict_proba(part), atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), right.predict(part))
    assert float(problem(X, y).fit(torch.tensor([columns]))[0]) == pytest.approx(value, rel=1e-7)


@CLASSES
def test_swaps_and_additions_are_exact_for_the_quadratic_model(num_classes: int) -> None:
    """Against one Newton step on each subset, from the coefficients of the fit before, by dense matrices."""
    X, y = made(80, 7, num_classes)
    logistic = problem(X, y, fixed=[6])
    subset = torch.tensor([0, 2, 5])
    _, found = logistic.fit(subset[None])
    theta = found[0]
    classes = theta.shape[1]
    whole = torch.zeros(2 + 6, classes, dtype=torch.float64)
    places = [0, 1, *(2 + subset).tolist()]
    whole[places] = theta
    everything = torch.arange(6)[None]
    design = logistic._design(everything)

    def objective(flat: Any) -> Any:
        return logistic._objective(design, flat.reshape(1, -1, classes))[0]

    gradient = torch.autograd.functional.jacobian(objective, whole.flatten())
    hessian = torch.autograd.functional.hessian(objective, whole.flatten())

    def change(columns: list[int]) -> float:
        """Of the quadratic model, minimised on these columns, the intercept and the fixed one."""
        free = [
            place * classes + each for place in [0, 1, *(2 + column for column in columns)] for each in range(classes)
        ]
        gone = [place for place in range(len(gradient)) if place not in free]
        step = torch.zeros(len(gradient), dtype=torch.float64)
        step[gone] = -whole.flatten()[gone]
        right = -(gradient + hessian @ step)[free]
        step[free] = torch.linalg.solve(hessian[free][:, free], right)
        return float(gradient @ step + step @ hessian @ step / 2)

    added, table = logistic.additions(subset, theta), logistic.swaps(subset, theta)
    for column in range(6):
        if column in subset:
            assert math.isinf(added[column])
            assert table[:, column].isinf().all()
            continue
        assert float(added[column]) == pytest.approx(change([0, 2, 5, column]), rel=1e-5, abs=1e-7)
        for place in range(3):
            swapped = [*subset[:place].tolist(), column, *subset[place + 1 :].tolist()]
            assert float(table[place, column]) == pytest.approx(change(swapped), rel=1e-5, abs=1e-7)


@CLASSES
def test_the_search_without_enumeration_finds_the_optimum(num_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = []
    for seed in range(4):
        X, y = made(60, 9, num_classes, seed, noise=2.0)
        logistic = problem(X, y)
        (best,) = search_logistic(logistic, [4], starts=0, generator=np.random.default_rng(0))
        assert best.optimal
        with monkeypatch.context() as patched:
            patched.setattr("ksubset.regression.swapping._OPERATIONS", 0)
            (found,) = search_logistic(logistic, [4], starts=8, generator=np.random.default_rng(0))
        assert not found.optimal
        right.append(found.subset.tolist() == best.subset.tolist())
    assert all(right)


def test_many_columns() -> None:
    X, y = made(200, 300, noise=0.3)
    model = BestSubsetClassifier([3], random_state=0).fit(X, y)
    assert np.flatnonzero(model.support_).tolist() == [0, 1, 2]
    assert not model.optimal_


@pytest.mark.parametrize("criterion", ["aic", "bic", "ebic", "gic"])
@CLASSES
def test_criteria_are_those_of_enumeration(criterion: str, num_classes: int) -> None:
    X, y = made(50, 5, num_classes)
    model = BestSubsetClassifier(range(6), criterion=criterion, alpha=ALPHA).fit(X, y)
    N, n = X.shape
    for place, k in enumerate(range(1, 6), start=1):
        added = {
            "aic": 2 * k * (num_classes - 1),
            "bic": k * (num_classes - 1) * math.log(N),
            "ebic": k * (num_classes - 1) * math.log(N) + 2 * math.log(math.comb(n, k)),
            "gic": k * (num_classes - 1) * math.log(n) * math.log(math.log(N)),
        }[criterion]
        loss = fitted(X, y, enumerated(X, y, k)[1])[1]
        assert model.path_["criterion"][place] == pytest.approx(2 * loss + added, rel=1e-5)
    assert model.n_features_ == model.path_["criterion"].argmin()


def test_cross_validation_is_that_of_each_fold() -> None:
    X, y = made(90, 5)
    folds = StratifiedKFold(3)
    model = BestSubsetClassifier([1, 3], criterion="cv", cv=folds, alpha=ALPHA).fit(X, y)
    for place, k in enumerate((1, 3)):
        total = 0.0
        for train, test in folds.split(X, y):
            columns = list(enumerated(X[train], y[train], k)[1])
            _, _, right = fitted(X[train], y[train], columns)
            part = (X[test][:, columns] - X[train][:, columns].mean(0)) / X[train][:, columns].std(0)
            total += log_loss(y[test], right.predict_proba(part), normalize=False)
        assert model.path_["criterion"][place] == pytest.approx(total / 90, rel=1e-4)
    assert model.n_features_ == 3


def test_the_criterion_of_folds_that_overlap_is_the_mean_loss() -> None:
    X, y = made(60, 3)
    folds = ShuffleSplit(10, test_size=0.25, random_state=0)
    model = BestSubsetClassifier([2, 3], criterion="cv", cv=folds, alpha=ALPHA).fit(X, y)
    twin = make_pipeline(StandardScaler(), LogisticRegression(C=1 / ALPHA, tol=1e-10, max_iter=2000))
    right = -cross_val_score(twin, X, y, cv=folds, scoring="neg_log_loss").mean()
    assert model.path_["criterion"][1] == pytest.approx(right, rel=1e-4)


def test_test_sets_without_weight_are_an_error() -> None:
    X, y = made(40, 3)
    weights = np.repeat([1.0, 0.0], 20)
    with pytest.raises(ValueError, match="cv: expected a weight above 0"):
        BestSubsetClassifier([1, 2], criterion="cv", cv=[(np.arange(20), np.arange(20, 40))]).fit(X, y, weights)


@CLASSES
@pytest.mark.parametrize("factor", [1e-10, 1e-6, 1e10])
def test_weights_and_penalty_times_a_factor_change_nothing(num_classes: int, factor: float) -> None:
    X, y = made(60, 4, num_classes)
    model = BestSubsetClassifier(2, alpha=ALPHA).fit(X, y)
    scaled = BestSubsetClassifier(2, alpha=ALPHA * factor).fit(X, y, np.full(60, factor))
    np.testing.assert_allclose(scaled.coef_, model.coef_, rtol=1e-6)
    np.testing.assert_allclose(scaled.intercept_, model.intercept_, rtol=1e-6)
    assert scaled.loss_ == pytest.approx(factor * model.loss_, rel=1e-9)


@pytest.mark.parametrize("weight", [1e8, 1e14])
def test_large_weights_of_three_classes(weight: float) -> None:
    X, y = made(60, 4, 3)
    X = np.column_stack([X, X[:, 0]])
    for k in (2, 5):
        model = BestSubsetClassifier(k).fit(X, y, np.full(60, weight))
        right = fitted(X, y, np.flatnonzero(model.support_), alpha=1e-11)[1]
        assert model.loss_ == pytest.approx(weight * right, rel=1e-6)


@CLASSES
def test_small_losses_have_all_their_digits(num_classes: int) -> None:
    y = np.repeat(np.arange(num_classes), 50)
    X = np.eye(num_classes)[y]
    model = BestSubsetClassifier(num_classes - 1, alpha=1e-10).fit(X, y)
    logits = model.decision_function(X)
    if num_classes == 2:
        logits = np.column_stack([np.zeros(len(y)), logits])
    own = logits[np.arange(len(y)), y]
    others = np.exp(logits - own[:, None])[np.arange(num_classes) != y[:, None]].reshape(len(y), -1).sum(1)
    assert model.loss_ < 1e-8
    assert model.loss_ == pytest.approx(np.log1p(others).sum(), rel=1e-9)


def test_weights_are_repeated_rows() -> None:
    X, y = made(40, 6, 3)
    weights = np.random.default_rng(1).integers(0, 4, 40)
    weighted = BestSubsetClassifier(range(4)).fit(X, y, weights)
    repeated = BestSubsetClassifier(range(4)).fit(X.repeat(weights, 0), y.repeat(weights))
    for name, values in weighted.path_.items():
        np.testing.assert_allclose(values, repeated.path_[name], rtol=1e-7)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)


@CLASSES
def test_separable_classes_have_finite_coefficients(num_classes: int) -> None:
    X, y = made(60, 5, num_classes, noise=0.0)
    model = BestSubsetClassifier(3, alpha=1e-7).fit(X, y)
    assert np.flatnonzero(model.support_).tolist() == [0, 1, 2]
    assert np.isfinite(model.coef_).all()
    assert model.score(X, y) == 1
    assert model.loss_ < 1e-2


def test_columns_always_and_never_included() -> None:
    X, y = made(60, 6)
    model = BestSubsetClassifier(3, alpha=ALPHA, always_include=[5], exclude=[0]).fit(X, y)
    best = min(
        (fitted(X, y, columns)[0], columns) for columns in itertools.combinations(range(1, 6), 3) if 5 in columns
    )
    assert tuple(np.flatnonzero(model.support_)) == best[1]


def test_constant_and_repeated_columns_and_no_intercept() -> None:
    X, y = made(40, 4)
    X = np.column_stack([X, X[:, 0], np.full(40, 1e8 + 0.1)])
    for k in range(7):
        for intercept in (True, False):
            model = BestSubsetClassifier(k, fit_intercept=intercept).fit(X, y)
            assert model.n_features_ == k
            assert np.isfinite(model.coef_).all()
            assert model.loss_ == pytest.approx(log_loss(y, model.predict_proba(X), normalize=False), rel=1e-6)


def test_an_interrupt_keeps_the_sizes_that_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = made(50, 6)
    original = Logistic.fit

    def interrupted(self: Logistic, subsets: torch.Tensor) -> Any:
        if subsets.shape[1] == 3:
            raise KeyboardInterrupt
        return original(self, subsets)

    monkeypatch.setattr(Logistic, "fit", interrupted)
    with pytest.warns(UserWarning, match="interrupted: sizes from 3 on"):
        model = BestSubsetClassifier(range(1, 6)).fit(X, y)
    assert model.path_["k"].tolist() == [1, 2]


def test_an_interrupt_in_a_fold_is_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = made(60, 6)
    original = Logistic.fit

    def interrupted(self: Logistic, subsets: torch.Tensor) -> Any:
        if subsets.shape[1] == 3 and len(self.x) < 60:
            raise KeyboardInterrupt
        return original(self, subsets)

    monkeypatch.setattr(Logistic, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="interrupted"):
        BestSubsetClassifier(range(1, 4), criterion="cv").fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"k": 9}, ValueError, "k: expected 0 to 8"),
        ({"criterion": "best"}, ValueError, "criterion: expected one of"),
        ({"alpha": 0}, ValueError, "alpha: expected a number above 0"),
        ({"n_starts": -1}, ValueError, "n_starts: expected"),
        ({"always_include": [1], "exclude": [1]}, ValueError, "exclude: expected"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    X, y = made(20, 8)
    with pytest.raises(error, match=match):
        BestSubsetClassifier(**arguments).fit(X, y)


def test_one_class_is_an_error() -> None:
    X, y = made(20, 4)
    with pytest.raises(ValueError, match="y: expected two classes"):
        BestSubsetClassifier(2).fit(X, y, y == 1)


@pytest.mark.parametrize("unit", [1e160, 1e-170, 1e300, 1e-300])
def test_units_far_from_one(unit: float) -> None:
    X, y = made(80, 5)
    scale = np.where(np.arange(5) % 2, unit, 1.0)
    right, model = BestSubsetClassifier(2).fit(X, y), BestSubsetClassifier(2).fit(X * scale, y)
    assert model.support_.tolist() == right.support_.tolist()
    np.testing.assert_allclose(model.coef_ * scale, right.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X * scale), right.predict_proba(X), rtol=1e-6)
