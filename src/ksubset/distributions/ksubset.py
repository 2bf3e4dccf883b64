"""The k-subset distribution as a `torch.distributions.Distribution`."""

import torch
from torch import Tensor
from torch.distributions import constraints

from ksubset.distributions.conditional import ConditionalBernoulli
from ksubset.distributions.parts import Part, given_parameter, sizes_of_batch
from ksubset.numerics.marginals import logits_from_marginals

__all__ = ["KSubset", "k_hot"]


class k_hot(constraints.Constraint):  # noqa: N801 - torch names its constraints in lower case
    """Vectors of zeros and ones with exactly k ones."""

    is_discrete = True
    event_dim = 1

    def __init__(self, k: int | Tensor) -> None:
        self.k = k
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & (value.sum(-1, dtype=torch.float64) == self.k)

    def __repr__(self) -> str:
        return f"k_hot(k={self.k})"


class KSubset(ConditionalBernoulli):
    r"""Distribution over the subsets of exactly k of n items.

    .. math:: \log p(z) = \langle w, z\rangle - \log e_k(\exp w), \qquad z \in \{0, 1\}^n,\ \sum_i z_i = k,

    with logits :math:`w` and the elementary symmetric polynomial :math:`e_k`: independent Bernoulli draws, conditioned
    on their sum (conditional Bernoulli, or conditional Poisson sampling). A constant added to the logits changes
    nothing, and the inclusion probabilities (`mean`) are NOT the Bernoulli parameters `probs`.

    Results are computed once and kept until the parameter is changed in place, as optimizers do it. Changes that torch
    does not count are not seen: those through its `data`, by fused optimizers, and within compiled functions; what was
    made in inference mode is copied.

    References:
        Wijk, Vinuesa and Azizpour (2024), Revisiting Score Function Estimators for k-Subset Sampling, section 2,
        https://arxiv.org/abs/2407.16058.
        Chen, Dempster and Liu (1994), https://doi.org/10.1093/biomet/81.3.457.

    Arguments:
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.
        logits: Log-odds `(*B, n)`; -inf excludes an item, +inf includes it.
        probs: Instead of `logits`, the parameters `theta` in [0, 1] of the Bernoulli draws, `(*B, n)`. A parameter of
            exactly 0 or 1 fixes its item and gets no gradient.
        validate_args: Whether to check values (which waits for the device, and is left out inside of `torch.compile`);
            shapes and types are always checked.

    Raises:
        TypeError: k is no integer, or the parameters are no floating-point tensor.
        ValueError: k is out of range, shapes do not broadcast, or (under validation) a row has NaN, more than k items
            at +inf, or fewer than k above -inf.

    Example:
        >>> dist = KSubset(2, logits=torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> dist.mean
        tensor([0.5613, 0.2975, 0.7571, 0.3841])
        >>> dist.log_prob(torch.tensor([1.0, 0.0, 1.0, 0.0])).exp()
        tensor(0.3683)
        >>> dist.sample((3,)).sum(-1)
        tensor([2., 2., 2.])
    """

    def __init__(
        self,
        k: int | Tensor,
        logits: Tensor | None = None,
        probs: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, parameter = given_parameter(logits, probs)
        self.k, batch_shape = sizes_of_batch(parameter, k, name)
        self._set_up(name, parameter, batch_shape, [Part(None, self.k, self.k)], validate_args)

    @classmethod
    def from_marginals(
        cls, marginals: Tensor, tolerance: float | None = None, validate_args: bool | None = None
    ) -> "KSubset":
        """The distribution with these inclusion probabilities: of all with them, the one of largest entropy.

        Arguments:
            marginals: Inclusion probabilities in [0, 1], whose sum is k; no gradient flows through them.
            tolerance: How far the sum may be from an integer; by default 1e-5, and what rounding in their dtype adds.
            validate_args: As of the class.

        Raises:
            TypeError: `marginals` is no floating-point tensor, or `tolerance` no number.
            ValueError: A marginal is outside of [0, 1], a sum is further from an integer than the tolerance, or the
                tolerance is negative or not finite.

        Shapes:
            marginals `(*B, n)`.
        """
        logits, k = logits_from_marginals(marginals, tolerance)
        return cls(k if k.ndim else int(k), logits, validate_args=validate_args)

    def __repr__(self) -> str:
        size = self.k if isinstance(self.k, int) else tuple(self.k.shape)
        return f"KSubset(k: {size}, {self._shown()})"

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return k_hot(self.k)
