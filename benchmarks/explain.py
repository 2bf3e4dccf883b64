"""What explainers choose, side by side: known columns, and what a model says on the chosen inputs alone.

Usage: python benchmarks/explain.py RESULTS.json [--rows ROW ...] [--methods METHOD ...] [--seeds SEED ...] [--table]
       [--figures FOLDER]

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
from matplotlib.figure import Figure
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
    SYNTHETIC,
    SubsetExplainer,
    false_discovery_rate,
    median_rank,
    patches,
    plot_images,
    plot_inclusion,
    plot_text,
    posthoc_accuracy,
    synthetic,
    true_positive_rate,
)  # fmt: skip
from ksubset.estimators import IMLE, NCPSS, SIMPLE, Estimator, GumbelTopK, Hybrid, LeaveOneOut
from ksubset.experiments.datasets import load
from ksubset.schedules import ExponentialSchedule
from ksubset.training import seeded

NOTES = """\
Means over seeds, with the standard deviation between them; each seed has its own rows and initial weights. Seconds are
those of the processor, on one thread: of a selector's training, or of LIME's and SHAP's explanations of the first 200
rows, which are all that they are measured on.

Synthetic sets: 10,000 rows to train on and 10,000 to test on, labels as targets, k as many as are relevant, or 5 where
that differs from row to row. All estimators of a seed have the same surrogate and settings, chosen for `LeaveOneOut` on
other draws of Syn4, Syn5 and Syn6; for the width and the activation of the surrogate the draws 1 and 2 of Syn4 and Syn6
were looked at, which are among those of seeds 0 and 1 here. LIME and SHAP (KernelSHAP, 10 rows as background), with
500 calls for each row, explain that surrogate on all columns; the size of an effect is what counts. The median rank is
the mean over rows of the medians, at best (m + 1) / 2 for m relevant columns. "Above 1/2" are the columns with
an inclusion probability above 1/2.

