"""The rows of items that a subset is drawn from, with the sizes that it may have in each."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from ksubset.numerics.checks import check_size

__all__ = ["Part", "gathered", "given_parameter", "sized", "sizes_of_batch", "sizes_of_rows"]


class Part(NamedTuple):
    """Rows of items, with the sizes that the subset may have in each of them."""

    items: Tensor | None
    """Indices `(R, m)` of the items in each of R rows, n where there is none; None if all items are one row."""
    low: int | Tensor
    """Fewest members of a row: an integer or `(*B)`, or `(R)` where there are indices."""
    high: int | Tensor
    """Most members; the very same object as `low` where the size is known."""

    @property
    def varying(self) -> int | Tensor | None:
        """Most members, if that is not the known size."""
        return None if self.low is self.high else self.high

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle does not keep large integers one object.
        return _part, (self.items, self.low, self.varying)

    def expanded(self, batch_shape: Size) -> tuple[int | Tensor, int | Tensor]:
        """The sizes of a larger batch."""
        low = self.low.expand(batch_shape) if isinstance(self.low, Tensor) else self.low
        if self.low is self.high:
            return low, low
        return low, self.high.expand(batch_shape) if isinstance(self.high, Tensor) else self.high


def _part(items: Tensor | None, low: int | Tensor, varying: int | Tensor | None) -> Part:
    return Part(items, low, low if varying is None else varying)


class sized(constraints.Constraint):  # noqa: N801 - torch names its constraints in lower case
    """Vectors of zeros and ones whose ones are as many as each part asks for."""

    is_discrete = True
    event_dim = 1

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        valid = ((value == 0) | (value == 1)).all(-1)
        for part in self.parts:
            rows = gathered(value, part, 0.0)
            number = rows.sum(-1, dtype=torch.float64)
            inside = (number >= part.low) & (number <= part.high)
            valid = valid & (inside if part.items is None else inside.all(-1))
        return valid

    def __repr__(self) -> str:
        # Of a name in lower case torch would leave out the first letter.
        where = "" if self.parts[0].items is None else " in each group"
        return f"vectors of zeros and ones, with low to k ones{where}"


def given_parameter(logits: Tensor | None, probs: Tensor | None) -> tuple[str, Tensor]:
    """Name and value of the parameter that was given; a ValueError if it is not one of them."""
    if logits is not None and probs is None:
        return "logits", logits
    if probs is not None and logits is None:
        return "probs", probs
    given = "both" if probs is not None else "neither"
    raise ValueError(f"exactly one of logits and probs must be given, got {given}")


def sizes_of_batch(parameter: Tensor, k: int | Tensor, name: str, size: str = "k") -> tuple[int | Tensor, Size]:
    """A size, an integer or a copy of the whole batch's, and the batch shape; checks all but their values.

    Raises:
        TypeError, ValueError: As `check_size` says.
    """
    check_size(parameter, k, name, size)
    if not isinstance(k, Tensor):
        return int(k), parameter.shape[:-1]
    batch_shape = torch.broadcast_shapes(k.shape, parameter.shape[:-1])
    return k.to(parameter.device, torch.int64, copy=True).expand(batch_shape), batch_shape


def gathered(values: Tensor, part: Part, fill: float) -> Tensor:
    """Values of the items `(*S, n)` in the rows of a part: `(*S, m)`, or `(*S, R, m)` where it has several."""
    if part.items is None:
        return values
    return torch.nn.functional.pad(values, (0, 1), value=fill)[..., part.items.to(values.device)]


def sizes_of_rows(part: Part, n: int) -> Iterator[tuple[list[int], range]]:
    """The items of each row of a part, and how many of them there may be."""
    low, high = torch.as_tensor(part.low), torch.as_tensor(part.high)
    if part.items is None:
        for name, size in (("k", high), ("low", low)):
            if len(several := size.unique().tolist()) != 1:
                raise ValueError(f"enumerate_support needs one {name} for the whole batch, got {several}")
        yield list(range(n)), range(int(low.unique()), int(high.unique()) + 1)
        return
    for items, a, b in zip(part.items.tolist(), low.tolist(), high.tolist(), strict=True):
        yield [item for item in items if item < n], range(a, b + 1)
