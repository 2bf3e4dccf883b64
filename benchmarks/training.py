"""Seconds per epoch of the paper's experiments, and of classification written plainly, side by side.

Usage: python benchmarks/training.py [TASK] > benchmarks/results/training-cpu.md

TASK is classification (the default) or reconstruction. Plain is what a user would write: the images times the mask, in
float32, batches from a DataLoader, torch's own layers, with the same estimators. The epochs take turns, so that a
machine that slows down slows all of them.
"""

import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable

import torch
from timing import device, machine
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ksubset import KSubset, expectation
from ksubset.experiments import datasets, methods, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.training import Training

DATASET, ROUNDS = "fashion-mnist", 3
PRINTED = ("gs", "stgs", "sfess", "sfess-v")


def ours(data: datasets.DataSplit, config: RunConfig) -> Callable[[], object]:
    """An epoch of the runner, its validation included."""
    training = Training(config, data, device())
    return functools.partial(training.epoch, lambda: False)


def plain(data: datasets.DataSplit, config: RunConfig) -> Callable[[], object]:
    """The same epoch as a plain program."""
    n = data.side**2
    layers: list[nn.Module] = []
    for width in (n, 256, 256):
        layers += [nn.Linear(width, 256), nn.ReLU(), nn.Dropout(0.2)]
    network = nn.Sequential(*layers, nn.Linear(256, data.num_classes)).to(device())
    logits = torch.full((n,), config.k / n).logit().to(device()).requires_grad_()
    optimizer = torch.optim.Adam(
        [
            {"params": [logits], "lr": config.selector_lr, "betas": (config.selector_beta1, 0.999)},
            {"params": network.parameters(), "lr": config.network_lr, "weight_decay": config.weight_decay},
        ]
    )
    estimator = methods.find(config.method).prepare(config)(0.0)
    train = DataLoader(TensorDataset(data.train_images, data.train_labels), config.batch_size, shuffle=True)
    validation = DataLoader(TensorDataset(data.validation_images, data.validation_labels), config.batch_size)

    def epoch() -> float:
        network.train()
        for images, labels in train:
            x, y = images.to(device()), labels.to(device())

            def loss_of(z: Tensor, x: Tensor = x, y: Tensor = y) -> Tensor:
                output = network(z[:, None] * x)
                return functional.cross_entropy(output.mT, y.expand(len(z), -1), reduction="none").mean(-1)

            loss = expectation(loss_of, KSubset(config.k, logits), estimator, config.samples)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            mask = KSubset(config.k, logits).mode
            hits = [(network(mask * x.to(device())).argmax(-1) == y.to(device())).sum() for x, y in validation]
        return float(sum(hits)) / len(data.validation_labels)

    return epoch


def main() -> None:
    task = sys.argv[1] if len(sys.argv) > 1 else "classification"
    data = datasets.load(DATASET)
    epochs: dict[tuple[str, str], Callable[[], object]] = {}
    for method in methods.METHODS:
        config = runner.resolve(RunConfig(task=task, dataset=DATASET, method=method))
        epochs[method, "ours"] = ours(data, config)
        if method in PRINTED:
            epochs[method, "ours, float32"] = ours(data, dataclasses.replace(config, precision="float32"))
        if method in PRINTED and task == "classification":
            epochs[method, "plain"] = plain(data, config)
    seconds: dict[tuple[str, str], list[float]] = {name: [] for name in epochs}
    for turn in range(ROUNDS + 1):
        for name, epoch in epochs.items():
            start = time.perf_counter()
            epoch()
            if device().type == "cuda":
                torch.cuda.synchronize()
            if turn > 0:  # the first one warms up
                seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"# Seconds per epoch, {task}, {data.label}, protocol paper\n\n{machine()}\n")
    print(f"Median of {ROUNDS} epochs (validation included), which take turns; in brackets the range.\n")
    kinds = list(dict.fromkeys(kind for _, kind in epochs))
    print(f"| method | {' | '.join(kinds)} | plain / ours |\n|{' --- |' * (len(kinds) + 2)}")
    for method in methods.METHODS:
        cells = []
        for kind in kinds:
            values = seconds.get((method, kind))
            cells.append(f"{median[method, kind]:.2f} ({min(values):.2f}-{max(values):.2f})" if values else "")
        ratio = f"{median[method, 'plain'] / median[method, 'ours']:.1f}" if (method, "plain") in median else ""
        print(f"| {methods.METHODS[method].label} | {' | '.join(cells)} | {ratio} |")
    print("\n| ratio | |\n| --- | --- |")
    for kind in kinds:
        ratio = median["gs", kind] / median["sfess-v", kind]
        print(f"| GS / SFESS-V, {kind} | {ratio:.2f} |")
    if "plain" in kinds:
        print(f"| GS, plain / SFESS-V, ours | {median['gs', 'plain'] / median['sfess-v', 'ours']:.2f} |")


if __name__ == "__main__":
    main()
