"""What the settings of the protocol "best" were chosen from: validation metrics of all candidates.

Usage: python benchmarks/tuning.py FOLDER [METHOD ...] > benchmarks/results/tuning-cpu.md
       python benchmarks/tuning.py FOLDER base > benchmarks/results/tuning-base-cpu.md

Trains every candidate on Fashion-MNIST, with a seed that no result uses, and prints the validation metric after the
last epoch; test data are not looked at. Records go into FOLDER; what is finished there is not trained again.

The first form tries as many candidates for each method of classification, or for some; the last of them is the end of
the temperature where a method has one, and the first size of the subsets where not. What they have in common was found
before by the second form, mostly with SFESS-V; it has the candidates of reconstruction too.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import machine

from ksubset.experiments import protocols, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.methods import METHODS
from ksubset.experiments.records import Record
from ksubset.experiments.sweep import sweep

SEED = 100
METRIC = {"classification": "accuracy", "reconstruction": "psnr"}
ALL = {"selector_beta1": 0.9, "network_lr": 2e-3, "lr_schedule": "cosine"}
EXAMPLE = {**ALL, "subsets_per": "example"}
SHARED = {**ALL, "batch_size": 256, "selector_lr": 0.1, "tuning": 0.4}
ANNEALED = {**SHARED, "subsets_per": "example", "k_start": 100}

Candidates = dict[tuple[str, str], list[dict[str, Any]]]

BASE_EPOCHS = {"classification": 50, "reconstruction": 20}
BASE: Candidates = {
    ("classification", "sfess-v"): [
        {**EXAMPLE, "selector_lr": 0.05},
        {**EXAMPLE, "selector_lr": 0.05, "tuning": 0.2},
        {**EXAMPLE, "selector_lr": 0.02, "tuning": 0.2},
        {**EXAMPLE, "selector_lr": 0.1, "tuning": 0.2},
        {**EXAMPLE, "selector_lr": 0.05, "tuning": 0.2, "network_lr": 1e-3},
        {**EXAMPLE, "selector_lr": 0.05, "tuning": 0.2, "batch_size": 256},
        {**EXAMPLE, "selector_lr": 0.05, "tuning": 0.2, "batch_size": 128},
        {**EXAMPLE, "selector_lr": 0.05, "tuning": 0.4, "batch_size": 256},
        {**EXAMPLE, "selector_lr": 0.1, "tuning": 0.2, "batch_size": 256},
        {**EXAMPLE, "selector_lr": 0.1, "tuning": 0.4, "batch_size": 256},
        ANNEALED,
        {**ANNEALED, "k_start": 200},
        {**ANNEALED, "samples": 2},
        {**ANNEALED, "samples": 2, "k_start": 200, "k_until": 0.6},
    ],
    ("classification", "simple"): [ANNEALED, {**ANNEALED, "selector_lr": 0.03}],
    ("classification", "reinmax"): [ANNEALED, {**ANNEALED, "selector_lr": 0.03}],
    ("classification", "stg"): [SHARED, {**SHARED, "k_start": 100}],
    ("classification", "dps"): [SHARED, {**SHARED, "temperature_end": 0.5}],
    ("classification", "concrete"): [
        {**SHARED, "temperature_start": 10.0},
        {**SHARED, "temperature_start": 10.0, "selector_lr": 0.03},
    ],
    ("reconstruction", "sfess-v"): [
        {**ANNEALED, "samples": 2},
        {**ANNEALED, "samples": 2, "network_lr": 1e-3},
    ],
}

EPOCHS = {"classification": 25}
# The finest sharing of subsets that costs less than six seconds an epoch on one core.
EACH = ("sfess", "sfess-v", "simple", "hybrid-pathwise", "reinmax", "stg")
ALONE = {
    "imle": {"subsets_per": "batch"},
    "concrete": {"subsets_per": "batch", "k_start": None, "temperature_start": 10.0},
}
COOLED = ("gs", "stgs", "dps", "concrete")
CANDIDATES: Candidates = {
    ("classification", method): [
        {
            **ANNEALED,
            "network_lr": 5e-3,
            "subsets_per": "example" if method in EACH else "group",
            **ALONE.get(method, {}),
            **knobs,
        }
        for knobs in (
            {},
            {"selector_lr": 0.03},
            {"temperature_end": 0.1} if method in COOLED else {"k_start": 200},
        )
    ]
    for method in METHODS
}


def configs(task: str, method: str, candidates: list[dict[str, Any]], epochs: int) -> list[RunConfig]:
    return [
        runner.resolve(
            RunConfig(task=task, dataset="fashion-mnist", method=method, seed=SEED, epochs=epochs, **candidate)
        )
        for candidate in candidates
    ]


def rows(task: str, method: str, candidates: list[dict[str, Any]], found: list[Record | None]) -> Iterator[str]:
    for record, candidate in zip(found, candidates, strict=True):
        if record is None:  # it failed, and the sweep has said so
            continue
        last = record.history[-1]
        evaluations = sum(entry["evaluations"] for entry in record.history)
        settings = {name: value for name, value in candidate.items() if value is not None}
        chosen = protocols.find("best", task, "fashion-mnist", method) == settings
        knobs = ", ".join(f"{name} = {value}" for name, value in candidate.items() if ALL.get(name) != value)
        value = f"{last['validation'][METRIC[task]]:.4f}"
        yield f"| {task} | {method} | {knobs} | {f'**{value}**' if chosen else value} | {evaluations / 1e6:.1f} |"


def main() -> None:
    base = sys.argv[2:] == ["base"]
    candidates, epochs = (BASE, BASE_EPOCHS) if base else (CANDIDATES, EPOCHS)
    if sys.argv[2:] and not base:
        candidates = {key: value for key, value in candidates.items() if key[1] in sys.argv[2:]}
    every = {key: configs(*key, value, epochs[key[0]]) for key, value in candidates.items()}
    runs = [config for those in every.values() for config in those]
    outcome = sweep(runs, Path(sys.argv[1]), jobs=1, say=lambda line: print(line, file=sys.stderr))
    records = {record.config: record for record in outcome.records}
    print(f"# Candidates for the protocol best, validation data of Fashion-MNIST, k = 30\n\n{machine()}\n")
    common = ", ".join(f"{name} = {value}" for name, value in ALL.items())
    print(f"All have {common} unless they say otherwise, and the paper's values for the rest.")
    print(f"Epochs: {', '.join(f'{number} of {task}' for task, number in epochs.items())}.", end=" ")
    print("The metric is accuracy for classification and PSNR (dB)\nfor reconstruction; bold is what `best.toml` has.")
    print("Evaluations are those of the network in training, in millions.\n")
    print("| task | method | knobs | validation | evaluations |\n|" + " --- |" * 5)
    for (task, method), those in every.items():
        print("\n".join(rows(task, method, candidates[task, method], [records.get(config) for config in those])))


if __name__ == "__main__":
    main()
