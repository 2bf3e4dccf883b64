"""The scikit-learn classifier, where scikit-learn's own checks say nothing."""

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from ksubset import SIMPLE, LeaveOneOut
from ksubset.applications.neighbours import SubsetNeighborsClassifier

Data = tuple[np.ndarray, np.ndarray]


def classifier(n_neighbors: int = 3, **arguments: Any) -> SubsetNeighborsClassifier:
    short = {"hidden_layer_sizes": (32,), "embedding_size": 4, "steps": 60, "batch_size": 48, "learning_rate": 1e-2}
    return SubsetNeighborsClassifier(n_neighbors, **{**short, "device": "cpu", "random_state": 0, **arguments})


@pytest.fixture(scope="module")
def data() -> Data:
    """Two of ten columns, of different scales, matter, and only together."""
    X = np.random.default_rng(0).standard_normal((300, 10))
    y = np.where(X[:, 2] * X[:, 6] > 0, "same", "other")
    return X * np.geomspace(1e-3, 1e3, 10) + 5, y


def test_an_embedding_is_learned(data: Data) -> None:
    X, y = data
    model = classifier(batch_size=64, steps=200).fit(X[:200], y[:200])
    raw = make_pipeline(StandardScaler(), KNeighborsClassifier(3)).fit(X[:200], y[:200])
    assert raw.score(X[200:], y[200:]) < 0.7
    assert model.score(X[200:], y[200:]) > 0.8
    assert model.history_["loss"][-1] < 0.3 * model.history_["loss"][0]
    assert model.history_["step"].tolist() == list(range(4, 201, 4))


@pytest.mark.parametrize(
    "arguments",
    [
        {"loss": "share"},
        {"loss": "vote", "gradient_estimator": LeaveOneOut(), "num_samples": 16, "steps": 800},
        {"loss": "log", "gradient_estimator": SIMPLE(), "num_samples": 1},
    ],
    ids=lambda arguments: arguments["loss"],
)
def test_other_losses_and_estimators_learn_one(data: Data, arguments: Any) -> None:
    X, y = data
    model = classifier(**{"batch_size": 64, "steps": 300, **arguments}).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.75


def test_predictions_are_those_of_the_nearest_rows(data: Data) -> None:
    X, y = data
    model = classifier().fit(X[:200], y[:200])
    distances, rows = model.kneighbors(X[200:])
    points, others = model.transform(X[200:]), model.transform(X[:200])
    gaps = np.linalg.norm(points[:, None] - others, axis=-1)
    assert_allclose(distances, np.sort(gaps, 1)[:, :3], rtol=1e-4, atol=1e-5)
    shares = (y[:200][rows][:, :, None] == model.classes_).mean(1)
    assert_allclose(model.predict_proba(X[200:]), shares)
    assert np.array_equal(model.predict(X[200:]), model.classes_[shares.argmax(1)])
    assert model.kneighbors(X[200:], 7)[1].shape == (100, 7)


def test_no_row_is_its_own_neighbour(data: Data) -> None:
    X, y = data
    X, y = np.concatenate([X[:50]] * 2), np.concatenate([y[:50]] * 2)
    _, rows = classifier().fit(X, y).kneighbors()
    assert rows.shape == (100, 3)
    assert not (rows == np.arange(100)[:, None]).any()


def test_it_works_in_pipelines_and_searches(data: Data) -> None:
    X, y = data
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier(steps=10)), {"subsetneighborsclassifier__n_neighbors": [1, 3]}, cv=2
    ).fit(X, y)
    assert len(search.predict(X)) == 300
    names = search.best_estimator_.steps[-1][1].get_feature_names_out()
    assert names.tolist() == [f"subsetneighborsclassifier{i}" for i in range(4)]


def test_a_copy_predicts_the_same(data: Data) -> None:
    X, y = data
    model = classifier().fit(X, y)
    shares = model.predict_proba(X)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), shares)
    assert np.array_equal(clone(model).fit(X, y).predict_proba(X), shares)
    state = torch.get_rng_state()
    others = [clone(model).set_params(random_state=None).fit(X, y).transform(X) for _ in range(2)]
    assert not np.array_equal(*others)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_module_is_copied_and_gets_rows_as_they_are(data: Data) -> None:
    X, y = np.abs(data[0][:, :2]), data[1]
    module = nn.Linear(2, 3, bias=False)
    before = module.weight.detach().clone()
    model = classifier(embedding=module).fit(X, y)
    assert torch.equal(module.weight, before)
    assert not torch.equal(model.embedding_.weight, before)
    assert_allclose(model.transform(X), X @ model.embedding_.weight.detach().numpy().T, rtol=1e-4, atol=1e-5)
    lazy = classifier(embedding=lambda n, d: nn.Sequential(nn.LazyLinear(n), nn.BatchNorm1d(n), nn.Linear(n, d)))
    assert lazy.fit(X, y).transform(X).shape == (300, 4)
    assert classifier(hidden_layer_sizes=()).fit(X, y).embedding_[0].weight.shape == (4, 2)


