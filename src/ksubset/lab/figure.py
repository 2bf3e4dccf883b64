"""Results of the laboratory as a figure."""

from collections.abc import Callable, Mapping
from typing import Any

from ksubset._support import palette
from ksubset._support.extras import require
from ksubset.lab.measurements import ESTIMATORS
from ksubset.lab.results import Mean, Result, by_estimator

__all__ = ["figure"]

# Errors below this are not told apart in the figure; on the toy some are zero.
_FLOOR = 1e-3
_LINES = {
    "ScoreFunction": (palette.GREY, "-", "x"),
    "LeaveOneOut": (palette.BLACK, "-", "o"),
    "GumbelTopK(0.5)": (palette.ORANGE, "-", "v"),
    "GumbelTopK(2)": (palette.ORANGE, "--", "v"),
    "GumbelTopK(0.5, log theta)": (palette.ORANGE, ":", "v"),
    "GumbelTopK(0.5, straight-through)": (palette.OLIVE, "-", "^"),
    "GumbelTopK(2, straight-through)": (palette.OLIVE, "--", "^"),
    "DPS(0.5)": (palette.OLIVE, ":", "^"),
    "StochasticGates(0.5)": (palette.GREEN, "--", "p"),
    "IMLE(2.5)": (palette.PURPLE, "-", "P"),
    "SIMPLE": (palette.VERMILLION, "-", "s"),
    "ReinMax": (palette.VERMILLION, "--", "h"),
    "NCPSS": (palette.GREEN, "-", "D"),
    "UnorderedSet": (palette.SKY, "-", "*"),
    "Hybrid(SlopeAtMean)": (palette.BLUE, ":", "<"),
    "Hybrid(SlopeAtSamples)": (palette.BLUE, "--", "<"),
    "Hybrid(ReplayedSlope)": (palette.BLUE, "-", "<"),
}


def figure(results: Mapping[str, Result]) -> Any:
    """Mean squared error against evaluations (left) and against time, a row for each problem.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: There are no results.
    """
    if not results:
        raise ValueError("results: expected at least one, got none")
    axes_of: dict[str, Callable[[Mean], float]] = {
        "evaluations of f and of its gradient": lambda one: one.cost,
        "milliseconds of processor time": lambda one: 1000 * one.seconds,
    }
    unlabelled = require("matplotlib.ticker").NullFormatter()
    drawn = require("matplotlib.figure").Figure(figsize=(8, 1.7 + 2.4 * len(results)), layout="constrained")
    panels = drawn.subplots(len(results), 2, squeeze=False)
    for row, (problem, result) in enumerate(results.items()):
        means = by_estimator(result)
        panels[row, 0].set_ylabel(f"{problem}\nrelative squared error")
        for panel, (label, place) in zip(panels[row], axes_of.items(), strict=True):
            for name, by_samples in means.items():
                colour, style, marker = _LINES[name]
                places = [place(one) for one in by_samples.values()]
                errors = [max(one.mse, _FLOOR) for one in by_samples.values()]
                panel.plot(places, errors, style, color=colour, label=name, marker=marker, markersize=4, linewidth=1.2)
            panel.set(xscale="log", yscale="log", xlabel=label if row == len(results) - 1 else "")
            panel.xaxis.set_minor_formatter(unlabelled)
            panel.grid(alpha=0.3)
    lines = {line.get_label(): line for panel in panels.flat for line in panel.get_lines()}
    shown = [name for name in ESTIMATORS if name in lines]
    drawn.legend([lines[name] for name in shown], shown, loc="outside lower center", ncols=3, fontsize="small")
    drawn.suptitle(f"Mean squared error of one estimate; errors below {_FLOOR:g} are drawn there", fontsize="small")
    return drawn
