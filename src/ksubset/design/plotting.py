"""Fields with their sensors as figures; the one importer of matplotlib here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.utils import check_array

from ksubset._support.palette import BLACK

__all__ = ["plot_field"]

_WIDTH = 3.4  # inches


def plot_field(
    coordinates: Any, fields: Mapping[str, Any], sensors: Any = (), *, difference: str | None = None, unit: str = ""
) -> Figure:
    """Draw fields side by side, with their sensors.

    The figure is none of pyplot's: a notebook shows it by `display(figure)`, and `figure.savefig` writes it to a file.

    Arguments:
        coordinates: Of the places, `(n, 2)`, in any order.
        fields: Values at the places by title, `(n)` each; all share one colour scale, `difference` apart.
        sensors: Indices of the places that have a sensor, `(k)`; they are circles with a white rim.
        difference: The title of a field that is a difference; it has a scale of its own, around 0.
        unit: Of the values, beside the scales.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: Coordinates, fields or sensors do not fit together; the message says which.
    """
    places = check_array(coordinates, dtype=np.float64, input_name="coordinates")
    if places.shape[1] != 2:
        raise ValueError(f"coordinates: expected shape (n, 2), got {places.shape}")
    values = {title: np.asarray(field, dtype=np.float64) for title, field in fields.items()}
    for title, field in values.items():
        if field.shape != (len(places),):
            raise ValueError(f"fields: expected {len(places)} values each, got shape {field.shape} for {title!r}")
    if not values:
        raise ValueError("fields: expected at least one field, got none")
    if difference is not None and difference not in values:
        raise ValueError(f"difference: expected one of {', '.join(values)}, got {difference!r}")
    chosen = np.asarray(sensors, dtype=np.int64)
    if chosen.ndim != 1 or ((chosen < 0) | (chosen >= len(places))).any():
        raise ValueError(f"sensors: expected indices from 0 to {len(places) - 1}, got {sensors!r}")
    shared = np.concatenate([field for title, field in values.items() if title != difference] or [np.zeros(1)])
    span = np.ptp(places, axis=0)
    height = min(2.0 * _WIDTH, max(0.5 * _WIDTH, _WIDTH * span[1] / max(span[0], 1e-300)))
    figure = Figure(figsize=(_WIDTH * len(values), 0.8 + height), layout="constrained")
    for panel, (title, field) in zip(figure.subplots(1, len(values), squeeze=False)[0], values.items(), strict=True):
        if title == difference:
            most = float(np.abs(field).max()) or 1.0
            _panel(panel, places, field, "RdBu_r", (-most, most), unit)
        else:
            _panel(panel, places, field, "viridis", (float(shared.min()), float(shared.max())), unit)
        panel.plot(*places[chosen].T, "o", markersize=7, color=BLACK, markeredgecolor="white", markeredgewidth=1.4)
        panel.set_title(title, fontsize="medium")
    return figure


def _panel(panel: Axes, places: Any, field: Any, colours: str, limits: tuple[float, float], unit: str) -> None:
    # Dots as large as the places are apart, which need no mesh and leave holes where the field has holes.
    corner, span = places.min(0), np.ptp(places, axis=0)
    panel.set_aspect("equal")
    panel.set(xlim=(corner[0], corner[0] + span[0]), ylim=(corner[1], corner[1] + span[1]), xticks=[], yticks=[])
    inches = _WIDTH / max(span.max(), 1e-300)
    size = 72 * inches * np.sqrt(span[0] * span[1] / len(places))
    image = panel.scatter(
        places[:, 0], places[:, 1], c=field, s=max(2.0, 1.6 * size) ** 2, cmap=colours, vmin=limits[0], vmax=limits[1],
        marker="s", linewidths=0, rasterized=True,
    )  # fmt: skip
    panel.figure.colorbar(image, ax=panel, location="bottom", label=unit, shrink=0.9)