Images, sentences and cells: post-hoc accuracy is the share of test rows in which the model says the same class on the
chosen inputs alone, the others at 0, padding, or the mean. Effects of LIME and SHAP are those on the probability of the
class that the model names, the most positive first. Model calls are all that were made, to train and to explain.\
"""
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
class Case:
    """A model, the rows that an explainer is trained on, and those that are explained; settings of the explainer."""

    model: Any
    train: NDArray[Any]
    test: NDArray[Any]
    k: int
    settings: dict[str, Any]


def train_network(network: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> nn.Module:
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.1)
    for _ in range(steps):
        rows = torch.randint(len(x), (128,))
        loss = functional.cross_entropy(network(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


@functools.lru_cache(maxsize=1)
def digits(seed: int) -> Case:
    """A convolution network that tells 3 from 8."""
    data = load("mnist")
    chosen = [(data.train_images, data.train_labels), (data.test_images, data.test_labels)]
    (x, y), (test, _) = [(i[(j == 3) | (j == 8)].view(-1, 1, 28, 28), j[(j == 3) | (j == 8)] == 8) for i, j in chosen]
    with seeded(seed):
        network = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(256, 2),
        )  # fmt: skip
        train_network(network, x, y.long(), 400)
    settings = {"output": "logits", "baseline": 0.0, "feature_groups": patches((1, 28, 28), 4)}
    return Case(network, x.numpy(), test.numpy(), 4, settings)


class Reader(nn.Module):
    """An embedding, a convolution over three words, and the mean over the words that are there."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, 32, padding_idx=0)
        self.convolution, self.last = nn.Conv1d(32, 32, 3, padding=1), nn.Linear(32, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        there = (tokens != 0).unsqueeze(1)
        words = torch.relu(self.convolution(self.embedding(tokens).mT)) * there
        return self.last(words.sum(-1) / there.sum(-1).clamp(min=1))


def read_sentences() -> tuple[list[list[str]], NDArray[np.int64]]:
    folder = Path(os.environ["KSUBSET_DATA"]) / "text" / "sentiment_labelled_sentences"
    lines = [
        line.rsplit("\t", 1)
        for name in ("imdb", "amazon_cells", "yelp")
        for line in (folder / f"{name}_labelled.txt").read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    return [re.findall(r"[a-z']+", text.lower()) for text, _ in lines], np.array([int(label) for _, label in lines])


def sentence_tokens(seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], list[str]]:
    """Tokens and labels to train and test on, and words by token: 0 fills up, 1 is any rare word."""
    words, labels = read_sentences()
    train, test = train_test_split(np.arange(len(words)), test_size=600, stratify=labels, random_state=seed)
    counts: dict[str, int] = {}
    for row in train.tolist():
        for word in words[row]:
            counts[word] = counts.get(word, 0) + 1
    known = ["", "?", *sorted(word for word, count in counts.items() if count > 1)]
    number = {word: place for place, word in enumerate(known)}
    tokens = np.zeros((len(words), 30), dtype=np.int64)
    for row, sentence in enumerate(words):
        tokens[row, : len(sentence)] = [number.get(word, 1) for word in sentence[:30]]
    return tokens[train], labels[train], tokens[test], labels[test], known


@functools.lru_cache(maxsize=1)
def sentences(seed: int) -> Case:
    x, y, test, _, known = sentence_tokens(seed)
    with seeded(seed):
        network = train_network(Reader(len(known)), torch.from_numpy(x), torch.from_numpy(y), 300)
    return Case(network, x, test, 3, {"output": "logits", "padding": 0})


@functools.lru_cache(maxsize=1)
def cells(seed: int) -> Case:
    """A forest on the breast-cancer data of scikit-learn."""
    x, y = load_breast_cancer(return_X_y=True)
    train, test, labels, _ = train_test_split(x, y, test_size=0.25, stratify=y, random_state=seed)
    forest = RandomForestClassifier(100, random_state=seed).fit(train, labels)
    return Case(forest.predict_proba, train, test, 3, {})


CASES: dict[str, Callable[[int], Case]] = {"digits": digits, "sentences": sentences, "cells": cells}


def run_case(name: str, method: str, seed: int) -> dict[str, float]:
    case, calls = CASES[name](seed), [0]

    def model(rows: NDArray[Any]) -> NDArray[Any]:
        calls[0] += len(rows)
        if not isinstance(case.model, nn.Module):
            return np.asarray(case.model(rows))
        with torch.no_grad():
            return case.model(torch.from_numpy(rows)).softmax(-1).numpy()

    started, settings = time.process_time(), {**case.settings, "device": "cpu", "random_state": seed}
    test = case.test[:FEW] if method in PEERS else case.test
    steps = {"steps": 1, "surrogate_steps": 1}
    if "surrogate" not in method and method in (*PEERS, "random"):
        explainer = SubsetExplainer(case.model, case.k, **settings, **steps).fit(case.train)
        if method == "random":
            masks = top(np.random.default_rng(seed).random((len(test), explainer.explain(test[:1]).mask.shape[1]))
                        - ~present(explainer, test), case.k)  # fmt: skip
        else:
            masks = np.zeros((len(test), explainer.explain(test[:1]).mask.shape[1]), dtype=bool)
            for place in range(len(test)):
                masks[place] = peer_mask(method, explainer, model, test[place], masks.shape[1], case.k, seed)
    else:
        asked = "surrogate" in method
        if name == "cells" and not asked:  # as many calls as of LIME and SHAP
            settings |= {"steps": len(case.test) * PERTURBED // 400, "batch_size": 100}
        settings["output"] = "probabilities" if asked or name == "cells" else settings["output"]
        explainer = SubsetExplainer(
            model if asked or name == "cells" else case.model, case.k, surrogate=asked,
            gradient_estimator=ESTIMATORS[method.partition(",")[0]], **settings,
        ).fit(case.train)  # fmt: skip
        if isinstance(case.model, nn.Module) and not asked:
            calls[0] = len(case.train) + explainer.steps * explainer.batch_size * explainer.num_samples
        masks = explainer.explain(test).mask
    used = calls[0]
    return {
        "post-hoc accuracy": posthoc_accuracy(model(test), model(explainer.fill(test, masks))),
        "model calls": used,
        "seconds": time.process_time() - started,
    }


def present(explainer: SubsetExplainer, rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Items that rows have."""
    return rows != 0 if explainer.padding == 0 else np.ones((len(rows), 1), dtype=bool)


def peer_mask(
    method: str, explainer: SubsetExplainer, model: Callable[[NDArray[Any]], NDArray[Any]], row: NDArray[Any],
    num_items: int, k: int, seed: int,
) -> NDArray[np.bool_]:  # fmt: skip
    """The k items of a row that speak most for the class that the model names, by LIME or SHAP on masks."""
    mask = np.zeros((1, num_items), dtype=bool)
    items = np.flatnonzero(np.broadcast_to(present(explainer, row[None]), mask.shape)[0])
    if len(items) <= k:
        mask[0, items] = True
        return mask[0]
    likeliest = int(model(row[None]).argmax())

    def answer(shown: NDArray[Any]) -> NDArray[Any]:
        masks = np.zeros((len(shown), mask.shape[1]), dtype=bool)
        masks[:, items] = shown > 0
        return model(explainer.fill(row[None].repeat(len(shown), 0), masks))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "LIME":
            from lime.lime_base import LimeBase

            shown = np.random.default_rng(seed).integers(0, 2, (PERTURBED, len(items)))
            shown[0] = 1
            # Cosine distances, and the package's kernel for images and texts.
            far = 1 - shown.sum(1) / np.sqrt(np.maximum(shown.sum(1), 1) * len(items))
            base = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 0.25**2)), random_state=seed)
            found = base.explain_instance_with_data(shown, answer(shown), far, likeliest, len(items))[1]
            effects = np.zeros(len(items))
            for place, effect in found:
                effects[place] = effect
        else:
            import shap

            np.random.seed(seed)  # noqa: NPY002 - the peer's own generator
            kernel = shap.KernelExplainer(answer, np.zeros((1, len(items))))
            effects = np.asarray(kernel.shap_values(np.ones((1, len(items))), nsamples=PERTURBED, silent=True))
            effects = effects[0, :, likeliest]
    mask[0, items[np.argsort(-effects, kind="stable")[:k]]] = True
    return mask[0]


SHOWN: dict[str, Any] = {"device": "cpu", "random_state": 0}


def draw_digits() -> Figure:
    case = digits(0)
    explainer = SubsetExplainer(case.model, case.k, surrogate=False, steps=200, **case.settings, **SHOWN)
    explanation = explainer.fit(case.train).explain(case.test[:8])
    with torch.no_grad():
        said = case.model(torch.from_numpy(case.test[:8])).argmax(1)
    return plot_images(case.test[:8], explanation.columns, [f"says {'8' if eight else '3'}" for eight in said.tolist()])


def draw_words() -> Figure:
    case, known = sentences(0), sentence_tokens(0)[-1]
    explainer = SubsetExplainer(
        case.model, case.k, surrogate=False, steps=200, batch_size=100, **case.settings, **SHOWN
    )
    explanation = explainer.fit(case.train).explain(case.test[:12])
    words = [[known[token] for token in row if token] for row in case.test[:12].tolist()]
    return plot_text(words, explanation.inclusion, explanation.mask)


def draw_cells() -> Figure:
    case, names = cells(0), load_breast_cancer().feature_names
    explanation = SubsetExplainer(case.model, case.k, steps=400, **SHOWN).fit(case.train).explain(case.test[:1])
    order = np.argsort(-explanation.inclusion[0])[:12]
    return plot_inclusion(explanation.inclusion[0][order], explanation.mask[0][order], names[order].tolist())


FIGURES: dict[str, Callable[[], Figure]] = {"digits": draw_digits, "words": draw_words, "cells": draw_cells}


@dataclass(frozen=True)
class Row:
    """What is explained, how it is measured, and by which methods."""

    run: Callable[[str, str, int], dict[str, float]]
    methods: Sequence[str]


ROWS: dict[str, Row] = {name: Row(run_synthetic, (*ESTIMATORS, *PEERS)) for name in SYNTHETIC}
ROWS["digits"] = Row(run_case, ("LeaveOneOut", "SIMPLE", "LeaveOneOut, surrogate", *PEERS, "random"))
ROWS["sentences"] = Row(run_case, ("LeaveOneOut", "LeaveOneOut, surrogate", "SIMPLE, surrogate", *PEERS, "random"))
ROWS["cells"] = Row(run_case, ("LeaveOneOut", "LeaveOneOut, surrogate", *PEERS, "random"))


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
    digits = 0 if column == "model calls" else 1 if column == "seconds" else 3
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 and column != "seconds" else ""
    return f"{np.mean(values):,.{digits}f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figures", type=Path, help="a folder; draws those of the page that it lacks")
    arguments = parser.parse_args()

    def known() -> dict[str, Any]:
        return json.loads(arguments.results.read_text()) if arguments.results.exists() else {}

    if arguments.figures:
        for name, draw in FIGURES.items():
            if not (path := arguments.figures / f"explain-{name}.png").exists():
                draw().savefig(path, dpi=110)
        return
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
