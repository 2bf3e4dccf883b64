"""Peak memory of the quadrature in float64 numbers an item, first and second derivatives (Linux).

Usage: python benchmarks/memory.py > benchmarks/results/memory-cpu.md
"""

from pathlib import Path

import torch
from timing import machine

from ksubset import KSubset

ITEMS = 4_000_000


def peak_bytes() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


def main() -> None:
    logits = torch.randn(ITEMS, dtype=torch.float64).requires_grad_()
    vector = torch.randn(ITEMS, dtype=torch.float64)
    _ = KSubset(3, torch.randn(9)).mean  # what torch itself loads
    start = peak_bytes()
    mean = KSubset(1000, logits).mean
    first = peak_bytes()
    torch.autograd.grad((mean * vector).sum(), logits)
    second = peak_bytes()
    print(f"{machine()}\n")
    print(f"n = {ITEMS:,}, k = 1,000; float64 numbers an item, beside the logits:\n")
    print(f"- log normaliser and inclusion probabilities: {(first - start) / (8 * ITEMS):.0f}")
    print(f"- with a second derivative, the covariance times a vector: {(second - start) / (8 * ITEMS):.0f}")


if __name__ == "__main__":
    main()
