"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ksubset._support.extras import require

__all__ = ["exclusive", "prepare", "write"]


@contextmanager
def exclusive(path: Path, message: str) -> Iterator[None]:
    """Keep every other process out while the context lasts; the operating system frees the lock of a killed one.

    Arguments:
        path: Of the lock, a file of its own that stays.
        message: Of the error, where another process is in it.

    Raises:
        OSError: Another process is in it, or the file cannot be written.
        ImportError: filelock is not installed.
    """
    filelock = require("filelock")
    try:
        with filelock.FileLock(path, timeout=0):
            yield
    except filelock.Timeout as error:
        raise OSError(message) from error


def prepare(folder: str | os.PathLike[str], name: str = "out") -> Path:
    """Make sure that files can be written into ``folder``, creating it if necessary.

    Arguments:
        folder: where to write.
        name: what the caller calls it.

    Raises:
        OSError: they cannot; the message names the folder. Better before the training than after it.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{name}: expected a folder to write into, got {folder} ({error})") from error
    return folder


def write(path: Path, content: bytes) -> None:
    """Write a file over what is there; if that fails, or the process is killed, what was there stays.

    Raises:
        OSError: the file cannot be written; the message names it.
    """
    # In the same folder, because a file is replaced atomically within one file system only.
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise OSError(f"{path}: cannot be written, what was there is kept ({error})") from error
    finally:
        draft.unlink(missing_ok=True)
