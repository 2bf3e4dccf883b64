"""Quality against what it costs: seconds, and evaluations of the network."""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ksubset._support.markdown import quantity
from ksubset.experiments.plots.style import (
    METHODS,
    METRICS,
    colour,
    counted,
    dashes,
    logarithmic,
    marker,
    ordered,
    some,
)
from ksubset.experiments.protocols import name
from ksubset.experiments.records import FINISHED, Record, group, latest, slug

__all__ = ["draw"]

_APART = 0.045
"""Share of the height by which the labels of two lines are apart at least."""


def draw(records: Iterable[Record]) -> dict[str, Figure]:
    """Validation metric against the seconds and the network evaluations since the start of the training, one figure
    for each metric, data set, protocol, k and number of epochs.

    A line is the mean over the seeds of a method under a named protocol; runs that follow none, and interrupted ones,
    are left out. Each number of epochs has a figure of its own, as annealed temperatures and learning rates are made
    for it. Each device has a panel of its own for the seconds. Where a line starts far below the others' ends it is cut
    off: the axis begins at the lowest value that a method has after a quarter of its epochs.
    """
    followed = [record for record in records if record.status == FINISHED and name(record.config)]
    figures = {}
    for metric in METRICS:
        measured = [record for record in followed if metric in record.test]
        for (dataset, stem), runs in group(measured, lambda run: (run.labels["dataset"], slug(run.config))).items():
            figures[f"time-to-{metric}-{dataset.lower()}-{stem}"] = _figure(runs, metric)
    return figures


def _figure(records: Sequence[Record], metric: str) -> Figure:
    devices = group(latest(records, by_device=True), lambda record: record.device)
    panels = [("seconds", "seconds, validation included", device, _lines(runs)) for device, runs in devices.items()]
    # Records of earlier versions do not count evaluations.
    complete = [record for record in latest(records) if all("evaluations" in entry for entry in record.history)]
    if complete:
        title = "all devices" if len(devices) > 1 else ""
        panels.append(("evaluations", "network evaluations in training", title, _lines(complete)))
    figure = Figure(figsize=(1.8 + 4.4 * len(panels), 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    methods = ordered((record.labels["method"] for record in records), METHODS)
    drawn: dict[str, list[Record]] = {}
    for panel, (cost, unit, title, lines) in zip(axes, panels, strict=True):
        panel.set_title(title, fontsize="small", wrap=True)
        logarithmic(panel, unit)
        panel.grid(alpha=0.3)
        for method in methods:
            if method in lines:
                style = {"color": colour(method, methods), "marker": marker(method, methods)}
                style |= {"linestyle": dashes(method, methods), "label": method}
                _line(panel, lines[method], cost, metric, methods.index(method), **style)
        drawn |= lines
    _zoom(axes)
    _label(axes[-1])
    axes[0].set_ylabel(f"validation {METRICS[metric]}")
    # Not every method has runs on every device.
    named = {label: line for panel in axes for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    labels = ordered(named, METHODS)
    columns = math.ceil(len(labels) / math.ceil(len(labels) / (4 * len(panels))))
    handles = [named[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize="small", handlelength=3.5)
    config = records[0].config
    seeds = counted((len(runs) for runs in drawn.values()), "seed")
    title = f"{records[0].labels['dataset']}, k = {config.k}; protocol {name(config)}, "
    figure.suptitle(f"{title}{quantity(config.epochs, 'epoch')}\nmeans over {seeds}", fontsize="small")
    return figure


def _lines(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The runs by method."""
    return group(records, lambda record: record.labels["method"])


def _line(panel: Axes, runs: Sequence[Record], cost: str, metric: str, place: int, **style: Any) -> None:
    spent = [run.epoch_seconds if cost == "seconds" else [entry[cost] for entry in run.history] for run in runs]
    costs = [list(itertools.accumulate(each)) for each in spent]
    values = [[entry["validation"][metric] for entry in run.history] for run in runs]
    x = [statistics.fmean(epoch) for epoch in zip(*costs, strict=True)]
    y = [statistics.fmean(epoch) for epoch in zip(*values, strict=True)]
    panel.plot(x, y, linewidth=1.4, markersize=4, markevery=some(x, place), **style)


def _zoom(axes: Sequence[Axes]) -> None:
    """Leave out what is lower than every line is after a quarter of its epochs."""
    lines = [line for panel in axes for line in panel.get_lines()]
    values: list[Any] = [line.get_ydata() for line in lines]
    bottom, top = min(y[len(y) // 4] for y in values), max(max(y) for y in values)
    if bottom < top:
        axes[0].set_ylim(bottom - 0.02 * (top - bottom), top + 0.05 * (top - bottom))
    for panel in axes:
        data: list[Any] = [line.get_data() for line in panel.get_lines()]
        costs = [x for line in data for x, y in zip(*line, strict=True) if y >= bottom]
        if min(costs) < max(costs):
            panel.set_xlim(min(costs) / 1.1, max(costs) * 1.1)


def _label(panel: Axes) -> None:
    """Name each line beside its end, in the right margin, none over another."""
    low, high = panel.get_ylim()
    ends: list[Any] = [(line, *line.get_data()) for line in panel.get_lines()]
    ends.sort(key=lambda end: float(end[2][-1]))
    heights: list[float] = []
    for _, _, y in ends:
        height = (y[-1] - low) / (high - low)
        heights.append(max(height, heights[-1] + _APART) if heights else height)
    # What was pushed beyond the top pushes the others down again.
    heights[-1] = min(heights[-1], 1.0)
    for place in range(len(heights) - 2, -1, -1):
        heights[place] = min(heights[place], heights[place + 1] - _APART)
    for (line, x, y), height in zip(ends, heights, strict=True):
        panel.annotate(
            str(line.get_label()), (x[-1], y[-1]), (1.05, height), "data", "axes fraction", color=line.get_color(),
            fontsize="small", va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip
