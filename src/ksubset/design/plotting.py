"""Fields with their sensors as figures; the one importer of matplotlib here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import KDTree
from sklearn.utils import check_array

from ksubset._support.palette import BLACK
from ksubset.design.criteria import Array

__all__ = ["plot_field"]

_WIDTH = 3.4  # inches
_LONGEST = 3.0
_PIXELS = 400
# Share of the values within the colours' limits; a few extreme ones would leave all others alike.
_SHOWN = 0.995


def plot_field(
    coordinates: Any, fields: Mapping[str, Any], sensors: Any = (), *, difference: str | None = None, unit: str = ""
) -> Figure:
    """Draw fields side by side, with their sensors.

    The figure is none of pyplot's: a notebook shows it by `display(figure)`, and `figure.savefig` writes it to a file.

    Arguments:
        coordinates: Of the places, `(n, 2)`, in any order.
        fields: Values at the places by title, `(n)` each; all share one colour scale, `difference` apart, that holds
            99 % of the values. A region that is longer than three times its width is not drawn to scale.
        sensors: Indices of the places that have a sensor, `(k)`, or a boolean mask `(n)`; they are circles with a
            white rim.
        difference: The title of a field that is a difference; it has a scale of its own, around 0.
        unit: Of the values, beside the scales.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: Coordinates, fields or sensors do not fit together; the message says which.

    Example:
        >>> import numpy as np
        >>> places = np.stack(np.meshgrid(np.arange(20), np.arange(10)), -1).reshape(-1, 2)
        >>> figure = plot_field(places, {"height": np.sin(places.sum(1) / 3)}, sensors=[5, 150])
        >>> len(figure.axes)
        2
    """
    if np.ndim(coordinates) != 2 or np.shape(coordinates)[1] != 2:
        raise ValueError(f"coordinates: expected shape (n, 2), got {np.shape(coordinates)}")
    places = check_array(coordinates, dtype=np.float64, input_name="coordinates")
    values = {title: np.asarray(field, dtype=np.float64) for title, field in fields.items()}
    for title, field in values.items():
        if field.shape != (len(places),):
            raise ValueError(f"fields: expected {len(places)} values each, got shape {field.shape} for {title!r}")
    if not values:
        raise ValueError("fields: expected at least one field, got none")
    if difference is not None and difference not in values:
        raise ValueError(f"difference: expected one of {', '.join(values)}, got {difference!r}")
    chosen = np.asarray(sensors)
    if chosen.dtype == bool and chosen.shape == (len(places),):
        chosen = np.flatnonzero(chosen)
    whole = chosen.dtype.kind in "iu" or not chosen.size
    if not whole or chosen.ndim != 1 or ((chosen < 0) | (chosen >= len(places))).any():
        raise ValueError(
            f"sensors: expected indices from 0 to {len(places) - 1}, or a boolean mask of {len(places)}, "
            f"got {sensors!r}"
        )
    chosen = chosen.astype(np.int64)
    shared = np.concatenate([field for title, field in values.items() if title != difference] or [np.zeros(1)])
    span = np.ptp(places, axis=0)
    # A long strip would be too thin to see anything in.
    equal = bool(1 / _LONGEST < span[1] / max(span[0], 1e-300) < _LONGEST)
    height = _WIDTH * (span[1] / span[0] if equal else 1.2)
    figure = Figure(figsize=(_WIDTH * len(values), 1.2 + height), layout="constrained")
    # What is near is what looks near.
    image_of = _Pixels(places, 1.0 if equal else span)
    for panel, (title, field) in zip(figure.subplots(1, len(values), squeeze=False)[0], values.items(), strict=True):
        if title == difference:
            most = float(np.quantile(np.abs(field), _SHOWN)) or 1.0
            colours, limits = "RdBu_r", (-most, most)
        else:
            low, high = np.quantile(shared, [1 - _SHOWN, _SHOWN])
            colours, limits = "viridis", (float(low), float(high))
        image = panel.imshow(
            image_of(field), origin="lower", extent=image_of.extent, cmap=colours, vmin=limits[0], vmax=limits[1],
            aspect="equal" if equal else "auto", interpolation="nearest",
        )  # fmt: skip
        figure.colorbar(image, ax=panel, location="bottom", label=unit, shrink=0.9, extend=_extend(field, limits))
        panel.plot(
            *places[chosen].T, "o", markersize=7, color=BLACK, markeredgecolor="white", markeredgewidth=1.4,
            clip_on=False,
        )  # fmt: skip
        panel.set_title(title, fontsize="medium")
        panel.set(xticks=[], yticks=[], xlim=image_of.extent[:2], ylim=image_of.extent[2:])
    return figure


class _Pixels:
    """Fields at places `(n, 2)` as images: the nearest place of each pixel, and nothing where there is none near.

    Distances are those of coordinates divided by `unit`.
    """

    def __init__(self, places: Array, unit: Array | float) -> None:
        low, span = places.min(0), np.maximum(np.ptp(places, axis=0), 1e-300)
        self.extent = (low[0], low[0] + span[0], low[1], low[1] + span[1])
        """Left, right, bottom, top."""
        shape = np.clip(_PIXELS * span / span.max(), _PIXELS // 3, None).astype(int)
        tree = KDTree(places / unit)
        x, y = ((np.arange(count) + 0.5) / count for count in shape)
        centres = low + span * np.stack(np.meshgrid(x, y), -1)
        distance, self._nearest = tree.query(centres / unit)
        # How far places are apart there: those next to each place, of which itself is the first.
        apart = tree.query(places / unit, min(5, len(places)))[0][:, -1]
        self._empty = distance > 1.5 * np.maximum(apart[self._nearest], (span / shape / unit).max())

    def __call__(self, field: Array) -> Array:
        return np.where(self._empty, np.nan, field[self._nearest])


def _extend(field: Array, limits: tuple[float, float]) -> str:
    below, above = field.min() < limits[0], field.max() > limits[1]
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[below, above]
