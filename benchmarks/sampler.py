"""Exact samples, preparation included, against Gumbel top-k, which draws from another distribution.

Usage: python benchmarks/sampler.py > benchmarks/results/sampler-cpu.md

Medians of one run.
"""

import torch
from peers import gumbel_top_k
from timing import device, machine, seconds

from ksubset import KSubset

CASES = [(5, 784, 30), (1000, 784, 30), (1000, 10_000, 100)]


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


if __name__ == "__main__":
    main()
