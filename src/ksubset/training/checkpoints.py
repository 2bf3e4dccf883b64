"""A file from which a training goes on, in another process, too."""

import io
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.serialization import config

from ksubset._support.files import write
from ksubset._support.identity import differences

__all__ = ["Checkpoint", "load", "save"]

_NAMED = 5


@dataclass(frozen=True)
class Checkpoint:
    """A training after some of its steps.

    Arguments:
        path: The file.
        identity: Named digests of what the training depends on, as of `JointTraining.identity`.
        state: A mapping, perhaps nested, of tensors and numbers, as of `JointTraining.state_dict`.

    Example:
        >>> checkpoint = Checkpoint(Path("run.pt"), {"data": "5f2c", "plan": "91be"}, {"steps": 100})
        >>> checkpoint.check({"data": "5f2c", "plan": "91be"})  # of the same training, so no error
        >>> checkpoint.state["steps"]
        100
    """

    path: Path
    identity: dict[str, str]
    state: dict[str, Any]

    def check(self, identity: Mapping[str, str]) -> None:
        """Make sure that it is of this training.

        Raises:
            ValueError: It is not; the message names what differs.
        """
        if differing := differences(identity, self.identity):
            # What comes first is what was set; much may follow from it.
            names = ", ".join(differing[:_NAMED]) + (" and others" if len(differing) > _NAMED else "")
            raise ValueError(
                f"checkpoint: expected a file of the same data and settings, got {self.path}, which differs in "
                f"{names}; delete it, or give another path"
            )


def save(path: str | Path, state: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    """Write a checkpoint over the one before it, whole or not at all.

    Arguments:
        path: Of the file, in a folder that exists.
        state: A mapping, perhaps nested, of tensors and numbers, as of `JointTraining.state_dict`.
        identity: Named digests of what the training depends on, as of `JointTraining.identity`.

    Raises:
        TypeError: The state holds something else, an array or scalar of NumPy, for example, which `load` does not read.
        OSError: It cannot be written; what was there stays.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.pt"
        ...     save(path, {"weights": torch.ones(3)}, {"data": "5f2c"})
        ...     print(load(path).state)
        {'weights': tensor([1., 1., 1.])}
    """
    content = io.BytesIO()
    # Whoever saves other files without checksums may; `load` looks at those of this one.
    with config.patch("save.compute_crc32", True):  # type: ignore[attr-defined]  # missing in torch's types
        torch.save({"identity": dict(identity), "state": dict(state)}, content)
    content.seek(0)
    try:
        torch.load(content, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        raise TypeError(f"state: expected tensors and numbers of Python, got something else ({error})") from error
    write(Path(path), content.getvalue())


def load(path: str | Path) -> Checkpoint | None:
    """What `save` has written, on the CPU; None if there is no file.

    Arguments:
        path: Of the file.

    Raises:
        ValueError: The file is of another kind, or damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.pt"
        ...     for _ in range(2):  # the second time it goes on from the file
        ...         found = load(path)
        ...         steps = 0 if found is None else found.state["steps"]
        ...         save(path, {"steps": steps + 100}, {"data": "5f2c"})
        ...         print(steps)
        0
        100
    """
    path = Path(path)
    if not path.exists():
        return None
    content = io.BytesIO(path.read_bytes())
    try:
        # torch does not look at the checksums of what it reads, and reads nothing of what is marked as a folder.
        with zipfile.ZipFile(content) as archive:
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {damaged} is another one")
            if any(entry.external_attr for entry in archive.infolist()):
                raise ValueError("its entries have attributes")
        content.seek(0)
        # What torch warns of is a file of another kind, and so an error.
        with warnings.catch_warnings(action="ignore"):
            saved = torch.load(content, map_location="cpu", weights_only=True, mmap=False)
        if saved.keys() != {"identity", "state"}:
            raise ValueError("it has other entries")
    # Other files fail in one of these ways: no archive, none of tensors alone, not a mapping.
    except (
        zipfile.BadZipFile, zlib.error, pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, ValueError,
    ) as error:  # fmt: skip
        raise ValueError(
            f"checkpoint: expected a file of a training, got {path} ({error!r}); delete it, or give another path"
        ) from error
    return Checkpoint(path, **saved)
