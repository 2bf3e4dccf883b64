"""What a selector has found as a figure; the one importer of matplotlib here."""

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# The object-oriented interface alone: pyplot would choose a backend and keep every figure alive.
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from ksubset._support import palette
from ksubset.selection.co_inclusion import CoInclusion, likeliest

__all__ = ["Report", "draw", "frequencies", "losses", "scores"]

_KEPT, _OTHER = palette.VERMILLION, palette.BLUE
_LONGEST = 26  # characters
_ROW, _CHARACTER = 0.21, 0.075  # inches, of small print


class Report(Figure):
    """A figure that a notebook shows where it is the value of a cell, which it does with pyplot's alone otherwise."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def draw(
    first: Callable[[Axes], None] | None,
    support: NDArray[np.bool_],
    probabilities: NDArray[np.float64],
    names: NDArray[np.object_],
    together: CoInclusion,
    max_columns: int,
) -> Figure:
    """A panel of the selector's own, if it has one, inclusion probabilities as bars, and co-inclusion.

    Shapes:
        support, the columns that are kept, probabilities, and names of all columns `(n)`.
    """
    bars = likeliest(probabilities, support, max_columns)
    known = _labels(names, np.union1d(bars, together.columns))
    labels, crossed = ([known[column] for column in shown.tolist()] for shown in (bars, together.columns))
    side = max(3.0, _ROW * len(crossed)) + _CHARACTER * max(map(len, crossed))
    widths = [4.4] * (first is not None) + [3.0 + _CHARACTER * max(map(len, labels)), side + 1.2]
    height = max(3.4, 0.9 + _ROW * len(bars), side + 0.5)
    figure = Report(figsize=(sum(widths), height), layout="constrained")
    # Each panel has its own room, or long names under one would shorten all.
    panels = [part.subplots() for part in figure.subfigures(1, len(widths), width_ratios=widths, squeeze=False)[0]]
    if first is not None:
        first(panels[0])
    _bars(panels[-2], probabilities[bars], labels, support[bars])
    panels[-2].set_xlabel("inclusion probability")
    shown = f"the {len(bars)} likeliest of {len(names):,}" if len(bars) < len(names) else "all"
    panels[-2].set_title(f"{shown} columns", fontsize="medium")
    _shares(panels[-1], together, crossed, support[together.columns])
    return figure


def frequencies(
    shares: NDArray[np.float64], names: NDArray[np.object_], count: int, title: str, max_columns: int
) -> Figure:
    """How often each column was chosen, of so many choices, as bars."""
    nothing = np.zeros(len(names), dtype=bool)
    bars = likeliest(shares, nothing, max_columns)
    known = _labels(names, bars)
    labels = [known[column] for column in bars.tolist()]
    width = 3.6 + _CHARACTER * max(map(len, labels))
    figure = Report(figsize=(width, max(2.6, 1.2 + _ROW * len(bars))), layout="constrained")
    panel = figure.subplots()
    _bars(panel, shares[bars], labels, nothing[bars])
    panel.set_xlabel(f"share of {count} choices with the column")
    panel.set_title(title, fontsize="medium")
    return figure


def scores(path: Mapping[str, NDArray[Any]], kept: int, panel: Axes) -> None:
    """Draw the score of each size of a selector's path, and which of them is kept."""
    sizes, means, errors = path["n_features_to_select"], path["mean_test_score"], path["standard_error"]
    panel.errorbar(sizes, means, yerr=errors, color=_OTHER, marker="o", markersize=4, linewidth=1.3, capsize=3)
    label = f"kept: k = {sizes[kept]}"
    panel.plot(sizes[kept], means[kept], "o", color=_KEPT, markersize=9, zorder=3, label=label)
    best = means.argmax()
    panel.axhline(
        means[best] - errors[best], color="0.5", linewidth=1, linestyle="--", label="best less one standard error"
    )
    if sizes[-1] > 8 * sizes[0]:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(LogLocator(base=2))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
        panel.xaxis.set_minor_locator(NullLocator())
    else:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="size k", ylabel="score")
    panel.set_title("score, with one standard error", fontsize="medium")
    panel.legend(fontsize="small")
    panel.grid(alpha=0.3)


def losses(history: Mapping[str, NDArray[Any]], selecting: int, panel: Axes) -> None:
    """Draw the loss of a selector's history, and the step after which the network is trained alone."""
    steps, means = history["step"], history["loss"]
    panel.plot(steps, means, color=_OTHER, marker="o", markersize=3, linewidth=1.3)
    if 0 < selecting < steps[-1]:
        panel.axvline(selecting, color="0.5", linewidth=1, linestyle="--", label="columns chosen")
        panel.legend(fontsize="small")
    if 0 < 10 * means.min() < means.max():
        panel.set_yscale("log")
    panel.set(xlabel="step", ylabel="loss")
    panel.set_title("loss of the network", fontsize="medium")
    panel.grid(alpha=0.3)


def _bars(panel: Axes, shares: NDArray[np.float64], labels: Sequence[str], support: NDArray[np.bool_]) -> None:
    panel.barh(range(len(labels)), shares, color=np.where(support, _KEPT, _OTHER).tolist())
    _name(panel.yaxis, labels, support)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.set_xlim(0, 1)
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)


def _shares(panel: Axes, together: CoInclusion, labels: Sequence[str], support: NDArray[np.bool_]) -> None:
    image = panel.imshow(together.shares, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    _name(panel.xaxis, labels, support, rotation=90)
    _name(panel.yaxis, labels, support)
    number = together.num_subsets
    if number is None:
        title, scale = "learned distribution", "probability of both columns"
    else:
        title = f"{number:,} subset{'' if number == 1 else 's'} as good as the best"
        scale = "fraction of them with both columns"
    panel.set_title(title, fontsize="medium")
    panel.figure.colorbar(image, ax=panel, label=scale)


def _name(axis: Axis, labels: Sequence[str], support: NDArray[np.bool_], **style: Any) -> None:
    # A dollar sign in a name is one, and no beginning of a formula.
    axis.set_ticks(range(len(labels)), labels, fontsize="small", parse_math=False, **style)
    for label, kept in zip(axis.get_ticklabels(), support.tolist(), strict=True):
        if kept:
            label.set_color(_KEPT)


def _labels(names: NDArray[np.object_], columns: NDArray[np.int64]) -> dict[int, str]:
    """Names on one line, of a length that leaves room; those that are alike then have the index of the column."""
    short = {column: _short(names[column]) for column in columns.tolist()}
    times = Counter(short.values())
    return {column: name if times[name] == 1 else f"{name} [{column}]" for column, name in short.items()}


def _short(name: str) -> str:
    # Both its ends, as names in a table often start alike.
    line, half = " ".join(name.split()), _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half].rstrip()}…{line[-half + 1 :].lstrip()}"
