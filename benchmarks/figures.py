"""Figures of docs/numerics.md: error against n, k and spread, and the growth of the cost.

Usage: python benchmarks/figures.py [FOLDER]

Errors are relative, the largest over all items, against the float64 recursion of tests/oracle.py (itself accurate to
1e-14 or so); times are medians on the threads that torch is given.
"""

import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from timing import device, machine, seconds

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from oracle import recursion

from ksubset import KSubset
from ksubset.numerics import exclusion_probabilities, inclusion_probabilities, log_normalizer
from ksubset.numerics.inversion import sampling_table


def relative_errors(n: int, k: int, scale: float, dtype: torch.dtype) -> tuple[float, float, float]:
    """Largest relative errors of the log normaliser, of pi and of 1 - pi."""
    logits = (scale * torch.randn(n, dtype=torch.float64)).to(dtype)
    value, mean = recursion(logits, k)
    _, absent = recursion(-logits.double(), n - k)
    tiny = torch.finfo(dtype).tiny
    errors = [(log_normalizer(logits, k).double() - value).abs() / value.abs()]
    for mine, exact in ((inclusion_probabilities(logits, k), mean), (exclusion_probabilities(logits, k), absent)):
        kept = exact > tiny  # below, a number of the dtype has fewer digits
        errors.append(((mine.double() - exact).abs() / exact)[kept].max())
    return tuple(float(e) for e in errors)  # type: ignore[return-value]


def errors(folder: Path) -> None:
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    sweeps: list[tuple[str, list[float], list[tuple[int, int, float]]]] = [
        ("n (k = n / 10, spread 1)", ns := [10, 30, 100, 300, 1000, 3000], [(int(n), int(n) // 10, 1.0) for n in ns]),
        ("k (n = 1000, spread 1)", ks := [1, 3, 10, 30, 100, 300, 900, 990], [(1000, int(k), 1.0) for k in ks]),
        ("spread of the logits (n = 1000, k = 100)", ss := [0.1, 1, 10, 100, 1e3, 1e4], [(1000, 100, s) for s in ss]),
    ]
    for panel, (label, x, cases) in zip(panels, sweeps, strict=True):
        for dtype, style in ((torch.float64, "-"), (torch.float32, "--")):
            series = zip(*(relative_errors(*case, dtype) for case in cases), strict=True)
            for values, name, colour in zip(
                series, ("log normaliser", "pi", "1 - pi"), ("C0", "C1", "C2"), strict=True
            ):
                shown = [max(value, 1e-17) for value in values]
                panel.loglog(x, shown, style, color=colour, marker=".", label=f"{name}, {str(dtype)[6:]}")
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("largest relative error (1e-17: none)")
    panels[0].legend(fontsize="x-small")
    figure.savefig(folder / "errors.png", dpi=110)


def growth(folder: Path) -> None:
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)

    def draw(panel: Axes, x: list[int], cases: list[tuple[int, int]], label: str) -> None:
        logits = [torch.randn(n, device=device()) for n, _ in cases]
        work = {
            "log normaliser and pi": lambda w, k: KSubset(k, w, validate_args=False).mean,
            "preparing the sampler": sampling_table,
        }
        for name, function in work.items():
            times = [seconds(lambda: function(w, k), 0.2) for w, (_, k) in zip(logits, cases, strict=True)]  # noqa: B023
            panel.loglog(x, times, marker=".", label=name)
        drawn = []
        for w, (_, k) in zip(logits, cases, strict=True):
            dist = KSubset(k, w, validate_args=False)
            drawn.append(seconds(lambda: dist.sample_indices((1000,)), 0.2) / 1000)  # noqa: B023
        panel.loglog(x, drawn, marker=".", label="one of 1,000 samples, prepared")
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)

    ns = [10**e for e in range(2, 8)]
    draw(left, ns, [(n, 10) for n in ns], "n (k = 10)")
    ks = [1, 10, 100, 1000]
    draw(right, ks, [(100_000, k) for k in ks], "k (n = 100,000)")
    left.set_ylabel("seconds")
    left.legend(fontsize="x-small")
    figure.suptitle(machine(), fontsize="x-small")
    figure.savefig(folder / "growth.png", dpi=110)


def main() -> None:
    torch.manual_seed(0)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    errors(folder)
    growth(folder)


if __name__ == "__main__":
    main()
