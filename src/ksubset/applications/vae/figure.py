"""Images, what the autoencoder makes of them, and what it dreams up."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from ksubset._support.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_SIDE = 0.55  # inches, of an image


def draw(images: Tensor, reconstructions: Tensor, samples: Tensor, columns: int = 12) -> "Figure":
    """A figure of square images: pairs of an image above its reconstruction, then samples from the prior.

    Arguments:
        images: Grey levels in [0, 1].
        reconstructions: The same, of each image.
        samples: The same, of codes from the prior.
        columns: Images side by side.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: The images are not square, there is another number of reconstructions, samples have another size,
            or there is no column.

    Shapes:
        images and reconstructions `(B, pixels)`, samples `(S, pixels)`.

    Example:
        >>> import torch
        >>> figure = draw(torch.rand(4, 64), torch.rand(4, 64), samples=torch.rand(6, 64), columns=4)
        >>> len(figure.axes)  # two rows of pairs and two of samples; `figure.savefig` writes it to a file
        16
    """
    side = math.isqrt(images.shape[-1])
    if side**2 != images.shape[-1]:
        raise ValueError(f"images must be square to be drawn, got {images.shape[-1]} pixels")
    if columns < 1:
        raise ValueError(f"columns must be 1 or more, got {columns}")
    if samples.shape[-1] != side**2:
        raise ValueError(f"samples must have the {side**2} pixels of images, got {samples.shape[-1]}")
    if images.shape != reconstructions.shape:
        raise ValueError(
            f"reconstructions must have the shape of images, {tuple(images.shape)}, got {tuple(reconstructions.shape)}"
        )
    halves = _paired(images, reconstructions, columns), list(samples.split(columns))
    heights = [len(rows) for rows in halves]
    # The object-oriented interface alone: pyplot would choose a backend and keep every figure alive.
    figure: Figure = require("matplotlib.figure").Figure(
        figsize=(_SIDE * columns, _SIDE * sum(heights) + 0.7), layout="constrained"
    )
    titles = "images, each above its reconstruction", "samples from the prior"
    parts = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, rows, title in zip(parts, halves, titles, strict=True):
        part.suptitle(title, fontsize="medium")
        for panels, row in zip(part.subplots(len(rows), columns, squeeze=False), rows, strict=True):
            for panel in panels:
                panel.set_axis_off()
            for panel, image in zip(panels, row, strict=False):
                _show(panel, image.view(side, side))
    return figure


def _paired(images: Tensor, reconstructions: Tensor, columns: int) -> list[Tensor]:
    pairs = zip(images.split(columns), reconstructions.split(columns), strict=True)
    return [row for pair in pairs for row in pair]


def _show(panel: "Axes", image: Tensor) -> None:
    panel.imshow(image.detach().float().cpu().numpy(), cmap="gray", vmin=0, vmax=1)
