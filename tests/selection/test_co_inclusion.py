"""What the subsets that a selector found good have in common, and the figure of a search or a training."""

import io
import sys
import tracemalloc
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from torch import Tensor

from ksubset import KSubset
from ksubset.selection import CoInclusion, KSubsetSelector, NeuralSubsetSelector
from ksubset.selection.co_inclusion import as_good_as_the_best, co_inclusion, joint_probabilities

PNG = b"\x89PNG\r\n\x1a\n"
KEPT = "#d55e00"


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Columns 1 and 4 say nearly the same, 2 something else, the others nothing."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 12))
    X[:, 4] = X[:, 1] + 0.1 * rng.standard_normal(120)
    y = (X[:, 1] + X[:, 2] + 0.5 * rng.standard_normal(120) > 0).astype(int)
    return pd.DataFrame(X).add_prefix("column "), y


def fit(data: Any, k: Any = 2, **parameters: Any) -> KSubsetSelector:
    parameters = {"cv": 4, "max_evaluations": 150, "random_state": 0, **parameters}
    return KSubsetSelector(GaussianNB(), n_features_to_select=k, **parameters).fit(*data)


@pytest.fixture(scope="module")
def fitted(data: Any) -> KSubsetSelector:
    return fit(data)


@pytest.fixture(scope="module")
def sizes(data: Any) -> KSubsetSelector:
    return fit(data, [1, 2, 4, 12])


def counted(selector: KSubsetSelector, size: int) -> tuple[dict[tuple[int, int], float], int]:
    """Shares by the definition, one subset at a time."""
    results = selector.cv_results_
    means, errors = {}, {}
    for row, columns in enumerate(results["columns"]):
        scores = [results[f"split{fold}_test_score"][row] for fold in range(4)]
        if results["n_features_to_select"][row] == size and not np.isnan(scores).any():
            means[tuple(columns)] = np.mean(scores)
            errors[tuple(columns)] = np.std(scores, ddof=1) / 2
    best = max(means, key=means.__getitem__)
    good = {columns for columns, mean in means.items() if mean >= means[best] - errors[best]}
    good.add(tuple(selector.get_support(indices=True)))
    held = {column for columns in good for column in columns}
    shares = {(i, j): np.mean([i in columns and j in columns for columns in good]) for i in held for j in held}
    return shares, len(good)


@pytest.mark.parametrize(
    ("k", "parameters"),
    [
        (2, {}),
        (3, {"always_include": [0], "exclude": [5]}),
        (2, {"feature_groups": [[1, 6], [2, 7, 8]]}),
        ([1, 2, 3], {}),
        (12, {}),
    ],
)
def test_by_the_definition(data: Any, k: Any, parameters: Any) -> None:
    selector = fit(data, k, **parameters)
    (kept,) = (size for size, row in enumerate(selector.path_["support"]) if (row == selector.support_).all())
    expected, number = counted(selector, selector.path_["n_features_to_select"][kept])
    found = selector.co_inclusion()
    assert found.num_subsets == number
    shares = {(i, j): found.shares[a, b] for a, i in enumerate(found.columns) for b, j in enumerate(found.columns)}
    assert shares == pytest.approx(expected)
    assert found.names.tolist() == [f"column {column}" for column in found.columns]
    assert (found.columns.dtype, found.shares.dtype) == (np.int64, np.float64)


def test_the_most_frequent_come_first_and_others_are_left_out(sizes: KSubsetSelector) -> None:
    whole, part = sizes.co_inclusion(), sizes.co_inclusion(max_columns=2)
    assert len(whole.columns) > 2
    assert (np.diff(whole.shares.diagonal()) <= 0).all()
    np.testing.assert_array_equal(part.columns, whole.columns[:2])
    np.testing.assert_array_equal(part.shares, whole.shares[:2, :2])
    assert part.num_subsets == whole.num_subsets


def test_columns_that_stand_for_each_other(fitted: KSubsetSelector) -> None:
    found = fitted.co_inclusion()
    share = dict(zip(found.columns.tolist(), found.shares.diagonal(), strict=True))
    one, other = (found.columns.tolist().index(column) for column in (1, 4))
    assert share[2] == 1.0
    assert share[1] + share[4] == 1.0
    assert found.shares[one, other] == 0.0


def test_columns_without_names(data: Any) -> None:
    selector = fit((data[0].to_numpy(), data[1]))
    assert selector.co_inclusion().names.tolist() == [f"x{column}" for column in selector.co_inclusion().columns]


