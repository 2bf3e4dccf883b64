"""Test score, model fits and time of column selectors, side by side: same model, same splits, same k.

Usage: python benchmarks/selection.py RESULTS.json [--rows ROW ...] [--methods METHOD ...] [--seeds SEED ...] [--table]

Runs every method on every row and seed, or those named, that RESULTS.json does not have yet; it is written after each
run, so that an interrupted benchmark goes on. `--table` runs nothing and prints what the file has. Data are read from
the folder that KSUBSET_DATA names. Selection never sees test data.

Peers, from PyPI: mrmr-selection, lassonet, and stg, installed with `--no-deps`, with six and lifelines.
"""

import argparse
import collections
import collections.abc
import contextlib
import importlib.metadata
import io
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.io
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest, SequentialFeatureSelector, f_classif
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, minmax_scale
from sklearn.tree import DecisionTreeClassifier
from timing import machine

from ksubset._support.files import write
from ksubset.experiments.datasets import load
from ksubset.selection import KSubsetSelector, NeuralSubsetSelector

FOLDS = 3
NOTES = """\
Each seed has its own rows to train and test on; of ISOLET, MNIST and Fashion-MNIST its own rows to train on, and the
official test data. The same model, fitted to the columns that a method chose, is scored on the test data, which
selection never saw. Model fits are those of the named model, in cross-validation with three folds; those of
`KSubsetSelector` have the fit of the final model among them. Seconds are those of the processor for the selection, on
one thread; wall seconds were measured beside other work. RFE of nearest neighbours, which rank no columns, and
SelectFromModel rank by extra-trees; RFE drops 5 % of the columns at a time. Where extra-trees are the model, methods
train networks of their own, or rank, and use nothing of it; LassoNet's path takes too long on the larger sets.\
"""


@dataclass(frozen=True)
class Split:
    """Rows to select and train on, and rows to test on."""

    train: NDArray[Any]
    labels: NDArray[Any]
    test: NDArray[Any]
    truth: NDArray[Any]


def folder() -> Path:
    return Path(os.environ["KSUBSET_DATA"])


def halves(x: NDArray[Any], y: NDArray[Any], seed: int) -> Split:
    """Three quarters to train on, one to test on."""
    train, test, labels, truth = train_test_split(x, y, test_size=0.25, stratify=y, random_state=seed)
    return Split(train, labels, test, truth)


def xor(seed: int) -> Split:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (1500, 20)).astype(float)
    first, second = rng.choice(20, 2, replace=False)
    y = x[:, first].astype(int) ^ x[:, second].astype(int)
    return Split(x[:500], y[:500], x[500:], y[500:])


def madelon(seed: int) -> Split:
    content = scipy.io.loadmat(folder() / "madelon" / "madelon.mat")
    return halves(content["X"].astype(float), content["Y"].ravel(), seed)


def arcene(seed: int) -> Split:
    content = scipy.io.loadmat(folder() / "arcene" / "arcene.mat")
    return halves(content["X"].astype(float), content["Y"].ravel(), seed)


def mice(seed: int) -> Split:
    table = pd.read_csv(folder() / "mice_protein" / "Data_Cortex_Nuclear.csv")
    return halves(table.iloc[:, 1:78].to_numpy(float), table["class"].to_numpy(), seed)


def har(seed: int) -> Split:
    return halves(
        np.load(folder() / "har_subset" / "X.npy").astype(float), np.load(folder() / "har_subset" / "y.npy"), seed
    )


def isolet(seed: int, rows: int | None = None) -> Split:
    parts = [
        scipy.io.loadmat(folder() / "isolet" / f"{name}.mat") for name in ("Isolet1", "Isolet2", "Isolet3", "Isolet4")
    ]
    test = scipy.io.loadmat(folder() / "isolet" / "isolet5.mat")
    x, y = np.concatenate([part["fea"] for part in parts]), np.concatenate([part["gnd"].ravel() for part in parts])
    return some(Split(x, y, test["fea"], test["gnd"].ravel()), rows, seed)


