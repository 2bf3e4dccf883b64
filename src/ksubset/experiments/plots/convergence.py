"""The paper's figures "Convergence plots" and "Convergence plots (validation)"."""

import math
import statistics
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ksubset.experiments import tasks
from ksubset.experiments.plots.style import DATASETS, METHODS, METRICS, colour, marker, ordered, some, spread
from ksubset.experiments.records import Record, describe, group, slug

__all__ = ["band", "draw"]

_PARTS = {"train": "training", "validation": "validation"}


def draw(records: Iterable[Record]) -> dict[str, Figure]:
    """Metrics over the epochs, a figure for each protocol and part of the data.

    The paper's two tasks are in one.

    PSNR is above accuracy, each data set has a column, and bands are two standard deviations over the seeds.
    """
    figures = {}
    measured = [record for record in records if record.history]
    for (task, protocol), runs in group(measured, lambda record: (_own(record), describe(record.config))).items():
        for part, name in _PARTS.items():
            # A task may measure less in training.
            if not any(metric in record.history[0][part] for record in runs for metric in METRICS):
                continue
            stem = "-".join(filter(None, ["convergence", task, name, slug(runs[0].config)]))
            figures[stem] = _figure(runs, part, ", ".join(filter(None, [task, protocol])))
    return figures


def _own(record: Record) -> str:
    """The task where it has figures of its own: all but the paper's, which share theirs."""
    return "" if record.config.task in tasks.PRINTED else record.config.task


def band(
    panel: Axes, runs: Sequence[Record], part: str, metric: str, *, label: str, colour: str, marker: str, place: int
) -> None:
    """A metric over the epochs: the mean over some runs as a line, two standard deviations as a band.

    Bands of shares end at 0 and 1. ``place`` is that of the line among others.
    """
    # Interrupted runs are shorter: each epoch takes the runs that reached it.
    values: dict[int, list[float]] = {}
    for run in runs:
        for entry in run.history:
            values.setdefault(entry["epoch"], []).append(entry[part][metric])
    epochs = sorted(values)
    means = [statistics.fmean(values[epoch]) for epoch in epochs]
    spreads = [spread(values[epoch]) for epoch in epochs]
    panel.plot(
        epochs, means, color=colour, label=label, linewidth=1.5, marker=marker, markersize=4,
        markevery=some(epochs, place),
    )  # fmt: skip
    least, most = (0.0, 1.0) if metric == "accuracy" else (-math.inf, math.inf)
    low = [max(mean - width, least) for mean, width in zip(means, spreads, strict=True)]
    high = [min(mean + width, most) for mean, width in zip(means, spreads, strict=True)]
    panel.fill_between(epochs, low, high, color=colour, alpha=0.2, linewidth=0)


def _figure(records: Sequence[Record], part: str, protocol: str) -> Figure:
    rows = [metric for metric in METRICS if any(metric in record.history[0][part] for record in records)]
    datasets = ordered((record.labels["dataset"] for record in records), DATASETS)
    methods = ordered((record.labels["method"] for record in records), METHODS)
    figure = Figure(figsize=(1.2 + 3.6 * len(datasets), 1.3 + 2.5 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(datasets), squeeze=False)
    for row, metric in enumerate(rows):
        for column, dataset in enumerate(datasets):
            panel: Axes = axes[row, column]
            runs = [run for run in records if run.labels["dataset"] == dataset and metric in run.history[0][part]]
            if not runs:
                panel.set_axis_off()
                continue
            panel.set_title(dataset)
            panel.set_xlabel("epoch")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.set_ylabel(f"{_PARTS[part]} {METRICS[metric]}")
            panel.grid(alpha=0.3)
            if metric == "accuracy":
                panel.set_ylim(0, 1)
            for method, seeds in group(runs, lambda record: record.labels["method"]).items():
                style = {"colour": colour(method, methods), "marker": marker(method, methods)}
                band(panel, seeds, part, metric, label=method, place=methods.index(method), **style)
    lines = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
    shown = [method for method in methods if method in lines]
    columns = min(len(shown), 4 * len(datasets))
    handles = [lines[method] for method in shown]
    figure.legend(handles, shown, loc="outside lower center", ncols=columns, fontsize="small")
    several = len({record.config.seed for record in records}) > 1
    bands = "\nbands: two standard deviations over seeds" if several else ""
    figure.suptitle(protocol + bands, fontsize="x-small", wrap=True)
    return figure
