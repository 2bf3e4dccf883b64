"""What relaxed subsets cost: the successive softmaxes beside autograd's own backward pass, and a step by sharing.

Usage: python benchmarks/relaxation.py > benchmarks/results/relaxation-cpu.md

The two, and the ways of sharing, take turns, so that a machine that slows down slows all of them.
"""

import statistics
import time
from collections.abc import Callable

import torch
from timing import device, machine
from torch import Tensor

from ksubset.experiments import datasets, methods, runner
from ksubset.experiments.config import SUBSETS_PER, RunConfig
from ksubset.experiments.training import Training
from ksubset.numerics.topk import gumbel_keys, relaxed_top_k

ROUNDS, TEMPERATURE, N = 7, 0.3, 784
SHAPES = [(5, 30), (40, 30), (40, 100), (1280, 30)]
SETTINGS = {"selector_beta1": 0.9, "network_lr": 2e-3, "batch_size": 256, "selector_lr": 0.1}


def plain(keys: Tensor, k: int, temperature: float) -> Tensor:
    """The formula of Xie and Ermon, left to autograd."""
    chosen = torch.zeros_like(keys)
    for _ in range(k):
        share = torch.softmax((keys - keys.detach().amax(-1, keepdim=True)) / temperature, -1)
        chosen = chosen + share
        keys = torch.where(share < 1, keys + torch.log((1 - share).clamp(min=1e-38)), -1e30)
    return chosen


def medians(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds, after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(ROUNDS + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def differentiated(relax: Callable[[Tensor, int, float], Tensor], rows: int, k: int) -> Callable[[], object]:
    keys = gumbel_keys(torch.zeros(N), k, rows).requires_grad_()
    direction = torch.randn(rows, N)
    return lambda: torch.autograd.grad((relax(keys, k, TEMPERATURE) * direction).sum(), keys)


def step(data: datasets.DataSplit, method: str, sharing: str) -> Callable[[], object]:
    config = RunConfig(dataset="fashion-mnist", method=method, subsets_per=sharing, **SETTINGS)
    training = Training(runner.resolve(config), data, device())
    rows = torch.arange(config.batch_size)
    return lambda: training.joint.step(training.task.batch(rows, training.joint, lambda _: None))


def main() -> None:
    print(f"# Relaxed subsets\n\n{machine()}\n")
    print(f"Median milliseconds of {ROUNDS} turns. Relaxed top-k of float32 keys, n = {N}, forward and backward:\n")
    print("| rows | k | autograd | ours | ratio |\n|" + " --- |" * 5)
    for rows, k in SHAPES:
        times = medians({"autograd": differentiated(plain, rows, k), "ours": differentiated(relaxed_top_k, rows, k)})
        ratio = times["autograd"] / times["ours"]
        print(f"| {rows} | {k} | {times['autograd']:.1f} | {times['ours']:.1f} | {ratio:.1f} |", flush=True)
    print("\nA step of classification, Fashion-MNIST, 256 images (157 steps an epoch), M = 5, k = 30, by who shares")
    print("subsets:\n")
    print(f"| method | {' | '.join(SUBSETS_PER)} |\n|{' --- |' * (1 + len(SUBSETS_PER))}")
    data = datasets.load("fashion-mnist")
    for method in methods.METHODS:
        times = medians({sharing: step(data, method, sharing) for sharing in SUBSETS_PER})
        cells = [f"{times[sharing]:.1f}" for sharing in SUBSETS_PER]
        print(f"| {methods.METHODS[method].label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
