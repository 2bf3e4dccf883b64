"""Peak memory of the quadrature, first and second derivatives, and of sampling (Linux).

Usage: python benchmarks/memory.py > benchmarks/results/memory-cpu.md
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from timing import machine

from ksubset import KSubset

ITEMS = 4_000_000
SHAPES = [(1024, 784, 30), (256, 4096, 64), (1, 1_000_000, 1000), (3000, 300, 150)]
NUMBERS = (1, 100)


def peak_bytes() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


def quadrature(numba: bool) -> tuple[float, float]:
    """Float64 numbers an item: log normaliser and inclusion probabilities, and with a second derivative."""
    if not numba:
        sys.modules["numba"] = None  # type: ignore[assignment] - how Python says that it is not there
    logits = torch.randn(ITEMS, dtype=torch.float64).requires_grad_()
    vector = torch.randn(ITEMS, dtype=torch.float64)
    _ = KSubset(3, torch.randn(9)).mean  # what torch itself loads
    start = peak_bytes()
    mean = KSubset(1000, logits).mean
    first = peak_bytes()
    torch.autograd.grad((mean * vector).sum(), logits)
    second = peak_bytes()
    return (first - start) / (8 * ITEMS), (second - start) / (8 * ITEMS)


def sampling(rows: int, n: int, k: int, number: int) -> float:
    """Multiples of the logits: preparation and so many samples of each row, in one call."""
    logits = torch.randn(rows, n)
    KSubset(3, torch.randn(9)).sample((2,))  # what torch itself loads
    start = peak_bytes()
    KSubset(k, logits, validate_args=False).sample((number,))
    return (peak_bytes() - start) / logits.nbytes


def main() -> None:
    # A peak never falls: each measurement has a process of its own.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        (first, second), (eager_first, eager_second) = (
            processes.submit(quadrature, numba).result() for numba in (True, False)
        )
        print(f"{machine()}\n")
        print(f"n = {ITEMS:,}, k = 1,000; float64 numbers an item, beside the logits:\n")
        print(f"- log normaliser and inclusion probabilities: {first:.0f}, without numba {eager_first:.0f}")
        print("- with a second derivative, the covariance times a vector: ", end="")
        print(f"{second:.0f}, without numba {eager_second:.0f}\n")
        print("Sampling of float32 logits, preparation included; multiples of the logits, beside them. What is")
        print("returned, as large as they are for each sample, is counted.\n")
        print(f"| B; n; k |{''.join(f' {number} of each row |' for number in NUMBERS)}")
        print(f"|{' --- |' * (1 + len(NUMBERS))}")
        for shape in SHAPES:
            peaks = [processes.submit(sampling, *shape, number).result() for number in NUMBERS]
            cells = [", ".join(f"{size:,}" for size in shape), *(f"{peak:.1f}" for peak in peaks)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
