import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from ksubset import SIMPLE, GumbelTopK, Hybrid, LeaveOneOut, SlopeAtMean
from ksubset.applications.explain import SubsetExplainer, patches, true_positive_rate
from ksubset.applications.explain import explainer as module

FAST: dict[str, Any] = {
    "steps": 150, "surrogate_steps": 200, "batch_size": 100, "learning_rate": 1e-2, "device": "cpu", "random_state": 0,
}  # fmt: skip

BRIEF = {"steps": 2, "surrogate_steps": 2}


def rows(number: int = 500, columns: int = 6, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((number, columns))


def switch(x: NDArray[Any]) -> NDArray[Any]:
    """The first column says which other one counts."""
    return np.where(x[:, 0] > 0, x[:, 1], x[:, 2])


def switched(x: NDArray[Any]) -> NDArray[np.bool_]:
    relevant = np.zeros(x.shape, dtype=bool)
    relevant[:, 0], relevant[:, 1], relevant[:, 2] = True, x[:, 0] > 0, x[:, 0] <= 0
    return relevant


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 2 * x[:, 1] - 3 * x[:, 4]
        return torch.stack([score, -score], 1)


def test_a_training_on_labels_finds_the_columns_of_an_exclusive_or() -> None:
    x = rows(2000)
    explainer = SubsetExplainer(None, 2, **FAST | {"surrogate_steps": 600})
    y = np.where(x[:, 3] * x[:, 5] > 0, "same", "other")
    explanation = explainer.fit(x, y).explain(rows(100, seed=1))
    assert explainer.classes_.tolist() == ["other", "same"]
    assert explanation.mask[:, [3, 5]].mean() > 0.95
    assert np.array_equal(explanation.mask.sum(1), np.full(100, 2))
    assert np.allclose(explanation.inclusion.sum(1), 2, atol=1e-5)
    said = explainer.classes_[explainer.predict(x, explainer.explain(x).mask).argmax(1)]
    assert (said == y).mean() > 0.9


@pytest.mark.parametrize("surrogate", [True, False])
def test_a_black_box_is_explained_without_gradients(surrogate: bool) -> None:
    called = []

    def model(x: NDArray[Any]) -> NDArray[Any]:
        assert isinstance(x, np.ndarray)
        assert x.dtype == np.float64
        called.append(len(x))
        return switch(x)

    x = rows()
    explainer = SubsetExplainer(model, 2, output="values", surrogate=surrogate, **FAST).fit(x)
    assert true_positive_rate(explainer.explain(x).mask, switched(x)) > 0.9
    assert sum(called) == len(x) + (0 if surrogate else 150 * 100 * 4)


@pytest.mark.parametrize(
    "estimator", [SIMPLE(), Hybrid(), Hybrid(SlopeAtMean()), lambda share: GumbelTopK(1 - 0.9 * share)]
)
def test_a_module_is_explained_through_its_gradient(estimator: Any) -> None:
    x = rows().astype(np.float32)
    arguments = FAST | {"surrogate": False, "gradient_estimator": estimator, "baseline": 0.0}
    explainer = SubsetExplainer(Sum(), 2, output="logits", **arguments).fit(x)
    assert explainer.explain(x).mask[:, [1, 4]].mean() > 0.95


def test_the_kind_of_estimator_may_change_with_the_progress() -> None:
    x = rows().astype(np.float32)
    for first, last in ((LeaveOneOut(), SIMPLE()), (SIMPLE(), LeaveOneOut())):
        estimator = lambda share, first=first, last=last: first if share < 0.5 else last  # noqa: E731
        arguments = FAST | {"surrogate": False, "gradient_estimator": estimator, "baseline": 0.0}
        explainer = SubsetExplainer(Sum(), 2, output="logits", **arguments).fit(x)
        assert explainer.explain(x).mask[:, [1, 4]].mean() > 0.95


def test_columns_in_another_order_are_refused() -> None:
    frame = pd.DataFrame(rows(50), columns=list("abcdef"))
    explainer = SubsetExplainer(switch, 2, output="values", **FAST | BRIEF).fit(frame)
    mask = explainer.explain(frame).mask
    assert np.array_equal(explainer.explain(frame.to_numpy()).mask, mask)
    other = frame[list("fedcba")]
    for use in (explainer.explain, lambda x: explainer.fill(x, mask), lambda x: explainer.predict(x, mask)):
        with pytest.raises(
            ValueError, match=r"X: expected the columns \['a', .*\], in this order, as in fit, got \['f'"
        ):
            use(other)


def test_a_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.5))
    SubsetExplainer(model, 2, output="logits", surrogate=False, **FAST | {"steps": 3}).fit(rows())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_rows_may_be_views_that_torch_does_not_take() -> None:
    x = rows(50)
    backwards, locked = x[::-1].copy()[::-1], x.copy()
    locked.flags.writeable = False
    given = [x, backwards, locked, x.astype(">f8"), x.astype(np.longdouble)]
    explainers = [SubsetExplainer(switch, 2, output="values", **FAST | BRIEF).fit(one) for one in given]
    masks = [one.explain(x).mask for one, x in zip(explainers, given, strict=True)]
    assert all(np.array_equal(mask, masks[0]) for mask in masks)
    assert module.check_rows(locked, None).flags.writeable  # of others torch warns, once in a process


