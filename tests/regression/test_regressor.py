"""Best subset regression against enumeration by least squares of each subset."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import RepeatedKFold, ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor

from ksubset.regression import BestSubsetRegressor
from ksubset.regression.exact import branch_and_bound, enumerate_subsets
from ksubset.regression.heuristic import descend, search
from ksubset.regression.moments import Moments
from ksubset.regression.quadratic import Quadratic

Array = NDArray[np.float64]

NONE = np.empty(0, dtype=np.int64)


def made(rows: int, columns: int, seed: int = 0, noise: float = 2.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) + rng.normal(size=(rows, 1))
    return X, X[:, :3].sum(1) + noise * rng.normal(size=rows)


def moments(
    X: Array,
    y: Array,
    weights: Array | None = None,
    intercept: bool = True,
    alpha: float = 0.0,
    always: NDArray[np.int64] = NONE,
    exclude: NDArray[np.int64] = NONE,
) -> Moments:
    weights = np.ones(len(y)) if weights is None else weights
    return Moments(X, y, weights, intercept=intercept, alpha=alpha, always=always, exclude=exclude)


def rss(X: Array, y: Array, columns: Iterable[int]) -> float:
    design = np.column_stack([np.ones(len(y)), X[:, list(columns)]])
    return float(np.square(y - design @ np.linalg.lstsq(design, y, rcond=None)[0]).sum())


def enumerated(X: Array, y: Array, k: int) -> tuple[float, tuple[int, ...]]:
    return min((rss(X, y, columns), columns) for columns in itertools.combinations(range(X.shape[1]), k))


# No column is the best number of columns where the checks have targets of noise.
@pytest.mark.filterwarnings("ignore:No features were selected")
@parametrize_with_checks([BestSubsetRegressor(max_nodes=20), BestSubsetRegressor(1, criterion="bic", alpha=0.1)])
def test_conventions_of_scikit_learn(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


def test_all_subsets_additions_and_swaps_have_the_residuals_of_least_squares() -> None:
    X, y = made(40, 9)
    problem = moments(X, y)
    subsets = torch.tensor([[0, 1, 2], [2, 5, 8], [1, 4, 7]])
    value, table = problem.quadratic.swaps(subsets)
    further = problem.quadratic.additions(subsets)
    torch.testing.assert_close(problem.quadratic.rss(subsets), value)
    for row, subset in enumerate(subsets.tolist()):
        assert value[row] * problem.total == pytest.approx(rss(X, y, subset), rel=1e-9)
        for column in range(9):
            if column in subset:
                assert math.isinf(further[row, column])
                assert table[row, :, column].isinf().all()
                continue
            assert further[row, column] * problem.total == pytest.approx(rss(X, y, [*subset, column]), rel=1e-9)
            for place in range(3):
                swapped = [*subset[:place], column, *subset[place + 1 :]]
                assert table[row, place, column] * problem.total == pytest.approx(rss(X, y, swapped), rel=1e-9)


@pytest.mark.parametrize(("rows", "columns", "k"), [(60, 10, 1), (60, 10, 4), (30, 10, 8), (8, 10, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_enumeration(rows: int, columns: int, k: int, seed: int) -> None:
    X, y = made(rows, columns, seed, noise=6.0)
    best, right = enumerated(X, y, k)
    quadratic = moments(X, y).quadratic
    assert enumerate_subsets(quadratic, k)[0].tolist() == list(right)
    worst = torch.arange(columns - k, columns)
    subset, _, optimal = branch_and_bound(quadratic, worst, 10_000)
    assert optimal == (rows > columns)
    if optimal:
        assert subset.tolist() == list(right)
    assert descend(quadratic, worst[None])[1] >= best / moments(X, y).total * (1 - 1e-9)


def test_a_spent_budget_proves_nothing() -> None:
    X, y = made(60, 12, noise=20.0)
    quadratic = moments(X, y).quadratic
    assert not branch_and_bound(quadratic, torch.arange(4), 1)[2]
    assert branch_and_bound(quadratic, torch.arange(4), 10_000)[2]


def test_the_search_without_a_proof_finds_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ksubset.regression.heuristic._ENUMERATED", 0)
    for seed in range(10):
        X, y = made(12, 12, seed, noise=4.0)
        quadratic = moments(X, y).quadratic
        (found,) = search(quadratic, [4], starts=32, max_nodes=0, generator=np.random.default_rng(0))
        assert found.rss == pytest.approx(float(enumerate_subsets(quadratic, 4)[1]), rel=1e-9)
        assert not found.optimal


@pytest.mark.parametrize("criterion", ["aic", "bic", "ebic", "gic"])
def test_criteria_are_those_of_enumeration(criterion: str) -> None:
    X, y = made(50, 8)
    model = BestSubsetRegressor(range(9), criterion=criterion).fit(X, y)
    N, n = X.shape
    for place, k in enumerate(range(9)):
        added = {
            "aic": 2 * k,
            "bic": k * math.log(N),
            "ebic": k * math.log(N) + 2 * math.log(math.comb(n, k)),
            "gic": k * math.log(n) * math.log(math.log(N)),
        }[criterion]
        expected = N * math.log(enumerated(X, y, k)[0] / N) + added
        assert model.path_["criterion"][place] == pytest.approx(expected)
    assert model.n_features_ == model.path_["criterion"].argmin()


def test_cross_validation_finds_the_size() -> None:
    X, y = made(100, 8, noise=0.5)
    model = BestSubsetRegressor(range(1, 9), criterion="cv").fit(X, y)
    assert model.support_[:3].all()
    assert model.path_["criterion"][2] < model.path_["criterion"][1] / 2


@pytest.mark.parametrize("folds", [ShuffleSplit(10, test_size=0.25, random_state=0), RepeatedKFold(n_repeats=2)])
def test_the_criterion_of_folds_that_overlap_is_the_mean_error(folds: Any) -> None:
    X, y = made(40, 3)
    folds.random_state = 0
    model = BestSubsetRegressor([2, 3], criterion="cv", cv=folds).fit(X, y)
    right = -cross_val_score(LinearRegression(), X, y, cv=folds, scoring="neg_mean_squared_error").mean()
    assert model.path_["criterion"][1] == pytest.approx(right)


def test_test_sets_without_weight_are_an_error() -> None:
    X, y = made(40, 3)
    weights = np.repeat([1.0, 0.0], 20)
    with pytest.raises(ValueError, match="cv: expected a weight above 0"):
        BestSubsetRegressor([1, 2], criterion="cv", cv=[(np.arange(20), np.arange(20, 40))]).fit(X, y, weights)


def test_weights_are_repeated_rows() -> None:
    X, y = made(30, 8)
    weights = np.random.default_rng(1).integers(0, 4, 30)
    weighted = BestSubsetRegressor(range(9), alpha=0.3).fit(X, y, weights)
    repeated = BestSubsetRegressor(range(9), alpha=0.3).fit(X.repeat(weights, 0), y.repeat(weights))
    for name, values in weighted.path_.items():
        np.testing.assert_allclose(values, repeated.path_[name], rtol=1e-9)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_)
    assert weighted.intercept_ == pytest.approx(repeated.intercept_)


def test_ridge_is_that_of_the_augmented_rows() -> None:
    X, y = made(40, 6)
    model = BestSubsetRegressor(2, alpha=5.0, fit_intercept=False).fit(X, y)
    size = np.sqrt(np.square(X).mean(0))

    def objective(columns: Iterable[int]) -> tuple[float, list[int], Array]:
        design = np.vstack([X[:, list(columns)], np.diag(size[list(columns)] * math.sqrt(5.0))])
        target = np.append(y, [0.0, 0.0])
        b = np.linalg.lstsq(design, target, rcond=None)[0]
        return float(np.square(target - design @ b).sum()), list(columns), b

    _, columns, b = min((objective(c) for c in itertools.combinations(range(6), 2)), key=lambda found: found[0])
    assert np.flatnonzero(model.support_).tolist() == columns
    np.testing.assert_allclose(model.coef_[columns], b)


@pytest.mark.parametrize("rows", [50, 9])
def test_columns_always_and_never_included(rows: int) -> None:
    X, y = made(rows, 10)
    model = BestSubsetRegressor(4, always_include=[9, 5], exclude=[0]).fit(X, y)
    best = min(
        (rss(X, y, columns), columns) for columns in itertools.combinations(range(1, 10), 4) if {5, 9} <= set(columns)
    )
    assert tuple(np.flatnonzero(model.support_)) == best[1]
    assert model.rss_ == pytest.approx(best[0])
    assert model.optimal_


def test_dependent_and_constant_columns() -> None:
    X, y = made(40, 6)
    X = np.column_stack([X, X[:, 0], np.full(40, 1e8 + 0.1), X[:, 1] + X[:, 2]])
    for k in range(10):
        model = BestSubsetRegressor(k).fit(X, y)
        assert model.n_features_ == k
        assert np.isfinite(model.coef_).all()
        assert model.rss_ == pytest.approx(rss(X - X.mean(0), y, np.flatnonzero(model.support_)))
        assert model.rss_ == pytest.approx(enumerated(X - X.mean(0), y, k)[0])


def test_single_precision_with_a_large_offset() -> None:
    X, y = made(200, 8, noise=0.1)
    far = (X * 100 + 3e5).astype(np.float32)
    assert np.flatnonzero(BestSubsetRegressor(3).fit(far, y).support_).tolist() == [0, 1, 2]


def nearly_free_of_noise(seed: int, noise: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 8))
    return X, X[:, 6] - 2 * X[:, 7] + noise * rng.normal(size=50)


@pytest.mark.parametrize("enumerated_below", [200_000, 0])
@pytest.mark.parametrize("noise", [1e-6, 1e-7, 1e-8, 1e-9])
def test_more_columns_than_the_truth_nearly_without_noise(
    noise: float, enumerated_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ksubset.regression.heuristic._ENUMERATED", enumerated_below)
    for seed in range(20 if enumerated_below else 3):
        X, y = nearly_free_of_noise(seed, noise)
        model = BestSubsetRegressor(3, n_starts=0).fit(X, y)
        assert tuple(np.flatnonzero(model.support_)) == enumerated(X, y, 3)[1]
        assert model.optimal_


def test_nothing_is_proved_where_rounding_decides() -> None:
    X, y = nearly_free_of_noise(0, 0.0)
    assert not BestSubsetRegressor(3).fit(X, y).optimal_
    assert BestSubsetRegressor(2).fit(X, y).optimal_
    # Nor is it where nothing but rounding is left beside the columns that are always included.
    assert not BestSubsetRegressor(3, always_include=[6, 7]).fit(X, y).optimal_


@pytest.mark.parametrize("difference", [1e-4, 3e-7, 1e-8, 1e-10])
def test_nearly_dependent_columns_whose_difference_is_the_target(difference: float) -> None:
    rng = np.random.default_rng(0)
    z, x0 = rng.normal(size=(2, 50))
    X = np.column_stack([x0, x0 + difference * z, rng.normal(size=(50, 4))])
    y = z + 0.5 * X[:, 2]
    model = BestSubsetRegressor(2).fit(X, y)
    assert np.flatnonzero(model.support_).tolist() == [0, 1]
    assert enumerated(X, y, 2)[1] == (0, 1)
    assert model.optimal_


def test_nothing_is_proved_of_nearly_dependent_columns_without_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ksubset.regression.heuristic._ENUMERATED", 0)
    rng = np.random.default_rng(0)
    z, x0 = rng.normal(size=(2, 50))
    X = np.column_stack([x0, x0 + 1e-6 * z, rng.normal(size=(50, 4))])
    assert not BestSubsetRegressor(2, n_starts=0).fit(X, z + 0.5 * X[:, 2]).optimal_


@pytest.mark.parametrize("always", [[], [0, 1]])
@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_offsets_without_an_intercept(offset: float, always: list[int]) -> None:
    def residual(X: Array, y: Array, columns: list[int]) -> float:
        return float(np.square(y - X[:, columns] @ np.linalg.lstsq(X[:, columns], y, rcond=None)[0]).sum())

    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30, 7)) + offset
        y = rng.normal(size=30)
        model = BestSubsetRegressor(4, fit_intercept=False, always_include=always).fit(X, y)
        right = min(
            (residual(X, y, list(columns)), list(columns))
            for columns in itertools.combinations(range(7), 4)
            if set(always) <= set(columns)
        )[1]
        assert np.flatnonzero(model.support_).tolist() == right
        assert model.optimal_


def test_more_subsets_than_are_fitted_anew_are_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = nearly_free_of_noise(0, 1e-8)
    monkeypatch.setattr("ksubset.regression.exact._REFITTED", 3)
    assert not BestSubsetRegressor(3).fit(X, y).optimal_


def test_errors_of_moments_are_below_their_bounds() -> None:
    """Against the columns themselves, where these are nearly dependent by and by."""
    for difference in (1.0, 1e-2, 1e-4, 1e-5):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 8))
        X[:, 1] = X[:, 0] + difference * X[:, 1]
        X[:, 2] = X[:, 0] - X[:, 3] + difference * X[:, 2]
        quadratic = moments(X, X[:, 1] + 0.1 * rng.normal(size=60)).quadratic
        subsets = torch.tensor(list(itertools.combinations(range(8), 4)))
        right = quadratic.refitted(subsets)[0]
        value, error = quadratic.rss_with_error(subsets)
        assert ((value - right).abs() <= error).all()
        assert error.isfinite().all()
        prefixes = torch.tensor(list(itertools.combinations(range(8), 3)))
        values, errors = quadratic.additions_with_error(prefixes)
        for row, prefix in enumerate(prefixes.tolist()):
            for column in set(range(8)) - set(prefix):
                expected = quadratic.refitted(torch.tensor([[*prefix, column]]))[0][0]
                assert (values[row, column] - expected).abs() <= errors[row, column]


def test_an_interrupt_keeps_the_sizes_that_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = made(50, 8)
    original = enumerate_subsets

    def interrupted(quadratic: Quadratic, size: int) -> tuple[Tensor, float, bool]:
        if size == 3:
            raise KeyboardInterrupt
        return original(quadratic, size)

    monkeypatch.setattr("ksubset.regression.heuristic.enumerate_subsets", interrupted)
    with pytest.warns(UserWarning, match="interrupted: sizes from 3 on"):
        model = BestSubsetRegressor(range(1, 6)).fit(X, y)
    assert model.path_["k"].tolist() == [1, 2]


def test_an_interrupt_in_a_fold_is_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = made(50, 8)
    sizes: list[int] = []

    def interrupted(quadratic: Quadratic, size: int) -> tuple[Tensor, float, bool]:
        sizes.append(size)
        if sizes.count(3) == 2:
            raise KeyboardInterrupt
        return enumerate_subsets(quadratic, size)

    monkeypatch.setattr("ksubset.regression.heuristic.enumerate_subsets", interrupted)
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="interrupted"):
        BestSubsetRegressor(range(1, 4), criterion="cv").fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"k": 9}, ValueError, "k: expected 0 to 8"),
        ({"k": "many"}, ValueError, "k: expected"),
        ({"k": 1.5}, TypeError, "k: expected"),
        ({"k": []}, ValueError, "k: expected"),
        ({"criterion": "best"}, ValueError, "criterion: expected one of"),
        ({"alpha": -1}, ValueError, "alpha: expected"),
        ({"n_starts": None}, TypeError, "n_starts: expected"),
        ({"max_nodes": -1}, ValueError, "max_nodes: expected"),
        ({"always_include": ["a"]}, ValueError, "always_include: expected"),
        ({"always_include": [1], "exclude": [1]}, ValueError, "exclude: expected"),
        ({"exclude": [8]}, ValueError, "exclude: expected indices"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        BestSubsetRegressor(**arguments).fit(*made(20, 8))


def test_a_target_of_zeros_needs_no_column() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4))
    for intercept in (False, True):
        model = BestSubsetRegressor("auto", fit_intercept=intercept).fit(x, np.zeros(30))
        assert model.n_features_ == 0
        assert np.array_equal(model.predict(x), np.zeros(30))


def test_sizes_that_nothing_tells_apart() -> None:
    X, y = made(40, 6)
    message = (
        r"k: expected sizes that leave a degree of freedom for gic, got \[1, 2, 3\] for rows of a total weight of 1 "
    )
    with pytest.raises(ValueError, match=message):
        BestSubsetRegressor([1, 2, 3]).fit(X, y, np.full(40, 1 / 40))
    with pytest.raises(ValueError, match=r"got \[4, 5\] for rows of a total weight of 5"):
        BestSubsetRegressor([4, 5]).fit(X[:5], y[:5])


def test_the_same_column_in_two_units_is_one_column() -> None:
    """Seconds since 1970 and Julian days: what tells them apart is the rounding of their large offsets."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        seconds = 1.7e9 + rng.uniform(0, 3e7, size=40)
        X = np.column_stack([seconds, seconds / 86_400 + 2_440_587.5, rng.normal(size=(40, 4))])
        y = seconds / 1e7 + rng.normal(size=40)
        model = BestSubsetRegressor(2).fit(X, y)
        chosen = np.flatnonzero(model.support_)
        assert chosen.tolist() != [0, 1]
        assert model.rss_ == pytest.approx(np.square(y - model.predict(X)).sum(), rel=1e-6)
        both = BestSubsetRegressor(2, always_include=[0, 1]).fit(X, y)
        alone = BestSubsetRegressor(1, always_include=[0]).fit(X, y)
        assert both.rss_ == pytest.approx(alone.rss_, rel=1e-6)
        assert BestSubsetRegressor(3, always_include=[0]).fit(X, y).support_.tolist()[:2] == [True, False]


