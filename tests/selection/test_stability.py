"""How alike the choices on parts of the rows are, and which columns could stand in for others."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.feature_selection import (
    RFE,
    SelectFromModel,
    SelectKBest,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_classif,
)
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ksubset.selection import KSubsetSelector, stability
from ksubset.selection.stability import nogueira_index


def pairwise(supports: Any) -> float:
    """The index of choices of one size by its meaning: the mean over pairs of choices of how many columns they share,
    on a scale of 0 for chance to 1 for all.
    """
    count, n = supports.shape
    k = supports[0].sum()
    shared = [(supports[i] & supports[j]).sum() for i in range(count) for j in range(i)]
    return float((np.mean(shared) - k * k / n) / (k - k * k / n))


def test_the_index_is_the_mean_over_pairs() -> None:
    rng = np.random.default_rng(0)
    for n, k in ((10, 3), (50, 7), (4, 1)):
        supports = np.stack([np.isin(np.arange(n), rng.choice(n, k, replace=False)) for _ in range(12)])
        assert nogueira_index(supports)[0] == pytest.approx(pairwise(supports))
    assert nogueira_index(np.array([[True, False], [True, False]])) == (1.0, 0.0)


def test_the_error_is_that_of_a_jackknife() -> None:
    """Choices with a preference, of 400 parts, where the two estimates agree to a few percent."""
    rng = np.random.default_rng(1)
    keys = np.linspace(4, 0, 30) + rng.gumbel(size=(400, 30))
    supports = keys >= np.sort(keys, 1)[:, -6, None]
    index, error = nogueira_index(supports)
    left_out = np.array([nogueira_index(np.delete(supports, part, 0))[0] for part in range(400)])
    jackknife = np.sqrt(399 / 400 * ((left_out - left_out.mean()) ** 2).sum())
    assert error == pytest.approx(jackknife, rel=0.05)
    assert 0.1 < index < 0.5


def test_its_interval_covers() -> None:
    """The index of many parts is in the interval of 50 as often as it says: 200 trials, four standard errors."""
    rng = np.random.default_rng(2)

    def choices(count: int) -> Any:
        keys = np.linspace(2, 0, 20) + rng.gumbel(size=(count, 20))
        return keys >= np.sort(keys, 1)[:, -4, None]

    truth, _ = nogueira_index(choices(100_000))
    inside = 0
    for _ in range(200):
        index, error = nogueira_index(choices(50))
        inside += abs(index - truth) < 1.96 * error
    assert abs(inside / 200 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 200)


def test_choosing_at_random_has_an_index_about_zero() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 40)), np.arange(200) % 2
    found = stability(SelectKBest(f_classif, k=4), X, y, num_parts=30, fraction=0.1, random_state=0)
    assert abs(found.index) < 0.15
    assert found.interval(0.99)[0] < 0 < found.interval(0.99)[1]


@pytest.mark.parametrize(
    "selector",
    [
        SelectKBest(k=3),
        SequentialFeatureSelector(GaussianNB(), n_features_to_select=3, cv=3),
        KSubsetSelector(GaussianNB(), n_features_to_select=3, cv=3, max_evaluations=60, random_state=0),
    ],
    ids=lambda selector: type(selector).__name__,
)
def test_any_selector(selector: Any) -> None:
    X, y = load_wine(return_X_y=True, as_frame=True)
    found = stability(selector, X, y, num_parts=6, random_state=0)
    assert found.names.tolist() == X.columns.tolist()
    assert found.supports.shape == (6, 13)
    assert (found.supports.sum(1) == 3).all()
    np.testing.assert_allclose(found.frequencies, found.supports.mean(0))


def test_parts_are_the_same_for_any_number_of_processes() -> None:
    X, y = load_wine(return_X_y=True)
    one, two = (stability(SelectKBest(k=3), X, y, num_parts=6, random_state=0, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.supports, two.supports)
    other = stability(SelectKBest(k=3), X, y, num_parts=6, random_state=1)
    assert (other.supports != one.supports).any()


def test_arguments_of_fit_are_cut_to_the_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    y, groups = X[:, 2] + 0.1 * rng.standard_normal(90), np.repeat(np.arange(30), 3)

    class Recorder(LinearRegression):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            assert len(sample_weight) == len(X)
            return super().fit(X, y, sample_weight)

    selector = KSubsetSelector(Recorder(), n_features_to_select=1, cv=GroupKFold(3), max_evaluations=12, random_state=0)
    found = stability(
        selector, X, y, num_parts=4, groups=groups, random_state=0, sample_weight=np.linspace(0.5, 1.5, 90)
    )
    assert found.frequencies.tolist() == [0, 0, 1, 0, 0, 0]


def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)

    selector = KSubsetSelector(
        GaussianNB(), n_features_to_select=2, cv=3, max_evaluations=30, random_state=0,
        checkpoint=tmp_path / "scores.db",
    )  # fmt: skip
    one = stability(selector, X, y, num_parts=3, random_state=0)
    size = (tmp_path / "scores.db").stat().st_size
    two = stability(selector, X, y, num_parts=3, random_state=0)
    np.testing.assert_array_equal(one.supports, two.supports)
    assert (tmp_path / "scores.db").stat().st_size == size


def test_ctrl_c_keeps_the_parts_before() -> None:
    X, y = load_wine(return_X_y=True)
    left = 4

    class Interrupted(SelectKBest):  # type: ignore[misc]
        def fit(self, X: Any, y: Any = None) -> Any:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            return super().fit(X, y)

    with pytest.warns(UserWarning, match="interrupted: stability is of the parts before"):
        found = stability(Interrupted(k=3), X, y, num_parts=9, random_state=0)
    assert len(found.supports) == 3
    left = 2
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="interrupted"):
        stability(Interrupted(k=3), X, y, num_parts=9, random_state=0)


def test_bad_arguments() -> None:
    X, y = load_wine(return_X_y=True)
    with pytest.raises(ValueError, match="num_parts: expected 2 or more, got 1"):
        stability(SelectKBest(k=3), X, y, num_parts=1)
    for fraction in (0.0, 1.0, 50):
        with pytest.raises(ValueError, match=f"fraction: expected a number above 0 and below 1, got {fraction}"):
            stability(SelectKBest(k=3), X, y, fraction=fraction)
    with pytest.raises(ValueError, match="selector: expected one that keeps some of the columns, got all kept"):
        stability(SelectKBest(k="all"), X, y, num_parts=2)
    found = stability(SelectKBest(k=3), X, y, num_parts=4, random_state=0)
    with pytest.raises(ValueError, match="level: expected a number above 0 and below 1, got 95"):
        found.interval(95)
    with pytest.raises(ValueError, match="max_columns: expected 1 or more, got 0"):
        found.plot(max_columns=0)


def test_the_figure_has_the_most_frequent_columns() -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    found = stability(SelectKBest(k=5), X, y, num_parts=5, random_state=0)
    (panel,) = found.plot(max_columns=4).axes
    assert len(panel.patches) == 4
    assert panel.patches[0].get_width() == found.frequencies.max()
    assert panel.get_title().startswith(f"stability {found.index:.2f} (95 %")


def test_substitutes_are_the_swaps_that_were_scored() -> None:
    """All of them where all subsets are, with the loss that cross-validation has."""
    X, y = load_wine(return_X_y=True, as_frame=True)
    X = X.iloc[:, :6]
    fitted = KSubsetSelector(GaussianNB(), n_features_to_select=2, cv=4, random_state=0).fit(X, y)
    found = fitted.substitutes()
    kept = fitted.get_feature_names_out().tolist()
    assert len(found) == 2 * 4
    assert [one.loss for one in found] == sorted(one.loss for one in found)
    own = cross_val_score(clone(GaussianNB()), X[kept], y, cv=4)
    for one in found:
        assert one.loss >= 0
        columns = [one.stand_in[0] if name == one.kept[0] else name for name in kept]
        losses = own - cross_val_score(clone(GaussianNB()), X[sorted(columns, key=X.columns.get_loc)], y, cv=4)
        assert one.loss == pytest.approx(losses.mean())
        assert one.standard_error == pytest.approx(losses.std(ddof=1) / 2)


def test_a_near_copy_could_stand_in() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((300, 12))).add_prefix("c")
    y = (X["c1"] + X["c4"] > 0).astype(int)
    X["copy"] = X["c4"] + 1e-4 * rng.standard_normal(300)
    fitted = KSubsetSelector(GaussianNB(), n_features_to_select=2, cv=3, random_state=0).fit(X, y)
    first = fitted.substitutes()[0]
    assert {first.kept[0], first.stand_in[0]} == {"c4", "copy"}
    assert abs(first.loss) <= 0.01


def test_groups_stand_in_as_a_whole() -> None:
    X, y = load_wine(return_X_y=True, as_frame=True)
    groups = [["alcohol", "hue"], ["proline", "ash"]]
    fitted = KSubsetSelector(
        GaussianNB(), n_features_to_select=1, cv=3, random_state=0, feature_groups=groups
    ).fit(X, y)  # fmt: skip
    found = fitted.substitutes()
    assert len(found) == 10
    assert {len(one.stand_in) for one in found} == {1, 2}
    assert {one.kept for one in found} == {tuple(fitted.get_feature_names_out())}


def test_what_is_given_need_not_be_an_array() -> None:
    X, y = load_wine(return_X_y=True)
    found = stability(SelectKBest(k=3), X.tolist(), y.tolist(), num_parts=3, fraction=Fraction(1, 2), random_state=0)
    assert np.array_equal(found.supports, stability(SelectKBest(k=3), X, y, num_parts=3, random_state=0).supports)
    alone = stability(VarianceThreshold(0.9), X.tolist(), num_parts=3, random_state=0)
    assert np.array_equal(alone.supports, stability(VarianceThreshold(0.9), X, num_parts=3, random_state=0).supports)


def test_rows_keep_their_order() -> None:
    X = np.column_stack([np.arange(60.0), np.random.default_rng(0).standard_normal((60, 4))])
    seen = []

    def recorded(X: Any, y: Any) -> Any:
        seen.append(X[:, 0])
        return f_classif(X, y)

    for groups in (None, np.arange(60) // 2):
        stability(SelectKBest(recorded, k=2), X, np.arange(60) % 2, num_parts=2, groups=groups, random_state=0)
    assert len(seen) == 4
    assert all((np.diff(rows) > 0).all() for rows in seen)


def test_rows_stay_together_for_a_selector_that_knows_no_groups() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 3)
    X = np.column_stack([groups, rng.standard_normal((60, 5))])
    seen = []

    def recorded(X: Any, y: Any) -> Any:
        seen.append(np.unique(X[:, 0], return_counts=True)[1])
        return f_classif(X, y)

    stability(SelectKBest(recorded, k=2), X, groups // 10, num_parts=3, groups=groups, random_state=0)
    assert len(seen) == 3
    assert all(counts.tolist() == [3] * 10 for counts in seen)


@pytest.mark.parametrize(
    "selector", [SelectFromModel(Lasso(0.01), max_features=2), RFE(LinearRegression(), n_features_to_select=2)]
)
def test_groups_keep_rows_together_where_fit_takes_other_arguments(selector: Any) -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((120, 6)), np.repeat(np.arange(12), 10)
    found = stability(selector, X, X[:, 1] + X[:, 4], num_parts=3, groups=groups, random_state=0)
    assert found.frequencies.tolist() == [0, 1, 0, 0, 1, 0]


def test_what_cannot_tell_its_columns_is_refused() -> None:
    X, y = load_wine(return_X_y=True)
    with pytest.raises(TypeError, match=r"selector: expected fit and get_support, got Pipeline"):
        stability(make_pipeline(StandardScaler(), SelectKBest(k=3)), X, y)
