"""NeuralSubsetSelector as its users meet it."""

import pickle
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from ksubset import IMLE, SIMPLE, GumbelTopK, Hybrid, LeaveOneOut
from ksubset.selection import NeuralSubsetSelector, TrainingProgress
from ksubset.training import save


def selector(k: int = 2, **parameters: Any) -> NeuralSubsetSelector:
    quick = {"hidden_layer_sizes": (64,), "num_samples": 2, "steps": 400, "batch_size": 128}
    return NeuralSubsetSelector(k, **{**quick, "learning_rate": 5e-3, "device": "cpu", "random_state": 0, **parameters})


def same(one: NeuralSubsetSelector, two: NeuralSubsetSelector) -> bool:
    """Whether two fits have the same result, bit for bit."""
    weights = zip(one.module_.state_dict().values(), two.module_.state_dict().values(), strict=True)
    return (
        np.array_equal(one.support_, two.support_)
        and np.array_equal(one.inclusion_probabilities_, two.inclusion_probabilities_)
        and all(torch.equal(first, second) for first, second in weights)
        and all(np.array_equal(one.history_[name], two.history_[name]) for name in one.history_)
    )


@pytest.fixture
def numbers() -> tuple[Any, Any]:
    """300 rows of 12 columns, of which 3 and 7 matter, together."""
    X = np.random.default_rng(0).standard_normal((300, 12))
    return X, X[:, 3] * X[:, 7]


@pytest.fixture
def classes(numbers: Any) -> tuple[Any, Any]:
    X, y = numbers
    return X, np.where(y > 0, "same", "other")


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_interact_are_found(seed: int) -> None:
    X = np.random.default_rng(seed).standard_normal((1000, 20))
    y = X[:, 3] * X[:, 7] + X[:, 11]
    fitted = selector(3, steps=800, random_state=seed).fit(X[:800], y[:800])
    assert fitted.get_support(indices=True).tolist() == [3, 7, 11]
    assert fitted.task_ == "regression"
    assert fitted.score(X[800:], y[800:]) > 0.9


@pytest.mark.parametrize("seed", range(2))
def test_exclusive_or_of_two_of_twenty(seed: int) -> None:
    X = np.random.default_rng(seed).integers(0, 2, (400, 20))
    y = X[:, 4] ^ X[:, 11]
    fitted = selector(steps=800, random_state=seed).fit(X[:300], y[:300])
    assert fitted.get_support(indices=True).tolist() == [4, 11]
    assert fitted.score(X[300:], y[300:]) == 1.0


def test_several_targets(numbers: Any) -> None:
    X, y = numbers
    fitted = selector(3).fit(X, np.column_stack([1000 + 50 * y, X[:, 5]]))
    assert fitted.get_support(indices=True).tolist() == [3, 5, 7]
    assert fitted.predict(X).shape == (300, 2)
    assert fitted.predict(X)[:, 0].mean() == pytest.approx(1000 + 50 * y.mean(), abs=5)
    assert fitted.score(X, np.column_stack([1000 + 50 * y, X[:, 5]])) > 0.9
    column = selector().fit(X, y[:, None])
    assert column.predict(X).shape == (300, 1)
    np.testing.assert_array_equal(column.predict(X)[:, 0], selector().fit(X, y).predict(X))


def test_several_labels(numbers: Any) -> None:
    X, _ = numbers
    y = np.column_stack([X[:, 1] > 0, X[:, 8] > 0.5, X[:, 1] + X[:, 8] > 0]).astype(int)
    fitted = selector().fit(X, y)
    assert fitted.get_support(indices=True).tolist() == [1, 8]
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (300, 3)
    np.testing.assert_array_equal(fitted.predict(X), probabilities > 0.5)
    np.testing.assert_array_equal(fitted.decision_function(X) > 0, probabilities > 0.5)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.score(X, y) == (fitted.predict(X) == y).all(1).mean() > 0.8
    with pytest.raises(ValueError, match=r"y: expected shape \(\d+, 3\), got \(\d+, 1\)"):
        fitted.score(X, y[:, :1])


