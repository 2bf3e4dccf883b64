"""What every distribution over subsets can do, and all that an estimator may ask of one."""

import abc
from collections.abc import Sequence
from typing import Any

from torch import Generator, Tensor
from torch.distributions import Distribution

__all__ = ["SubsetDistribution"]


class SubsetDistribution(Distribution, abc.ABC):
    r"""A distribution over vectors z of n zeros and ones, with :math:`p(z) \propto \exp\langle w, z\rangle`.

    The subsets that may occur are the subclass's own; on them the distribution is an exponential family with the logits
    w, so that its mean is the gradient of the log normaliser, and the score is :math:`z - E[z]`. An estimator uses
    nothing but the members below, so that a new distribution brings all estimators with it.

    Example:
        >>> import torch
        >>> from ksubset import AtMostKSubset, KSubset
        >>> def expected_size(dist: SubsetDistribution) -> float:  # whatever its subsets are
        ...     return round(dist.mean.sum().item(), 4)
        >>> expected_size(KSubset(2, torch.zeros(4))), expected_size(AtMostKSubset(2, torch.zeros(4)))
        (2.0, 1.4545)
    """

    @property
    @abc.abstractmethod
    def logits(self) -> Tensor:
        """The natural parameter, `(*B, n)`; -inf excludes an item, +inf includes it."""

    @abc.abstractmethod
    def sample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """Draw exact samples, of the logits' dtype.

        The same seed gives the same subsets as long as shapes are the same; with more samples also the first ones are
        others.

        Arguments:
            sample_shape: Shape of the samples.
            generator: Of the random numbers; by default torch's own.

        Raises:
            TypeError, ValueError: `sample_shape` is no sequence of integers, or has a negative one.

        Shapes:
            -> `(*sample_shape, *B, n)`.
        """

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Subsets are discrete, and no sample has a gradient; the estimators have one.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no samples with gradients, as subsets are discrete; for the gradient of an "
            "expected loss see ksubset.expectation and the estimators, for a layer ksubset.nn.SubsetLayer"
        )

    @abc.abstractmethod
    def sample_distinct(self, num_samples: int, *, generator: Generator | None = None) -> Tensor:
        """Draw subsets one by one, those discarded that came before: the first of them is an exact sample.

        Arguments:
            num_samples: Subsets S of each row.
            generator: Of the random numbers; by default torch's own.

        Raises:
            TypeError: `num_samples` is no integer.
            ValueError: It is negative, or a row has fewer than S subsets.

        Shapes:
            -> `(S, *B, n)`, of the logits' dtype.
        """

    @abc.abstractmethod
    def log_density(self, value: Tensor) -> Tensor:
        r"""Log-probability in float64, whatever the logits' dtype, of values that are taken to be in the support.

        Its gradient is the score. `log_prob` is this, checked and rounded.

        Shapes:
            value `(*S, *B, n)` -> `(*S, *B)`.
        """

    @property
    @abc.abstractmethod
    def mean(self) -> Tensor:
        r"""Inclusion probabilities, :math:`\pi_i = P(z_i = 1)`, differentiable.

        Shapes:
            -> `(*B, n)`.
        """

    @abc.abstractmethod
    def covariance_product(self, vector: Tensor) -> Tensor:
        r"""Covariance times a vector, :math:`\operatorname{Cov}(z)\, v`.

        Shapes:
            vector `(*S, *B, n)` -> `(*S, *B, n)`.
        """

    @property
    @abc.abstractmethod
    def mode(self) -> Tensor:
        """The likeliest subset.

        Shapes:
            -> `(*B, n)`.
        """

    def to_rows(self, scores: Tensor) -> list[tuple[Tensor, int | Tensor]]:
        r"""The problem :math:`\max_z \langle \text{scores}, z\rangle` as rows of which the k largest entries are taken.

        What perturbs or relaxes a maximum works on these rows, whatever the subsets are. Where the size of a subset may
        vary, a row has places that stand for no item, of score 0. A distribution has it if its maximum is of that form.

        Raises:
            NotImplementedError: It is not.

        Shapes:
            scores `(*S, *B, n)` -> rows `(*S, *R, m)` and their sizes k, `()` or `(*R)`, one or several such pairs.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no to_rows and from_rows, which the estimators need that perturb or relax a "
            "maximum: GumbelTopK, DPS, StochasticGates, IMLE, NCPSS; the others do without"
        )

    def from_rows(self, rows: Sequence[Tensor]) -> Tensor:
        """What was computed on the rows, back in the places of the items: `(*S, *R, m)` of each -> `(*S, *B, n)`."""
        raise NotImplementedError(f"{type(self).__name__} has no from_rows, without which to_rows is of no use")
