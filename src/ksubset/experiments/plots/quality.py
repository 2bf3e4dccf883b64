"""Quality against what it costs: seconds, and evaluations of the network."""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ksubset.experiments import published
from ksubset.experiments.plots.style import METHODS, METRICS, colour, counted, logarithmic, ordered
from ksubset.experiments.protocols import PROTOCOLS, name
from ksubset.experiments.records import FINISHED, Record, group, latest

__all__ = ["draw"]

_STYLES: dict[str, Literal["-", "--"]] = {"paper": "-", "best": "--"}
_REFERENCES = ("GS", "SFESS-V")


def draw(records: Iterable[Record]) -> dict[str, Figure]:
    """Validation metric against the seconds and the network evaluations since the start of the training, one figure
    for each metric, data set and k.

    A line is the mean over the seeds of a method under a named protocol; runs that follow none, and interrupted ones,
    are left out. Of a method's runs under a protocol those with the most epochs are drawn: annealed temperatures and
    learning rates are made for their number of epochs, so lines of several numbers would not continue each other.
    Each device has a panel of its own for the seconds. A horizontal line is the paper's value on test data.
    """
    followed = [record for record in records if record.status == FINISHED and name(record.config)]
    figures = {}
    for metric in METRICS:
        measured = [record for record in followed if metric in record.test]
        for (dataset, k), runs in group(measured, lambda run: (run.labels["dataset"], run.config.k)).items():
            figures[f"time-to-{metric}-{dataset.lower()}-k-{k}"] = _figure(runs, metric, dataset, k)
    return figures


def _figure(records: Sequence[Record], metric: str, dataset: str, k: int | None) -> Figure:
    devices = group(latest(records, by_device=True), lambda record: record.device)
    panels = [("seconds", "seconds, validation included", device, _longest(runs)) for device, runs in devices.items()]
    # Records of earlier versions do not count evaluations.
    complete = [record for record in latest(records) if all("evaluations" in entry for entry in record.history)]
    if complete:
        title = "all devices" if len(devices) > 1 else ""
        panels.append(("evaluations", "network evaluations in training", title, _longest(complete)))
    figure = Figure(figsize=(1.0 + 4.4 * len(panels), 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    methods = ordered((record.labels["method"] for record in records), METHODS)
    values = published.results(metric, dataset, k)
    references = {method: values[method][0] for method in _REFERENCES if method in values}
    dotted: dict[str, Line2D] = {}
    drawn: dict[tuple[str, str], list[Record]] = {}
    for panel, (cost, unit, title, lines) in zip(axes, panels, strict=True):
        panel.set_title(title, fontsize="small", wrap=True)
        logarithmic(panel, unit)
        panel.grid(alpha=0.3)
        for method, value in references.items():
            label = f"{method}, published"
            dotted[label] = panel.axhline(value, color=colour(method), linewidth=0.9, linestyle=":", label=label)
        for (protocol, method), runs in lines.items():
            _line(panel, runs, cost, metric, f"{method}, {protocol}", colour(method, methods), _STYLES[protocol])
        drawn |= lines
    axes[0].set_ylabel(f"validation {METRICS[metric]}")
    used = [protocol for protocol in PROTOCOLS if any(protocol == other for other, _ in drawn)]
    handles = [Line2D([], [], color=colour(method, methods), label=method) for method in methods]
    if len(used) > 1:
        handles += [Line2D([], [], color="dimgrey", linestyle=_STYLES[p], label=f"protocol {p}") for p in used]
    handles += dotted.values()
    columns = math.ceil(len(handles) / (2 if len(panels) > 1 else 4))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize="small")
    lengths = {
        protocol: counted((runs[0].config.epochs for (other, _), runs in drawn.items() if other == protocol), "epoch")
        for protocol in used
    }
    protocols = ", ".join(f"protocol {protocol}: {length}" for protocol, length in lengths.items())
    explained = f"; dotted: the paper's test values, {published.load()['epochs']} epochs" if dotted else ""
    seeds = counted((len(runs) for runs in drawn.values()), "seed")
    figure.suptitle(f"{dataset}, k = {k}; {protocols}\nmeans over {seeds}{explained}", fontsize="small")
    return figure


def _longest(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """The runs with the most epochs, by protocol and method."""
    groups = group(records, lambda record: (name(record.config), record.labels["method"]))
    longest = {}
    for key, runs in groups.items():
        most = max(run.config.epochs for run in runs)
        longest[key] = [run for run in runs if run.config.epochs == most]
    return longest


def _line(panel: Axes, runs: Sequence[Record], cost: str, metric: str, label: str, colour: str, linestyle: str) -> None:
    costs = [list(itertools.accumulate(entry[cost] for entry in run.history)) for run in runs]
    values = [[entry["validation"][metric] for entry in run.history] for run in runs]
    x = [statistics.fmean(epoch) for epoch in zip(*costs, strict=True)]
    y = [statistics.fmean(epoch) for epoch in zip(*values, strict=True)]
    # A single epoch makes no line.
    marker = "o" if len(x) == 1 else None
    panel.plot(x, y, color=colour, linestyle=linestyle, linewidth=1.4, marker=marker, label=label)
