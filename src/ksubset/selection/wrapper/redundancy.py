"""Items of which a subset needs one, as others say nearly the same."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Redundancy", "firsts"]


class Redundancy:
    """Near-copies within subsets.

    Arguments:
        alike: Maps items `(m)` to which of them are near-copies of each other `(m, m)`, or on the diagonal of something
            that is in every subset; None if there are none.
    """

    def __init__(self, alike: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None) -> None:
        self._alike = alike
        self._counts: dict[bytes, int] = {}

    def redundant(self, subset: NDArray[np.int64]) -> NDArray[np.int64]:
        """Items that have a near-copy in the subset."""
        return subset[:0] if self._alike is None else subset[self._alike(subset).any(1)]

    def count(self, subset: NDArray[np.int64]) -> int:
        """How many these are; a subset is looked at once."""
        key = subset.tobytes()
        if key not in self._counts:
            self._counts[key] = len(self.redundant(subset))
        return self._counts[key]

    def thinned(self, items: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """The first so many items that are no near-copies of those before, filled up with the first ones left out."""
        if self._alike is None:
            return items[:size]
        kept = firsts(self._alike(items))
        kept &= kept.cumsum() <= size
        return np.append(items[kept], items[~kept][: size - kept.sum()])


def firsts(alike: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which items `(m)` are like none of those before them that are such themselves; `(m, m)`, the diagonal too."""
    kept = np.zeros(len(alike), dtype=bool)
    for place in range(len(alike)):
        kept[place] = not (alike[place, place] or alike[place, kept].any())
    return kept
