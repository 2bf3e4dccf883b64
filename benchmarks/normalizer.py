"""Log normaliser and inclusion probabilities: ours against every peer, side by side in one run.

Usage: python benchmarks/normalizer.py > benchmarks/results/normalizer-cpu.md

Medians. Except for the compiled recursion, peers obtain the inclusion probabilities as the gradient of their log
normaliser, as the paper does. The last column is of ours with numba's loops, where numba is installed.
"""

from collections.abc import Callable
from unittest import mock

import torch
from peers import dft_log_normalizer, product_tree_log_normalizer, recursion_log_normalizer
from timing import device, machine, seconds
from torch import Tensor

from ksubset.numerics.moments import moments

try:
    from compiled_peer import compiled_recursion
except ImportError:  # no numba: its rows, and the errors that are measured by it, are left out
    compiled_recursion = None

Method = Callable[[Tensor, int], tuple[Tensor, Tensor]]
# Bytes of one complex matrix of B n (n + 1) entries, of which the DFT keeps about four for its gradient.
LARGEST_MATRIX = 2**32


def with_gradient(function: Callable[[Tensor, int], Tensor]) -> Method:
    """The log normaliser and, by autograd, the inclusion probabilities."""

    def both(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        value = function(logits, k)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        return value.detach(), gradient

    return both


def compiled(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    value, mean = compiled_recursion(logits[0].numpy(), k)
    return torch.tensor([value]), torch.from_numpy(mean)[None]


def ours(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    m = moments(logits, k)
    return m.log_normalizer.to(logits.dtype), m.mean.to(logits.dtype)


DFT, RECURSION = (
    ("the paper's DFT", with_gradient(dft_log_normalizer)),
    ("recursion", with_gradient(recursion_log_normalizer)),
)
COMPILED, TREE = ("compiled recursion", compiled), ("product tree, FFT", with_gradient(product_tree_log_normalizer))
DOUBLE, SINGLE = torch.float64, torch.float32
CASES = [
    ((1, 784, 30), DOUBLE, [COMPILED, RECURSION, DFT]),
    ((1, 784, 30), SINGLE, [RECURSION, DFT]),
    ((64, 784, 30), DOUBLE, [RECURSION, DFT]),
    ((64, 784, 30), SINGLE, [RECURSION, DFT]),
    ((1, 20_000, 1000), DOUBLE, [COMPILED, RECURSION, TREE]),
    ((1, 20_000, 1000), SINGLE, [RECURSION, DFT]),
    ((1, 100_000, 1000), DOUBLE, [COMPILED, TREE]),
]


def error(result: tuple[Tensor, Tensor], exact: Tensor | None) -> str:
    """Largest error of the inclusion probabilities; what a peer returns may be no number at all."""
    if exact is None:
        return "-"
    value = float((result[1].double() - exact).abs().max())
    return f"{value:.0e}" if value == value else "NaN"  # noqa: PLR0124 - NaN is what differs from itself


def main() -> None:
    torch.manual_seed(0)
    print(f"{machine()}\n")
    print("| B, n, k | dtype | ours | without numba | error of pi | peer | time | error of pi | their time / ours |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for (batch, n, k), dtype, peers in CASES:
        logits = torch.randn(batch, n, dtype=dtype, device=device())
        exact = None
        if compiled_recursion is not None:
            exact = torch.cat([compiled(row[None], k)[1] for row in logits.double().cpu()]).to(logits.device)
        time, mine = seconds(lambda: ours(logits, k)), error(ours(logits, k), exact)  # noqa: B023 - called at once
        with mock.patch("ksubset.numerics.compiled.usable", return_value=False):
            eager = seconds(lambda: ours(logits, k))  # noqa: B023
        for name, peer in peers:
            if peer is compiled and not (logits.is_cpu and compiled_recursion):
                continue
            if name == DFT[0] and batch * n * (n + 1) * 2 * dtype.itemsize > LARGEST_MATRIX:
                continue
            slow = seconds(lambda: peer(logits, k))  # noqa: B023
            # The compiled recursion in float64 is what the errors are measured by.
            theirs = "reference" if peer is compiled else error(peer(logits, k), exact)
            cells = [f"{batch}, {n}, {k}", str(dtype)[6:], f"{1e3 * time:.3g} ms", f"{1e3 * eager:.3g} ms", mine]
            cells += [name, f"{1e3 * slow:.4g} ms", theirs, f"{slow / time:.3g}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