def test_several_targets_of_several_classes(numbers: Any) -> None:
    X, _ = numbers
    y = np.column_stack([np.digitize(X[:, 1], [-0.5, 0.5]), np.digitize(X[:, 8], [-1, 0, 1])]) + 3
    fitted = selector().fit(X, y)
    assert fitted.get_support(indices=True).tolist() == [1, 8]
    assert [classes.tolist() for classes in fitted.classes_] == [[3, 4, 5], [3, 4, 5, 6]]
    assert fitted.predict(X).shape == (300, 2)
    assert [probabilities.shape for probabilities in fitted.predict_proba(X)] == [(300, 3), (300, 4)]
    assert fitted.score(X, y, sample_weight=np.ones(300)) == (fitted.predict(X) == y).all(1).mean() > 0.8


def test_all_columns_are_reconstructed_from_few() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((600, 3))
    loadings = rng.standard_normal((3, 20)) * (np.arange(20) < 10)
    X = 100 + 10 * (hidden @ loadings) + rng.standard_normal((600, 20))
    fitted = selector(3).fit(X[:500])
    assert fitted.task_ == "reconstruction"
    assert fitted.predict(X).shape == X.shape
    # Columns 10 to 19 are noise.
    assert fitted.get_support(indices=True).max() < 10
    score = fitted.score(X[500:])
    assert score > 0.8
    others = [rng.permutation(20)[3:] for _ in range(5)]
    assert score > max(selector(3, exclude=without).fit(X[:500]).score(X[500:]) for without in others)
    assert not hasattr(fitted, "predict_proba")
    with pytest.raises(TypeError, match="X: expected dense data for a reconstruction"):
        selector(3).fit(sp.csr_array(X))


def test_labels_are_strings(classes: Any) -> None:
    X, y = classes
    fitted = selector().fit(X, y)
    assert fitted.task_ == "classification"
    assert fitted.classes_.tolist() == ["other", "same"]
    assert fitted.score(X, y) == (fitted.predict(X) == y).mean() > 0.9
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(fitted.predict(X) == "same", probabilities[:, 1] > 0.5)
    assert ((fitted.decision_function(X) > 0) == (probabilities[:, 1] > 0.5)).all()


def test_numbers_are_a_regression_if_so_told(numbers: Any) -> None:
    X, _ = numbers
    y = np.round(10 * X[:, 2]).astype(int)
    assert selector(1, steps=200, task="regression").fit(X, y).predict(X).dtype == np.float64
    with pytest.raises(ValueError, match="y: expected numbers for a regression"):
        selector(task="regression").fit(X, y.astype(str).astype(object) + "a")
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        selector(task="classification").fit(X, X[:, 2])


