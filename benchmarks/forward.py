"""`KSubsetSelector` and forward selection at equal model fits: test scores, seed by seed.

Usage: python benchmarks/forward.py RESULTS.json [--first SEED] [--seeds S] [--sets SET ...] [--table]

Runs what RESULTS.json does not have yet of every set, or those named, and S seeds; it is written after each. `--table`
prints what it has. The data are made here, or scikit-learn's.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_friedman1
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from timing import machine, resumed

from ksubset.selection import KSubsetSelector

FOLDS = 5
NOTES = """\
Test score (accuracy, or R²) of the model on the columns chosen from rows that it did not see: `KSubsetSelector`
with `max_evaluations` set to the fits of forward selection (scikit-learn's SequentialFeatureSelector), and with its
defaults. Five folds for both, not shuffled. Differences are seed by seed, with the standard error of their mean.
Seeds are 20 to 39, of the parity of 3 in 30 60 to 79; others were used to choose between ways to search.\
"""
Data = tuple[NDArray[Any], NDArray[Any]]


def friedman(seed: int) -> Data:
    """Five columns that matter, and 55 that do not."""
    data: Data = make_friedman1(1_200, 60, noise=1.0, random_state=seed)
    return data


def copies(seed: int) -> Data:
    """Ten columns, six of which matter, and a copy of each with a little noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1_200, 10))
    y = (x[:, :6].sum(1) + rng.standard_normal(1_200) > 0).astype(int)
    return np.hstack([x, x + 0.05 * rng.standard_normal(x.shape)]), y


def correlated(seed: int) -> Data:
    """Columns of correlation 0.7 with their neighbours; every sixth of 60 matters."""
    rng = np.random.default_rng(seed)
    noise, x = rng.standard_normal((1_200, 60)), np.empty((1_200, 60))
    x[:, 0] = noise[:, 0]
    for place in range(1, 60):
        x[:, place] = 0.7 * x[:, place - 1] + 0.51**0.5 * noise[:, place]
    return x, x[:, ::6].sum(1) + 3 * rng.standard_normal(1_200)


def parity(columns: int, order: int, rows: int) -> Callable[[int], Data]:
    """Columns that say something only all together."""

    def make(seed: int) -> Data:
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 2, (rows, columns))
        return x, x[:, rng.choice(columns, order, replace=False)].sum(1) % 2

    return make


def sklearns(load: Callable[..., Any]) -> Callable[[int], Data]:
    return lambda _: load(return_X_y=True)


# Data, rows to select on, columns to keep, model.
SETS: dict[str, tuple[Callable[[int], Data], int, int, Any]] = {
    "breast cancer": (sklearns(load_breast_cancer), 300, 5, GaussianNB()),
    "wine": (sklearns(load_wine), 100, 3, GaussianNB()),
    "diabetes": (sklearns(load_diabetes), 250, 4, make_pipeline(StandardScaler(), Ridge())),
    "digits": (sklearns(load_digits), 600, 8, KNeighborsClassifier()),
    "friedman1, 55 noise columns": (friedman, 300, 5, DecisionTreeRegressor(max_depth=6, random_state=0)),
    "near copies": (copies, 300, 8, GaussianNB()),
    "correlated": (correlated, 200, 8, LinearRegression()),
    "parity of 2 in 20": (parity(20, 2, 1_000), 400, 2, DecisionTreeClassifier(random_state=0)),
    "parity of 3 in 30": (parity(30, 3, 3_000), 1_500, 3, DecisionTreeClassifier(random_state=0)),
}


def run(name: str, seed: int) -> dict[str, Any]:
    make, size, k, model = SETS[name]
    x, y = make(seed)
    classes = y if y.dtype.kind == "i" and len(np.unique(y)) < 20 else None
    x, test, y, truth = train_test_split(x, y, train_size=size, stratify=classes, random_state=seed)
    start = time.process_time()
    forward = SequentialFeatureSelector(model, n_features_to_select=k, cv=FOLDS).fit(x, y).get_support()
    seconds = time.process_time() - start
    fits = FOLDS * sum(x.shape[1] - kept for kept in range(k))

    def score(support: NDArray[np.bool_]) -> float:
        return float(clone(model).fit(x[:, support], y).score(test[:, support], truth))

    result = {"forward": score(forward), "forward_fits": fits, "forward_seconds": seconds}
    for kind, budget in (("equal", fits), ("default", None)):
        start = time.process_time()
        selector = KSubsetSelector(
            model, n_features_to_select=k, cv=FOLDS, max_evaluations=budget, random_state=seed
        ).fit(x, y)  # fmt: skip
        result |= {kind: score(selector.support_), f"{kind}_fits": selector.n_fits_}
        result[f"{kind}_seconds"] = time.process_time() - start
    return result


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| data, rows, k | seeds | forward (fits) | equal fits, less forward | by default, less forward (fits) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (_, size, k, _) in SETS.items():
        found = [one for key, one in results.items() if key.rpartition("/")[0] == name]
        if not found:
            continue
        own = {key: np.array([one[key] for one in found]) for key in found[0]}
        lines.append(
            f"| {name}, {size}, {k} | {len(found)} | {own['forward'].mean():.3f} ({own['forward_fits'].mean():,.0f}) "
            f"| {_signed(own['equal'] - own['forward'])} "
            f"| {_signed(own['default'] - own['forward'])} ({own['default_fits'].mean():,.0f}) |"
        )
    return "\n".join(lines)


def _signed(values: NDArray[np.float64]) -> str:
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{values.mean():+.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=20, help="the first seed")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.table:
        results = json.loads(arguments.results.read_text())
        print(f"# Beside forward selection\n\n{machine()}\n\n{NOTES}\n\n{table(results)}")
        return
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    resumed(arguments.results, ((name, seed) for seed in seeds for name in arguments.sets), run)


if __name__ == "__main__":
    main()
