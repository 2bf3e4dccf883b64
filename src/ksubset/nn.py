"""Modules that choose k of n items: parameters live in the module, probability in the distribution it returns."""

import numbers

import torch
from torch import Tensor, nn

from ksubset.distributions import KSubset, PartitionedKSubset
from ksubset.estimators import Estimator
from ksubset.numerics.checks import check_items, check_size

__all__ = ["ConcreteSelector", "FeatureGate", "SubsetHead", "SubsetLayer"]


class FeatureGate(nn.Module):
    """The same subset distribution for every input: n free logits, at first 0.

    Arguments:
        n: Number of items.
        k: Size of the subsets.
        validate_args: As of `KSubset`.
        device, dtype: Of the logits.

    Raises:
        TypeError, ValueError: As `KSubset` says of k and n.

    Shapes:
        -> `KSubset` with logits `(n)`.

    Example:
        >>> gate = FeatureGate(784, k=30)
        >>> gate()
        KSubset(k: 30, logits: (784,))
    """

    def __init__(
        self,
        n: int,
        k: int,
        validate_args: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.logits: nn.Parameter = nn.Parameter(torch.zeros(_integer("n", n, 1), device=device, dtype=dtype))
        self.k: int = _integer("k", k, 0)
        check_size(self.logits, self.k)
        self.validate_args: bool | None = validate_args

    def forward(self) -> KSubset:
        return KSubset(self.k, self.logits, validate_args=self.validate_args)

    def extra_repr(self) -> str:
        return f"n={len(self.logits)}, k={self.k}"


class ConcreteSelector(nn.Module):
    """k units, each of which chooses one of n items, the same for every input: the concrete autoencoder's selector.

    It returns a distribution over the k n pairs of a unit and an item, with one pair of each unit. With
    `GumbelTopK(temperature)`, which falls from 10 to 0.01 over the training, the units are the paper's, relaxed to
    concrete variables; the other estimators work, too. What the units have chosen is told by `items`: units that agree
    count as one, so that it may be fewer than k, also where each of them takes its likeliest item.

    The paper gives a network the k chosen values, in the order of the units. Here it is the network's affair what to do
    with the items, such as to mask the others.

    References:
        Balin, Abid and Zou (2019), Concrete Autoencoders: Differentiable Feature Selection and Reconstruction, section
        3, https://arxiv.org/abs/1901.09346.

    Arguments:
        n: Number of items.
        k: Number of units.
        validate_args: As of `PartitionedKSubset`.
        device, dtype: Of the logits.

    Attributes:
        logits: Of the items in each unit, `(k, n)`; at first drawn by Glorot's rule, as the paper's.

    Raises:
        TypeError: n or k is no integer.
        ValueError: n or k is below 1; or, when used, `k` was changed.

    Shapes:
        -> `PartitionedKSubset` with logits `(k n)`.

    Example:
        >>> selector = ConcreteSelector(784, k=30)
        >>> selector()
        PartitionedKSubset(groups: 30, logits: (23520,))
        >>> chosen = selector.items(selector().sample((5,)))
        >>> chosen.shape, bool((chosen.sum(-1) <= 30).all())
        (torch.Size([5, 784]), True)
    """

    def __init__(
        self,
        n: int,
        k: int,
        validate_args: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n, k = _integer("n", n, 1), _integer("k", k, 1)
        self.logits: nn.Parameter = nn.Parameter(torch.empty(k, n, device=device, dtype=dtype))
        nn.init.xavier_normal_(self.logits)
        self.k: int = k
        self.validate_args: bool | None = validate_args
        self._groups = torch.arange(k, device="cpu").repeat_interleave(n)

    def forward(self) -> PartitionedKSubset:
        if self.k != len(self.logits):
            raise ValueError(f"k must stay the number of units, {len(self.logits)}, got {self.k}")
        return PartitionedKSubset(self._groups, 1, self.logits.flatten(), validate_args=self.validate_args)

    def items(self, pairs: Tensor) -> Tensor:
        r"""The items that at least one unit has chosen, :math:`1 - \prod_j (1 - z_{ji})`.

        Of relaxed pairs it makes relaxed items, and of the inclusion probabilities of the pairs, those of the items.

        Shapes:
            pairs `(*S, k n)` -> `(*S, n)`.

        Raises:
            ValueError: There is not an entry for each pair.
        """
        check_items("pairs", pairs, self.logits.numel())
        left_out: Tensor = (1 - pairs.unflatten(-1, self.logits.shape)).prod(-2)
        return 1 - left_out

    def extra_repr(self) -> str:
        return f"n={self.logits.shape[-1]}, k={len(self.logits)}"


class SubsetHead(nn.Module):
    """A subset distribution for each input, from the logits that a network gives it.

    Arguments:
        k: Size of the subsets, checked against the number of items when that is known.
        score: Maps inputs to logits `(*B, n)`.
        validate_args: As of `KSubset`.

    Raises:
        TypeError: `k` is no integer.
        ValueError: `k` is below 0; or, when used, above the number of items.

    Shapes:
        input as `score` takes it -> `KSubset` with logits `(*B, n)`.

    Example:
        >>> head = SubsetHead(2, nn.Linear(16, 5))
        >>> head(torch.zeros(8, 16))
        KSubset(k: 2, logits: (8, 5))
    """

    def __init__(self, k: int, score: nn.Module, validate_args: bool | None = None) -> None:
        super().__init__()
        self.k = _integer("k", k, 0)
        self.score = score
        self.validate_args = validate_args

    def forward(self, *inputs: Tensor) -> KSubset:
        return KSubset(self.k, self.score(*inputs), validate_args=self.validate_args)

    def extra_repr(self) -> str:
        return f"k={self.k}"


class SubsetLayer(nn.Module):
    """Logits to subsets, for `nn.Sequential`: a sample for each row in training, the likeliest subset in evaluation.

    Arguments:
        k: Size of the subsets.
        estimator: One whose gradient flows through its sample, such as `SIMPLE()` or `GumbelTopK(0.5)`.
        validate_args: As of `KSubset`.

    Raises:
        TypeError: `k` is no integer, or `estimator` no `Estimator`.
        ValueError: `k` is below 0; or the estimator's gradient does not flow through the sample: those are for
            `expectation`.

    Shapes:
        logits `(*B, n)` -> `(*B, n)`.

    Example:
        >>> from ksubset import SIMPLE
        >>> model = nn.Sequential(nn.Linear(16, 64), SubsetLayer(8, SIMPLE()), nn.Linear(64, 1))
        >>> model(torch.randn(4, 16)).shape
        torch.Size([4, 1])
    """

    def __init__(self, k: int, estimator: Estimator, validate_args: bool | None = None) -> None:
        super().__init__()
        if not isinstance(estimator, Estimator):
            raise TypeError(f"estimator must be an instance of Estimator, such as SIMPLE(), got {estimator!r}")
        # A surrogate of its own would be left out here, where nobody sees the losses.
        if not estimator.reparameterized or type(estimator).surrogate is not Estimator.surrogate:
            raise ValueError(
                f"a SubsetLayer needs an estimator whose gradient flows through its sample, such as SIMPLE(), got "
                f"{estimator!r}: use ksubset.expectation for others"
            )
        self.k = _integer("k", k, 0)
        self.estimator = estimator
        self.validate_args = validate_args

    def forward(self, logits: Tensor) -> Tensor:
        dist = KSubset(self.k, logits, validate_args=self.validate_args)
        return self.estimator.sample(dist, 1).squeeze(0) if self.training else dist.mode

    def extra_repr(self) -> str:
        return f"k={self.k}"


def _integer(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")
    return int(value)
