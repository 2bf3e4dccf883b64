"""Seconds per epoch of the paper's experiments, and of the same written plainly, side by side.

Usage: python benchmarks/training.py > benchmarks/results/training-cpu.md
       python benchmarks/training.py reconstruction > benchmarks/results/training-reconstruction-cpu.md

An epoch of reconstruction is one of 4,096 images, a tenth of the paper's. Plain is what a user would write: the images
times the mask, in float32, batches from a DataLoader, torch's own layers, with the same estimators. The epochs take
turns, so that a machine that slows down slows all of them.
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

DATASET, ROUNDS, RECONSTRUCTED = "fashion-mnist", 3, 4_096
PRINTED = ("gs", "stgs", "sfess", "sfess-v")


def ours(data: datasets.DataSplit, config: RunConfig) -> Callable[[], object]:
    """An epoch of the runner, its validation included."""
    training = Training(config, data, device())
    return functools.partial(training.epoch, lambda: False)


class Classifier(nn.Sequential):
    """The paper's, n-256-256-256-10."""

    def __init__(self, n: int, num_classes: int) -> None:
        layers: list[nn.Module] = []
        for width in (n, 256, 256):
            layers += [nn.Linear(width, 256), nn.ReLU(), nn.Dropout(0.2)]
        super().__init__(*layers, nn.Linear(256, num_classes))

    def loss(self, images: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        output = self(mask * images)
        return functional.cross_entropy(output.mT, labels.expand(len(output), -1), reduction="none").mean(-1)


class Decoder(nn.Sequential):
    """The paper's: two linear layers, and three convolutions."""

    def __init__(self, side: int) -> None:
        n = side**2
        super().__init__(
            nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n), nn.Unflatten(1, (1, side, side)),
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 1, 3, padding=1), nn.Flatten(),
        )  # fmt: skip

    def loss(self, images: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        output = self((mask * images).flatten(0, 1)).view(len(mask), *images.shape)
        targets = images.expand(output.shape)
        return functional.binary_cross_entropy_with_logits(output, targets, reduction="none").mean((-1, -2))


def plain(data: datasets.DataSplit, config: RunConfig) -> Callable[[], object]:
    """The same epoch as a plain program."""
    n = data.side**2
    network = (Classifier(n, data.num_classes) if config.task == "classification" else Decoder(data.side)).to(device())
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
            batch = images.to(device()), labels.to(device())

            def loss_of(z: Tensor, batch: tuple[Tensor, Tensor] = batch) -> Tensor:
                return network.loss(*batch, z[:, None])

            loss = expectation(loss_of, KSubset(config.k, logits), estimator, config.samples)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            mask = KSubset(config.k, logits).mode[None, None]
            return float(sum(network.loss(x.to(device()), y.to(device()), mask) * len(x) for x, y in validation))

    return epoch


def main() -> None:
    task = sys.argv[1] if len(sys.argv) > 1 else "classification"
    data = datasets.load(DATASET)
    if task == "reconstruction":
        data = dataclasses.replace(
            data,
            train_images=data.train_images[:RECONSTRUCTED],
            train_labels=data.train_labels[:RECONSTRUCTED],
            validation_images=data.validation_images[: RECONSTRUCTED // 4],
            validation_labels=data.validation_labels[: RECONSTRUCTED // 4],
        )
    epochs: dict[tuple[str, str], Callable[[], object]] = {}
    for method in methods.METHODS:
        config = runner.resolve(RunConfig(task=task, dataset=DATASET, method=method))
        epochs[method, "ours"] = ours(data, config)
        if method in PRINTED:
            epochs[method, "ours, float32"] = ours(data, dataclasses.replace(config, precision="float32"))
        if method in PRINTED:
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
    print(f"{len(data.train_images):,} images, {len(data.validation_images):,} more to validate. ", end="")
    print(f"Median of {ROUNDS} epochs, which take turns; in brackets the range.\n")
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