@pytest.mark.parametrize("unit", [1e160, 1e-170, 1e300, 1e-300])
def test_units_far_from_one(unit: float) -> None:
    X, y = made(60, 6, noise=0.1)
    right = BestSubsetRegressor(3).fit(X, y)
    model = BestSubsetRegressor(3).fit(X * np.where(np.arange(6) % 2, unit, 1.0), y)
    assert model.support_.tolist() == right.support_.tolist()
    assert model.optimal_
    np.testing.assert_allclose(model.coef_ * np.where(np.arange(6) % 2, unit, 1.0), right.coef_, rtol=1e-9)


@pytest.mark.parametrize("k", [3, [2, 3, 4]])
@pytest.mark.parametrize("criterion", ["gic", "cv"])
@pytest.mark.parametrize("unit", [2.0**-20, 1e120, 1e160, 1e-170, 1e300, 1e-300])
def test_units_of_the_target_far_from_one(k: int | list[int], criterion: str, unit: float) -> None:
    X, y = made(60, 6, noise=0.1)
    right = BestSubsetRegressor(k, criterion=criterion).fit(X, y)
    with np.errstate(over="ignore"):  # of the residual sum of squares
        model = BestSubsetRegressor(k, criterion=criterion).fit(X, y * unit)
        square = np.square(np.float64(unit))
    assert model.support_.tolist() == right.support_.tolist()
    assert model.optimal_
    np.testing.assert_allclose(model.coef_ / unit, right.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.predict(X) / unit, right.predict(X), rtol=1e-9)
    np.testing.assert_allclose(model.path_["rss"], right.path_["rss"] * square, rtol=1e-9)
    if k != 3 and criterion == "gic":
        np.testing.assert_allclose(model.path_["criterion"], right.path_["criterion"] + 120 * np.log(unit), rtol=1e-9)
    elif k != 3:
        np.testing.assert_allclose(model.path_["criterion"], right.path_["criterion"] * square, rtol=1e-9)


