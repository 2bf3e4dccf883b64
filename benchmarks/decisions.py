"""What the numbered decisions of docs/reproduction.md are worth: one is made otherwise, all else is as it was.

Usage: python benchmarks/decisions.py RESULTS.json [--seeds S] [--table]

Classification on Fashion-MNIST under the protocol paper, shortened: a fifth of its epochs, at five times its rates.
Runs what RESULTS.json does not have yet; it is written after each run, and goes on from what is there. `--table` prints
what it has.
"""

import argparse
import json
import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from timing import device, machine, resumed
from torch import Generator, Tensor, nn

from ksubset import KSubset, LeaveOneOut
from ksubset.distributions import SubsetDistribution
from ksubset.estimators import Estimator
from ksubset.experiments import datasets, methods, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.training import Training
from ksubset.nn import FeatureGate
from ksubset.numerics import top_k
from ksubset.training import JointTraining, seeded

DATASET, EPOCHS, FASTER, DRAWN = "fashion-mnist", 100, 5, 20
BOUND = 1e-4
NOTES = f"""\
Fashion-MNIST, protocol paper, {EPOCHS} epochs at {FASTER} times its learning rates. Test accuracy of the last weights
under the likeliest subset; and what else could be meant: under sampled subsets (mean of {DRAWN}), of the weights of the
epoch that validated best, and of the last 10,000 training images, which no run sees, instead of the test images.
"""


class Probabilities(FeatureGate):
    """Trains the probabilities of the independent coin flips, and keeps them from 0 and 1, instead of their logits."""

    def __init__(self, gate: FeatureGate) -> None:
        super().__init__(len(gate.logits), gate.k, validate_args=False)
        self.logits = nn.Parameter(gate.logits.detach().sigmoid())

    def forward(self) -> KSubset:
        with torch.no_grad():
            self.logits.clamp_(BOUND, 1 - BOUND)  # a projection: a clamp within the graph would have no way back
        return KSubset(self.k, self.logits.logit(), validate_args=False)


class GumbelLeaveOneOut(LeaveOneOut):
    """Samples by Gumbel top-k, which has another distribution than the one whose score is taken."""

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        exponential = torch.empty(num_samples, *dist.logits.shape).exponential_(generator=generator)
        return top_k(dist.logits.detach() - exponential.log(), dist.k)


class FourierLeaveOneOut(GumbelLeaveOneOut):
    """As above, and the normaliser is a discrete Fourier transform in single precision, clamped where it is noise."""

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        logits, n = dist.logits.float(), dist.logits.shape[-1]
        theta = logits.sigmoid()
        angles = 2 * math.pi * torch.arange(n + 1) / (n + 1)
        roots = torch.polar(torch.ones(n + 1), angles)
        products = (theta * roots[:, None] + (1 - theta)).prod(-1)
        epsilon = torch.finfo(torch.float32).eps
        size_probability = (products * roots ** -int(dist.k)).mean().real.clamp(epsilon, 1 - epsilon)
        independent = (sample * logits - nn.functional.softplus(logits)).sum(-1)
        log_prob = independent - size_probability.log()
        advantage = (loss - loss.mean(0)).detach() * (len(loss) / (len(loss) - 1))
        return loss + advantage * (log_prob - log_prob.detach())


def standardised(task: Any) -> None:
    images, labels = task.train
    mean, deviation = images.mean(), images.std()
    task.train = (images - mean) / deviation, labels
    task.held_out = {part: ((x - mean) / deviation, y) for part, (x, y) in task.held_out.items()}


def last_images(task: Any) -> None:
    """Train on the last 40,000 of the 60,000 images, and validate on the 10,000 before them."""
    images, labels = all_training()
    task.train = images[20_000:], labels[20_000:]
    task.held_out["validation"] = images[10_000:20_000], labels[10_000:20_000]
    del task.held_out["unused"]


def all_training() -> tuple[Tensor, Tensor]:
    """The 60,000 official training images, of which no run sees the last 10,000."""
    source: Any = datasets.find(DATASET).parts
    folder = Path(os.environ["KSUBSET_DATA"]) if "KSUBSET_DATA" in os.environ else None
    train, validation, _ = datasets.load_idx(replace(source.args[0], validation=20_000), folder)
    return torch.cat([train[0], validation[0]]), torch.cat([train[1], validation[1]])


def probabilities(task: Any) -> None:
    task.selector = Probabilities(task.selector)


def without_rest(task: Any) -> None:
    task.num_examples -= task.num_examples % task.config.batch_size


def logits_of_k_over_n(task: Any) -> None:
    with torch.no_grad():
        task.selector.logits.fill_(task.k / len(task.selector.logits))


