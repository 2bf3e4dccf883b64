"""Records to figures, the paper's among them; the one importer of matplotlib."""

import os
from collections.abc import Iterable
from pathlib import Path

try:
    # The object-oriented interface alone: pyplot would choose a backend and keep every figure alive.
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise ImportError("matplotlib is not installed; figures need: pip install 'ksubset[experiments]'") from error

from ksubset._support import files
from ksubset.experiments.plots import convergence, quality, reconstruction, scores, studies
from ksubset.experiments.protocols import name
from ksubset.experiments.records import Record, latest

__all__ = ["FORMATS", "plot"]

FORMATS = ("png", "svg", "pdf")

_DPI = 110


def plot(records: Iterable[Record], folder: str | os.PathLike[str], format: str = "png") -> list[Path]:
    """Draw every figure for which there are records, and the example of scores, into ``folder``.

    - ``convergence-training-*``, ``convergence-validation-*``: metrics over the epochs, for each protocol.
    - ``reconstruction-*``: masks and reconstructions, for each data set and protocol; and of both named protocols.
    - ``time-to-*``: quality against time and against network evaluations, for each metric, data set and protocol.
    - ``annealing-*``, ``samples-*``: studies of ``k_start`` and ``samples``, where runs differ in nothing else.
    - ``scores``: needs no records.

    Interrupted runs are in figures of the first two kinds, as far as they came. Runs of a study are not, unless they
    follow a named protocol.

    Arguments:
        records: as of :func:`ksubset.experiments.records.read`.
        folder: where to write.
        format: ``"png"``, ``"svg"`` or ``"pdf"``.

    Returns:
        The paths of the figures.

    Raises:
        ValueError: the format is another one.
        OSError: the folder is not writable.
    """
    if format not in FORMATS:
        raise ValueError(f"format: expected one of {', '.join(FORMATS)}, got {format!r}")
    records = list(records)
    folder = files.prepare(folder)
    newest = latest(records)
    studied = studies.members(newest)
    others = [record for record in newest if name(record.config) or record.config not in studied]
    figures: dict[str, Figure] = {"scores": scores.draw()} | convergence.draw(others) | reconstruction.draw(others)
    figures |= quality.draw(records) | studies.draw(newest)
    paths = []
    for stem, figure in figures.items():
        path = folder / f"{stem.replace(' ', '-')}.{format}"
        figure.savefig(path, dpi=_DPI)
        paths.append(path)
    return paths
