"""Images of one's own: what is in a file ``NAME.npz``."""

import hashlib
import itertools
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["digest", "read"]

# Structural similarity has a window of 5 pixels on small images.
_LEAST_SIDE = 5


def read(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images `(N, side, side)` and labels `(N,)` of training, validation and test.

    Raises:
        ValueError: the file is of another kind; the message says how.
    """
    names = [f"{part}_{what}" for part in ("train", "validation", "test") for what in ("images", "labels")]
    try:
        with np.load(path, allow_pickle=False) as file:
            found = [file[name] for name in names]
    # A file of numpy.save is a single array, which is a TypeError here.
    except (KeyError, ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: expected a file of numpy.savez with {', '.join(names)}, got {error}") from error
    side = found[0].shape[-1] if found[0].ndim == 3 else 0
    for name, array in zip(names, found, strict=True):
        if name.endswith("images"):
            fits = array.dtype == np.uint8 or array.dtype.kind == "f"
            if not (fits and array.shape[1:] == (side, side) and side >= _LEAST_SIDE and len(array)):
                raise ValueError(
                    f"{path}: {name}: expected unsigned bytes or floats of shape (N, side, side), of one side of "
                    f"{_LEAST_SIDE} or more for all parts, got {array.dtype} of shape {array.shape}"
                )
            if array.dtype == np.uint8 and array.max() <= 1:
                raise ValueError(
                    f"{path}: {name}: expected unsigned bytes from 0 to 255, got none above 1; give images of 0 and 1 "
                    "as floats"
                )
        elif array.dtype.kind not in "iu" or array.ndim != 1:
            raise ValueError(
                f"{path}: {name}: expected integers of shape (N,), got {array.dtype} of shape {array.shape}"
            )
    return list(zip(found[::2], found[1::2], strict=True))


def digest(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
    """Eight hexadecimal digits that change with any image or label."""
    content = hashlib.sha256()
    for array in itertools.chain(*parts):
        content.update(f"{array.dtype.str} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:8]
