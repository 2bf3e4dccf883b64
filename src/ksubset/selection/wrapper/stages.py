"""Folds in the order in which subsets are scored on them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["each_with_each", "in_stages"]

_ENOUGH_ROWS = 30


def in_stages(fold_rows: Sequence[int]) -> list[NDArray[np.intp]]:
    """Folds in their order, taken together until they have rows enough; too few at the end go with those before."""
    found, start = [], 0
    for fold in range(len(fold_rows)):
        if sum(fold_rows[start : fold + 1]) >= _ENOUGH_ROWS:
            found.append(np.arange(start, fold + 1))
            start = fold + 1
    rest = np.arange(start, len(fold_rows))
    if not found:
        return [rest]
    found[-1] = np.append(found[-1], rest)
    return found


def each_with_each(rows: NDArray[np.intp], folds: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Each row with each fold."""
    return np.repeat(rows, len(folds)), np.tile(folds, len(rows))
