"""What `KSubset` and the functions that name these errors ask of logits and k."""

import numbers
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Size, Tensor
from torch.autograd.forward_ad import unpack_dual

__all__ = [
    "all_known",
    "check_feasible",
    "check_items",
    "check_shape",
    "check_size",
    "differentiated",
    "inside_transform",
    "read",
]

T = TypeVar("T")


def inside_transform() -> bool:
    """Whether a transform of `torch.func` is at work: tensors are then its own, and must not be kept beyond it."""
    # There is no public way to ask.
    return torch._C._functorch.maybe_current_level() is not None


def differentiated(tensor: Tensor) -> bool:
    """Whether a derivative is taken with respect to a tensor, in reverse or forward mode; a transform may hide it."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        return True
    return not torch.compiler.is_compiling() and unpack_dual(tensor).tangent is not None


def all_known(condition: Tensor) -> bool | None:
    """Whether a condition holds everywhere; None inside of `torch.compile` and `vmap`, where no value can be read."""
    return None if torch.compiler.is_compiling() else read(lambda: bool(condition.all()))


def read(value: Callable[[], T]) -> T | None:
    """What the host reads off a tensor; None inside of `vmap`, which hides values."""
    try:
        return value()
    except RuntimeError as error:
        if "vmap" in str(error):
            return None
        raise


def check_shape(name: str, shape: Any) -> Size:
    """The shape that was given.

    Raises:
        TypeError: It is no sequence of integers.
        ValueError: An entry is negative.
    """
    try:
        checked = Size(shape)
    except TypeError:
        raise TypeError(f"{name} must be a sequence of integers such as (5,), got {shape!r}") from None
    if any(size < 0 for size in checked):
        raise ValueError(f"{name} must have no negative entry, got {tuple(checked)}")
    return checked


def check_items(name: str, vector: Tensor, n: int) -> None:
    """Check that a vector has an entry for each item.

    Raises:
        ValueError: It has not.
    """
    if vector.ndim == 0 or vector.shape[-1] != n:
        raise ValueError(f"{name} must have shape (..., {n}), got {tuple(vector.shape)}")


def check_size(logits: Tensor, k: int | Tensor, name: str = "logits", size: str = "k") -> None:
    """Check types, shapes and the range of an integer size; reads no tensor's values.

    Raises:
        TypeError: `logits` is no dense floating-point tensor of 16 bits or more, or `k` no integer.
        ValueError: `logits` has no items, k is outside of 0..n, or the batch shapes do not broadcast.
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        came = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"{name} must be a floating-point tensor, got {came}")
    if logits.layout != torch.strided or logits.itemsize < 2:
        raise TypeError(
            f"{name} must be a dense floating-point tensor of 16 bits or more, got {logits.dtype}, {logits.layout}"
        )
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (*batch, n) with n >= 1, got {tuple(logits.shape)}")
    n = logits.shape[-1]
    if isinstance(k, Tensor):
        if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
            raise TypeError(f"{size} must be an integer or an integer tensor, got a tensor of {k.dtype}")
        try:
            torch.broadcast_shapes(k.shape, logits.shape[:-1])
        except RuntimeError as error:
            batch = tuple(logits.shape[:-1])
            raise ValueError(
                f"{size} must broadcast over the batch of {name}, {batch}, got shape {tuple(k.shape)}"
            ) from error
    elif isinstance(k, bool) or not isinstance(k, numbers.Integral | torch.SymInt):
        raise TypeError(f"{size} must be an integer or an integer tensor, got {k!r} of type {type(k).__name__}")
    elif not 0 <= k <= n:
        raise ValueError(f"{size} must be between 0 and the number of items, {n}, got {k}")


def check_feasible(logits: Tensor, k: int | Tensor, high: int | Tensor | None = None, name: str = "logits") -> None:
    """Check the values: no NaN, and in every row at most k logits of +inf and at least k above -inf.

    Waits for the device. Inside of `torch.compile` and `torch.func.vmap` no value can be read, and none is checked.

    Arguments:
        logits: Log-odds `(*B, n)`.
        k: Subset size; the smallest, if `high` is the largest.
        high: Largest size; by default k.
        name: What the caller calls the logits: of `probs`, the ends are 0 and 1.

    Raises:
        ValueError: Names the first offending row, its counts and its k.
    """
    n = logits.shape[-1]
    low = torch.as_tensor(k, device=logits.device).long()
    most = low if high is None else torch.as_tensor(high, device=logits.device).long()
    forced, possible = logits.isposinf().sum(-1), (logits > -torch.inf).sum(-1)
    least = "k" if high is None or high is k else "low"
    zero, one = ("0", "1") if name == "probs" else ("-inf", "+inf")
    for good, text in (
        (~logits.isnan().any(-1), "{name} must not be NaN{row}"),
        (low >= 0, least + " must be between 0 and the number of items, {n}{row}, got {low}"),
        (most <= n, "k must be between 0 and the number of items, {n}{row}, got {k}"),
        (forced <= most, "{name} of {one} must include at most k items{row}, got {forced} of them with k = {k}"),
        (possible >= low, "{name} above {zero} must be at least k{row}, got {possible} possible items with k = {low}"),
    ):
        if all_known(good) is not False:
            continue
        index = tuple((~good).nonzero()[0].tolist())
        row = f" in row {index if len(index) > 1 else index[0]}" if index else ""
        at = {"forced": forced, "possible": possible, "k": most, "low": low}
        counts = {key: int(value.expand(good.shape)[index]) for key, value in at.items()}
        raise ValueError(text.format(name=name, n=n, row=row, zero=zero, one=one, **counts))
