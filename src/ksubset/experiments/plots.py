"""Records to the paper's figures; the one importer of matplotlib."""

import hashlib
import os
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from ksubset import KSubset
from ksubset.experiments.methods import METHODS
from ksubset.experiments.records import Record, describe, group, latest

try:
    # The object-oriented interface alone: pyplot would choose a backend and keep every figure alive.
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ModuleNotFoundError as error:
    raise ImportError("matplotlib is not installed; figures need: pip install 'ksubset[experiments]'") from error

__all__ = ["plot"]

# Okabe and Ito's colours, told apart by colour-blind readers too.
_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#000000", "#999999")
_METHODS = tuple(method.label for method in METHODS.values())
_DATASETS = ("MNIST", "Fashion-MNIST", "KMNIST")
_ROWS = {"psnr": "PSNR (dB)", "accuracy": "accuracy"}
_PARTS = {"train": "training", "validation": "validation"}
_DPI = 110


def plot(records: Iterable[Record], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw every figure for which there are records, and the example of scores, into ``folder`` as PNG.

    Convergence and reconstruction figures are separate for each protocol, reconstructions for each data set as well.
    Interrupted runs are drawn as far as they came.

    Returns:
        The paths of the figures.

    Raises:
        OSError: the folder is not writable.
    """
    records = latest(records)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"scores": _scores()}
    for protocol, members in group(records, lambda record: describe(record.config)).items():
        slug = _slug(protocol)
        for part, name in _PARTS.items():
            if any(record.history for record in members):
                figures[f"convergence-{name}-{slug}"] = _convergence(members, part, protocol)
        pictured = [record for record in members if record.reconstructions]
        for dataset, runs in group(pictured, lambda record: record.labels["dataset"]).items():
            figures[f"reconstruction-{dataset.lower()}-{slug}"] = _reconstruction(runs, dataset, protocol)
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=_DPI)
        paths.append(path)
    return paths


def _slug(protocol: str) -> str:
    """A file name's part for a protocol: its headline, and a digest of the rest, which the figure carries in words."""
    *headline, rest = protocol.split(", ", maxsplit=3) if protocol.count(", ") > 2 else (*protocol.split(", "), "")
    digest = [hashlib.sha256(rest.encode()).hexdigest()[:6]] if rest else []
    return re.sub(r"[^a-z0-9]+", "-", " ".join([*headline, *digest]).lower())


def _ordered(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """Names in the paper's order, others after them by the alphabet."""
    return sorted(set(names), key=lambda name: (first.index(name) if name in first else len(first), name))


def _convergence(records: Sequence[Record], part: str, protocol: str) -> Figure:
    """A metric against epochs: PSNR above accuracy, a column for each data set, bands of two standard deviations over
    the seeds (the paper's figures "Convergence plots" and "Convergence plots (validation)").
    """
    measured = [record for record in records if record.history]
    rows = [metric for metric in _ROWS if any(metric in record.history[0][part] for record in measured)]
    datasets = _ordered((record.labels["dataset"] for record in measured), _DATASETS)
    methods = _ordered((record.labels["method"] for record in measured), _METHODS)
    # A method has one colour in all figures, whichever others are there.
    palette = _ordered([*_METHODS, *methods], _METHODS)
    figure = Figure(figsize=(1.2 + 3.6 * len(datasets), 1.3 + 2.5 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(datasets), squeeze=False)
    for row, metric in enumerate(rows):
        for column, dataset in enumerate(datasets):
            panel: Axes = axes[row, column]
            runs = [
                record
                for record in measured
                if record.labels["dataset"] == dataset and metric in record.history[0][part]
            ]
            if not runs:
                panel.set_axis_off()
                continue
            panel.set_title(dataset)
            panel.set_xlabel("epoch")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.set_ylabel(f"{_PARTS[part]} {_ROWS[metric]}")
            panel.grid(alpha=0.3)
            if metric == "accuracy":
                panel.set_ylim(0, 1)
            for method, seeds in group(runs, lambda record: record.labels["method"]).items():
                colour = _COLOURS[palette.index(method) % len(_COLOURS)]
                _band(panel, seeds, part, metric, label=method, colour=colour)
    lines = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
    shown = [method for method in methods if method in lines]
    columns = min(len(shown), 4 * len(datasets))
    figure.legend([lines[method] for method in shown], shown, loc="outside lower center", ncols=columns)
    several = len({record.config.seed for record in measured}) > 1
    bands = "\nbands: two standard deviations over seeds" if several else ""
    figure.suptitle(protocol + bands, fontsize="x-small", wrap=True)
    return figure


def _band(panel: Axes, runs: Sequence[Record], part: str, metric: str, *, label: str, colour: str) -> None:
    # Interrupted runs are shorter: each epoch takes the runs that reached it.
    values: dict[int, list[float]] = {}
    for run in runs:
        for entry in run.history:
            values.setdefault(entry["epoch"], []).append(entry[part][metric])
    epochs = sorted(values)
    means = [statistics.fmean(values[epoch]) for epoch in epochs]
    spreads = [2 * statistics.stdev(values[epoch]) if len(values[epoch]) > 1 else 0.0 for epoch in epochs]
    # A single epoch makes no line.
    panel.plot(epochs, means, color=colour, label=label, linewidth=1.5, marker="o" if len(epochs) == 1 else None)
    low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
    high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
    panel.fill_between(epochs, low, high, color=colour, alpha=0.2, linewidth=0)


def _reconstruction(records: Sequence[Record], dataset: str, protocol: str) -> Figure:
    """Learned masks in the first row, test images and their reconstructions below, ground truth leftmost (the paper's
    figure "Reconstruction plots"). Of each method the run with the lowest seed is shown.
    """
    runs = {}
    for record in sorted(records, key=lambda record: record.config.seed, reverse=True):
        runs[record.labels["method"]] = record
    methods = _ordered(runs, _METHODS)
    truth = runs[methods[0]]
    rows, columns = 1 + len(truth.originals), 1 + len(methods)
    figure = Figure(figsize=(1.35 * columns, 1.3 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    axes[0, 0].set_axis_off()
    axes[1, 0].set_title("Ground truth", fontsize="small")
    for row, image in enumerate(truth.originals, 1):
        _image(axes[row, 0], image, truth.side)
    for column, method in enumerate(methods, 1):
        run = runs[method]
        selected = set(run.selected)
        axes[0, column].set_title(method, fontsize="small")
        _image(axes[0, column], [255 * (pixel in selected) for pixel in range(run.side**2)], run.side)
        for row, image in enumerate(run.reconstructions, 1):
            _image(axes[row, column], image, run.side)
    figure.suptitle(f"{dataset}: {protocol}", fontsize="small", wrap=True)
    return figure


def _image(panel: Axes, levels: Sequence[int], side: int) -> None:
    rows = [levels[start : start + side] for start in range(0, side**2, side)]
    panel.imshow(rows, cmap="gray", vmin=0, vmax=255)


def _scores(n: int = 10, k: int = 4) -> Figure:
    r"""Parameters :math:`\theta` and a subset's score :math:`\nabla_\theta \log p_{\theta,k}(z)` (the paper's figure
    "Scores"): included items have a positive score, all others a negative one.
    """
    generator = torch.Generator().manual_seed(4)
    theta = (0.1 + 0.8 * torch.rand(n, generator=generator, dtype=torch.float64)).requires_grad_()
    z = torch.zeros(n, dtype=torch.float64)
    z[torch.randperm(n, generator=generator)[:k]] = 1
    (score,) = torch.autograd.grad(KSubset(k, probs=theta).log_prob(z), theta)
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    items = range(1, n + 1)
    colours = [_COLOURS[3] if taken else _COLOURS[0] for taken in z.tolist()]
    left.bar(items, theta.tolist(), color=_COLOURS[0])
    left.set_ylabel(r"$\theta_i$")
    left.set_ylim(0, 1)
    bars: Any = right.bar(items, score.tolist(), color=colours)
    right.axhline(0, color="black", linewidth=0.8)
    right.set_ylabel(r"$\partial \log p_{\theta,k}(z) \,/\, \partial \theta_i$")
    taken = z.tolist().index(1.0)
    right.legend([bars[taken], bars[z.tolist().index(0.0)]], ["included", "not included"], fontsize="small")
    for panel in (left, right):
        panel.set_xlabel("item $i$")
        panel.set_xticks(list(items))
    figure.suptitle(f"Scores for n = {n}, k = {k}", fontsize="small")
    return figure
