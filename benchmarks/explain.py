"""What explainers choose, side by side: known columns, and what a model says on the chosen inputs alone.

Usage: python benchmarks/explain.py RESULTS.json [--rows ROW ...] [--methods METHOD ...] [--seeds SEED ...] [--table]

Runs every method on every row and seed, or those named, that RESULTS.json does not have yet; it is written after each
run, so that an interrupted benchmark goes on. `--table` runs nothing and prints what the file has. Images and sentences
are read from the folder that KSUBSET_DATA names.

Peers, from PyPI: lime and shap.
"""

import argparse
import functools
import importlib.metadata
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from timing import machine
from torch import nn
from torch.nn import functional

from ksubset._support.files import write
from ksubset._support.markdown import table
from ksubset.applications.explain import (
    SYNTHETIC, SubsetExplainer, false_discovery_rate, median_rank, patches, posthoc_accuracy, synthetic,
    true_positive_rate,
)  # fmt: skip
from ksubset.estimators import IMLE, NCPSS, SIMPLE, Estimator, GumbelTopK, Hybrid, LeaveOneOut
from ksubset.experiments.datasets import load
from ksubset.schedules import ExponentialSchedule
from ksubset.training import seeded

# Rows that LIME and SHAP explain, one by one.
FEW = 200
PERTURBED = 500
SIZES = {"xor": 2, "orange-skin": 4, "additive": 4, "switch": 5, "syn1": 2, "syn2": 4, "syn3": 4}
SIZES |= {"syn4": 5, "syn5": 5, "syn6": 5}


def temperature(progress: float) -> float:
    return ExponentialSchedule(1.0, 0.1)(progress)


def relaxed(progress: float) -> Estimator:
    return GumbelTopK(temperature(progress))


def straight(progress: float) -> Estimator:
    return GumbelTopK(temperature(progress), straight_through=True)


ESTIMATORS: dict[str, Any] = {
    "LeaveOneOut": LeaveOneOut(),
    "Hybrid": Hybrid(),
    "SIMPLE": SIMPLE(),
    "GS": relaxed,
    "STGS": straight,
    "I-MLE": IMLE(),
    "NCPSS": NCPSS(),
}
PEERS = ("LIME", "SHAP")


@functools.lru_cache(maxsize=1)
def labels_and_surrogate(name: str, seed: int) -> tuple[Any, Any, SubsetExplainer]:
    """Rows to train and to test on, and an explainer whose surrogate all others use, too."""
    train, test = synthetic(name, 10_000, 2 * seed), synthetic(name, 10_000, 2 * seed + 1)
    explainer = SubsetExplainer(None, SIZES[name], steps=1, device="cpu", random_state=seed)
    return train, test, explainer.fit(train.x, train.y)


def run_synthetic(name: str, method: str, seed: int) -> dict[str, float]:
    train, test, base = labels_and_surrogate(name, seed)
    k = SIZES[name]
    started = time.process_time()
    if method in PEERS:
        relevant = test.relevant[:FEW]
        everything = np.ones((1, test.x.shape[1]), dtype=bool)
        scores = attributions(
            method, lambda x: base.predict(x, everything.repeat(len(x), 0)), train.x, test.x[:FEW], seed
        )
        chosen, found = top(scores, k), {}
    else:
        explainer = SubsetExplainer(
            None, k, surrogate=base.surrogate_, surrogate_steps=0, gradient_estimator=ESTIMATORS[method],
            device="cpu", random_state=seed,
        ).fit(train.x, train.y)  # fmt: skip
        explanation, relevant = explainer.explain(test.x), test.relevant
        chosen, scores = explanation.mask, explanation.inclusion
        above = scores > 0.5
        found = {
            "true positive, above 1/2": true_positive_rate(above, relevant),
            "false discovery, above 1/2": false_discovery_rate(above, relevant),
            "size, above 1/2": float(above.sum(1).mean()),
        }
    return {
        "true positive": true_positive_rate(chosen, relevant),
        "false discovery": false_discovery_rate(chosen, relevant),
        "median rank": float(median_rank(scores, relevant).mean()),
        "seconds": time.process_time() - started,
        **found,
    }


