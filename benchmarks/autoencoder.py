"""What the settings of the subset autoencoder were chosen from: the bound on validation data, of all candidates.

Usage: python benchmarks/autoencoder.py FOLDER > benchmarks/results/autoencoder-cpu.md

Trains every candidate on scikit-learn's digits, with a seed that no result uses, and prints the evidence lower bound on
validation images after the last epoch; test data are not looked at. Records go into FOLDER; what is finished there is
not trained again.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

from timing import machine

from ksubset.experiments import protocols, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.sweep import sweep

SEED, EPOCHS = 100, 50
# The same for all methods.
COMMON = {"batch_size": 100, "selector_beta1": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "samples": 4}
RATES = [{"selector_lr": rate, "network_lr": rate} for rate in (3e-3, 1e-2)]
RELAXED = [*({**rate, "temperature_end": 0.1} for rate in RATES), {**RATES[-1], "temperature_end": 1.0}]
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    **dict.fromkeys(("sfess-v", "sfess", "hybrid", "simple", "imle", "ncpss"), RATES),
    **dict.fromkeys(("gs", "stgs"), RELAXED),
}


def config(method: str, candidate: dict[str, Any]) -> RunConfig:
    """Settings of a run."""
    values = {**COMMON, **candidate, "method": method, "seed": SEED, "epochs": EPOCHS}
    return runner.resolve(RunConfig(task="autoencoder", dataset="digits", **values))


def main() -> None:
    every = {method: [config(method, candidate) for candidate in some] for method, some in CANDIDATES.items()}
    outcome = sweep(
        list(itertools.chain(*every.values())), Path(sys.argv[1]), say=lambda line: print(line, file=sys.stderr)
    )
    records = {record.config: record for record in outcome.records}
    common = ", ".join(f"{name} = {value}" for name, value in COMMON.items())
    print(f"# Candidates for the subset autoencoder, validation data of the digits\n\n{machine()}\n")
    print(f"All have {common} and {EPOCHS} epochs. The metric is the ELBO in nats; bold is what `best.toml` has.\n")
    print("| method | learning rate | last temperature | validation |\n|" + " --- |" * 4)
    for method, configs in every.items():
        for one, candidate in zip(configs, CANDIDATES[method], strict=True):
            if one not in records:  # it failed, and the sweep has said so
                continue
            value = f"{records[one].history[-1]['validation']['elbo']:.2f}"
            chosen = protocols.find("best", "autoencoder", "digits", method) == {**COMMON, **candidate}
            temperature = candidate.get("temperature_end", "")
            print(f"| {method} | {candidate['selector_lr']} | {temperature} | {f'**{value}**' if chosen else value} |")


if __name__ == "__main__":
    main()
