"""The paper's figure "Reconstruction plots"."""

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ksubset.experiments.plots.style import METHODS, ordered
from ksubset.experiments.protocols import PROTOCOLS, name
from ksubset.experiments.records import Record, describe, group, slug

__all__ = ["draw"]

# What is set beside each other, as all methods of all protocols would not fit a page.
_COMPARED = ("GS", "SFESS", "SFESS-V")


def draw(records: Iterable[Record]) -> dict[str, Figure]:
    """Learned masks, if any, in the first row, test images and their reconstructions below, ground truth leftmost.

    A figure for each protocol and data set; and one of both named protocols for each data set, number of epochs and k
    where both have runs, of GS, SFESS and SFESS-V. The run of a method with the lowest seed is shown.
    """
    pictured = sorted((record for record in records if record.reconstructions), key=lambda record: record.config.seed)
    figures = {}
    for (protocol, dataset), runs in group(
        pictured, lambda record: (describe(record.config), record.labels["dataset"])
    ).items():
        methods = _first(runs)
        columns = {method: methods[method] for method in ordered(methods, METHODS)}
        figures[f"reconstruction-{dataset.lower()}-{slug(runs[0].config)}"] = _figure(columns, f"{dataset}: {protocol}")
    for (dataset, epochs, k), runs in group(
        pictured, lambda record: (record.labels["dataset"], record.config.epochs, record.config.k)
    ).items():
        columns = {}
        for protocol in PROTOCOLS:
            methods = _first(run for run in runs if name(run.config) == protocol)
            suffix = "" if protocol == "paper" else f", {protocol}"
            columns |= {f"{method}{suffix}": methods[method] for method in _COMPARED if method in methods}
        if len({name(run.config) for run in columns.values()}) == len(PROTOCOLS):
            title = f"{dataset}: protocols paper and best, {epochs} epochs, k = {k}"
            figures[f"reconstruction-{dataset.lower()}-paper-and-best-{epochs}-epochs-k-{k}"] = _figure(columns, title)
    return figures


def _first(records: Iterable[Record]) -> dict[str, Record]:
    """The first run of each method."""
    return {method: runs[0] for method, runs in group(records, lambda record: record.labels["method"]).items()}


def _figure(runs: Mapping[str, Record], title: str) -> Figure:
    truth = next(iter(runs.values()))
    # Where each image has subsets of its own there is no mask to be shown.
    masks = int(any(run.selected for run in runs.values()))
    rows, columns = masks + len(truth.originals), 1 + len(runs)
    figure = Figure(figsize=(1.35 * columns, 1.3 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    if masks:
        axes[0, 0].set_axis_off()
    axes[masks, 0].set_title("Ground truth", fontsize="small")
    for row, image in enumerate(truth.originals, masks):
        _image(axes[row, 0], image, truth.side)
    for column, (label, run) in enumerate(runs.items(), 1):
        axes[0, column].set_title(label, fontsize="small")
        if masks:
            selected = set(run.selected)
            _image(axes[0, column], [255 * (pixel in selected) for pixel in range(len(run.inclusion))], run.side)
        for row, image in enumerate(run.reconstructions, masks):
            _image(axes[row, column], image, run.side)
    figure.suptitle(title, fontsize="small", wrap=True)
    return figure


def _image(panel: Axes, levels: Sequence[int], side: int | None) -> None:
    assert side is not None
    rows = [levels[start : start + side] for start in range(0, side**2, side)]
    panel.imshow(rows, cmap="gray", vmin=0, vmax=255)
