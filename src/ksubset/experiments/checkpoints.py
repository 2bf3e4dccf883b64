"""Where a run that was killed goes on: one file of :mod:`ksubset.training`, for one process at a time."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from ksubset import training
from ksubset._support import files
from ksubset._support.identity import digests
from ksubset.experiments.config import RunConfig

__all__ = ["exclusive", "remove", "resume", "save"]

_FOLDER, _FILE, _LOCK = "checkpoints", "checkpoint.pt", "lock"


@contextmanager
def exclusive(out: Path, config: RunConfig) -> Iterator[Path]:
    """Keep every other process from this run while the context lasts; gives the run's folder of checkpoints.

    Raises:
        OSError: another process is at this run, or the folder is not writable.
    """
    folder = files.prepare(out / _FOLDER / config.name())
    busy = f"{folder}: another process is training {config.name()}; let it finish, or give another folder with --out"
    with files.exclusive(folder / _LOCK, busy):
        yield folder


def save(
    folder: Path, config: RunConfig, state: Mapping[str, Tensor], history: list[dict[str, Any]], seconds: float
) -> None:
    """Write a checkpoint over the one before it, whole or not at all.

    Arguments:
        folder: as of :func:`exclusive`.
        config: the run's settings.
        state: as of :meth:`ksubset.training.JointTraining.state_dict`.
        history: the entries of the finished epochs.
        seconds: wall-clock time spent on them, loading included.

    Raises:
        OSError: it cannot be written; the one before it stays.
    """
    content = {"training": dict(state), "history": history, "seconds": seconds}
    training.save(folder / _FILE, content, digests(config.changed()))


def resume(joint: training.JointTraining, config: RunConfig, folder: Path) -> tuple[list[dict[str, Any]], float]:
    """Go on after the checkpoint of a run, if there is one; gives its history and seconds, none of either otherwise.

    Raises:
        ValueError: the checkpoint is damaged, or of another configuration or version; the message says how to go on.
    """
    path = folder / _FILE
    if (found := training.load(path)) is None:
        return [], 0.0
    found.check(digests(config.changed()))
    try:
        joint.load_state_dict(found.state["training"])
        history, seconds = found.state["history"], float(found.state["seconds"])
        numbers = [entry["epoch"] for entry in history]
    except (LookupError, RuntimeError, TypeError) as error:  # whole, as its checksums say, but not of this code
        raise ValueError(
            f"checkpoint: expected a file of this version of ksubset, got {path} ({error!r}); delete it to start anew"
        ) from error
    # Its checksums tell what was damaged, not what was changed.
    if numbers != list(range(1, joint.round + 1)):
        raise ValueError(
            f"checkpoint: expected the history of the {joint.round} finished epochs, got {path} with "
            f"{len(history)} entries; delete it to start anew"
        )
    return history, seconds


def remove(folder: Path) -> None:
    """Delete the checkpoints of a run that has its record."""
    shutil.rmtree(folder, ignore_errors=True)
    # It stays where it holds those of other runs, and one of them may have removed it just now.
    with suppress(OSError):
        folder.parent.rmdir()
