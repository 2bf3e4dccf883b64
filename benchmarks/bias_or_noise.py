"""Why SIMPLE ends on better pixels than SFESS-V: SIMPLE again with SFESS-V's noise, and each from the other's start.

Usage: python benchmarks/bias_or_noise.py RESULTS.json [--seeds S ...] [--table]

Classification on Fashion-MNIST under the protocol best, 50 epochs. Runs what RESULTS.json does not have yet; it is
written after each run, and goes on from what is there. `--table` prints what it has.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from timing import device, machine, resumed
from torch import Tensor

from ksubset import SIMPLE, LeaveOneOut, ScoreFunction
from ksubset.distributions import SubsetDistribution
from ksubset.estimators import Estimator
from ksubset.experiments import datasets, protocols, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.training import Training
from ksubset.training import JointTraining, seeded

DATASET, EPOCHS = "fashion-mnist", 50
NOTES = f"""\
Fashion-MNIST, protocol best, {EPOCHS} epochs. The noise is SFESS-V's estimate with each of its terms, one for each
subset of each image, multiplied by +1 or -1 at random: its mean is 0. A term is (f - baseline) (z - pi), as the signs
leave nothing to cancel pi. Where f does not depend on z the noise has SFESS-V's variance exactly. A tenth of it has a
hundredth of the variance. The annealing starts from subsets of 200 pixels for SIMPLE and of 100 for SFESS-V, as tuned
for each, unless the row says otherwise.
"""


class NoisySIMPLE(SIMPLE):
    """SIMPLE's gradient, and so many times as much noise of mean 0 as the notes say."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        fixed = loss.detach()
        advantage = (fixed - fixed.mean(0)) * (len(fixed) / (len(fixed) - 1))
        noise = self.scale * advantage * (2 * torch.randint_like(fixed, 2) - 1)
        return loss + ScoreFunction().surrogate(noise, sample.detach(), dist) - noise


ROWS: dict[str, tuple[str, Estimator]] = {
    "SIMPLE": ("simple", SIMPLE()),
    "SIMPLE from 100": ("sfess-v", SIMPLE()),
    "SIMPLE and a tenth of the noise of SFESS-V": ("simple", NoisySIMPLE(0.1)),
    "SIMPLE and the noise of SFESS-V": ("simple", NoisySIMPLE(1.0)),
    "SFESS-V from 200": ("simple", LeaveOneOut()),
    "SFESS-V": ("sfess-v", LeaveOneOut()),
}


def run(row: str, seed: int) -> dict[str, Any]:
    method, estimator = ROWS[row]
    settings = protocols.find("best", "classification", DATASET, method)
    config = runner.resolve(RunConfig(dataset=DATASET, method=method, seed=seed, epochs=EPOCHS, **settings))
    with seeded(seed, device()):
        training = Training(config, datasets.load(DATASET), device())
        task, plan = training.task, training.joint.plan
        training.joint = JointTraining(task.selector, task.network, estimator, plan)
        for _ in range(EPOCHS):
            entry = training.epoch(lambda: False)
        assert entry is not None
        return {"validation": entry["validation"]["accuracy"], "test": task.evaluate("test")["accuracy"]}


def table(results: dict[str, dict[str, float]]) -> str:
    lines = ["| gradient | seeds | validation accuracy | test accuracy |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        seeds = [key.rpartition("/")[2] for key in results if key.rpartition("/")[0] == row]
        if seeds:
            found = [results[f"{row}/{seed}"] for seed in seeds]
            means = [f"{statistics.mean(one[part] for one in found):.4f}" for part in ("validation", "test")]
            lines.append(f"| {row} | {', '.join(seeds)} | {' | '.join(means)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        print(f"# Bias or noise\n\n{machine()}\n\n{NOTES}")
        print(table(json.loads(arguments.results.read_text())))
        return
    resumed(arguments.results, ((row, seed) for seed in arguments.seeds for row in ROWS), run)


if __name__ == "__main__":
    main()