def test_words_are_chosen_and_paddings_are_not() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 20, (600, 6))
    lengths = rng.integers(0, 7, 600)
    tokens[np.arange(6) >= lengths[:, None]] = 0

    def model(x: NDArray[Any]) -> NDArray[Any]:
        return np.isin(x, [3, 4]).sum(1).astype(float)

    explainer = SubsetExplainer(model, 2, output="values", padding=0, **FAST | {"surrogate_steps": 600}).fit(tokens)
    explanation = explainer.explain(tokens)
    assert not explanation.mask[tokens == 0].any()
    assert np.array_equal(explanation.mask.sum(1), np.minimum(lengths, 2))
    one = np.isin(tokens, [3, 4]).sum(1) == 1
    assert explanation.mask[one][np.isin(tokens[one], [3, 4])].mean() > 0.9
    filled = explainer.fill(tokens, explanation.mask)
    assert np.array_equal(filled, np.where(explanation.mask, tokens, 0))
    # Words that were never seen, and gradients through the mask.
    with pytest.raises(ValueError, match=r"X: expected tokens below 20, as in fit, got 25"):
        explainer.explain(np.full((1, 6), 25))
    SubsetExplainer(model, 2, output="values", padding=0, gradient_estimator=SIMPLE(), **FAST | {"steps": 3}).fit(
        tokens
    )


def test_groups_stand_or_fall_together() -> None:
    x = rows()
    groups = [[0], [1, 2], [3, 4, 5]]
    explainer = SubsetExplainer(switch, 2, output="values", feature_groups=groups, **FAST).fit(x)
    explanation = explainer.explain(x)
    assert explanation.mask.shape == (500, 3)
    assert explanation.mask[:, :2].mean() > 0.9
    for place, group in enumerate(groups):
        assert (explanation.columns[:, group] == explanation.mask[:, [place]]).all()


def test_squares_of_images_are_chosen() -> None:
    images = rows(400, 64).reshape(400, 8, 8)

    def model(x: NDArray[Any]) -> NDArray[Any]:
        return x[:, :4, 4:].sum((1, 2))

    arguments = FAST | {"feature_groups": patches((8, 8), 4), "baseline": 0.0, "surrogate": False}
    explainer = SubsetExplainer(model, 1, output="values", **arguments).fit(images)
    explanation = explainer.explain(images)
    assert explanation.mask[:, 1].mean() > 0.95
    assert explanation.columns.shape == images.shape
    assert explanation.columns[explanation.mask[:, 1]][0, :4, 4:].all()
    assert explanation.columns[0].sum() == 16
    SubsetExplainer(model, 1, output="values", **FAST | {"steps": 3, "surrogate_steps": 3}).fit(images)


def test_each_row_may_have_a_size_of_its_own() -> None:
    x = rows()
    explainer = SubsetExplainer(switch, 2, output="values", **FAST).fit(x)
    explainer = pickle.loads(pickle.dumps(explainer.set_params(model=None)))
    sizes = np.arange(500) % 7
    explanation = explainer.explain(x, k=sizes)
    assert np.array_equal(explanation.mask.sum(1), sizes)
    assert np.allclose(explanation.inclusion.sum(1), sizes, atol=1e-5)
    again = explainer.explain(x)
    assert np.array_equal(explanation.mask[sizes == 2], again.mask[sizes == 2])


