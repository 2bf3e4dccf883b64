"""What a subset autoencoder makes of test images, and samples from its prior.

Usage: python benchmarks/autoencoder_figure.py DATASET METHOD K EPOCHS FIGURE

Trains under the protocol "best" with seed 0, and prints the metrics of the test set beside the log-likelihood of pixels
that are independent of each other, with the means of the training images.
"""

import sys

import torch

from ksubset.applications.vae import draw
from ksubset.experiments import protocols, runner, tasks
from ksubset.experiments.training import Training
from ksubset.training import seeded


def main() -> None:
    dataset, method, k, epochs, path = sys.argv[1:]
    torch.set_num_threads(1)
    chosen = {"task": "autoencoder", "dataset": dataset, "method": method, "k": int(k), "epochs": int(epochs)}
    grid = {name: [value] for name, value in chosen.items()}
    (config,) = map(runner.resolve, protocols.grid(["best"], grid))
    with seeded(0):
        training = Training(config, tasks.find("autoencoder").load(dataset), torch.device("cpu"))
        while training.joint.round < config.epochs:
            print(training.epoch(lambda: False))
    print(training.task.evaluate("test"))
    train, test = training.task.data.train, training.task.data.test
    means = train.mean(0).clamp(1e-3, 1 - 1e-3)
    print("independent pixels", float((test * means.log() + (1 - test) * (1 - means).log()).sum(-1).mean()))
    model, images = training.task.model, training.task.data.test[:24]
    with torch.no_grad():
        samples = model.generate(24, torch.Generator().manual_seed(0))
        draw(images, model.reconstruct(images), samples).savefig(path, dpi=100)


if __name__ == "__main__":
    main()