def test_it_says_how_it_goes(data: Data, capsys: pytest.CaptureFixture[str]) -> None:
    classifier(verbose=1).fit(*data)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 60
    assert re.fullmatch(r"\[SubsetNeighborsClassifier\] step 1 of 60: loss \d\.\d+", lines[0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_neighbors": 300}, ValueError, "n_neighbors: expected fewer than the rows, n_samples = 300, got 300"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors: expected 1 or more, got 0"),
        ({"n_neighbors": 1.5}, TypeError, "n_neighbors: expected an integer, got 1.5"),
        ({"n_neighbors": 48}, ValueError, "batch_size: expected more than n_neighbors, 48, got 48"),
        ({"batch_size": 1}, ValueError, "batch_size: expected 2 or more, got 1"),
        ({"loss": "hinge"}, ValueError, "loss: expected one of share, log, vote, got 'hinge'"),
        ({"loss": "vote"}, ValueError, "gradient_estimator: the loss 'vote' has no gradient"),
        ({"gradient_estimator": LeaveOneOut}, TypeError, "gradient_estimator: expected an estimator"),
        ({"gradient_estimator": LeaveOneOut(), "num_samples": 1}, ValueError, "num_samples: expected 2 or more"),
        ({"temperature": 0}, ValueError, "temperature: expected a number above 0, got 0"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate: expected a number, got 'fast'"),
        ({"weight_decay": -1}, ValueError, "weight_decay: expected a finite number, 0 or more, got -1"),
        ({"steps": 0}, ValueError, "steps: expected 1 or more, got 0"),
        ({"embedding_size": 0}, ValueError, "embedding_size: expected 1 or more, got 0"),
        ({"embedding": 3}, TypeError, "module: expected a torch module"),
        ({"embedding": nn.Linear(3, 2)}, ValueError, r"embedding: expected a module that maps rows \(N, 10\)"),
        ({"embedding": nn.Unflatten(1, (2, 5))}, ValueError, r"to points \(N, d\), got \(2, 2, 5\) for N = 2"),
        ({"embedding": nn.LSTM(10, 2)}, ValueError, r"to points \(N, d\), got tuple"),
        ({"embedding": nn.Identity()}, ValueError, "embedding: expected a module with parameters, got Identity"),
        ({"learning_rate": 1e30}, FloatingPointError, "try a smaller learning_rate than 1e"),
        ({"device": "abacus"}, ValueError, "device: expected a device that torch has"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(data: Data, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        classifier(**arguments).fit(*data)


def test_bad_data_are_named(data: Data) -> None:
    X, y = data
    gap = X.copy()
    gap[3, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        classifier().fit(gap, y)
    with pytest.raises(ValueError, match="y: expected two classes or more, got one class, 'a'"):
        classifier().fit(X, np.full(300, "a"))
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="X has 9 features, but SubsetNeighborsClassifier is expecting 10"):
        classifier().fit(X, y).predict(X[:, 1:])


# The embedding ends the process in the middle of a step, as nobody can expect.
PROGRAM = """
import os, pickle, sys
import numpy as np
import torch
from torch import nn
from ksubset import LeaveOneOut
from ksubset.applications.neighbours import SubsetNeighborsClassifier

torch.set_num_threads(1)


class Mortal(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, 3))
        self._left = int(sys.argv[2])

    def forward(self, x):
        self._left -= 1
        if self._left == 0:
            os._exit(9)
        return self.layers(x)


def fit(checkpoint):
    torch.manual_seed(0)
    model = SubsetNeighborsClassifier(
        3, embedding=Mortal(), gradient_estimator=LeaveOneOut(), steps=100, batch_size=32, device="cpu",
        random_state=0, checkpoint=checkpoint,
    ).fit(X, X[:, 0] > 0)
    return model.transform(X), model.history_


X = np.random.default_rng(0).standard_normal((100, 6))
print(pickle.dumps((fit(sys.argv[1]), fit(None))).hex())
"""


def test_a_killed_fit_goes_on_bit_for_bit(tmp_path: Path) -> None:
    for left in (57, -1):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "training.pt"), str(left)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (9 if left > 0 else 0), done.stderr
    (resumed, other), (whole, history) = pickle.loads(bytes.fromhex(done.stdout))
    assert np.array_equal(whole, resumed)
    assert all(np.array_equal(history[name], other[name]) for name in ("step", "loss"))


def test_the_file_of_another_fit_is_an_error(data: Data, tmp_path: Path) -> None:
    file, (X, y) = tmp_path / "training.pt", data
    unseeded = classifier(steps=20, random_state=None, checkpoint=file)
    points = unseeded.fit(X, y).transform(X)
    assert np.array_equal(clone(unseeded).set_params(verbose=1).fit(X, y).transform(X), points)
    for change in ({"n_neighbors": 4}, {"loss": "share"}, {"temperature": 2.0}):
        (name,) = change
        with pytest.raises(ValueError, match=rf"expected a file of the same data .* differs in .*\b{name}\b"):
            clone(unseeded).set_params(**change).fit(X, y)
    with pytest.raises(ValueError, match="which differs in X; delete it"):
        clone(unseeded).fit(X + 1, y)
    file.write_bytes(b"[]")
    with pytest.raises(ValueError, match=r"checkpoint: expected a file of a training, got .*training\.pt"):
        classifier(checkpoint=file).fit(X, y)