@pytest.mark.parametrize("stage", ["surrogate", "selector"])
def test_a_fit_that_was_killed_ends_as_if_it_was_not(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, path = rows(), tmp_path / "file"
    brief = FAST | {"steps": 40, "surrogate_steps": 40}
    whole = SubsetExplainer(switch, 2, output="values", gradient_estimator=Hybrid(), **brief).fit(x)
    killed = clone(whole).set_params(checkpoint=path)
    saved = module.save
    count = []

    def save(path: Path, state: Any, identity: Any) -> None:
        saved(path, state, identity)
        count.append(state)
        if len(count) == {"surrogate": 5, "selector": 30}[stage]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "save", save)
        with pytest.raises(KeyboardInterrupt):
            killed.fit(x)
    resumed = clone(killed).fit(x)
    for one, other in zip(whole.selector_.parameters(), resumed.selector_.parameters(), strict=True):
        assert torch.equal(one, other)
    assert np.array_equal(whole.history_["loss"], resumed.history_["loss"])
    with pytest.raises(ValueError, match="checkpoint: expected a file of the same data and settings"):
        clone(killed).set_params(k=1).fit(x)
    with pytest.raises(ValueError, match="checkpoint: expected a file of the same data and settings"):
        clone(killed).fit(2 * x)


def test_a_surrogate_that_was_trained_is_taken_as_it_is() -> None:
    x = rows()
    first = SubsetExplainer(switch, 2, output="values", **FAST).fit(x)
    second = clone(first).set_params(surrogate=first.surrogate_, surrogate_steps=0).fit(x)
    for one, other in zip(first.surrogate_.parameters(), second.surrogate_.parameters(), strict=True):
        assert torch.equal(one, other)
    assert true_positive_rate(second.explain(x).mask, switched(x)) > 0.9
    with pytest.raises(ValueError, match="surrogate_steps: expected 1 or more"):
        clone(first).set_params(surrogate_steps=0).fit(x)


X = rows(20)
NAN = np.where(np.arange(6) == 3, np.nan, X)