def top(scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """The k largest of each row."""
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, np.argsort(-scores, axis=1, kind="stable")[:, :k], values=True, axis=1)
    return mask


def attributions(
    method: str,
    model: Callable[[NDArray[Any]], NDArray[Any]],
    background: NDArray[Any],
    rows: NDArray[Any],
    seed: int,
    calls: int = PERTURBED,
) -> NDArray[np.float64]:
    """Sizes of the effects of columns on the probability of the likeliest class, with so many calls for a row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "LIME":
            from lime.lime_tabular import LimeTabularExplainer

            explainer = LimeTabularExplainer(background, discretize_continuous=True, random_state=seed)
            result = np.zeros(rows.shape)
            for place, row in enumerate(rows):
                likeliest = int(model(row[None]).argmax())
                effects = explainer.explain_instance(
                    row, model, labels=(likeliest,), num_features=rows.shape[1], num_samples=calls
                )
                for column, effect in effects.as_map()[likeliest]:
                    result[place, column] = abs(effect)
            return result
        import shap

        few = shap.sample(background, 10, random_state=seed)
        np.random.seed(seed)  # noqa: NPY002 - the peer's own generator
        explainer = shap.KernelExplainer(model, few)
        effects = np.asarray(explainer.shap_values(rows, nsamples=calls // len(few), silent=True))
        likeliest = model(rows).argmax(1)
        return np.abs(effects[np.arange(len(rows)), :, likeliest])


@dataclass(frozen=True)
class Row:
    """What is explained, how it is measured, and by which methods."""

    run: Callable[[str, str, int], dict[str, float]]
    methods: Sequence[str]


ROWS: dict[str, Row] = {name: Row(run_synthetic, (*ESTIMATORS, *PEERS)) for name in SYNTHETIC}


def tables(results: dict[str, dict[str, float]]) -> Iterator[str]:
    """Means over the seeds, for each row by method."""
    for name, row in ROWS.items():
        runs = {m: [results[key] for key in results if key.rpartition("/")[0] == f"{name}/{m}"] for m in row.methods}
        runs = {method: found for method, found in runs.items() if found}
        if not runs:
            continue
        columns = list(dict.fromkeys(column for found in runs.values() for run in found for column in run))
        yield f"\n## {name}\n"
        yield table(
            ["method", *columns, "seeds"],
            [[method, *(cell(found, column) for column in columns), str(len(found))] for method, found in runs.items()],
        )


def cell(runs: list[dict[str, float]], column: str) -> str:
    values = [run[column] for run in runs if column in run]
    if not values:
        return ""
    digits = 0 if max(map(abs, values)) >= 100 else 1 if column == "seconds" else 3
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 and column != "seconds" else ""
    return f"{np.mean(values):,.{digits}f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()

    def known() -> dict[str, Any]:
        return json.loads(arguments.results.read_text()) if arguments.results.exists() else {}

    if arguments.table:
        packages = ("numpy", "scikit-learn", "lime", "shap")
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
        print(f"# Explainers, side by side\n\n{machine()}, {versions}\n\n{NOTES}")
        print("\n".join(tables(known())))
        return
    for seed in arguments.seeds:
        for name in arguments.rows:
            for method in arguments.methods or ROWS[name].methods:
                key = f"{name}/{method}/{seed}"
                if method not in ROWS[name].methods or key in known():
                    continue
                found = ROWS[name].run(name, method, seed)
                print(key, {column: round(value, 3) for column, value in found.items()}, flush=True)
                # Read anew, as another process may have written meanwhile.
                write(arguments.results, json.dumps(known() | {key: found}, indent=0).encode())


if __name__ == "__main__":
    main()