@pytest.mark.parametrize(("library", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_dataframes(numbers: Any, library: str, frame: Any) -> None:
    X = frame({f"c{number}": numbers[0][:, number] for number in range(12)} | {"whole": np.arange(300)})
    fitted = selector(3, always_include=["whole"]).set_output(transform=library).fit(X, numbers[1])
    assert fitted.feature_names_in_.tolist() == list(X.columns)
    assert fitted.get_feature_names_out().tolist() == ["c3", "c7", "whole"]
    taken = fitted.transform(X)
    assert taken.equals(X[["c3", "c7", "whole"]])
    assert taken["whole"].dtype == X["whole"].dtype
    assert fitted.predict(X).shape == (300,)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(X.rename({"c0": "x"}) if library == "polars" else X.rename(columns={"c0": "x"}))


def test_sparse_as_dense() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((300, 40)) * (rng.random((300, 40)) < 0.3)
    y = X[:, 5] + X[:, 17]
    dense, sparse = selector().fit(X, y), selector().fit(sp.csc_array(X), y)
    assert dense.get_support(indices=True).tolist() == sparse.get_support(indices=True).tolist() == [5, 17]
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=1e-3)
    assert sparse.transform(sp.csr_array(X)).shape == (300, 2)


def test_groups_stand_or_fall_together(numbers: Any) -> None:
    fitted = selector(feature_groups=[[7, 0], [3, 5, 6]]).fit(*numbers)
    assert fitted.get_support(indices=True).tolist() == [0, 3, 5, 6, 7]
    assert fitted.n_features_ == 5
    for group in ([0, 7], [3, 5, 6]):
        assert len(set(fitted.inclusion_probabilities_[group])) == 1


def test_included_and_excluded_columns(numbers: Any) -> None:
    X, y = numbers
    fitted = selector(3, always_include=[0], exclude=[3]).fit(X, y + X[:, 5])
    assert fitted.get_support()[[0, 3]].tolist() == [True, False]
    assert fitted.get_support()[5]
    assert fitted.inclusion_probabilities_[[0, 3]].tolist() == [1.0, 0.0]
    everything = selector(12, steps=10, always_include=range(12)).fit(X, y)
    assert everything.get_support().all()
    assert everything.inclusion_probabilities_.tolist() == [1.0] * 12
    assert selector(12, steps=10).fit(X, y).get_support().all()


def test_constant_columns_are_no_choice(numbers: Any) -> None:
    X, y = np.column_stack([np.full(300, 5.0), numbers[0][:, :4], np.zeros(300)]), numbers[0][:, 0]
    fitted = selector(4, steps=20).fit(X, y)
    assert fitted.get_support(indices=True).tolist() == [1, 2, 3, 4]
    assert fitted.inclusion_probabilities_.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    assert selector(6, steps=20).fit(X, y).get_support().all()


def test_weights_decide(numbers: Any) -> None:
    X = numbers[0]
    first = np.arange(300) < 150
    y = np.where(first, X[:, 2], X[:, 9])
    for rows, column in ((first, 2), (~first, 9)):
        weight = np.where(rows, 1.0, 0.01)
        fitted = selector(1).fit(X, y, sample_weight=weight)
        assert fitted.get_support(indices=True).tolist() == [column]
        assert fitted.score(X, y, sample_weight=weight) > 0.8 > fitted.score(X, y)


def test_a_weight_of_two_is_the_row_twice_wherever_it_is(numbers: Any) -> None:
    X, y = numbers
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, 300)
    order = rng.permutation(300)
    weighted = selector(steps=50).fit(X[order], y[order], sample_weight=weight[order])
    assert same(weighted, selector(steps=50).fit(np.repeat(X, weight, 0), np.repeat(y, weight)))


