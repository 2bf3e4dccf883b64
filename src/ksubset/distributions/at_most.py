"""Subsets whose size lies in a range."""

import torch
from torch import Tensor

from ksubset.distributions.conditional import ConditionalBernoulli
from ksubset.distributions.parts import Part, given_parameter, sizes_of_batch
from ksubset.numerics.checks import all_known

__all__ = ["AtMostKSubset"]


class AtMostKSubset(ConditionalBernoulli):
    r"""Distribution over the subsets of at most k of n items, and of at least `low`.

    .. math:: \log p(z) = \langle w, z\rangle - \log \sum_{j = \text{low}}^{k} e_j(\exp w),
              \qquad z \in \{0, 1\}^n,\ \text{low} \le \sum_i z_i \le k

    exactly the law of independent Bernoulli draws with log-odds w, given that so many of them are ones. Unlike those of
    a `KSubset`, logits have an absolute meaning: the larger all of them are, the more items are chosen. The normaliser,
    its gradient and second derivative come from one quadrature in O(n), as of a single size.

    References:
        Tarlow, Swersky, Zemel, Adams and Frey (2012), Fast Exact Inference for Recursive Cardinality Models,
        https://arxiv.org/abs/1210.4899, for distributions of this kind.

    Arguments:
        k: Size of the largest subsets, an integer or an integer tensor that broadcasts over the batch.
        logits: Log-odds `(*B, n)`; -inf excludes an item, +inf includes it.
        probs: Instead of `logits`, the parameters in [0, 1] of the Bernoulli draws, `(*B, n)`.
        low: Size of the smallest subsets, likewise.
        validate_args: Whether to check values (which waits for the device, and is left out inside of `torch.compile`);
            shapes and types are always checked.

    Raises:
        TypeError: A size is no integer, or the parameters are no floating-point tensor.
        ValueError: A size is out of range, `low` is above k, shapes do not broadcast, or (under validation) a row has
            NaN, more than k items at +inf, or fewer than `low` above -inf.

    Example:
        >>> dist = AtMostKSubset(2, logits=torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> dist.mean
        tensor([0.4427, 0.2287, 0.6456, 0.2972])
        >>> dist.mode
        tensor([1., 0., 1., 0.])
    """

    def __init__(
        self,
        k: int | Tensor,
        logits: Tensor | None = None,
        probs: Tensor | None = None,
        low: int | Tensor = 0,
        validate_args: bool | None = None,
    ) -> None:
        name, parameter = given_parameter(logits, probs)
        high, batch_shape = sizes_of_batch(parameter, k, name)
        least, other_shape = sizes_of_batch(parameter, low, name, "low")
        batch_shape = torch.broadcast_shapes(batch_shape, other_shape)
        self.k, self.low = (size.expand(batch_shape) if isinstance(size, Tensor) else size for size in (high, least))
        if all_known(torch.as_tensor(self.low <= self.k)) is False:
            raise ValueError(f"low must be at most k, got low = {low} and k = {k}")
        self._set_up(name, parameter, batch_shape, [Part(None, self.low, self.k)], validate_args)

    def __repr__(self) -> str:
        low, k = (size if isinstance(size, int) else tuple(size.shape) for size in (self.low, self.k))
        return f"AtMostKSubset(k: {k}, low: {low}, {self._shown()})"
