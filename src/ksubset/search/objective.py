"""Calls of the function that is minimized: what it gets, what it may return, and workers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from ksubset.search.workers import streaming

__all__ = ["ENCODINGS", "Objective", "encoded", "numbers"]

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
                expected = f"f: expected to return shape ({len(part)},), a number for each subset"
                yield from numbers(result, len(part), expected).tolist()
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
    return float(numbers(result, None, "f: expected to return a number")[()])


def numbers(result: Any, count: int | None, expected: str) -> NDArray[np.float64]:
    """Values `(count)`, or a single one `()`; not finite ones infinite.

    Raises:
        TypeError, ValueError: They are none; the message begins with what was expected.
    """
    if isinstance(result, torch.Tensor):
        # NumPy has no bfloat16.
        result = (result.float() if result.dtype == torch.bfloat16 else result).detach().cpu()
    try:
        plain = np.asarray(result)
        # NumPy would take None as NaN, parse strings, and drop imaginary parts.
        if plain.dtype.kind not in "biufO":
            raise TypeError(f"{plain.dtype} is no real number")
        if plain.dtype == object and any(one is None for one in plain.flat):
            raise TypeError("None is no number")
        values = np.asarray(result, dtype=np.float64)
    except OverflowError as error:
        raise ValueError(f"{expected}, got one too large for float64") from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{expected}, got {type(result).__name__} ({error})") from error
    if count is None and values.size == 1:
        values = values.reshape(())
    if values.shape != (() if count is None else (count,)):
        raise ValueError(f"{expected}, got shape {values.shape}")
    return np.where(np.isfinite(values), values, np.inf)
