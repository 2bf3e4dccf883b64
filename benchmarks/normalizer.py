"""Log normaliser and inclusion probabilities: ours against the paper's DFT and the plain recursion, in one run.

Usage: python benchmarks/normalizer.py > benchmarks/results/normalizer-cpu.md

The peers obtain the inclusion probabilities as the gradient of their log normaliser, as the paper does. Medians.
"""

from collections.abc import Callable

import torch
from peers import dft_log_normalizer, recursion_log_normalizer
from timing import device, machine, seconds
from torch import Tensor

from ksubset.numerics.quadrature import log_esp, moments

CASES = [(1, 784, 30), (64, 784, 30), (1, 20_000, 1000)]
# Bytes of one complex matrix of B n (n + 1) entries, of which the DFT keeps about four for its gradient.
LARGEST_MATRIX = 2**32


def with_gradient(function: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """The log normaliser and, by autograd, the inclusion probabilities."""

    def both(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        value = function(logits, k)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        return value.detach(), gradient

    return both


def ours(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    m = moments(logits, k)
    return log_esp(m, logits, k).to(logits.dtype), m.mean.to(logits.dtype)


def error(result: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> str:
    """Largest error of the inclusion probabilities; what a peer returns may be no number at all."""
    value = float((result[1].double() - exact[1]).abs().max())
    return f"{value:.0e}" if value == value else "NaN"  # noqa: PLR0124 - NaN is what differs from itself


def main() -> None:
    torch.manual_seed(0)
    print(f"{machine()}\n")
    print("| B, n, k | dtype | ours | recursion | ratio | DFT | ratio | largest error of pi: ours, recursion, DFT |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for batch, n, k in CASES:
        for dtype in (torch.float64, torch.float32):
            logits = torch.randn(batch, n, dtype=dtype, device=device())
            exact = with_gradient(recursion_log_normalizer)(logits.double(), k)
            mine, theirs = ours(logits, k), with_gradient(recursion_log_normalizer)
            time = seconds(lambda: ours(logits, k))  # noqa: B023 - called at once
            slow = seconds(lambda: theirs(logits, k))  # noqa: B023
            errors = [error(mine, exact), error(theirs(logits, k), exact)]
            cells = [f"{time * 1e3:.2f} ms", f"{slow * 1e3:.4g} ms", f"{slow / time:.1f}"]
            if batch * n * (n + 1) * 2 * dtype.itemsize <= LARGEST_MATRIX:
                dft = with_gradient(dft_log_normalizer)
                slow = seconds(lambda: dft(logits, k))  # noqa: B023
                errors.append(error(dft(logits, k), exact))
                cells += [f"{slow * 1e3:.4g} ms", f"{slow / time:.0f}"]
            else:
                errors.append("-")
                cells += ["does not fit", "-"]
            print(f"| {batch}, {n}, {k} | {str(dtype)[6:]} | {' | '.join(cells)} | {', '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
