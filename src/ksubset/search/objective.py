"""Calls of the function that is minimized: what it gets, what it may return, and workers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from ksubset.search.workers import streaming

__all__ = ["ENCODINGS", "Objective", "encoded"]

ENCODINGS = ("indices", "mask")


def encoded(subsets: list[NDArray[np.int64]], encoding: str, num_items: int) -> NDArray[Any]:
    """Subsets as rows of indices `(S, k)`, or as masks `(S, n)`."""
    if encoding == "indices":
        return np.stack(subsets) if subsets else np.zeros((0, 0), dtype=np.int64)
    masks = np.zeros((len(subsets), num_items), dtype=bool)
    for mask, items in zip(masks, subsets, strict=True):
        mask[items] = True
    return masks


class Objective:
    """Evaluates subsets, in this process or in workers.

    Arguments:
        function: What is minimized.
        num_items: Items n.
        encoding: "indices" or "mask".
        vectorized: Whether the function takes many subsets at a time.
        n_jobs: Calls at a time, as joblib has it.
    """

    def __init__(
        self, function: Callable[..., Any], num_items: int, encoding: str, *, vectorized: bool, n_jobs: int | None
    ) -> None:
        self._function, self._num_items, self._encoding = function, num_items, encoding
        self._vectorized, self.num_workers = vectorized, effective_n_jobs(n_jobs)
        self.workers = streaming(Parallel, n_jobs)
        """To be entered around many calls: a cluster starts workers anew for each call otherwise, in seconds."""

    def __call__(self, subsets: list[NDArray[np.int64]]) -> Iterator[float]:
        """Values of subsets one by one, as soon as they are there; what is not finite is infinite, the worst.

        Raises:
            TypeError, ValueError: The function returned something else than numbers, one for each subset.
            Whatever the function does.
        """
        if not subsets:
            return
        if self._vectorized:
            parts = np.array_split(
                encoded(subsets, self._encoding, self._num_items), min(self.num_workers, len(subsets))
            )
            for part, result in zip(parts, self._results(parts), strict=True):
                yield from _numbers(result, len(part)).tolist()
        else:
            # One by one, as groups may differ in size.
            yield from map(
                _number, self._results([encoded([one], self._encoding, self._num_items)[0] for one in subsets])
            )

    def _results(self, inputs: list[Any]) -> Iterable[Any]:
        if self.num_workers == 1 or len(inputs) == 1:
            return map(self._function, inputs)
        results: Iterable[Any] = self.workers(delayed(self._function)(one) for one in inputs)
        return results


def _number(result: Any) -> float:
    if isinstance(result, float):
        return result if -np.inf < result < np.inf else np.inf
    return float(_numbers(result, None)[()])


def _numbers(result: Any, count: int | None) -> NDArray[np.float64]:
    """Values `(count)`, or a single one `()`; not finite ones infinite."""
    expected = "a number" if count is None else f"shape ({count},), a number for each subset"
    try:
        values = np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"f: expected to return {expected}, got {type(result).__name__} ({error})") from error
    if count is None and values.size == 1:
        values = values.reshape(())
    if values.shape != (() if count is None else (count,)):
        raise ValueError(f"f: expected to return {expected}, got shape {values.shape}")
    return np.where(np.isfinite(values), values, np.inf)