@dataclass(frozen=True)
class Variant:
    """A decision made otherwise, by the settings of the run, in its task, or in its estimator."""

    settings: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Any], None] = lambda _: None
    estimator: type[Estimator] | None = None


AS_IT_IS = "as it is"
VARIANTS = {
    "SFESS-V": {
        AS_IT_IS: Variant(),
        "22: float32 throughout": Variant({"precision": "float32"}),
        "10: probabilities are trained, not their logits": Variant(change=probabilities),
        "3: the last, smaller batch is left out": Variant(change=without_rest),
        "1: the last 40,000 images to train": Variant(change=last_images),
        "2: grey levels standardised": Variant(change=standardised),
        "12: Gumbel top-k samples": Variant(estimator=GumbelLeaveOneOut),
        "12: and a normaliser in single precision, clamped": Variant(estimator=FourierLeaveOneOut),
        "10, 12: and logits that start at k/n": Variant(change=logits_of_k_over_n, estimator=FourierLeaveOneOut),
    },
    "GS": {
        AS_IT_IS: Variant(),
        "22: float32 throughout": Variant({"precision": "float32"}),
        "10: probabilities are trained, not their logits": Variant(change=probabilities),
        "1: the last 40,000 images to train": Variant(change=last_images),
        "2: grey levels standardised": Variant(change=standardised),
    },
    "SFESS": {AS_IT_IS: Variant(), "10: probabilities are trained, not their logits": Variant(change=probabilities)},
}


def run(row: str, seed: int) -> dict[str, Any]:
    method, _, name = row.partition(", ")
    variant, plain = VARIANTS[method][name], RunConfig()
    config = runner.resolve(
        RunConfig(
            dataset=DATASET, method=method.lower(), seed=seed, epochs=EPOCHS,
            selector_lr=FASTER * plain.selector_lr, network_lr=FASTER * plain.network_lr, **variant.settings,
        )
    )  # fmt: skip
    with seeded(seed, device()):
        training = Training(config, datasets.load(DATASET), device())
        task: Any = training.task
        task.held_out["unused"] = tuple(part[50_000:] for part in all_training())
        variant.change(task)
        estimator = methods.find(config.method).prepare(config) if variant.estimator is None else variant.estimator()
        plan = replace(training.joint.plan, steps_per_round=-(-task.num_examples // config.batch_size))
        training.joint = JointTraining(task.selector, task.network, estimator, plan)
        validated, best = 0.0, 0.0
        for _ in range(EPOCHS):
            entry = training.epoch(lambda: False)
            assert entry is not None
            if entry["validation"]["accuracy"] > validated:
                validated, best = entry["validation"]["accuracy"], task.evaluate("test")["accuracy"]
        result = {"likeliest": task.evaluate("test")["accuracy"], "best": best}
        if "unused" in task.held_out:
            result["unused"] = task.evaluate("unused")["accuracy"]
        result["sampled"] = sampled(task)
        return result


def sampled(task: Any) -> float:
    """The test accuracy under subsets that are sampled, one at a time for all images."""
    accuracies = []
    for _ in range(DRAWN):
        subset = task.selector().sample()[None, None]
        task.mode = lambda subset=subset: subset
        accuracies.append(task.evaluate("test")["accuracy"])
    return statistics.mean(accuracies)


def table(results: dict[str, dict[str, float]]) -> str:
    lines = [
        "| method | made otherwise | seeds | likeliest subset | less as it is | sampled | best epoch | unused |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for method, variants in VARIANTS.items():
        for name in variants:
            seeds = [key.rpartition("/")[2] for key in results if key.rpartition("/")[0] == f"{method}, {name}"]
            found = [results[f"{method}, {name}/{seed}"] for seed in seeds]
            if not found:
                continue
            plain = [results[f"{method}, {AS_IT_IS}/{seed}"] for seed in seeds]
            less = statistics.mean(a["likeliest"] - b["likeliest"] for a, b in zip(found, plain, strict=True))
            cells = [
                f"{statistics.mean(one[key] for one in found):.3f}" if key in found[0] else ""
                for key in ("likeliest", "sampled", "best", "unused")
            ]
            cells.insert(1, "" if name == AS_IT_IS else f"{less:+.3f}")
            lines.append(f"| {method} | {name} | {len(seeds)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        print(f"# What the numbered decisions are worth\n\n{machine()}\n\n{NOTES}")
        print(table(json.loads(arguments.results.read_text())))
        return
    rows = [f"{method}, {name}" for method, variants in VARIANTS.items() for name in variants]
    resumed(arguments.results, ((row, seed) for seed in range(arguments.seeds) for row in rows), run)


if __name__ == "__main__":
    main()