def images(name: str, seed: int, rows: int) -> Split:
    data = load(name)
    return some(
        Split(
            data.train_images.numpy().astype(float), data.train_labels.numpy(),
            data.test_images.numpy().astype(float), data.test_labels.numpy(),
        ), rows, seed,
    )  # fmt: skip


def some(split: Split, rows: int | None, seed: int) -> Split:
    """So many of the rows to train on, drawn by the seed."""
    if rows is None:
        return split
    train, _, labels, _ = train_test_split(
        split.train, split.labels, train_size=rows, stratify=split.labels, random_state=seed
    )
    return Split(train, labels, split.test, split.truth)


@dataclass(frozen=True)
class Row:
    """What is compared: data, size and model."""

    data: str
    k: int
    load: Callable[[int], Split]
    model: Any
    says: str
    methods: Sequence[str]


def select_by_ksubset(row: Row, split: Split, seed: int) -> NDArray[Any]:
    selector = KSubsetSelector(row.model, n_features_to_select=row.k, cv=folds(seed), random_state=seed)
    return selector.fit(split.train, split.labels).get_support(indices=True)


def select_forward(row: Row, split: Split, seed: int) -> NDArray[Any]:
    selector = SequentialFeatureSelector(row.model, n_features_to_select=row.k, cv=folds(seed))
    return selector.fit(split.train, split.labels).get_support(indices=True)


def select_by_elimination(row: Row, split: Split, seed: int) -> NDArray[Any]:
    # Neighbours rank no columns, so trees do it for them.
    model = trees(seed) if isinstance(row.model, KNeighborsClassifier) else row.model
    getter = f"named_steps.{model.steps[-1][0]}.coef_" if hasattr(model, "steps") else "auto"
    selector = RFE(model, n_features_to_select=row.k, step=0.05, importance_getter=getter)
    return selector.fit(split.train, split.labels).get_support(indices=True)


def select_k_best(row: Row, split: Split, seed: int) -> NDArray[Any]:
    return SelectKBest(f_classif, k=row.k).fit(complete(split.train), split.labels).get_support(indices=True)


def select_from_trees(row: Row, split: Split, seed: int) -> NDArray[Any]:
    selector = SelectFromModel(trees(seed, 500), threshold=-np.inf, max_features=row.k)
    return selector.fit(split.train, split.labels).get_support(indices=True)


def select_by_mrmr(row: Row, split: Split, seed: int) -> NDArray[Any]:
    from mrmr import mrmr_classif

    table = pd.DataFrame(complete(split.train))
    useful = table.columns[table.std() > 0]
    return np.array(mrmr_classif(table[useful], pd.Series(split.labels), K=row.k, n_jobs=1, show_progress=False))


def select_by_network(row: Row, split: Split, seed: int) -> NDArray[Any]:
    selector = NeuralSubsetSelector(row.k, task="classification", random_state=seed)
    return selector.fit(complete(split.train), split.labels).get_support(indices=True)


def select_by_lassonet(row: Row, split: Split, seed: int) -> NDArray[Any]:
    """The path jumps over sizes: the columns are those that left it last."""
    from lassonet import LassoNetClassifier

    model = LassoNetClassifier(
        hidden_dims=(100,), path_multiplier=1.05, batch_size=256, random_state=seed, torch_seed=seed
    )
    labels = np.unique(split.labels, return_inverse=True)[1]
    model.path(scaled(split.train), labels, return_state_dicts=False)
    return np.sort(np.argsort(-model.feature_importances_.numpy(), kind="stable")[: row.k])


