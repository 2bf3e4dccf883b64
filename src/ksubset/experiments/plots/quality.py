"""Quality against what it costs: seconds, and evaluations of the network."""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ksubset._support.markdown import quantity
from ksubset.experiments.plots.style import METHODS, METRICS, colour, counted, logarithmic, marker, ordered, some
from ksubset.experiments.protocols import PROTOCOLS, name
from ksubset.experiments.records import FINISHED, Record, group, latest

__all__ = ["draw"]

_STYLES: dict[str, Literal["-", "--"]] = {"paper": "-", "best": "--"}


def draw(records: Iterable[Record]) -> dict[str, Figure]:
    """Validation metric against the seconds and the network evaluations since the start of the training, one figure
    for each metric, data set, k and number of epochs.

    A line is the mean over the seeds of a method under a named protocol; runs that follow none, and interrupted ones,
    are left out. Each number of epochs has a figure of its own, as annealed temperatures and learning rates are made
    for it. Each device has a panel of its own for the seconds.
    """
    followed = [record for record in records if record.status == FINISHED and name(record.config)]
    figures = {}
    for metric in METRICS:
        measured = [record for record in followed if metric in record.test]
        alike = group(measured, lambda run: (run.labels["dataset"], run.config.k, run.config.epochs))
        for (dataset, k, epochs), runs in alike.items():
            figures[f"time-to-{metric}-{dataset.lower()}-k-{k}-{epochs}-epochs"] = _figure(runs, metric)
    return figures


def _figure(records: Sequence[Record], metric: str) -> Figure:
    devices = group(latest(records, by_device=True), lambda record: record.device)
    panels = [("seconds", "seconds, validation included", device, _lines(runs)) for device, runs in devices.items()]
    # Records of earlier versions do not count evaluations.
    complete = [record for record in latest(records) if all("evaluations" in entry for entry in record.history)]
    if complete:
        title = "all devices" if len(devices) > 1 else ""
        panels.append(("evaluations", "network evaluations in training", title, _lines(complete)))
    figure = Figure(figsize=(1.0 + 4.4 * len(panels), 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    methods = ordered((record.labels["method"] for record in records), METHODS)
    drawn: dict[tuple[str, str], list[Record]] = {}
    for panel, (cost, unit, title, lines) in zip(axes, panels, strict=True):
        panel.set_title(title, fontsize="small", wrap=True)
        logarithmic(panel, unit)
        panel.grid(alpha=0.3)
        for (protocol, method), runs in lines.items():
            style = {
                "color": colour(method, methods),
                "marker": marker(method, methods),
                "label": f"{method}, {protocol}",
            }
            _line(panel, runs, cost, metric, methods.index(method), linestyle=_STYLES[protocol], **style)
        drawn |= lines
    axes[0].set_ylabel(f"validation {METRICS[metric]}")
    used = [protocol for protocol in PROTOCOLS if any(protocol == other for other, _ in drawn)]
    handles = [
        Line2D([], [], color=colour(method, methods), marker=marker(method, methods), markersize=4, label=method)
        for method in methods
    ]
    if len(used) > 1:
        handles += [Line2D([], [], color="dimgrey", linestyle=_STYLES[p], label=f"protocol {p}") for p in used]
    columns = math.ceil(len(handles) / (2 if len(panels) > 1 else 4))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize="small")
    config = records[0].config
    seeds = counted((len(runs) for runs in drawn.values()), "seed")
    protocols = f"protocol{'s' if len(used) > 1 else ''} {' and '.join(used)}"
    title = f"{records[0].labels['dataset']}, k = {config.k}; {protocols}, {quantity(config.epochs, 'epoch')}"
    figure.suptitle(f"{title}\nmeans over {seeds}", fontsize="small")
    return figure


def _lines(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The runs by protocol and method."""
    return group(records, lambda record: (name(record.config), record.labels["method"]))


def _line(panel: Axes, runs: Sequence[Record], cost: str, metric: str, place: int, **style: Any) -> None:
    costs = [list(itertools.accumulate(entry[cost] for entry in run.history)) for run in runs]
    values = [[entry["validation"][metric] for entry in run.history] for run in runs]
    x = [statistics.fmean(epoch) for epoch in zip(*costs, strict=True)]
    y = [statistics.fmean(epoch) for epoch in zip(*values, strict=True)]
    panel.plot(x, y, linewidth=1.4, markersize=4, markevery=some(x, place), **style)
