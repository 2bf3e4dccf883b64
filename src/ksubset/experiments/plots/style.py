"""What all figures share: colours, order and words."""

import statistics
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ksubset._support import palette
from ksubset._support.markdown import quantity
from ksubset.experiments.methods import METHODS as _KNOWN
from ksubset.experiments.tasks import MEASURES, TASKS

__all__ = [
    "DATASETS",
    "MARKERS",
    "METHODS",
    "METRICS",
    "colour",
    "counted",
    "dashes",
    "logarithmic",
    "marker",
    "ordered",
    "some",
    "spread",
]

METHODS = tuple(method.label for method in _KNOWN.values())
# More than there are colours, so that where a colour comes again the marker is another.
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "*", "h", "p", "<", ">", "d")
_DASHES = ("-", "--", "-.", ":")
_MARKED = 8
DATASETS = ("MNIST", "Fashion-MNIST", "KMNIST")
METRICS = {name: MEASURES[name].label for name in (next(iter(task.measures)) for task in reversed(TASKS.values()))}
"""The first metric of each task, and how axes call it."""


def colour(method: str, others: Iterable[str] = ()) -> str:
    """The colour of a method, the same in all figures; one that is not ours has its place among ``others``."""
    return palette.COLOURS[_place(method, others) % len(palette.COLOURS)]


def marker(method: str, others: Iterable[str] = ()) -> str:
    """The marker of a method, that tells it from others where colours do not; as :func:`colour`."""
    return MARKERS[_place(method, others) % len(MARKERS)]


def dashes(method: str, others: Iterable[str] = ()) -> str:
    """The style of a method's line, another one than that of the methods with the same colour; as :func:`colour`."""
    place = _place(method, others)
    return _DASHES[(place + place // len(palette.COLOURS)) % len(_DASHES)]


def _place(method: str, others: Iterable[str]) -> int:
    return ordered([*METHODS, method, *others], METHODS).index(method)


def some(points: Sequence[object], place: int = 0) -> list[int]:
    """Which points of a line have a marker: few, and others on the lines beside it."""
    step = max(1, len(points) // _MARKED)
    return list(range(place % step, len(points), step))


def ordered(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """Names in the order of ``first``, others after them by the alphabet."""
    return sorted(set(names), key=lambda name: (first.index(name) if name in first else len(first), name))


def spread(values: Sequence[float]) -> float:
    """Two standard deviations of a sample; 0 for a single value."""
    return 2 * statistics.stdev(values) if len(values) > 1 else 0.0


def counted(numbers: Iterable[int], noun: str) -> str:
    """Numbers that may differ, in words: ``3 seeds``, ``1 to 3 seeds``."""
    least, *_, most = 2 * sorted(numbers)
    return ("" if least == most else f"{least} to ") + quantity(most, noun)


def logarithmic(panel: Axes, title: str) -> None:
    """Make the horizontal axis logarithmic, with labels that stay apart on less than a decade too."""
    panel.set_xscale("log")
    panel.set_xlabel(title)
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(_short))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", labelsize="small")


def _short(value: float, _: int | None = None) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