def select_by_gates(row: Row, split: Split, seed: int) -> NDArray[Any]:
    """The penalty is doubled until no more than k gates are open; the k widest of the training before are taken."""
    # The package was written for Python before 3.10.
    for name in ("Mapping", "Sequence", "Set"):
        setattr(collections, name, getattr(collections.abc, name))
    from stg import STG

    labels, penalty, gates = np.unique(split.labels, return_inverse=True)[1], 0.1, None
    while True:
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the peer's own generator
        model = STG(
            task_type="classification", input_dim=split.train.shape[1], output_dim=int(labels.max()) + 1,
            hidden_dims=[100], activation="relu", optimizer="Adam", learning_rate=1e-3, batch_size=256,
            feature_selection=True, sigma=0.5, lam=penalty, random_state=seed, device="cpu",
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            model.fit(scaled(split.train), labels, nr_epochs=200, print_interval=1000)
        last, gates = gates, model.get_gates(mode="raw")
        if (gates > -0.5).sum() <= row.k:
            return np.sort(np.argsort(-(gates if last is None else last), kind="stable")[: row.k])
        penalty *= 2


def select_at_random(row: Row, split: Split, seed: int) -> NDArray[Any]:
    return np.sort(np.random.default_rng(seed).choice(split.train.shape[1], row.k, replace=False))


def select_all(row: Row, split: Split, seed: int) -> NDArray[Any]:
    return np.arange(split.train.shape[1])


METHODS: dict[str, Callable[[Row, Split, int], NDArray[Any]]] = {
    "KSubsetSelector": select_by_ksubset,
    "NeuralSubsetSelector": select_by_network,
    "SequentialFeatureSelector": select_forward,
    "RFE": select_by_elimination,
    "SelectKBest": select_k_best,
    "SelectFromModel": select_from_trees,
    "mRMR": select_by_mrmr,
    "LassoNet": select_by_lassonet,
    "stochastic gates": select_by_gates,
    "random columns": select_at_random,
    "all columns": select_all,
}


def folds(seed: int) -> StratifiedKFold:
    return StratifiedKFold(FOLDS, shuffle=True, random_state=seed)


def trees(seed: int, number: int = 100) -> ExtraTreesClassifier:
    return ExtraTreesClassifier(number, random_state=seed)


def final(model: Any) -> Any:
    return model.steps[-1][1] if hasattr(model, "steps") else model


def complete(x: NDArray[Any]) -> NDArray[Any]:
    """With missing values at their column's mean, for methods that do not take them."""
    return SimpleImputer().fit_transform(x)


def scaled(x: NDArray[Any]) -> NDArray[Any]:
    """For networks that do not scale themselves."""
    return minmax_scale(complete(x)).astype(np.float32)


OF_ANY_MODEL = (
    "KSubsetSelector", "SequentialFeatureSelector", "RFE", "SelectKBest", "SelectFromModel", "mRMR",
    "random columns", "all columns",
)  # fmt: skip
NO_FORWARD = tuple(method for method in OF_ANY_MODEL if method != "SequentialFeatureSelector")
OF_NETWORKS = (
    "NeuralSubsetSelector", "LassoNet", "stochastic gates", "SelectKBest", "SelectFromModel",
    "random columns", "all columns",
)  # fmt: skip
# A path takes 10 minutes and more there; with fewer and larger steps it is no fair one.
WITHOUT_LASSONET = tuple(method for method in OF_NETWORKS if method != "LassoNet")
NEIGHBOURS = KNeighborsClassifier(7)
LEARNER = ExtraTreesClassifier(100, random_state=0)

ROWS: dict[str, Row] = {
    "xor": Row("XOR of 2 in 20", 2, xor, DecisionTreeClassifier(random_state=0), "decision tree", OF_ANY_MODEL),
    **{
        f"madelon-{k}": Row("MADELON", k, madelon, NEIGHBOURS, "7 nearest neighbours", OF_ANY_MODEL)
        for k in (5, 10, 20)
    },
    "mice": Row("Mice Protein", 10, mice, ExtraTreesClassifier(50, random_state=0), "50 extra-trees", OF_ANY_MODEL),
    "har": Row("HAR subset", 50, har, LinearDiscriminantAnalysis(), "linear discriminant", OF_ANY_MODEL),
    "isolet": Row(
        "ISOLET, 2,000 rows", 50, lambda seed: isolet(seed, 2000), LinearDiscriminantAnalysis(),
        "linear discriminant", OF_ANY_MODEL,
    ),
    "arcene": Row(
        "ARCENE", 100, arcene, make_pipeline(StandardScaler(), RidgeClassifier()), "ridge classifier", NO_FORWARD
    ),
    "mnist": Row(
        "MNIST, 1,500 rows", 50, lambda seed: images("mnist", seed, 1500), NEIGHBOURS,
        "7 nearest neighbours", OF_ANY_MODEL,
    ),
    "fashion": Row(
        "Fashion-MNIST, 1,500 rows", 50, lambda seed: images("fashion-mnist", seed, 1500), NEIGHBOURS,
        "7 nearest neighbours", OF_ANY_MODEL,
    ),
    "mice-50": Row("Mice Protein", 50, mice, LEARNER, "100 extra-trees", OF_NETWORKS),
    "har-50": Row("HAR subset", 50, har, LEARNER, "100 extra-trees", OF_NETWORKS),
    "isolet-50": Row("ISOLET", 50, isolet, LEARNER, "100 extra-trees", WITHOUT_LASSONET),
    "mnist-50": Row(
        "MNIST, 10,000 rows", 50, lambda seed: images("mnist", seed, 10_000), LEARNER,
        "100 extra-trees", WITHOUT_LASSONET,
    ),
    "fashion-50": Row(
        "Fashion-MNIST, 10,000 rows", 50, lambda seed: images("fashion-mnist", seed, 10_000), LEARNER,
        "100 extra-trees", WITHOUT_LASSONET,
    ),
}  # fmt: skip


@contextlib.contextmanager
def counted(model: Any) -> Iterator[list[int]]:
    """Counts the fits of the model's class meanwhile."""
    count, kind = [0], type(final(model))
    original = kind.fit

    def fit(self: Any, *arguments: Any, **options: Any) -> Any:
        count[0] += 1
        return original(self, *arguments, **options)

    kind.fit = fit
    try:
        yield count
    finally:
        kind.fit = original


def run(row: Row, method: str, seed: int) -> dict[str, Any]:
    split = row.load(seed)
    wall, processor = time.perf_counter(), time.process_time()
    with counted(row.model) as fits, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = METHODS[method](row, split, seed)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    if method != "all columns" and len(np.unique(columns)) != row.k:
        raise RuntimeError(f"{method} chose {len(np.unique(columns))} columns, not {row.k}")
    model = clone(row.model).fit(split.train[:, columns], split.labels)
    return {
        "score": float(model.score(split.test[:, columns], split.truth)),
        "fits": fits[0],
        "wall": wall,
        "processor": processor,
    }


def table(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "| data, k, model | method | test score: mean | of each seed | model fits | seconds | wall |"
    yield "|" + " --- |" * 7
    for name, row in ROWS.items():
        for method in row.methods:
            runs = [results[key] for key in results if key.rpartition("/")[0] == f"{name}/{method}"]
            if not runs:
                continue
            scores = [run["score"] for run in runs]
            each = ", ".join(f"{score:.3f}" for score in scores)
            if len(scores) > 5:
                each = f"{min(scores):.3f} to {max(scores):.3f}, {len(scores)} seeds"
            fits, seconds, wall = (
                float(np.mean([run[field] for run in runs])) for field in ("fits", "processor", "wall")
            )
            yield (
                f"| {row.data}, {row.k}, {row.says} | {method} | {np.mean(scores):.3f} | {each} | {fits:,.0f} | "
                f"{seconds:,.1f} | {wall:,.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()

    def known() -> dict[str, Any]:
        return json.loads(arguments.results.read_text()) if arguments.results.exists() else {}

    if arguments.table:
        packages = ("numpy", "scikit-learn", "mrmr-selection", "lassonet", "stg")
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
        print(f"# Selectors of columns, side by side\n\n{machine()}, {versions}\n\n{NOTES}\n")
        print("\n".join(table(known())))
        return
    for seed in arguments.seeds:
        for name in arguments.rows:
            for method in arguments.methods:
                key = f"{name}/{method}/{seed}"
                if method not in ROWS[name].methods or key in known():
                    continue
                found = run(ROWS[name], method, seed)
                print(key, f"{found['score']:.3f}", found["fits"], f"{found['processor']:.1f} s", flush=True)
                # Read anew, as another process may have written meanwhile.
                write(arguments.results, json.dumps(known() | {key: found}, indent=0).encode())


if __name__ == "__main__":
    main()