def results(columns: list[list[int]], scores: list[list[float]]) -> dict[str, Any]:
    listed = np.empty(len(columns), dtype=object)
    listed[:] = [np.array(one) for one in columns]
    folds = {f"split{fold}_test_score": np.array(values) for fold, values in enumerate(zip(*scores, strict=True))}
    return {"n_features_to_select": np.ones(len(columns), dtype=int), "columns": listed, **folds}


def good(columns: list[list[int]], scores: list[list[float]], kept: int) -> list[list[int]]:
    found = as_good_as_the_best(results(columns, scores), 1, np.arange(4) == kept)
    return [one.tolist() for one in found]


def test_one_standard_error_is_that_of_the_best() -> None:
    # Mean 3 and standard error 1.
    assert good([[0], [1], [2]], [[2.0, 4.0], [2.0, 2.0], [1.9, 2.0]], 0) == [[0], [1]]


def test_what_is_kept_is_among_them() -> None:
    assert good([[0], [1]], [[5.0, 5.0], [1.0, 1.0]], 1) == [[0], [1]]
    # A search may be ended before any subset was scored on all folds.
    assert good([[0], [1]], [[5.0, np.nan], [np.nan, 1.0]], 1) == [[1]]
    assert good([[0], [1]], [[-np.inf, -np.inf], [1.0, np.nan]], 1) == [[1]]


def test_one_fold_has_no_standard_error() -> None:
    assert good([[0], [1]], [[5.0], [4.0]], 0) == [[0]]


def test_a_search_that_ends_at_once(data: Any) -> None:
    found = fit(data, max_evaluations=4).co_inclusion()
    assert (found.num_subsets, found.shares.tolist()) == (1, [[1.0, 1.0], [1.0, 1.0]])


