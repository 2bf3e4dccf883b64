"""Explanations as figures; the one importer of matplotlib here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ksubset._support import palette
from ksubset.selection.plotting import Report

__all__ = ["plot_images", "plot_inclusion", "plot_text"]

_CHOSEN, _OTHER = palette.VERMILLION, palette.BLUE
_LINE, _CHARACTER = 0.3, 0.092  # inches, of monospaced text


def plot_images(images: Any, columns: Any, titles: Sequence[str] | None = None) -> Figure:
    """Images with their chosen pixels, the others dimmed.

    Arguments:
        images: Grey, `(N, H, W)`, `(N, 1, H, W)`, or in colour from 0 to 1, `(N, 3, H, W)`.
        columns: `Explanation.columns`, of the same shape.
        titles: One for each image.

    Raises:
        ValueError: Shapes differ, or are of another kind.

    Example:
        >>> images = np.random.default_rng(0).random((3, 8, 8))
        >>> figure = plot_images(images, images > 0.5, titles=["3", "5", "8"])
        >>> [panel.get_title() for panel in figure.axes]  # `figure.savefig` writes it to a file
        ['3', '5', '8']
    """
    pictures, chosen = np.asarray(images), np.asarray(columns, dtype=bool)
    fits = pictures.ndim == 3 or (pictures.ndim == 4 and pictures.shape[1] in (1, 3))
    if pictures.shape != chosen.shape or not fits:
        raise ValueError(
            f"images, columns: expected one shape, (N, H, W) or (N, C, H, W) with 1 or 3 channels, got "
            f"{pictures.shape} and {chosen.shape}"
        )
    if titles is not None and len(titles) != len(pictures):
        raise ValueError(f"titles: expected one for each of {len(pictures)} images, got {len(titles)}")
    figure = Report(figsize=(1.7 * len(pictures), 2.0), layout="constrained")
    panels = figure.subplots(1, len(pictures), squeeze=False)[0]
    for place, panel in enumerate(panels):
        picture, mask = pictures[place], chosen[place]
        if picture.ndim == 3:
            picture, mask = np.moveaxis(picture, 0, -1), mask.any(0)
        panel.imshow(picture, cmap="gray_r")
        # Above the pixels that were not chosen.
        panel.imshow(np.where(mask[..., None], (0.0, 0.0, 0.0, 0.0), (0.72, 0.83, 0.92, 0.75)))
        panel.set_axis_off()
        if titles is not None:
            panel.set_title(titles[place], fontsize="small", parse_math=False)
    return figure


def plot_inclusion(inclusion: Any, mask: Any, names: Sequence[str]) -> Figure:
    """Inclusion probabilities of the items of one row, the chosen ones in orange.

    Arguments:
        inclusion: `(items)`.
        mask: `(items)`, boolean.
        names: Of the items.

    Raises:
        ValueError: Lengths differ.

    Example:
        >>> figure = plot_inclusion([0.9, 0.2, 0.9], [True, False, True], ["age", "height", "weight"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['age', 'height', 'weight']
    """
    values, chosen = np.asarray(inclusion), np.asarray(mask, dtype=bool)
    if not values.shape == chosen.shape == (len(names),):
        raise ValueError(
            f"inclusion, mask: expected shape ({len(names)},), one for each name, got {values.shape} and {chosen.shape}"
        )
    figure = Report(figsize=(4.5, 0.6 + 0.24 * len(names)), layout="constrained")
    panel: Axes = figure.subplots()
    panel.barh(range(len(names)), values, color=np.where(chosen, _CHOSEN, _OTHER).tolist())
    panel.set_yticks(range(len(names)), names, fontsize="small", parse_math=False)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set(xlim=(0, 1), xlabel="inclusion probability")
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    return figure


def plot_text(words: Sequence[Sequence[str]], inclusion: Any, mask: Any, width: int = 80) -> Figure:
    """Sentences, one below the other, with the chosen words framed and each as dark as it is likely to be chosen.

    Arguments:
        words: Of each sentence, no more than there are places.
        inclusion: `(N, L)`.
        mask: `(N, L)`, boolean.
        width: Characters in a line.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> figure = plot_text([["not", "bad", "at", "all"]], [[0.9, 0.8, 0.1, 0.2]], [[True, True, False, False]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['not', 'bad', 'at', 'all']
    """
    values, chosen = np.asarray(inclusion), np.asarray(mask, dtype=bool)
    if values.shape != chosen.shape or values.ndim != 2 or len(words) != len(values):
        raise ValueError(
            f"inclusion, mask: expected shape (N, L) with N = {len(words)} sentences, got {values.shape} and "
            f"{chosen.shape}"
        )
    if any(len(sentence) > values.shape[1] for sentence in words):
        raise ValueError(f"words: expected at most {values.shape[1]} in a sentence")
    places = _places(words, width)
    lines = 1 + max((line for line, *_ in places), default=0)
    figure = Report(figsize=(_CHARACTER * width + 0.2, _LINE * lines + 0.2))
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set(xlim=(-1, width + 1), ylim=(lines - 0.4, -0.6))
    panel.set_axis_off()
    for line, column, row, place in places:
        probability, framed = float(values[row, place]), bool(chosen[row, place])
        panel.text(
            column, line, words[row][place], family="monospace", fontsize=9, va="center", parse_math=False,
            bbox={
                "boxstyle": "round,pad=0.15", "linewidth": 1.2, "edgecolor": _CHOSEN if framed else "none",
                "facecolor": (*_rgb(palette.ORANGE), 0.65 * probability),
            },
        )  # fmt: skip
    return figure


def _places(words: Sequence[Sequence[str]], width: int) -> list[tuple[int, int, int, int]]:
    """Line and first character of each word, with its sentence and its place there."""
    places, line = [], -1
    for row, sentence in enumerate(words):
        line, column = line + 1, 0
        for place, word in enumerate(sentence):
            if column and column + len(word) > width:
                line, column = line + 1, 2
            places.append((line, column, row, place))
            column += len(word) + 1
    return places


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