class Recorder(nn.Module):
    """A linear layer that notes what it is shown in training, in lists that copies share."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_inputs, num_outputs)
        self.seen: list[Tensor] = []

    def __deepcopy__(self, memo: Any) -> "Recorder":
        new = Recorder(self.linear.in_features, self.linear.out_features)
        new.load_state_dict(self.state_dict())
        new.seen = self.seen
        return new

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.append(x.detach())
        return self.linear(x)


def test_every_example_has_a_subset_of_its_own(numbers: Any) -> None:
    spy = Recorder(12, 1)
    fitted = selector(4, steps=100, module=spy, batch_size=32, num_samples=3).fit(*numbers)
    sizes = [(inputs != 0).sum(1) for inputs in spy.seen]
    assert all(len(size.unique()) == 1 for size in sizes)
    # It starts from half of the columns, and ends with four, which in the end are the same for all.
    assert [int(size[0]) for size in (sizes[0], sizes[30], sizes[-1])] == [6, 4, 4]
    assert [len(inputs) for inputs in (spy.seen[0], spy.seen[59], spy.seen[60])] == [96, 96, 32]
    assert len((spy.seen[0] != 0).unique(dim=0)) > 50
    last = (spy.seen[-1] != 0).unique(dim=0)
    assert last.tolist() == [fitted.support_.tolist()]


def test_a_module_is_copied_and_trained(numbers: Any) -> None:
    module = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    fitted, again = selector(module=module).fit(*numbers), selector(module=module).fit(*numbers)
    assert same(fitted, again)
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    assert module.training
    assert not fitted.module_.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not torch.equal(fitted.module_[0].weight, module[0].weight)


def test_a_function_makes_the_module(numbers: Any) -> None:
    asked = []

    def build(num_inputs: int, num_outputs: int) -> nn.Module:
        asked.append((num_inputs, num_outputs))
        return nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, num_outputs))

    fitted = selector(module=build).fit(*numbers)
    assert asked == [(12, 1)]
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    assert same(fitted, selector(module=build).fit(*numbers))


class Signs(nn.Module):
    """Sees the signs of the columns, which have no gradient."""

    def __init__(self, n: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n, outputs)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x.sign())
        return scores


def test_a_module_needs_no_gradients(numbers: Any) -> None:
    X = numbers[0]
    y = np.sign(X[:, 3]) + np.sign(X[:, 7])
    fitted, given = (
        selector(module=Signs, task="regression", steps=300, gradient_estimator=estimator).fit(X, y)
        for estimator in (None, LeaveOneOut())
    )
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    assert same(fitted, given)


def test_a_column_whose_slope_is_zero_on_average_is_found() -> None:
    X, y = make_friedman1(1_000, 50, noise=1, random_state=0)
    found = {
        name: NeuralSubsetSelector(5, steps=2_000, gradient_estimator=estimator, device="cpu", random_state=0)
        .fit(X, y).get_support(indices=True).tolist()
        for name, estimator in (("default", None), ("SIMPLE", SIMPLE()))
    }  # fmt: skip
    assert found["default"] == [0, 1, 2, 3, 4]
    assert 2 not in found["SIMPLE"]  # by itself it is biased, or the default would not be needed


@pytest.mark.parametrize("estimator", [SIMPLE(), GumbelTopK(0.5), IMLE(), Hybrid()], ids=lambda e: type(e).__name__)
def test_any_estimator_of_the_gradient(numbers: Any, estimator: Any) -> None:
    X = numbers[0]
    before = deepcopy(estimator.state_dict())
    fitted = selector(gradient_estimator=estimator, steps=300).fit(X, X[:, 3] + X[:, 7])
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    after = estimator.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert same(fitted, selector(gradient_estimator=estimator, steps=300).fit(X, X[:, 3] + X[:, 7]))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"k": 0}, ValueError, "n_features_to_select: expected 1 to 12, .* got 0"),
        ({"k": 13}, ValueError, "n_features_to_select: expected 1 to 12, .* got 13"),
        ({"k": 2.0}, TypeError, r"n_features_to_select: expected an integer, got 2\.0"),
        ({"k": "auto"}, TypeError, "n_features_to_select: expected an integer, got 'auto'"),
        ({"task": "ranking"}, ValueError, "task: expected None or one of classification, .* got 'ranking'"),
        ({"module": 3}, TypeError, "module: expected a torch module, .* got 3"),
        ({"module": lambda n, m: 3}, TypeError, "module: expected a function that makes a torch module, .* made 3"),
        (
            {"module": nn.Linear(12, 2)},
            ValueError,
            r"module: expected a network with outputs of shape \(N, 1\) for inputs \(N, 12\), got \(2, 2\)",
        ),
        ({"module": nn.Linear(11, 1)}, ValueError, r"module: expected a network .* inputs \(N, 12\), got an error"),
        ({"hidden_layer_sizes": 5}, TypeError, "hidden_layer_sizes: expected a sequence of integers, got 5"),
        ({"hidden_layer_sizes": (5.0,)}, TypeError, r"hidden_layer_sizes: expected an integer, got 5\.0"),
        ({"hidden_layer_sizes": (0,)}, ValueError, "hidden_layer_sizes: expected 1 or more, got 0"),
        ({"gradient_estimator": "simple"}, TypeError, "gradient_estimator: expected an estimator .* got 'simple'"),
        ({"num_samples": 1}, ValueError, "num_samples: expected 2 or more, as LeaveOneOut needs, got 1"),
        ({"num_samples": 2.0}, TypeError, r"num_samples: expected an integer, got 2\.0"),
        ({"steps": 0}, ValueError, "steps: expected 1 or more, got 0"),
        ({"batch_size": True}, TypeError, "batch_size: expected an integer, got True"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate: expected a number, got 'fast'"),
        ({"learning_rate": 0}, ValueError, "learning_rate: expected a number above 0, got 0"),
        ({"logits_learning_rate": -0.1}, ValueError, r"logits_learning_rate: expected a number above 0, got -0\.1"),
        ({"logits_learning_rate": np.nan}, ValueError, "logits_learning_rate: expected a number above 0, got nan"),
        ({"device": "abacus"}, ValueError, "device: expected a device that torch has, got 'abacus'"),
        ({"device": "cuda:77"}, ValueError, "device: expected a device that torch has, got 'cuda:77'"),
        ({"callbacks": 3}, TypeError, "callbacks: expected .* got 3"),
        ({"feature_groups": [[0, 1], [1]]}, ValueError, r"feature_groups\[1\]: .* got \[1\]"),
        ({"always_include": ["x"]}, ValueError, "always_include: expected indices, .* got 'x'"),
        ({"exclude": [12]}, ValueError, "exclude: expected indices from 0 to 11, got 12"),
    ],
)
def test_wrong_arguments_are_named(parameters: Any, error: type[Exception], message: str, numbers: Any) -> None:
    with pytest.raises(error, match=message):
        selector(**parameters).fit(*numbers)


def test_wrong_data_are_named(numbers: Any) -> None:
    X, y = numbers
    with pytest.raises(ValueError, match="NaN"):
        selector().fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="infinity"):
        selector().fit(X, np.where(y > 2, np.inf, y))
    with pytest.raises(ValueError, match="y: a regression requires y"):
        selector(task="regression").fit(X)
    for weight in (np.zeros(300), -np.ones(300)):
        with pytest.raises(
            ValueError, match=r"sample_weight: expected no negative numbers|must contain at least one non-zero"
        ):
            selector().fit(X, y, sample_weight=weight)


def test_a_training_that_diverges_is_an_error(numbers: Any) -> None:
    with pytest.raises(FloatingPointError, match=r"the training diverged before step .* learning_rate than 1e"):
        selector(learning_rate=1e30).fit(*numbers)


def test_values_of_any_size(numbers: Any) -> None:
    X, y = numbers
    scale = 10.0 ** np.linspace(-12, 12, 12)
    fitted = selector().fit(1e3 * scale + scale * X, 1e9 + 1e-3 * y)
    assert fitted.get_support(indices=True).tolist() == [3, 7]
    assert fitted.score(1e3 * scale + scale * X, 1e9 + 1e-3 * y) > 0.8


def test_progress_is_told(numbers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[TrainingProgress] = []
    fitted = selector(verbose=1, callbacks=told.append).fit(*numbers)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(told) == 50
    assert lines[-1].startswith("[NeuralSubsetSelector] step 400 of 400: subsets of 2, loss 0.")
    assert [progress.step for progress in told] == fitted.history_["step"].tolist() == list(range(8, 401, 8))
    assert [progress.loss for progress in told] == fitted.history_["loss"].tolist()
    assert [progress.subset_size for progress in told] == fitted.history_["subset_size"].tolist()
    assert (told[0].subset_size, told[-1].subset_size) == (6, 2)
    assert (told[-1].support == fitted.support_).all()
    assert fitted.n_steps_ == told[-1].steps == 400
    assert fitted.history_["loss"][-1] < 0.2 < fitted.history_["loss"][0]


def test_a_callback_ends_the_training(numbers: Any) -> None:
    told: list[TrainingProgress] = []
    fitted = selector(callbacks=[told.append, lambda progress: progress.step >= 80]).fit(*numbers)
    assert fitted.n_steps_ == told[-1].step == 80
    assert (fitted.support_ == told[-1].support).all()
    assert fitted.predict(numbers[0]).shape == (300,)


class Impatient(nn.Linear):
    """A user loses patience in a forward pass."""

    left = 0

    def forward(self, input: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return super().forward(input)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_keeps_the_columns_at_present(numbers: Any) -> None:
    module = Impatient(12, 1)
    module.left = 40
    with pytest.warns(UserWarning, match="interrupted: the selector keeps the columns that are likeliest"):
        fitted = selector(module=module).fit(*numbers)
    assert fitted.n_steps_ == 38  # the first pass checks the shape
    assert fitted.support_.sum() == 2
    assert fitted.predict(numbers[0]).shape == (300,)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_before_the_first_step_is_one(numbers: Any) -> None:
    module = Impatient(12, 1)
    module.left = 2
    with pytest.raises(KeyboardInterrupt):
        selector(module=module).fit(*numbers)


@pytest.mark.parametrize(("ended", "estimator"), [(80, None), (320, None), (80, Hybrid())], ids=repr)
def test_a_fit_goes_on_from_its_file(numbers: Any, tmp_path: Path, ended: int, estimator: Any) -> None:
    file, build = tmp_path / "training.pt", lambda n, m: nn.Sequential(nn.Linear(n, 32), nn.Dropout(), nn.Linear(32, m))
    common = {"module": build, "gradient_estimator": estimator}
    whole = selector(**common).fit(*numbers)
    selector(**common, checkpoint=file, callbacks=lambda progress: progress.step == ended).fit(*numbers)
    told: list[TrainingProgress] = []
    resumed = selector(**common, checkpoint=str(file), callbacks=told.append).fit(*numbers)
    assert told[0].step == ended + 8
    assert same(resumed, whole)
    assert same(selector(**common, checkpoint=file).fit(*numbers), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["training.pt"]


def test_the_file_of_an_unseeded_fit_has_its_seed(numbers: Any, tmp_path: Path) -> None:
    unseeded = selector(random_state=None, steps=40, checkpoint=tmp_path / "f")
    assert same(clone(unseeded).fit(*numbers), clone(unseeded).fit(*numbers))


@pytest.mark.parametrize(
    "change",
    [
        {"n_features_to_select": 3},
        {"steps": 41},
        {"hidden_layer_sizes": (5,)},
        {"random_state": 1},
        {"exclude": [0]},
        {"gradient_estimator": SIMPLE()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_file_of_another_fit_is_an_error(numbers: Any, tmp_path: Path, change: Any) -> None:
    file, (X, y) = tmp_path / "training.pt", numbers
    selector(steps=40, checkpoint=file).fit(X, y)
    (name,) = change
    with pytest.raises(
        ValueError, match=rf"checkpoint: expected a file of the same data .*training\.pt, which differs in {name}\b"
    ):
        selector(steps=40, checkpoint=file).set_params(**change).fit(X, y)
    with pytest.raises(ValueError, match=r"expected a file of the same data .*, which differs in y; delete it"):
        selector(steps=40, checkpoint=file).fit(X, y + 1)


def test_what_changes_no_step_may_change(numbers: Any, tmp_path: Path) -> None:
    file = tmp_path / "training.pt"
    whole = selector(steps=100).fit(*numbers)
    selector(steps=100, checkpoint=file, callbacks=lambda progress: progress.step == 40).fit(*numbers)
    file.rename(tmp_path / "moved.pt")
    resumed = selector(steps=100, checkpoint=str(tmp_path / "moved.pt"), verbose=1, device=torch.device("cpu"))
    assert same(resumed.fit(*numbers), whole)


def test_a_file_of_another_kind_is_an_error(numbers: Any, tmp_path: Path) -> None:
    file = tmp_path / "training.pt"
    file.write_bytes(b"[]")
    with pytest.raises(ValueError, match=r"checkpoint: expected a file of a training, got .*training\.pt"):
        selector(checkpoint=file).fit(*numbers)


@pytest.mark.parametrize("seed", [None, 0])
def test_a_file_of_something_else_is_an_error(numbers: Any, tmp_path: Path, seed: int | None) -> None:
    file = tmp_path / "training.pt"
    save(file, {"weight": torch.zeros(3)}, {"model": "another"})
    with pytest.raises(ValueError, match=r"expected a file of the same data and settings, got .*, which differs in "):
        selector(checkpoint=file, random_state=seed).fit(*numbers)


def test_a_warm_start_goes_on(numbers: Any) -> None:
    X, y = numbers
    fitted = selector(warm_start=True).fit(X, y)
    score = fitted.score(X, y)
    fitted.set_params(steps=1, learning_rate=1e-6).fit(X, y)
    assert fitted.n_steps_ == 1
    assert fitted.score(X, y) == pytest.approx(score, abs=1e-2)
    cold = selector(steps=1).fit(X, y)
    assert cold.score(X, y) < 0.5
    with pytest.raises(ValueError, match=r"warm_start: expected data with the 12 columns or groups .* got 11, or"):
        fitted.fit(X[:, 1:], y)
    with pytest.raises(ValueError, match=r"warm_start: expected a network with outputs of shape \(N, 2\)"):
        fitted.fit(X, np.column_stack([y, y]))


def test_a_warm_start_has_the_same_columns_to_choose_from(numbers: Any) -> None:
    fitted = selector(warm_start=True, steps=20, exclude=[3]).fit(*numbers)
    with pytest.raises(ValueError, match=r"warm_start: expected data with the 11 columns .* got 11, or others"):
        fitted.set_params(exclude=[7]).fit(*numbers)
    frame = pd.DataFrame(numbers[0]).add_prefix("c")
    named = selector(warm_start=True, steps=20).fit(frame, numbers[1])
    with pytest.raises(ValueError, match=r"warm_start: expected data with the 12 columns .* got 12, or others"):
        named.fit(frame.iloc[:, ::-1], numbers[1])
    # None of these is chosen from.
    fitted.set_params(exclude=None, always_include=[3]).fit(*numbers)
    assert fitted.support_[3]


@pytest.mark.parametrize("constant", [1e6, 1e12, 1e18])
def test_a_large_constant_column_changes_nothing(numbers: Any, constant: float) -> None:
    X, y = numbers
    weights = np.where(np.arange(300) % 3, 1.0, 2.0)
    small, large = (
        selector(steps=100).fit(np.column_stack([X, np.full(300, value)]), y, weights) for value in (1.0, constant)
    )
    assert same(small, large)


def test_callbacks_may_draw_random_numbers(numbers: Any) -> None:
    plain = selector(steps=100).fit(*numbers)
    assert same(plain, selector(steps=100, callbacks=lambda _: bool(torch.rand(3).sum() > 9)).fit(*numbers))


def test_copies_and_pickles(numbers: Any) -> None:
    fitted = selector(module=nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1)), steps=50).fit(*numbers)
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(loaded.predict(numbers[0]), fitted.predict(numbers[0]))
    assert same(clone(fitted).fit(*numbers), fitted)
    large = selector(steps=5).fit(np.tile(numbers[0], (20, 1)), np.tile(numbers[1], 20))
    assert len(pickle.dumps(large)) < 20_000


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_global_random_numbers_are_left_alone(numbers: Any, task: str) -> None:
    y = numbers[1] > 0 if task == "classification" else numbers[1]
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - this one
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    first = selector(steps=20).fit(numbers[0], y)
    selector(steps=20, random_state=None).fit(numbers[0], y)
    assert torch.equal(torch.rand(3), expected[0])
    np.testing.assert_array_equal(np.random.rand(3), expected[1])  # noqa: NPY002
    assert same(first, selector(steps=20).fit(numbers[0], y))
    assert not same(first, selector(steps=20, random_state=1).fit(numbers[0], y))


def test_pipelines_and_searches(classes: Any) -> None:
    X, y = classes
    inside = make_pipeline(StandardScaler(), selector(task="classification", random_state=1))
    search = GridSearchCV(inside, {"neuralsubsetselector__n_features_to_select": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_ == {"neuralsubsetselector__n_features_to_select": 2}
    assert search.best_estimator_[-1].get_support(indices=True).tolist() == [3, 7]
    assert search.best_score_ > 0.8
    before = make_pipeline(selector(), selector(1, steps=20)).fit(X, y)
    assert before[-1].n_features_in_ == 2


def test_what_it_is_follows_from_the_task(classes: Any) -> None:
    assert is_classifier(selector(task="classification"))
    assert is_regressor(selector(task="regression"))
    unknown = selector(steps=5)
    assert not is_classifier(unknown)
    assert not hasattr(unknown, "predict_proba")
    assert is_classifier(unknown.fit(*classes))
    assert not is_classifier(unknown.fit(classes[0]))


def test_inclusion_probabilities(numbers: Any) -> None:
    early = selector(steps=100, callbacks=lambda progress: progress.step == 50).fit(*numbers)
    assert early.inclusion_probabilities_.sum() == pytest.approx(2, abs=1e-5)
    assert 0 < early.inclusion_probabilities_.min() < early.inclusion_probabilities_.max() < 1
    assert set(np.argsort(early.inclusion_probabilities_)[-2:]) == set(early.get_support(indices=True))


def test_attributes(numbers: Any) -> None:
    X, y = numbers
    fitted = selector().fit(X, y)
    assert (fitted.n_features_, fitted.n_features_in_, fitted.n_steps_) == (2, 12, 400)
    restored = fitted.inverse_transform(fitted.transform(X))
    np.testing.assert_array_equal(restored, X * fitted.support_)
    # Other columns change nothing.
    np.testing.assert_array_equal(fitted.predict(restored), fitted.predict(X))
    assert {parameter.device.type for parameter in fitted.module_.parameters()} == {"cpu"}


@pytest.mark.parametrize("codes", [(1, 2), (-1, 1), (0, 5)])
def test_two_classes_of_two_targets_have_any_codes(codes: tuple[int, int]) -> None:
    X = np.random.default_rng(0).standard_normal((300, 5))
    truth = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
    short: dict[str, Any] = {"steps": 150, "device": "cpu", "random_state": 0, "hidden_layer_sizes": (32,)}
    fitted = NeuralSubsetSelector(2, **short).fit(X, np.array(codes)[truth])
    assert fitted.get_support(indices=True).tolist() == [0, 1]
    assert (fitted.predict(X) == np.array(codes)[truth]).mean() > 0.9


def test_a_single_layer_at_its_rate() -> None:
    X = np.random.default_rng(1).standard_normal((500, 15))
    y = 2 * X[:, 2] - X[:, 7] + X[:, 9]
    selector = NeuralSubsetSelector(
        3, module=nn.Linear(15, 1), learning_rate=0.03, steps=300, device="cpu", random_state=0
    )
    assert selector.fit(X, y).get_support(indices=True).tolist() == [2, 7, 9]


def test_whole_floats_of_many_values_are_numbers() -> None:
    X, y = load_diabetes(return_X_y=True)
    assert y.dtype == np.float64
    assert (y == y.round()).all()
    assert _task(X, y) == "regression"
    assert _task(X, y[:, None]) == "regression"
    assert _task(X, (y > 150).astype(float)) == "classification"
    assert _task(X, (y // 20).round()) == "classification"  # 17 of them
    with pytest.warns(
        UserWarning, match=r'y: 214 different integers are taken for classes; task="regression" predicts'
    ):
        assert _task(X, y.astype(int)) == "classification"
    # Of a hundred classes, ten rows each, nothing is said.
    assert _task(np.random.default_rng(0).standard_normal((1000, 3)), np.arange(1000) % 100) == "classification"


def _task(X: Any, y: Any) -> str:
    selector = NeuralSubsetSelector(2, steps=2, hidden_layer_sizes=(4,), device="cpu", random_state=0).fit(X, y)
    return "classification" if hasattr(selector, "classes_") else "regression"
