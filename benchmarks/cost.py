"""Cost against n and against k: sampler and normaliser beside Gumbel top-k and the recursion, with fitted slopes.

Usage: python benchmarks/cost.py [FOLDER] > benchmarks/results/cost-cpu.md

Draws cost.png into FOLDER, by default docs/figures. One float32 row, medians of processor time on one torch thread, all
sides of a size by turns. A slope is that of a least-squares line through the logarithms.
"""

import math
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from shapes import MEMORY, shown
from timing import machine
from worker import Case, Worker, medians, recursion_bytes

from ksubset._support import palette

WORKS = {
    "first sample": ("preparation and one sample", palette.BLUE, "-"),
    "further sample": ("each further sample", palette.SKY, "-"),
    "normalizer": ("log normaliser and gradient", palette.GREEN, "-"),
    "Gumbel top-k": ("Gumbel top-k", palette.ORANGE, "--"),
    "recursion": ("recursion and gradient", palette.VERMILLION, "--"),
}
# The recursion is a loop over the items: of more it takes many seconds.
MOST_STEPS = 32_000


class Sweep(NamedTuple):
    """One panel."""

    label: str
    sizes: list[tuple[int, int]]
    """Pairs n, k."""
    varied: int
    """Which of the two is varied."""
    start: int
    """Where the slope begins: below, the launching of operations outweighs their work."""


SWEEPS = [
    Sweep("n (k = 100)", [(round(10 ** (e / 2)), 100) for e in range(6, 15)], 0, 100_000),
    Sweep("k (n = 10,000)", [(10_000, k) for k in (1, 3, 10, 30, 100, 300, 1000, 3000, 5000)], 1, 1),
]


def slope(points: dict[int, float], start: int) -> float | None:
    kept = [(math.log(x), math.log(y)) for x, y in points.items() if x >= start]
    return statistics.linear_regression(*zip(*kept, strict=True)).slope if len(kept) > 1 else None


def written(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def measured(sweep: Sweep) -> dict[str, dict[int, float]]:
    """Seconds of each work at each size, printed as they come; sizes that take too much are left out."""
    worker = Worker()
    points: dict[str, dict[int, float]] = {work: {} for work in WORKS}
    for n, k in sweep.sizes:
        cases = [Case(work, 1, n, k) for work in WORKS]
        cases = [c for c in cases if c.work != "recursion" or (n <= MOST_STEPS and recursion_bytes(c) <= MEMORY)]
        times = medians([(worker, case) for case in cases])
        found = {case.work: time for case, time in zip(cases, times, strict=True)}
        cells = [shown(found[work]) if work in found else "left out" for work in WORKS]
        print(f"| {(n, k)[sweep.varied]:,} | {' | '.join(cells)} |", flush=True)
        for work, time in found.items():
            if time is not None:
                points[work][(n, k)[sweep.varied]] = time
    return points


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the workers' number, for the line on the machine
    print(f"# Cost against n and against k\n\n{machine()}")
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for sweep, panel in zip(SWEEPS, panels, strict=True):
        name = sweep.label.split()[0]
        print(f"\n## {sweep.label}\n")
        print(f"| {name} | {' | '.join(label for label, _, _ in WORKS.values())} |\n|{' --- |' * (1 + len(WORKS))}")
        points = measured(sweep)
        slopes = {work: slope(points[work], sweep.start) for work in WORKS}
        rows = [("slope, all", [slope(points[work], 0) for work in WORKS])]
        if sweep.start > 1:
            rows.append((f"slope, {name} >= {sweep.start:,}", list(slopes.values())))
        for head, values in rows:
            print(f"| {head} | {' | '.join(written(value) for value in values)} |")
        for work, (label, colour, style) in WORKS.items():
            x, y = list(points[work]), list(points[work].values())
            panel.loglog(x, y, style, color=colour, marker=".", label=f"{label}: {written(slopes[work])}")
        panel.set_xlabel(sweep.label)
        panel.grid(alpha=0.3)
        title = "slope" if sweep.start == 1 else f"slope for {name} of {sweep.start:,} or more"
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2, "frameon": False}
        panel.legend(title=title, fontsize="x-small", title_fontsize="x-small", **place)
    panels[0].set_ylabel("seconds of one core")
    figure.suptitle(machine(), fontsize="x-small")
    figure.savefig(folder / "cost.png", dpi=110)


if __name__ == "__main__":
    main()