def test_a_column_with_a_large_offset_leaves_the_others_their_digits() -> None:
    """Nanoseconds since 1970 are rounded to 256; nearly dependent columns beside them are not."""
    rng = np.random.default_rng(0)
    stamps = 1.7e18 + rng.integers(0, 10**9, 200).astype(float)
    u, v = rng.normal(size=(2, 200))
    X = np.column_stack([u, u + 1e-6 * v, stamps, rng.normal(size=(200, 4)), v + 2 * rng.normal(size=200)])
    y = v + 0.01 * rng.normal(size=200)
    model = BestSubsetRegressor(2).fit(X, y)
    assert np.flatnonzero(model.support_).tolist() == [0, 1]
    assert model.score(X, y) > 0.99
    assert BestSubsetRegressor(3, always_include=[0, 1, 2]).fit(X, y).score(X, y) > 0.99
    assert BestSubsetRegressor(8).fit(X, y).score(X, y) > 0.99


def test_splitters_see_the_target_as_it_was_given() -> None:
    X = np.random.default_rng(0).normal(size=(60, 6))
    y = np.random.default_rng(1).integers(0, 4, 60)
    folds = list(StratifiedKFold(5).split(X, y))
    models = [BestSubsetRegressor([1, 2, 3], criterion="cv", cv=cv).fit(X, y) for cv in (StratifiedKFold(5), folds)]
    np.testing.assert_array_equal(models[0].path_["criterion"], models[1].path_["criterion"])
