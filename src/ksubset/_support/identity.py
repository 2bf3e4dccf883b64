"""What a stored result depends on, as named digests, so that a file of something else is refused by name."""

import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ksubset._support.extras import require

__all__ = ["differences", "digests"]


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Hashes of what values hold, the same in every process; functions and classes count by their names.

    Raises:
        TypeError: A value cannot be pickled; the message names it.
        ImportError: joblib is not installed.
    """
    hashed = require("joblib", "search").hash
    result = {}
    for name, value in values.items():
        plain = _plain(value)
        try:
            # Within dicts joblib passes over what cannot be pickled, and all that follows. Arrays are not copied.
            pickle.dumps(plain, protocol=5, buffer_callback=lambda _: None)
            result[name] = str(hashed(plain))
        # How pickle says so depends on what it met, and on Python's version.
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise TypeError(
                f"{name}: expected a value that can be pickled, got {type(value).__name__} ({error.args[0]})"
            ) from error
    return result


def _plain(value: Any) -> Any:
    """With arrays instead of tensors, which do not pickle the same in every process."""
    if isinstance(value, Tensor):
        data = value.detach().cpu().flatten().contiguous()
        return str(value.dtype), tuple(value.shape), data.view(torch.uint8).numpy()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # Equal numbers and arrays, whatever their type or their order in memory.
    np = require("numpy", "search")
    if isinstance(value, np.generic):
        return value.item()
    return np.ascontiguousarray(value) if type(value) is np.ndarray and value.ndim > 1 else value


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Names of the digests that differ, or that only one side has; in the order of mine, then of theirs."""
    return [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
