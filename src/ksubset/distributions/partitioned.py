"""Subsets with a number of members in each group of items."""

import reprlib
from collections.abc import Sequence

import torch
from torch import Tensor

from ksubset.distributions.conditional import ConditionalBernoulli
from ksubset.distributions.parts import Part, given_parameter
from ksubset.numerics.checks import check_size

__all__ = ["PartitionedKSubset"]


class PartitionedKSubset(ConditionalBernoulli):
    r"""Distribution over the subsets of exactly :math:`k_g` items of each group g, or of a range of sizes.

    .. math:: \log p(z) = \langle w, z\rangle - \sum_g \log \sum_{j = \text{low}_g}^{k_g} e_j(\exp w_g),

    independent over the groups: stratified sampling, one of each one-hot block, no more than so many of each site. In
    O(n), however many groups there are and however much their sizes differ.

    References:
        Tarlow, Swersky, Zemel, Adams and Frey (2012), Fast Exact Inference for Recursive Cardinality Models,
        https://arxiv.org/abs/1210.4899, for distributions of this kind.

    Arguments:
        groups: The group of each item, `(n)`: integers from 0 to G - 1, each of them at least once.
        k: Size of the subset in each group, an integer or `(G)`.
        logits: Log-odds `(*B, n)`; -inf excludes an item, +inf includes it.
        probs: Instead of `logits`, the parameters in [0, 1] of the Bernoulli draws, `(*B, n)`.
        low: Fewest items of each group, an integer or `(G)`, which makes k the most; by default k itself.
        validate_args: Whether to check the values of the parameters (which waits for the device, and is left out inside
            of `torch.compile`); groups and sizes are always checked.

    Raises:
        TypeError: Groups or a size are no integers, or the parameters are no floating-point tensor.
        ValueError: Groups or a size are out of range, of another number than said, `low` is above k, or (under
            validation) a group has NaN, more than k items at +inf, or fewer than `low` above -inf.

    Example:
        >>> dist = PartitionedKSubset([0, 0, 1, 1, 1], k=[1, 2], logits=torch.zeros(5))
        >>> dist.mean
        tensor([0.5000, 0.5000, 0.6667, 0.6667, 0.6667])
        >>> dist.log_normalizer.exp()  # 2 times 3 subsets
        tensor(6.)
    """

    def __init__(
        self,
        groups: Tensor | Sequence[int],
        k: int | Tensor | Sequence[int],
        logits: Tensor | None = None,
        probs: Tensor | None = None,
        low: int | Tensor | Sequence[int] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, parameter = given_parameter(logits, probs)
        check_size(parameter, 0, name)
        n = parameter.shape[-1]
        group = _integers("groups", groups)
        if group.shape != (n,):
            raise ValueError(f"groups must have shape ({n},), one for each item, got {tuple(group.shape)}")
        if group.min() < 0 or (group.bincount() == 0).any():
            raise ValueError(
                "groups must be numbered from 0, each with at least one item, "
                f"got the numbers {group.unique().tolist()}"
            )
        members = group.bincount()
        high = _integers("k", k).expand(_shape("k", k, len(members)))
        least = high if low is None else _integers("low", low).expand(_shape("low", low, len(members)))
        for size, value in (("k", high), ("low", least)):
            if ((value < 0) | (value > members)).any():
                at = int(((value < 0) | (value > members)).nonzero()[0])
                raise ValueError(
                    f"{size} must be between 0 and the number of items of the group, {members[at]} in group {at}, "
                    f"got {value[at]}"
                )
        if (least > high).any():
            at = int((least > high).nonzero()[0])
            raise ValueError(f"low must be at most k, got low = {least[at]} and k = {high[at]} in group {at}")
        self.groups, self.k, self.low = group, high, least
        self._set_up(name, parameter, parameter.shape[:-1], _parts(group, members, least, high), validate_args)

    def __repr__(self) -> str:
        return f"PartitionedKSubset(groups: {len(self.k)}, {self._shown()})"


def _integers(name: str, value: int | Tensor | Sequence[int]) -> Tensor:
    try:
        tensor = torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be integers, got {reprlib.repr(value)}") from error
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    return tensor.to(torch.int64, copy=True)  # what the caller changes later is not changed here


def _shape(name: str, value: int | Tensor | Sequence[int], number: int) -> tuple[int]:
    shape = tuple(torch.as_tensor(value).shape)
    if shape not in ((), (number,)):
        raise ValueError(f"{name} must be an integer or one for each of {number} groups, got shape {shape}")
    return (number,)


def _parts(group: Tensor, members: Tensor, low: Tensor, high: Tensor) -> list[Part]:
    """Groups of nearly the same number of items side by side, so that at most half of the places hold none."""
    n = len(group)
    order = group.argsort(stable=True)
    start = members.cumsum(0) - members
    # Groups with a size of their own have half the nodes, so they do not share a part with ranges.
    kind = 2 * torch.ceil(torch.log2(members.double())).long() + (low < high)
    parts = []
    for one in kind.unique():
        some = (kind == one).nonzero().flatten()
        place = torch.arange(int(members[some].max()), device=members.device)
        inside = place < members[some, None]
        items = torch.where(inside, order[torch.where(inside, start[some, None] + place, 0)], n)
        size = high[some]
        parts.append(Part(items, size if one % 2 == 0 else low[some], size))
    return parts
