"""Where a run that was killed goes on: a folder with one JSON file and the tensors it names."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from ksubset._support import files
from ksubset._support.extras import require
from ksubset._support.identity import differences
from ksubset.experiments.config import RunConfig

__all__ = ["Checkpoint", "exclusive", "load", "remove", "save"]

_FOLDER, _INDEX, _LOCK = "checkpoints", "checkpoint.json", "lock"


@dataclass(frozen=True)
class Checkpoint:
    """A run after some of its epochs.

    Arguments:
        history: the entries of the finished epochs.
        seconds: wall-clock time spent on them, loading included.
        state: as of :meth:`ksubset.training.JointTraining.state_dict`.
    """

    history: list[dict[str, Any]]
    seconds: float
    state: dict[str, Tensor]


@contextmanager
def exclusive(out: Path, config: RunConfig) -> Iterator[Path]:
    """Keep every other process from this run while the context lasts; gives the run's folder of checkpoints.

    The operating system frees the lock of a process that was killed.

    Raises:
        OSError: another process is at this run, or the folder is not writable.
    """
    folder = files.prepare(out / _FOLDER / config.name())
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise OSError(
            f"{folder}: another process is training {config.name()}; let it finish, or give another folder with --out"
        ) from error
    try:
        yield folder
    finally:
        lock.release()


def save(checkpoint: Checkpoint, config: RunConfig, folder: Path) -> None:
    """Write a checkpoint over the one before it, whole or not at all.

    Raises:
        OSError: it cannot be written; the one before it stays.
        ImportError: safetensors is missing.
    """
    state = {name: tensor.cpu().contiguous() for name, tensor in checkpoint.state.items()}
    tensors = require("safetensors.torch").save(state)
    name = _tensors(len(checkpoint.history))
    files.write(folder / name, tensors)
    index = {"config": dataclasses.asdict(config), "history": checkpoint.history, "seconds": checkpoint.seconds}
    index |= {"state": name, "sha256": hashlib.sha256(tensors).hexdigest()}
    files.write(folder / _INDEX, json.dumps(index).encode())
    for path in folder.glob("*.safetensors"):
        if path.name != name:
            path.unlink()


def _tensors(epochs: int) -> str:
    return f"epoch-{epochs}.safetensors"


def load(config: RunConfig, folder: Path) -> Checkpoint | None:
    """The checkpoint of a run; None if there is none.

    Raises:
        ValueError: the checkpoint is damaged; the message says how to go on.
        ImportError: safetensors is missing.
    """
    path = folder / _INDEX
    if not path.exists():
        return None
    try:
        index = json.loads(path.read_bytes())
        tensors = (folder / index["state"]).read_bytes()
        if hashlib.sha256(tensors).hexdigest() != index["sha256"]:
            raise ValueError(f"{index['state']} has another checksum")
        if index["state"] != _tensors(len(index["history"])):
            raise ValueError(f"its history has {len(index['history'])} epochs, its tensors are {index['state']}")
        # A setting that came with a later version has its default, as in the name of the run.
        theirs = {field.name: field.default for field in dataclasses.fields(config)} | index["config"]
        if differing := differences(dataclasses.asdict(config), theirs):
            raise ValueError(f"it belongs to another configuration, which differs in {', '.join(differing)}")
        return Checkpoint(index["history"], index["seconds"], require("safetensors.torch").load(tensors))
    # A file of another kind fails in one of these ways: no JSON, not a mapping, missing fields, a missing file.
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise ValueError(
            f"{path}: expected a checkpoint of this run, got {error!r}; delete the folder {folder} to start it anew"
        ) from error


def remove(folder: Path) -> None:
    """Delete the checkpoints of a run that has its record."""
    shutil.rmtree(folder, ignore_errors=True)
    # It stays where it holds those of other runs, and one of them may have removed it just now.
    with suppress(OSError):
        folder.parent.rmdir()
