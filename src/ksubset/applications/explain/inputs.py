"""What is explained: rows of numbers, images or tokens, their items, and rows with only some of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ksubset.search.arguments import check_integer
from ksubset.selection.groups import FeatureGroups

__all__ = ["Inputs", "check_rows", "patches", "table_like"]

_CLIP = 5.0


def patches(shape: tuple[int, ...], side: int) -> list[list[int]]:
    """Squares of an image as `feature_groups`, row by row; all channels of a pixel are in the same one.

    Arguments:
        shape: Of an image, `(H, W)` or `(C, H, W)`.
        side: Of a square, in pixels; squares at the right and lower border are cut off.

    Raises:
        ValueError: The shape has not two or three dimensions, or the side is below 1.

    Example:
        >>> patches((4, 4), 2)
        [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    """
    if len(shape) not in (2, 3) or side < 1:
        raise ValueError(f"patches: expected a shape (H, W) or (C, H, W) and a side of 1 or more, got {shape}, {side}")
    height, width = shape[-2:]
    places = np.arange(np.prod(shape)).reshape(-1, height, width)
    return [
        places[:, top : top + side, left : left + side].ravel().tolist()
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]


def check_rows(value: Any, padding: int | None) -> NDArray[Any]:
    """X as an array of numbers `(N, *shape)`, or of tokens `(N, L)` if there is a padding; else an error names it."""
    rows = np.asarray(value)
    if padding is not None:
        check_integer("padding", padding, 0)
        if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(f"X: expected integer tokens (N, L), as padding is given, got {rows.dtype} {rows.shape}")
        if rows.size and rows.min() < 0:
            raise ValueError(f"X: expected tokens of 0 or more, got {rows.min()}")
    elif rows.ndim not in (2, 3, 4) or rows.dtype.kind not in "fiub":
        raise ValueError(f"X: expected numbers (N, n), (N, H, W) or (N, C, H, W), got {rows.dtype} {rows.shape}")
    elif not np.isfinite(rows).all():
        raise ValueError("X: expected finite numbers, got NaN or infinity")
    if 0 in rows.shape:
        raise ValueError(f"X: expected one row or more, with columns, got shape {rows.shape}")
    if rows.dtype.kind in "iub":
        return rows.astype(np.int64 if padding is not None else np.float64)
    # torch takes no negative strides, swapped bytes or long doubles, and warns of arrays that cannot be written to, as
    # those of pandas.
    dtype = np.dtype(np.float64) if rows.itemsize > 8 else rows.dtype.newbyteorder("=")
    return np.require(rows, dtype, ["C", "W"])


def table_like(data: Any, model: Any) -> Callable[[NDArray[Any]], Any]:
    """What makes rows `(N, n)` a table with the columns of data, of pandas or polars, for a method of a model that was
    fitted to one; other functions get arrays.
    """
    kind: Any = type(data)
    libraries = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if not hasattr(getattr(model, "__self__", None), "feature_names_in_"):
        return np.asarray
    if "pandas" in libraries:
        return partial(kind, columns=data.columns)
    return partial(kind, schema=data.columns, orient="row") if "polars" in libraries else np.asarray


class Inputs:
    """Rows of one shape, and the items that are chosen: columns or groups of them, or the places of words.

    Arguments:
        rows: As `check_rows` gives them, those of `fit`.
        padding: The token that fills up rows; None if they are numbers.
        groups: As of `FeatureGroups`; columns of images are their pixels in row-major order.
        names: Of the columns, as a list, or None.
        baseline: What masked numbers show: a number or an array that broadcasts to a row; None is the mean of the
            rows. A masked word is a padding.

    Raises:
        TypeError, ValueError: Groups or baseline do not fit the rows.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        padding: int | None,
        groups: Sequence[Sequence[str | int]] | None,
        names: Sequence[str] | None,
        baseline: Any,
    ) -> None:
        self.shape, self.padding, self.names = rows.shape[1:], padding, names
        self.num_columns = int(np.prod(self.shape))
        if padding is not None and (groups is not None or baseline is not None):
            raise ValueError("feature_groups, baseline: expected None for tokens, whose items are the words")
        constant, alike = np.zeros(self.num_columns, dtype=bool), np.arange(self.num_columns)
        units = FeatureGroups(constant, alike, names, groups, None, None)
        self.num_items = len(units)
        self.group_index: NDArray[np.int64] = units.space(1).group_index()
        """Item of each column, `(n)`."""
        self._index = None if (self.group_index == np.arange(self.num_columns)).all() else self.group_index
        if padding is not None:
            self.num_tokens, self.baseline = int(max(rows.max(), padding)) + 1, np.asarray(padding)
            return
        # Pixels are on one scale; other columns are not.
        over = 0 if rows.ndim == 2 else None
        self.mean, scale = rows.mean(over, dtype=np.float64), rows.std(over, dtype=np.float64)
        # That of a constant need not be 0 for rounding.
        self.scale = np.where(rows.max(over) > rows.min(over), scale, 1.0)
        given = rows.mean(0, dtype=np.float64) if baseline is None else np.asarray(baseline)
        try:
            self.baseline = np.broadcast_to(given, self.shape).astype(rows.dtype)
        except ValueError as error:
            raise ValueError(
                f"baseline: expected numbers that broadcast to a row {self.shape}, got {baseline!r}"
            ) from error
        if not np.isfinite(self.baseline).all():
            raise ValueError(f"baseline: expected finite numbers, got {baseline!r}")

    def check(self, value: Any) -> NDArray[Any]:
        """Other rows, as those of `fit` are; else a ValueError."""
        rows = check_rows(value, self.padding)
        columns = list(getattr(value, "columns", ()))
        names = [str(name) for name in columns]
        if self.names is not None and any(isinstance(name, str) for name in columns) and names != self.names:
            raise ValueError(f"X: expected the columns {self.names}, in this order, as in fit, got {names}")
        if rows.shape[1:] != self.shape:
            raise ValueError(f"X: expected rows of shape {self.shape}, as in fit, got {rows.shape[1:]}")
        if self.padding is not None and rows.max() >= self.num_tokens:
            raise ValueError(f"X: expected tokens below {self.num_tokens}, as in fit, got {rows.max()}")
        return rows

    def available(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which items a row has: all but the paddings; rows `(N, *shape)` -> `(N, items)`."""
        if self.padding is None:
            return np.ones((len(rows), self.num_items), dtype=bool)
        there: NDArray[np.bool_] = rows != self.padding
        return there

    def seen(self, rows: NDArray[Any]) -> Tensor:
        """Rows as networks of ours take them: tokens, or standardised numbers, images as `(N, C, H, W)`."""
        if self.padding is not None:
            return torch.from_numpy(rows)
        scaled = ((rows - self.mean) / self.scale).clip(-_CLIP, _CLIP).astype(np.float32)
        return torch.from_numpy(scaled[:, None] if rows.ndim == 3 else scaled)

    def columns(self, mask: Tensor) -> Tensor:
        """A mask of the items `(..., items)` as one of the columns, in the shape of a row, `(..., *shape)`."""
        if self._index is not None:
            mask = mask.index_select(-1, torch.from_numpy(self._index).to(mask.device))
        return mask.unflatten(-1, self.shape) if len(self.shape) > 1 else mask

    def shown(self, seen: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What a surrogate is given, differentiable in the mask: rows with 0 or padding where masked, and the mask.

        Shapes:
            seen, as `seen` gives it, `(B, ...)`, mask `(S, B, items)` -> two of `(S * B, ...)`.
        """
        mask = self.columns(mask)
        if self.padding is not None:
            return torch.where(mask > 0, seen, self.padding).flatten(0, 1), mask.flatten(0, 1)
        if len(self.shape) == 2:
            mask = mask.unsqueeze(-3)
        return (mask * seen).flatten(0, 1), mask.flatten(0, 1)

    def filled(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Rows with the baseline where masked, differentiable in the mask unless they are tokens.

        Shapes:
            rows `(B, *shape)`, mask `(S, B, items)` -> `(S * B, *shape)`.
        """
        mask, baseline = self.columns(mask), torch.as_tensor(self.baseline, device=rows.device)
        if self.padding is not None or not mask.requires_grad:
            # A black box is given the very numbers, without rounding.
            kept = torch.where(mask > 0, rows, baseline) if self._hard(mask) else torch.lerp(baseline, rows, mask)
            return kept.flatten(0, 1)
        return (mask.to(rows.dtype) * (rows - baseline) + baseline).flatten(0, 1)

    def _hard(self, mask: Tensor) -> bool:
        return self.padding is not None or bool(((mask == 0) | (mask == 1)).all())
