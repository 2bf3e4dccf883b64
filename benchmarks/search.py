"""The least value that searches for k of n items find, side by side, at equal evaluations.

Usage: python benchmarks/search.py RESULTS.json [--rows ROW ...] [--methods METHOD ...] [--seeds SEED ...] [--table]
       python benchmarks/search.py RESULTS.json --figure FIGURE.png
       python benchmarks/search.py --tune

Runs every method on every row and seed, or those named, that RESULTS.json does not have yet; it is written after each
run, so that an interrupted benchmark goes on. `--table` runs nothing and prints what the file has, `--figure` draws it.
`--tune` tries temperatures for annealing, on problems that are not in the table. Data are read from the folder that
KSUBSET_DATA names.

Peers, from PyPI: pymoo and nevergrad.
"""

import argparse
import contextlib
import importlib.metadata
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from search_methods import METHODS, Recorder, Spent, anneal
from search_problems import ROWS, TUNING
from timing import machine

from ksubset._support.files import write
from ksubset._support.palette import BLACK, BLUE, GREEN, GREY, OLIVE, ORANGE, PURPLE, VERMILLION

BUDGETS = (200, 1000, 5000, 20_000)
# These know how many evaluations there are; the others run once, to the largest number.
PLANNED = ("ksubset", "annealing")
MOST = 10
# A slow one.
LARGEST = {"nevergrad, CMA": 1000}
NOTES = """\
Median and, in brackets, worst value over seeds, after 200, 1,000, 5,000 and 20,000 evaluations; less is better. Each
method has ten seeds; nevergrad's CMA ends at 1,000 evaluations, for time.
**Bold**: the least median of the row, and those within one standard error of the best method's mean. With noise the
value is the true one of the subset that a method returns: of annealing where its walk has come to, of the others (but
ksubset) the best observed. ksubset and annealing are told the number of evaluations beforehand, and run anew for each.
Annealing has temperatures tuned on other problems (`--tune`). Portfolios have exactly 10 assets, with the weights of
either sign that are best for 5 times the variance minus the return, in closed form. Greedy adds items by values of
smaller subsets, which the others do not need, and goes on with uniform swaps.
"µs" is processor time for an evaluation, of method and function together, at the largest number.\
"""
STYLES = {
    "ksubset": (BLUE, "-", "o"), "uniform swaps": (ORANGE, "--", "s"), "annealing": (VERMILLION, "-.", "^"),
    "genetic": (GREEN, ":", "D"), "nevergrad, discrete": (PURPLE, "--", "v"), "nevergrad, CMA": (OLIVE, ":", "P"),
    "greedy": (BLACK, "-.", "X"), "random subsets": (GREY, ":", "."),
}  # fmt: skip

Results = dict[str, dict[str, Any]]


def run(row: str, method: str, seed: int) -> dict[str, Any]:
    problem = ROWS[row]()
    budgets = tuple(budget for budget in BUDGETS if budget <= LARGEST.get(method, BUDGETS[-1]))
    scores: dict[str, float] = {}
    processor = 0.0
    for planned in [(budget,) for budget in budgets] if method in PLANNED else [budgets]:
        recorder = Recorder(problem, planned, seed)
        start = time.process_time()
        with contextlib.suppress(Spent):
            METHODS[method](recorder, np.random.default_rng(seed))
        processor = time.process_time() - start
        if recorder.evaluations != planned[-1]:
            raise RuntimeError(f"{row}, {method}: {recorder.evaluations} evaluations, not {planned[-1]}")
        scores |= {str(budget): score for budget, score in recorder.scores.items()}
    return {"scores": scores, "microseconds": 1e6 * processor / budgets[-1]}


def values(results: Results, row: str, method: str, budget: int) -> np.ndarray[Any, Any]:
    found = [results.get(f"{row}/{method}/{seed}", {"scores": {}})["scores"].get(str(budget)) for seed in range(MOST)]
    return np.array([value for value in found if value is not None])


def leaders(results: Results, row: str, budget: int) -> set[str]:
    """Methods with the least median, or a mean within one standard error of the best method's."""
    found = {method: values(results, row, method, budget) for method in METHODS}
    found = {method: listed for method, listed in found.items() if len(listed)}
    if not found:
        return set()
    medians = {method: round(float(np.median(listed)), 9) for method, listed in found.items()}
    least = min(medians.values())
    best = min(found, key=lambda method: (medians[method], found[method].mean()))
    limit = found[best].mean() + found[best].std(ddof=1) / len(found[best]) ** 0.5
    return {method for method, listed in found.items() if medians[method] == least or listed.mean() <= limit}


def table(results: Results) -> Iterator[str]:
    yield "| problem | method |" + "".join(f" {budget:,} |" for budget in BUDGETS) + " µs |"
    yield "|" + " --- |" * (len(BUDGETS) + 3)
    for row, make in ROWS.items():
        says = make().says
        best = {budget: leaders(results, row, budget) for budget in BUDGETS}
        for method in METHODS:
            cells = []
            for budget in BUDGETS:
                listed = values(results, row, method, budget)
                text = f"{np.median(listed):.5g}" if len(listed) else "–"
                bold = "**" if method in best[budget] else ""
                cells.append(f"{bold}{text}{bold} ({listed.max():.5g})" if len(listed) else text)
            times = [results[key]["microseconds"] for key in results if key.startswith(f"{row}/{method}/")]
            if times:
                yield f"| {says} | {method} | {' | '.join(cells)} | {np.median(times):.0f} |"