@pytest.mark.parametrize(
    ("model", "arguments", "data", "error", "message"),
    [
        (switch, {"k": 7}, (X,), ValueError, "k: expected at most 6, the number of items, got 7"),
        (switch, {"k": 0}, (X,), ValueError, "k: expected 1 or more"),
        (switch, {"k": 2.0}, (X,), TypeError, "k: expected an integer"),
        (switch, {}, (NAN,), ValueError, "X: expected finite numbers"),
        (switch, {}, (X[0],), ValueError, "X: expected numbers"),
        (switch, {}, (X[:0],), ValueError, "X: expected one row or more"),
        (switch, {"padding": 0}, (X,), ValueError, "X: expected integer tokens"),
        (switch, {"padding": 0}, (X.astype(int) - 9,), ValueError, "X: expected tokens of 0 or more"),
        (switch, {"padding": -1}, (X.astype(int) + 9,), ValueError, "padding: expected 0 or more, got -1"),
        (switch, {"padding": True}, (X.astype(int) + 9,), TypeError, "padding: expected an integer, got True"),
        (switch, {}, (X, X[:, 0]), ValueError, "y: expected None"),
        (None, {}, (X,), ValueError, "y: expected labels"),
        (None, {}, (X, np.zeros(20)), ValueError, "y: expected two classes or more"),
        (None, {}, (X, np.zeros(19)), ValueError, "inconsistent numbers of samples"),
        (None, {"surrogate": False}, (X, np.arange(20) % 2), ValueError, "surrogate: expected True or a module"),
        (3, {}, (X,), TypeError, "model: expected a torch module, a function"),
        (lambda x: x[:5, 0], {}, (X,), ValueError, r"model: expected outputs \(N,\) or \(N, m\) for N = 20"),
        (lambda x: x[:, 0] * np.nan, {}, (X,), ValueError, "model: expected finite outputs"),
        (switch, {"output": "probabilities"}, (X,), ValueError, r"model: expected outputs \(N, C\)"),
        (
            lambda x: x[:, :2],
            {"output": "probabilities"},
            (X,),
            ValueError,
            "outputs that are 0 or more and sum",
        ),
        (nn.Sequential(nn.Linear(6, 2), nn.Softmax(1)), {"output": "logits"}, (X,), ValueError, "no probabilities"),
        (switch, {"output": "scores"}, (X,), ValueError, "output: expected one of"),
        (
            switch,
            {"surrogate": False, "gradient_estimator": SIMPLE()},
            (X,),
            ValueError,
            "expected one that needs no gradient",
        ),
        (switch, {"gradient_estimator": 3}, (X,), TypeError, "gradient_estimator: expected an estimator"),
        (switch, {"num_samples": 1}, (X,), ValueError, "num_samples: expected 2 or more, as LeaveOneOut needs"),
        (switch, {"steps": 0}, (X,), ValueError, "steps: expected 1 or more"),
        (switch, {"learning_rate": 0}, (X,), ValueError, "learning_rate: expected a number above 0"),
        (switch, {"regularization": -1}, (X,), ValueError, "regularization: expected a finite number of 0 or more"),
        (switch, {"feature_groups": [[0, 1], [1]]}, (X,), ValueError, r"feature_groups\[1\]"),
        (switch, {"baseline": [0, 1]}, (X,), ValueError, "baseline: expected numbers that broadcast"),
        (switch, {"baseline": np.nan}, (X,), ValueError, "baseline: expected finite numbers"),
        (switch, {"selector": nn.Linear(6, 5)}, (X,), ValueError, r"selector: expected a module with outputs \(2, 6\)"),
        (switch, {"selector": nn.Linear(5, 6)}, (X,), ValueError, "selector: expected .* got an error"),
        (switch, {"selector": 3}, (X,), TypeError, "selector: expected a torch module or None"),
        (switch, {"surrogate": nn.Linear(6, 1)}, (X,), ValueError, "surrogate: expected .* got an error"),
        (switch, {"surrogate": "yes"}, (X,), TypeError, "surrogate: expected True, False or a torch module"),
    ],
)
def test_what_does_not_fit_is_said(
    model: Any, arguments: dict[str, Any], data: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    explainer = SubsetExplainer(model, **{"k": 2, "output": "values"} | FAST | BRIEF | arguments)
    with pytest.raises(error, match=message):
        explainer.fit(*data)


def test_rows_of_another_kind_are_not_explained() -> None:
    explainer = SubsetExplainer(switch, 2, output="values", **FAST | BRIEF).fit(X)
    with pytest.raises(ValueError, match=r"X: expected rows of shape \(6,\), as in fit, got \(5,\)"):
        explainer.explain(X[:, :5])
    with pytest.raises(ValueError, match="k: expected one integer, or one for each of 20 rows"):
        explainer.explain(X, k=[1, 2])
    with pytest.raises(ValueError, match="k: expected 0 to 6"):
        explainer.explain(X, k=7)
    with pytest.raises(TypeError, match="k: expected integers"):
        explainer.explain(X, k=1.5)
    with pytest.raises(ValueError, match=r"mask: expected booleans \(20, 6\), got float64 \(20, 6\)"):
        explainer.predict(X, X)
    with pytest.raises(ValueError, match=r"mask: expected booleans \(20, 6\), got bool \(20, 5\)"):
        explainer.fill(X, X[:, :5] > 0)


@pytest.mark.parametrize("surrogate", [True, False])
def test_units_of_values_change_nothing(surrogate: bool) -> None:
    x = np.random.default_rng(0).standard_normal((1000, 6))
    right = np.zeros((1000, 6), bool)
    right[:, 0], right[:, 1], right[:, 2] = True, x[:, 0] > 0, x[:, 0] <= 0
    short = FAST | {"surrogate": surrogate, "steps": 150, "surrogate_steps": 400}
    masks = []
    for factor, shift in ((1.0, 0.0), (1.0, 1000.0), (1e-4, 0.0), (1.0, 2.0**31)):

        def model(rows: Any, factor: float = factor, shift: float = shift) -> Any:
            return factor * np.where(rows[:, 0] > 0, rows[:, 1], rows[:, 2]) + shift

        explainer = SubsetExplainer(model, 2, output="values", **short).fit(x)
        masks.append(explainer.explain(x).mask)
        if surrogate:
            told, wanted = explainer.predict(x, right)[:, 0], model(x)
            assert 1 - np.square(told - wanted).mean() / wanted.var() > 0.9
    assert min((mask == masks[0]).mean() for mask in masks) > 0.99


def test_labels_with_a_large_offset() -> None:
    x = np.random.default_rng(0).standard_normal((500, 4))
    explainer = SubsetExplainer(None, 1, **FAST | {"steps": 100, "surrogate_steps": 200}).fit(x, 1.7e9 + x[:, 0])
    assert explainer.explain(x).mask[:, 0].all()


class OneColumn(nn.Module):
    def __init__(self, column: int) -> None:
        super().__init__()
        self.column, self.norm, self.weight = column, nn.BatchNorm1d(6), nn.Linear(1, 1)

    def forward(self, masked: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.norm(masked)
        return masked[:, [self.column]]


def test_a_checkpoint_of_another_surrogate_or_model_is_an_error(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((100, 6))
    brief = FAST | {"steps": 5, "surrogate_steps": 0, "output": "values"}
    file = tmp_path / "training.pt"

    def fit(surrogate: Any, model: Any = lambda rows: rows[:, 0]) -> SubsetExplainer:
        return SubsetExplainer(model, 1, surrogate=surrogate, checkpoint=file, **brief).fit(x)

    fitted = fit(OneColumn(0))
    assert not fitted.surrogate_.norm.running_mean.any(), "it is taken as it is"
    with pytest.raises(ValueError, match=r"differs in .*answers on subsets"):
        fit(OneColumn(1))
    file.unlink()
    fit(False)
    # Both say the same of whole rows.
    with pytest.raises(ValueError, match=r"differs in .*answers on subsets"):
        fit(False, lambda rows: np.where((rows == x.mean(0)).any(1), 0.0, rows[:, 0]))


def test_a_model_that_writes_into_its_argument() -> None:
    x = np.random.default_rng(0).standard_normal((100, 3))
    before = x.copy()

    def model(rows: Any) -> Any:
        rows -= 5
        return rows[:, 0]

    for one in (model, nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1))):
        SubsetExplainer(one, 1, surrogate=False, output="values", **FAST | {"steps": 2}).fit(x)
        np.testing.assert_array_equal(x, before)


def test_constant_columns_have_no_scale_of_rounding() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 6))
    x[:, 5] = 0.1
    explainer = SubsetExplainer(None, 2, **FAST | BRIEF).fit(x, x[:, 0] > 0)
    other = x + np.where(np.arange(6) == 5, 1e-9, 0.0)
    whole = np.ones((1000, 6), bool)
    np.testing.assert_allclose(explainer.predict(x, whole), explainer.predict(other, whole), atol=1e-6)


