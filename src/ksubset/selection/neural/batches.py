"""Rows of data as a network takes them: on one scale, and drawn by their weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches
from torch import Generator, Tensor

__all__ = ["Batches", "DenseRows", "Scaling", "SparseRows"]

_CHUNK = 4096
# Digits that a mean or scale keeps, in binary, relative to the scale.
_BITS = 20


@dataclass(frozen=True)
class Scaling:
    """The mean and the standard deviation of each column; 1 instead of 0.

    Arguments:
        mean, scale: `(n)`.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, data: Any, weights: NDArray[np.float64]) -> "Scaling":
        """Of data `(N, n)`, dense or sparse, with weights `(N)`."""
        scaler = StandardScaler(with_mean=not hasattr(data, "tocsr")).fit(data, sample_weight=weights)
        # The last digits depend on the order in which rows are summed, which should not change the training.
        scale = np.ldexp(np.rint(np.ldexp(np.frexp(scaler.scale_)[0], _BITS)), np.frexp(scaler.scale_)[1] - _BITS)
        unit = np.ldexp(1.0, np.frexp(scale)[1] - _BITS)
        return cls(np.rint(scaler.mean_ / unit) * unit, scale)

    def apply(self, data: Any) -> NDArray[np.float32]:
        """Standardise rows `(B, n)`, dense or sparse; the result is dense."""
        dense = data.toarray() if hasattr(data, "toarray") else data
        result: NDArray[np.float32] = ((dense - self.mean) / self.scale).astype(np.float32)
        return result

    def undo(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Values `(B, n)` in their original units."""
        return values * self.scale + self.mean


class DenseRows:
    """Standardised rows that lie on the device."""

    def __init__(self, data: NDArray[Any], scaling: Scaling, device: torch.device) -> None:
        self._data = torch.empty(data.shape, device=device)
        for chunk in gen_batches(len(data), _CHUNK):
            self._data[chunk] = torch.from_numpy(scaling.apply(data[chunk]))

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Rows `(B)` -> `(B, n)`."""
        return self._data[rows.to(self._data.device)]


class SparseRows:
    """Rows that are standardised, and so made dense, when they are asked for."""

    def __init__(self, data: Any, scaling: Scaling, device: torch.device) -> None:
        self._data, self._scaling, self._device = data, scaling, device

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Rows `(B)` -> `(B, n)`."""
        return torch.from_numpy(self._scaling.apply(self._data[rows.numpy()])).to(self._device)


class Batches:
    """Batches of rows, each drawn with a probability in proportion to its weight, so that the loss needs no weights.

    A batch takes one row of every B-th part of the total weight, in an order that depends on what the rows are and not
    on where: a row of weight 2 is the same as the row twice, and shuffled rows are the same rows.

    Arguments:
        data: `(N, n)`, dense or sparse.
        target: `(N, ...)`.
        scaling: Of the columns.
        weights: `(N)`, above 0.
        size: Rows in a batch, B; there may be fewer in the data.
    """

    def __init__(
        self, data: Any, target: Tensor | None, scaling: Scaling, weights: NDArray[np.float64], size: int
    ) -> None:
        directions = np.random.default_rng(0)
        direction = directions.standard_normal(data.shape[1]) / scaling.scale
        # A large mean would leave no digits to what varies; rows of sparse data, less their mean, would be dense.
        middle = 0 if hasattr(data, "tocsr") else scaling.mean
        place = np.concatenate([(data[chunk] - middle) @ direction for chunk in gen_batches(len(weights), _CHUNK)])
        if target is not None:
            flat = target.double().flatten(1).numpy()
            place = place + flat @ directions.standard_normal(flat.shape[1])
        order = np.argsort(place, kind="stable")
        # Sums that should be equal differ in their last digits.
        self.num_distinct = len(np.unique(np.round(place, 6)))
        self._order = torch.from_numpy(order)
        self._ends = torch.from_numpy(np.cumsum(weights[order]))
        self.size = size

    def draw(self, generator: Generator) -> Tensor:
        """Indices of rows, `(B)`."""
        inside = torch.rand(self.size, dtype=torch.float64, generator=generator)
        places = (torch.arange(self.size) + inside) / self.size * self._ends[-1]
        found = torch.searchsorted(self._ends, places, right=True)
        return self._order[found.clamp(max=len(self._order) - 1)]