def test_ten_thousand_columns_in_little_memory() -> None:
    rng = np.random.default_rng(0)
    subsets = [np.sort(rng.choice(10_000, 20, replace=False)) for _ in range(5_000)]
    names = np.array([f"x{column}" for column in range(10_000)], dtype=object)
    tracemalloc.start()
    found = co_inclusion(subsets, names, 30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shares.shape == (30, 30)
    assert peak < 20 * 2**20  # a matrix of all columns has 800 MiB


def train(data: Any, k: int = 2, **parameters: Any) -> NeuralSubsetSelector:
    parameters = {"hidden_layer_sizes": (8,), "steps": 100, "device": "cpu", "random_state": 0, **parameters}
    return NeuralSubsetSelector(k, **parameters).fit(*data)


@pytest.fixture(scope="module")
def trained(data: Any) -> NeuralSubsetSelector:
    return train(data)


def enumerated(logits: Tensor, size: int) -> NDArray[np.float64]:
    """Joint inclusion probabilities by the definition, one subset at a time."""
    distribution = KSubset(size, logits)
    subsets = distribution.enumerate_support()
    joint: NDArray[np.float64] = (subsets.T * distribution.log_prob(subsets).exp() @ subsets).numpy()
    return joint


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("size", [1, 3, 7, 8])
def test_joint_probabilities_by_enumeration(size: int, scale: float) -> None:
    logits = scale * torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    before = logits.clone()
    columns = np.array([5, 0, 2, 7])
    found = joint_probabilities(logits, size, np.arange(8), columns)
    np.testing.assert_allclose(found, enumerated(logits, size)[np.ix_(columns, columns)], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(found, found.T)
    assert torch.equal(logits, before)


def test_of_a_hundred_thousand_columns() -> None:
    n = 100_000
    logits = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # A matrix of all columns has 75 GiB.
    found = joint_probabilities(logits, 50, np.arange(n), logits.argsort(descending=True)[:4].numpy())
    assert found.shape == (4, 4)
    assert (found <= np.outer(found.diagonal(), found.diagonal()))[np.triu_indices(4, 1)].all()


def test_of_a_training_with_groups_and_columns_that_are_sure(data: Any) -> None:
    groups = [[1, 6], [2, 7, 8], [9, 3]]
    selector = train(data, 4, feature_groups=groups, always_include=[0, 9], exclude=[5])
    found = selector.co_inclusion()
    group_index = {
        column: number for number, group in enumerate([[1, 6], [2, 7, 8], [4], [10], [11]]) for column in group
    }
    # The logits of groups come before those of single columns.
    pairs = enumerated(selector._logits.double(), 2)
    probability = dict(zip(found.columns.tolist(), found.shares.diagonal(), strict=True))
    assert set(probability) == set(range(12)) - {5}
    for a, i in enumerate(found.columns.tolist()):
        for b, j in enumerate(found.columns.tolist()):
            free = [group_index[column] for column in (i, j) if column in group_index]
            expected = pairs[free[0], free[-1]] if free else 1.0
            assert found.shares[a, b] == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(found.shares.diagonal(), selector.inclusion_probabilities_[found.columns], rtol=1e-12)
    assert (np.diff(found.shares.diagonal()) <= 0).all()
    assert found.num_subsets is None
    assert found.names.tolist() == [f"column {column}" for column in found.columns]
    assert (found.columns.dtype, found.shares.dtype) == (np.int64, np.float64)
    part = selector.co_inclusion(max_columns=3)
    np.testing.assert_array_equal(part.columns, found.columns[:3])
    np.testing.assert_array_equal(part.shares, found.shares[:3, :3])


@pytest.mark.parametrize(
    ("k", "parameters", "columns"),
    [
        (3, {"always_include": [2, 0, 11]}, [0, 2, 11]),
        (12, {"always_include": range(12)}, list(range(12))),
        (12, {}, list(range(12))),
        (1, {"exclude": range(11)}, [11]),
    ],
)
def test_of_a_training_without_a_choice(data: Any, k: int, parameters: Any, columns: list[int]) -> None:
    selector = train(data, k, steps=5, **parameters)
    found = selector.co_inclusion()
    assert found.columns.tolist() == columns
    assert (found.shares == 1.0).all()
    (losses, *_) = panels(selector.plot())
    assert losses.get_legend() is None


def test_settings_after_the_fit_change_nothing(data: Any) -> None:
    selector = train(data, steps=20)
    before = selector.co_inclusion()
    selector.set_params(n_features_to_select=5, always_include=[3])
    np.testing.assert_array_equal(selector.co_inclusion().shares, before.shares)


@pytest.mark.parametrize("method", ["co_inclusion", "plot"])
@pytest.mark.parametrize("kind", ["fitted", "trained"])
def test_what_is_wrong_is_named(kind: str, method: str, request: pytest.FixtureRequest) -> None:
    fitted = request.getfixturevalue(kind)
    with pytest.raises(NotFittedError):
        getattr(clone(fitted), method)()
    with pytest.raises(ValueError, match="max_columns: expected 1 or more, got 0"):
        getattr(fitted, method)(max_columns=0)
    for value in (2.0, True, "all"):
        with pytest.raises(TypeError, match=f"max_columns: expected an integer, got {value!r}"):
            getattr(fitted, method)(max_columns=value)


def panels(figure: Figure) -> list[Axes]:
    """What is drawn, without the scale of the colours."""
    figure.savefig(io.BytesIO(), format="png")
    return figure.axes[:-1]


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def check_bars(panel: Axes, selector: KSubsetSelector | NeuralSubsetSelector, number: int) -> None:
    widths = [bar.get_width() for bar in panel.patches]
    np.testing.assert_allclose(widths, np.sort(selector.inclusion_probabilities_)[::-1][:number])
    columns = [int(name.removeprefix("column ")) for name in texts(panel.get_yticklabels())]
    np.testing.assert_allclose(widths, selector.inclusion_probabilities_[columns])
    kept = selector.support_[columns]
    assert [to_hex(bar.get_facecolor()) == KEPT for bar in panel.patches] == kept.tolist()
    assert [to_hex(label.get_color()) == KEPT for label in panel.get_yticklabels()] == kept.tolist()


def check_shares(panel: Axes, expected: CoInclusion) -> None:
    (image,) = panel.images
    np.testing.assert_array_equal(image.get_array(), expected.shares)
    assert image.get_clim() == (0, 1)
    assert texts(panel.get_xticklabels()) == texts(panel.get_yticklabels()) == expected.names.tolist()
    number, scale = expected.num_subsets, panel.figure.axes[-1].get_ylabel()
    if number is None:
        assert (panel.get_title(), scale) == ("learned distribution", "probability of both columns")
    else:
        assert panel.get_title() == f"{number} subset{'s' if number > 1 else ''} as good as the best"
        assert scale == "fraction of them with both columns"


def test_the_figure_of_one_size(fitted: KSubsetSelector) -> None:
    probabilities, shares = panels(fitted.plot())
    check_bars(probabilities, fitted, 12)
    assert probabilities.get_title() == "all columns"
    check_shares(shares, fitted.co_inclusion(max_columns=20))


def test_the_figure_of_several_sizes(sizes: KSubsetSelector) -> None:
    scores, probabilities, shares = panels(sizes.plot(max_columns=3))
    ((line, _, (bars,)),) = scores.containers
    path = sizes.path_
    np.testing.assert_array_equal(
        line.get_xydata(), np.stack([path["n_features_to_select"], path["mean_test_score"]], 1)
    )
    ends = np.stack([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(np.diff(ends)[:, 0], 2 * path["standard_error"])
    np.testing.assert_allclose(ends.mean(1), path["mean_test_score"])
    kept = scores.lines[-2]
    assert kept.get_xydata().tolist() == [[sizes.n_features_, sizes.best_score_]]
    assert texts(scores.get_legend().get_texts()) == [
        f"kept: k = {sizes.n_features_}",
        "best less one standard error",
    ]
    assert scores.get_xscale() == "log"
    assert probabilities.get_title() == "the 3 likeliest of 12 columns"
    check_bars(probabilities, sizes, 3)
    check_shares(shares, sizes.co_inclusion(max_columns=3))


def test_the_figure_of_a_training(trained: NeuralSubsetSelector) -> None:
    losses, probabilities, shares = panels(trained.plot(max_columns=5))
    curve, chosen = losses.lines
    np.testing.assert_array_equal(curve.get_xydata(), np.stack([trained.history_["step"], trained.history_["loss"]], 1))
    assert list(chosen.get_xdata()) == [60, 60]
    assert texts(losses.get_legend().get_texts()) == ["columns chosen"]
    assert probabilities.get_title() == "the 5 likeliest of 12 columns"
    check_bars(probabilities, trained, 5)
    check_shares(shares, trained.co_inclusion(max_columns=5))
    assert texts(probabilities.get_yticklabels()) == texts(shares.get_yticklabels())


def test_the_figure_of_a_training_that_was_ended(data: Any) -> None:
    selector = train(data, callbacks=lambda progress: progress.step >= 4)
    losses, *_ = panels(selector.plot())
    assert len(losses.lines) == 1
    assert losses.get_legend() is None


def test_losses_of_several_decades(trained: NeuralSubsetSelector) -> None:
    selector = copy(trained)
    selector.history_ = {"step": np.array([1, 2, 3]), "loss": np.array([20.0, 1.0, 0.5])}
    assert panels(selector.plot())[0].get_yscale() == "log"
    selector.history_["loss"][2] = -0.5
    assert panels(selector.plot())[0].get_yscale() == "linear"


def test_a_training_that_was_interrupted_before_the_first_loss(trained: NeuralSubsetSelector) -> None:
    selector = copy(trained)
    selector.history_ = {name: values[:0] for name, values in trained.history_.items()}
    assert len(panels(selector.plot())) == 2


def test_a_notebook_shows_the_figure(fitted: KSubsetSelector) -> None:
    figure = fitted.plot()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(PNG)  # type: ignore[attr-defined]


def test_long_names_are_shortened_and_stay_apart(data: Any) -> None:
    names = [f"{'the start of all'.ljust(20, '.')}{number:02d}{'and their end'.rjust(18, '.')}" for number in range(12)]
    names[:3] = ["a $ and a $ in\na name", "short", "the median of what was measured at 12 in the morning"]
    X = data[0].set_axis(names, axis=1)
    scores, probabilities, shares = panels(fit((X, data[1]), [1, 2]).plot())
    assert scores.get_xscale() == "linear"
    labels = texts(probabilities.get_yticklabels())
    assert {"a $ and a $ in a name", "short", "the median of…the morning"} <= set(labels)
    assert "the start of…nd their end [7]" in labels
    assert len(set(labels)) == 12
    assert set(texts(shares.get_yticklabels())) <= set(labels)


def test_a_missing_matplotlib_is_named(fitted: KSubsetSelector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ksubset.selection.plotting", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(
        ImportError, match=r"matplotlib is not installed; get it by: pip install 'ksubset\[selection\]'"
    ):
        fitted.plot()


def test_a_model_of_one_column() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 1))
    selector = KSubsetSelector(LinearRegression(), n_features_to_select=1, cv=3).fit(X, X[:, 0])
    assert selector.co_inclusion().shares.tolist() == [[1.0]]
    assert len(panels(selector.plot())) == 2