def test_tables_whose_names_are_not_all_text() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((100, 3))).assign(b=rng.standard_normal(100))
    explainer = SubsetExplainer(None, 2, **FAST | BRIEF).fit(frame, frame[0] > 0)
    assert explainer.explain(frame).mask.sum(1).tolist() == [2] * 100
    with pytest.raises(ValueError, match="feature_groups: expected names, as integers may be names or places"):
        SubsetExplainer(None, 2, feature_groups=[[0, 1]], **FAST | BRIEF).fit(frame[[2, 1, 0]], frame[0] > 0)


def test_the_k_of_the_fit_counts() -> None:
    x = np.random.default_rng(0).standard_normal((100, 5))
    explainer = SubsetExplainer(None, 2, **FAST | BRIEF).fit(x, x[:, 0] > 0).set_params(k=3)
    assert explainer.explain(x).mask.sum(1).tolist() == [2] * 100


def test_whole_floats_of_many_values_are_numbers() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    y = (100 * X[:, 1]).round()
    short = {"surrogate_steps": 2, "steps": 2, "device": "cpu", "random_state": 0}
    assert SubsetExplainer(None, 1, **short).fit(X, y).predict(X, np.ones(X.shape, bool)).shape == (200, 1)
    with pytest.warns(
        UserWarning, match=r"y: \d+ different integers are taken for classes; as floats they are numbers"
    ):
        SubsetExplainer(None, 1, **short).fit(X, y.astype(int))


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("surrogate", [True, False])
def test_a_model_of_tables_gets_tables(library: str, surrogate: bool) -> None:
    data = load_breast_cancer(as_frame=True)
    X = data.data.iloc[:, :6]
    scaled = make_column_transformer((StandardScaler(), ["mean radius", "mean area"]), remainder="passthrough")
    model = make_pipeline(scaled, LogisticRegression(max_iter=3000)).fit(X, data.target)
    explainer = SubsetExplainer(
        model.predict_proba, 2, surrogate=surrogate, steps=3, surrogate_steps=3, device="cpu", random_state=0
    )
    rows = X if library == "pandas" else pl.from_pandas(X)
    assert explainer.fit(rows).explain(rows).mask.sum(1).tolist() == [2] * len(X)


def test_models_that_are_no_functions_and_numbers_that_are_no_classes() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(2, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="model: expected a torch module, a function, such as predict_proba of a"):
        SubsetExplainer(forest, 2).fit(X)
    with pytest.raises(ValueError, match=r'model: expected outputs .* or output="values", .* got \(569,\)'):
        SubsetExplainer(forest.predict, 2).fit(X)
