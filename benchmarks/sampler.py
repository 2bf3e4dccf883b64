"""Exact samples, preparation included, against Gumbel top-k (another distribution) and a training step.

Usage: python benchmarks/sampler.py > benchmarks/results/sampler-cpu.md

Medians of one run.
"""

from collections.abc import Callable

import torch
from peers import gumbel_top_k
from timing import device, machine, seconds

from ksubset import KSubset

CASES = [(5, 784, 30), (1000, 784, 30), (1000, 10_000, 100)]


def training_step(batch: int = 1024, samples: int = 5) -> Callable[[], None]:
    """A step of the paper's classification network on 5 x 1024 masked images: forward, backward, Adam."""
    layers: list[torch.nn.Module] = []
    for width in (784, 256, 256):
        layers += [torch.nn.Linear(width, 256), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(256, 10)).to(device())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    images, labels = torch.rand(batch, 784, device=device()), torch.randint(10, (samples * batch,), device=device())
    mask = KSubset(30, torch.zeros(784, device=device())).sample((samples,))[:, None]

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(mask * images).flatten(0, 1), labels).backward()
        optimizer.step()

    return step


def main() -> None:
    torch.manual_seed(0)
    print(f"{machine()}\n")
    print("| samples, n, k | ours, indices | ours, k-hot | Gumbel top-k, k-hot | ratio to indices | ratio to k-hot |")
    print("| --- | --- | --- | --- | --- | --- |")
    for number, n, k in CASES:
        logits = torch.randn(n, device=device())

        def fresh(logits: torch.Tensor = logits, k: int = k) -> KSubset:
            """A distribution without a table, so that its preparation is timed."""
            return KSubset(k, logits, validate_args=False)

        indices = seconds(lambda: fresh().sample_indices((number,)))  # noqa: B023 - called at once
        hot = seconds(lambda: fresh().sample((number,)))  # noqa: B023
        gumbel = seconds(lambda: gumbel_top_k(logits, k, number))  # noqa: B023
        times = " | ".join(f"{1e3 * t:.2f} ms" for t in (indices, hot, gumbel))
        print(f"| {number}, {n}, {k} | {times} | {gumbel / indices:.1f} | {gumbel / hot:.1f} |", flush=True)
    number, n, k = CASES[0]
    logits = torch.randn(n, device=device())
    drawn = seconds(lambda: KSubset(k, logits, validate_args=False).sample((number,)))
    step = seconds(training_step())
    print(f"\n{number} k-hot samples of ({n}, {k}), preparation included: {1e3 * drawn:.2f} ms;", end=" ")
    print(f"a training step of the paper's classifier, batch 1024 x {number}: {1e3 * step:.1f} ms,", end=" ")
    print(f"{step / drawn:.1f} times as long")


if __name__ == "__main__":
    main()
