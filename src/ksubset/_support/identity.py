"""What a stored result depends on, as named digests, so that a file of something else is refused by name."""

from collections.abc import Mapping
from pickle import PicklingError
from typing import Any

from ksubset._support.extras import require

__all__ = ["differences", "digest"]


def digest(value: Any) -> str:
    """Hash of what a value holds, the same in every process; functions and classes count by their names.

    Raises:
        TypeError: The value cannot be pickled.
        ImportError: joblib is not installed.
    """
    try:
        return str(require("joblib", "selection").hash(value))
    # How pickle says so depends on what it met, and on Python's version.
    except (PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"expected a value that can be pickled, got {type(value).__name__} ({error.args[0]})"
        ) from error


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Names of the digests that differ, or that only one side has; in the order of mine, then of theirs."""
    return [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
