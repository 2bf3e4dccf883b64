"""What the settings of the protocol "best" were chosen from: validation metrics of all candidates.

Usage: python benchmarks/tuning.py FOLDER [JOBS] > benchmarks/results/tuning-cpu.md

Trains every candidate on Fashion-MNIST, with a seed that no result uses, and prints the validation metric after the
last epoch; test data are not looked at. Records go into FOLDER; what is finished there is not trained again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import machine

from ksubset.experiments import protocols, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record
from ksubset.experiments.sweep import sweep

SEED = 100
METRIC = {"classification": "accuracy", "reconstruction": "psnr"}
EPOCHS = {"classification": 50, "reconstruction": 20}
ALL = {"selector_beta1": 0.9, "network_lr": 2e-3, "lr_schedule": "cosine"}
EXAMPLE = {**ALL, "subsets_per": "example"}
ANNEALED = {**EXAMPLE, "batch_size": 256, "selector_lr": 0.1, "tuning": 0.4, "k_start": 100}
SHARED = {**ALL, "batch_size": 256, "selector_lr": 0.1, "tuning": 0.4}

# From coarse to fine for SFESS-V; the others start from what it led to. GS shares its subsets in a batch, as relaxed
# ones for each example take 50 seconds an epoch.
CANDIDATES: dict[tuple[str, str], list[dict[str, Any]]] = {
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
    ("classification", "gs"): [SHARED, {**SHARED, "selector_lr": 0.03}],
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


def configs(task: str, method: str) -> list[RunConfig]:
    return [
        runner.resolve(
            RunConfig(task=task, dataset="fashion-mnist", method=method, seed=SEED, epochs=EPOCHS[task], **candidate)
        )
        for candidate in CANDIDATES[task, method]
    ]


def rows(task: str, method: str, records: dict[RunConfig, Record]) -> Iterator[str]:
    for config, candidate in zip(configs(task, method), CANDIDATES[task, method], strict=True):
        if config not in records:  # it failed, and the sweep has said so
            continue
        last = records[config].history[-1]
        evaluations = sum(entry["evaluations"] for entry in records[config].history)
        chosen = protocols.find("best", task, "fashion-mnist", method) == candidate
        knobs = ", ".join(f"{name} = {value}" for name, value in candidate.items() if ALL.get(name) != value)
        value = f"{last['validation'][METRIC[task]]:.4f}"
        yield f"| {task} | {method} | {knobs} | {f'**{value}**' if chosen else value} | {evaluations / 1e6:.1f} |"


def main() -> None:
    folder, jobs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    every = [config for task, method in CANDIDATES for config in configs(task, method)]
    outcome = sweep(every, folder, jobs=jobs, say=lambda line: print(line, file=sys.stderr))
    records = {record.config: record for record in outcome.records}
    print(f"# Candidates for the protocol best, validation data of Fashion-MNIST, k = 30\n\n{machine()}\n")
    common = ", ".join(f"{name} = {value}" for name, value in ALL.items())
    print(f"All have {common} unless they say otherwise, and the paper's values for the rest.")
    print("The metric is accuracy for classification and PSNR (dB) for reconstruction; bold is what `best.toml` has.")
    print("Evaluations are those of the network in training, in millions.\n")
    print("| task | method | knobs | validation | evaluations |\n|" + " --- |" * 5)
    for task, method in CANDIDATES:
        print("\n".join(rows(task, method, records)))


if __name__ == "__main__":
    main()
