"""Records to figures, the paper's among them; the one importer of matplotlib."""

import os
from collections.abc import Iterable
from pathlib import Path

try:
    # The object-oriented interface alone: pyplot would choose a backend and keep every figure alive.
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise ImportError("matplotlib is not installed; figures need: pip install 'ksubset[experiments]'") from error

from ksubset.experiments.plots import convergence, quality, reconstruction, scores, studies
from ksubset.experiments.protocols import name
from ksubset.experiments.records import Record, latest

__all__ = ["plot"]

_DPI = 110


def plot(records: Iterable[Record], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw every figure for which there are records, and the example of scores, into ``folder`` as PNG.

    - ``convergence-training-*``, ``convergence-validation-*``: metrics over the epochs, for each protocol.
    - ``reconstruction-*``: masks and reconstructions, for each data set and protocol; and of both named protocols.
    - ``time-to-*``: quality against time and against network evaluations, for each metric and data set.
    - ``annealing-*``, ``samples-*``: studies of ``k_start`` and ``samples``, where runs differ in nothing else.
    - ``scores``: needs no records.

    Interrupted runs are in figures of the first two kinds, as far as they came. Runs of a study are not, unless they
    follow a named protocol.

    Returns:
        The paths of the figures.

    Raises:
        OSError: the folder is not writable.
    """
    records = list(records)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    newest = latest(records)
    studied = studies.members(newest)
    others = [record for record in newest if name(record.config) or record.config not in studied]
    figures: dict[str, Figure] = {"scores": scores.draw()} | convergence.draw(others) | reconstruction.draw(others)
    figures |= quality.draw(records) | studies.draw(newest)
    paths = []
    for stem, figure in figures.items():
        path = folder / f"{stem.replace(' ', '-')}.png"
        figure.savefig(path, dpi=_DPI)
        paths.append(path)
    return paths
