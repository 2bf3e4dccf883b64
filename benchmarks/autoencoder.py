"""Learning rates and temperatures of the subset autoencoder, by the bound on validation images after one epoch.

    python benchmarks/autoencoder.py candidates.jsonl

Every method has the same candidates of the learning rate, those with a temperature two of that at the better rate. What
is in the file already is not run again.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ksubset import IMLE, NCPSS, SIMPLE, Estimator, GumbelTopK, Hybrid, LeaveOneOut, ScoreFunction
from ksubset.applications.vae import binarize, dense
from ksubset.experiments import datasets
from ksubset.training import JointTraining, Plan, seeded

BATCH, SAMPLES, RATES = 100, 2, (1e-3, 3e-3)
METHODS: dict[str, tuple[Callable[..., Estimator], tuple[dict[str, Any], ...]]] = {
    "sfess-v": (LeaveOneOut, ({},)),
    "simple": (SIMPLE, ({},)),
    "gs": (GumbelTopK, ({"temperature": 1.0}, {"temperature": 0.3})),
    "stgs": (
        GumbelTopK,
        ({"temperature": 1.0, "straight_through": True}, {"temperature": 0.3, "straight_through": True}),
    ),
    "hybrid": (Hybrid, ({},)),
    "ncpss": (NCPSS, ({},)),
    "sfess": (ScoreFunction, ({},)),
    "imle": (IMLE, ({},)),
}


def measure(images: torch.Tensor, validation: torch.Tensor, method: str, lr: float, settings: dict[str, Any]) -> float:
    """The bound on validation images, one code for each."""
    with seeded(0):
        model = dense(images.shape[-1])
        steps = len(images) // BATCH
        rate = {"lr": lr}
        plan = Plan(steps, selector=rate, network=rate, num_samples=SAMPLES, cosine=True)
        training = JointTraining(model.encoder, model.decoder, METHODS[method][0](**settings), plan)
        order = iter(torch.randperm(len(images), generator=training.generator).split(BATCH))
        for _ in training.run(lambda: model.batch(images[next(order)])):
            pass
        with torch.no_grad():
            bounds = [model.elbo(some) for some in validation.split(1000)]
    return float(torch.cat(bounds).mean())


def candidates(known: list[dict[str, Any]]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """All that is to be run, in this order; the better rate is that of the runs before."""
    for method, (_, settings) in METHODS.items():
        for lr in RATES:
            yield method, lr, settings[0]
        best = max((run for run in known if run["method"] == method), key=lambda run: run["elbo"])
        for other in settings[1:]:
            yield method, best["lr"], other


def main(path: Path) -> None:
    """Run what is not in the file, and print all."""
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    data = datasets.load("mnist")
    images, validation = binarize(data.train_images, 0), binarize(data.validation_images, 1)
    for method, lr, settings in candidates(runs):
        if any(run["method"] == method and run["lr"] == lr and run["settings"] == settings for run in runs):
            continue
        start = time.perf_counter()
        elbo = measure(images, validation, method, lr, settings)
        seconds = time.perf_counter() - start
        runs.append({"method": method, "lr": lr, "settings": settings, "elbo": elbo, "seconds": seconds})
        with path.open("a") as file:
            file.write(json.dumps(runs[-1]) + "\n")
    for run in runs:
        print(run["method"], run["lr"], run["settings"], f"{run['elbo']:.2f}", f"{run['seconds']:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
