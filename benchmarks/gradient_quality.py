"""Bias and variance of each method's gradient during the training under the protocol best, on one batch.

Usage: python benchmarks/gradient_quality.py FILE > benchmarks/results/gradient-quality-cpu.md

A run of SFESS-V on Fashion-MNIST stops after some epochs, and there the gradient of the selector's logits is drawn many
times on the same images, by every method with its own sharing of the subsets, with dropout and rounding as in the
training. SFESS-V is unbiased, so its mean is the reference. FILE keeps what is finished, seed by seed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from timing import device, machine
from torch import Tensor

from ksubset import expectation
from ksubset._support.files import write
from ksubset.experiments import datasets, methods, protocols, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.training import Training
from ksubset.training import seeded

DATASET, EPOCHS = "fashion-mnist", 50
STOPS = (1, 5, 15, 30)
"""Epochs that are behind the training where it is measured; the last one has the size and temperature of the 30th."""
REFERENCE, SEEDS = "sfess-v", (0,)
DRAWS, REFERENCE_DRAWS = 80, 800
NOISE = 0.5
"""Squared noise of a mean, beside the squared reference, from which on the mean is not shown."""


def settings(method: str) -> RunConfig:
    best = protocols.find("best", "classification", DATASET, method)
    return runner.resolve(RunConfig(dataset=DATASET, method=method, epochs=EPOCHS, **best))


def draws(training: Training, method: str, number: int, epoch: int) -> Tensor:
    """Gradients `(number, n)` in float64 that a step after this epoch could have had."""
    config = settings(method)
    training.task.config = config  # how the subsets are shared
    batch = training.task.batch(torch.arange(config.batch_size), training.joint, lambda _: None)
    selecting = training.joint.selecting
    estimator = methods.find(method).prepare(config)(min(epoch, selecting - 1) / (selecting - 1))
    selector: Any = training.task.selector
    k, selector.k = selector.k, training.joint.size_at(min(epoch, selecting - 1))
    gradients = []
    for _ in range(number):
        dist = selector() if batch.rows is None else selector().expand((batch.rows,))
        loss = expectation(batch.losses, dist, estimator, config.samples).mean()
        gradients.append(torch.autograd.grad(loss, selector.logits)[0].double())
    selector.k = k
    return torch.stack(gradients)


def run(seed: int) -> dict[str, Any]:
    """Squared norms, products and variances, by epoch and method."""
    config = settings(REFERENCE)
    with seeded(seed, device()):
        training = Training(config, datasets.load(DATASET), device())
        results: dict[str, Any] = {}
        for epoch in range(1, max(STOPS) + 1):
            training.task.config = config
            training.epoch(lambda: False)
            if epoch not in STOPS:
                continue
            training.task.network.train()
            with seeded(epoch, device()):  # the training goes on as if nothing had been drawn
                reference = draws(training, REFERENCE, REFERENCE_DRAWS, epoch)
                results[str(epoch)] = {
                    name: compared(
                        reference if name == REFERENCE else draws(training, name, DRAWS, epoch),
                        # Means of the same draws would agree, so that the reference is compared with a half of itself.
                        reference,
                    )
                    for name, method in methods.METHODS.items()
                    if method.selector is None
                }
        return results


def compared(sample: Tensor, reference: Tensor) -> dict[str, float]:
    """Of a draw: variance; of the mean: relative bias and cosine, what the noise of both means adds taken out."""
    if sample is reference:
        reference, sample = sample[::2], sample[1::2]
    noise, reference_noise = (float(draw.var(0).sum()) for draw in (sample, reference))
    mean, true = sample.mean(0), reference.mean(0)
    signal = float(true @ true) - reference_noise / len(reference)
    square = float(mean @ mean) - noise / len(sample)
    error = float((mean - true).square().sum()) - noise / len(sample) - reference_noise / len(reference)
    return {"signal": signal, "square": square, "product": float(mean @ true), "error": error, "variance": noise}


def row(epoch: str, name: str, result: dict[str, float]) -> str:
    signal, square, variance = result["signal"], result["square"], result["variance"] / result["signal"]
    known = variance < NOISE * (REFERENCE_DRAWS / 2 if name == REFERENCE else DRAWS)
    bias = max(result["error"], 0.0) / signal
    cosine = result["product"] / (signal * square) ** 0.5 if square > 0 else 0.0
    cells = [f"{min(cosine, 1):.2f}", f"{(max(square, 0) / signal) ** 0.5:.2f}", f"{bias:.2g}"] if known else ["–"] * 3
    cells += [f"{variance:.2g}", f"{bias + variance:.2g}" if known else f"{variance:.2g} or more"]
    return f"| {epoch} | {methods.METHODS[name].label} | {' | '.join(cells)} |"


def main() -> None:
    path = Path(sys.argv[1])
    results = json.loads(path.read_text()) if path.exists() else {}
    for seed in SEEDS:
        if str(seed) not in results:
            results[str(seed)] = run(seed)
            write(path, json.dumps(results, indent=1).encode())
    print(f"# Gradients during the training under the protocol best, Fashion-MNIST, k = 30\n\n{machine()}\n")
    print(f"Of 256 images, {DRAWS} draws of each method, {REFERENCE_DRAWS} of SFESS-V, whose mean is the reference;")
    print("its own row compares one half of them with the other. Cosine and length are those of the mean gradient, the")
    print("length in units of the reference's; bias, variance of a draw and their sum, the error of a draw, are")
    print(
        "squares in units of its square. What the noise of the means adds is taken out; below zero it is 0, and where"
    )
    print("it is more than half of the reference nothing is said. The memory of Hybrid starts empty at each stop.\n")
    for seed, by_epoch in results.items():
        print(f"## Seed {seed}\n\n| epoch | method | cosine | length | bias² | variance | error² |\n|" + " --- |" * 7)
        for epoch, by_method in by_epoch.items():
            print("\n".join(row(epoch, name, result) for name, result in by_method.items()))


if __name__ == "__main__":
    main()