def summary(results: Results) -> Iterator[str]:
    yield "Rows in which a method is among the best:\n"
    yield "| method |" + "".join(f" {budget:,} |" for budget in BUDGETS)
    yield "|" + " --- |" * (len(BUDGETS) + 1)
    for method in METHODS:
        counts = [sum(method in leaders(results, row, budget) for row in ROWS) for budget in BUDGETS]
        yield f"| {method} | " + " | ".join(f"{count} of {len(ROWS)}" for count in counts) + " |"


def draw(results: Results, path: Path) -> None:
    """Gaps to the best known, in units of what random subsets leave after 200 evaluations."""
    figure = Figure(figsize=(14, 13), layout="constrained")
    panels = list(figure.subplots(5, 4, sharex=True).flat)
    for axes in panels[len(ROWS) :]:
        axes.axis("off")
    for axes, (row, make) in zip(panels, ROWS.items(), strict=False):
        problem = make()
        every = np.concatenate([values(results, row, method, budget) for method in METHODS for budget in BUDGETS])
        best = every.min() if problem.optimum is None else problem.optimum
        unit = np.median(values(results, row, "random subsets", BUDGETS[0])) - best
        for method, (colour, line, marker) in STYLES.items():
            pairs = [(budget, values(results, row, method, budget)) for budget in BUDGETS]
            pairs = [(budget, listed) for budget, listed in pairs if len(listed)]
            gaps = [100 * (np.median(listed) - best) / unit for _, listed in pairs]
            axes.plot(
                [budget for budget, _ in pairs], np.maximum(gaps, 0.05), color=colour, linestyle=line, marker=marker,
                label=method, linewidth=2.4 if method == "ksubset" else 1.3, zorder=3 if method == "ksubset" else 2,
                markersize=5,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.04, 200)
        axes.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS], minor=False)
        axes.set_yticks([0.05, 1, 10, 100], ["0", "1", "10", "100"])
        axes.minorticks_off()
        axes.set_title(problem.says.replace("p-median, ", ""), fontsize=9)
    figure.supxlabel("evaluations")
    figure.supylabel("median gap to the best known, % of that of random subsets after 200 evaluations")
    # Those with nothing below them.
    for axes in panels[len(ROWS) - 4 : len(ROWS)]:
        axes.tick_params(labelbottom=True)
    panels[-2].legend(*panels[0].get_legend_handles_labels(), loc="center", fontsize=11, frameon=False)
    figure.savefig(path, dpi=150)


def tune() -> None:
    """Mean rank of temperatures over problems that are not in the table, for each budget."""
    settings = [(hot, cold) for hot in (0.1, 0.3, 1.0) for cold in (0.001, 0.01, 0.03)]
    ranks = np.zeros((len(settings), len(BUDGETS)))
    for make in TUNING.values():
        problem = make()
        means = np.zeros_like(ranks)
        for (place, (hot, cold)), (column, budget) in (
            (one, other) for one in enumerate(settings) for other in enumerate(BUDGETS)
        ):
            for seed in range(3):
                recorder = Recorder(problem, (budget,), seed)
                with contextlib.suppress(Spent):
                    anneal(recorder, np.random.default_rng(seed), hot=hot, cold=cold)
                means[place, column] += recorder.scores[budget] / 3
        ranks += (means[:, None] > means + 1e-9).sum(1) + 0.5 * (abs(means[:, None] - means) <= 1e-9).sum(1)
    for (hot, cold), row in zip(settings, ranks / len(TUNING), strict=True):
        print(f"hot {hot}, cold {cold}: mean ranks", *(f"{rank:.2f}" for rank in row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(MOST)))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    if arguments.tune:
        tune()
        return
    if arguments.results is None:
        parser.error("a file of results is needed")

    def known() -> Results:
        return json.loads(arguments.results.read_text()) if arguments.results.exists() else {}

    if arguments.figure:
        draw(known(), arguments.figure)
    elif arguments.table:
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "pymoo", "nevergrad"))
        print(f"# Searches for k of n items, side by side\n\n{machine()}, {versions}\n\n{NOTES}\n")
        print("\n".join(summary(known())), "\n".join(table(known())), sep="\n\n")
    else:
        for seed in arguments.seeds:
            for row in arguments.rows:
                for method in arguments.methods:
                    key = f"{row}/{method}/{seed}"
                    if key in known():
                        continue
                    found = run(row, method, seed)
                    print(key, *(f"{score:.6g}" for score in found["scores"].values()), flush=True)
                    # Read anew, as another process may have written meanwhile.
                    write(arguments.results, json.dumps(known() | {key: found}, indent=0).encode())


if __name__ == "__main__":
    main()
