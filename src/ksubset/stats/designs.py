"""Sampling designs of fixed size with given inclusion probabilities, and estimates from their samples."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ksubset.distributions import KSubset
from ksubset.numerics.joint import joint_of_items
from ksubset.stats.data import array, check_rows, column_of, kind, numbers

__all__ = ["SampleEstimate", "SamplingDesign", "pps_sample"]

Array = NDArray[np.float64]
RandomState = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None
# As many as generators of torch take.
_SEEDS = 2**64


class SampleEstimate(NamedTuple):
    """An estimate from a sample, its variance, and its standard error; both are NaN where no variance is estimable.

    Attributes:
        value: The estimate, in the units of the values, for a total their sum.
        variance: Its estimated variance.
        standard_error: The root of that.

    Example:
        >>> design = SamplingDesign.from_sizes([4, 3, 2, 1], 2)
        >>> estimate = design.total([8.0, 5.0], units=[0, 1])
        >>> round(estimate.value, 3), round(estimate.standard_error, 3)
        (18.333, 0.561)
    """

    value: float
    variance: float
    standard_error: float


class SamplingDesign:
    r"""Conditional Poisson sampling: samples of exactly k of n units with given inclusion probabilities.

    Of all designs with these inclusion probabilities it has the largest entropy. Samples are exact: over repetitions
    each unit is included with its probability, which sampling one after the other without replacement does not do.

    References:
        Hájek (1964), https://doi.org/10.1214/aoms/1177700375.
        Chen, Dempster and Liu (1994), https://doi.org/10.1093/biomet/81.3.457.
        Horvitz and Thompson (1952), https://doi.org/10.1080/01621459.1952.10483446.
        Sen (1953); Yates and Grundy (1953), https://doi.org/10.1111/j.2517-6161.1953.tb00140.x, for the variance.

    Attributes:
        inclusion_probabilities: Of each unit, `(n)`.
        k: Size of the samples.

    Arguments:
        inclusion_probabilities: Numbers in [0, 1], `(n)`, whose sum is an integer, at least 1, to 1e-5 and the rounding
            of their type.

    Raises:
        TypeError: They are not numeric.
        ValueError: They are missing, outside of [0, 1], or have another sum.

    Example:
        >>> design = SamplingDesign.from_sizes([4, 3, 2, 1], 2)
        >>> design.inclusion_probabilities.round(6).tolist()
        [0.8, 0.6, 0.4, 0.2]
        >>> units = design.sample(random_state=0)
        >>> len(units), round(design.total([8.0, 6.0], [0, 1]).value, 6)
        (2, 20.0)
    """

    def __init__(self, inclusion_probabilities: Any) -> None:
        given = array(inclusion_probabilities)
        values = numbers(given, "inclusion_probabilities", given.size)
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"inclusion_probabilities must lie in [0, 1], got {values.min():g} to {values.max():g}")
        total = values.sum()
        # Each of them may have been rounded by half a unit in its last place, which float64 does not know of.
        tolerance = 1e-5 + (np.finfo(given.dtype).eps / 2 * total if given.dtype.kind == "f" else 0.0)
        if abs(total - round(total)) > tolerance or round(total) < 1:
            raise ValueError(f"inclusion_probabilities must have an integer sum, at least 1, got {total:.8g}")
        self._distribution = KSubset.from_marginals(torch.from_numpy(values.copy()), float(tolerance))
        self.inclusion_probabilities: Array = self._distribution.mean.numpy()
        self.k = int(self._distribution.k)

    @classmethod
    def from_sizes(cls, x: Any, k: int) -> "SamplingDesign":
        """The design whose inclusion probabilities are proportional to the sizes of the units.

        A unit so large that its probability would be 1 or more is taken in every sample, and the rest of the sample is
        shared out among the others, again in proportion to size; `certain` says which these are.

        Arguments:
            x: Sizes, not negative; a unit of size 0 is never taken, `(n)`.
            k: Size of the samples.

        Raises:
            TypeError: Sizes are not numeric, or k is no integer.
            ValueError: A size is negative, missing or infinite, or k is not between 1 and the number of positive sizes.
        """
        given = array(x)
        sizes = numbers(given, "sizes", given.size)
        if (sizes < 0).any():
            raise ValueError(f"sizes must not be negative, got {sizes.min():g}")
        if isinstance(k, bool) or not isinstance(k, int | np.integer):
            raise TypeError(f"k must be an integer, got {k!r}")
        positive = int((sizes > 0).sum())
        if not 1 <= k <= positive:
            raise ValueError(f"k must be between 1 and the number of units of positive size, {positive}, got {k}")
        taken = np.zeros(len(sizes), np.bool_)
        while True:
            probability = taken.astype(np.float64)
            if left := k - taken.sum():
                relative = sizes[~taken] / sizes[~taken].max()
                probability[~taken] = left * relative / relative.sum()
            # A unit that is short of 1 by rounding alone is one of k equal ones that all are taken.
            new = ~taken & (probability > 1 - 1e-12)
            if not new.any():
                return cls(probability)
            taken |= new

    def __repr__(self) -> str:
        return f"SamplingDesign(k={self.k}, n={len(self.inclusion_probabilities)})"

    @property
    def certain(self) -> NDArray[np.int64]:
        """The units that are in every sample."""
        return np.flatnonzero(self.inclusion_probabilities == 1)

    def sample(self, *, random_state: RandomState = None) -> NDArray[np.int64]:
        """Draw a sample: k units, rising.

        Arguments:
            random_state: Seed, or a generator of NumPy, which goes on; by default torch's generator goes on.

        Raises:
            TypeError: `random_state` is something else.
            ValueError: A seed is negative, or has more than 64 bits.

        Shapes:
            -> `(k)`.
        """
        units: NDArray[np.int64] = self._distribution.sample_indices(generator=_generator(random_state)).numpy()
        return units

    def joint_inclusion_probabilities(self, units: Any = None) -> Array:
        """Probability of each pair to be in the sample together; on the diagonal that of the unit.

        Arguments:
            units: Those that are asked for, `(m)`, by default all: in O(n + m^2), and in O(n) more for each one that
                is in a pair of probability below 1e-8.

        Raises:
            TypeError, ValueError: Units are no integers, or out of range.

        Shapes:
            -> `(m, m)`.
        """
        index = torch.from_numpy(self._units(np.arange(len(self.inclusion_probabilities)) if units is None else units))
        matrix: Array = joint_of_items(self._distribution.logits, self.k, index).clamp(0, 1).numpy()
        return matrix

    def total(self, values: Any, units: Any) -> SampleEstimate:
        """Horvitz and Thompson's estimate of the population's total, with the variance of Sen, Yates and Grundy.

        Arguments:
            values: What was measured on the units of the sample, `(k)`.
            units: The sample, `(k)`.

        Raises:
            TypeError, ValueError: Values or units do not fit, or no sample has these units.
        """
        sample = self._units(units)
        if len(sample) != self.k or len(np.unique(sample)) != self.k:
            raise ValueError(f"units must be a sample of {self.k} different units, got {sample.tolist()}")
        y = numbers(values, "values", self.k)
        probability = self.inclusion_probabilities[sample]
        if (probability == 0).any():
            raise ValueError(
                f"unit {sample[probability == 0][0]} has inclusion probability 0 and cannot be in a sample"
            )
        missing = np.setdiff1d(self.certain, sample)
        if missing.size:
            raise ValueError(f"unit {missing[0]} has inclusion probability 1 and must be in the sample")
        expanded = y / probability
        joint = self.joint_inclusion_probabilities(sample)
        # Where chance fills one place alone, no two of its units are ever together, and nothing tells how they differ.
        if (joint <= 0).any() or self.k - len(self.certain) == 1:
            return SampleEstimate(float(expanded.sum()), float("nan"), float("nan"))
        weight = np.outer(probability, probability) / joint - 1
        np.fill_diagonal(weight, 0.0)
        variance = max(0.0, float((weight * (expanded[:, None] - expanded) ** 2).sum() / 2))
        return SampleEstimate(float(expanded.sum()), variance, float(np.sqrt(variance)))

    def mean(self, values: Any, units: Any) -> SampleEstimate:
        """The estimate of the population's mean; see `total`."""
        value, variance, standard_error = self.total(values, units)
        n = len(self.inclusion_probabilities)
        return SampleEstimate(value / n, variance / n**2, standard_error / n)

    def _units(self, units: Any) -> NDArray[np.int64]:
        index = np.asarray(units)
        n = len(self.inclusion_probabilities)
        if index.size and index.dtype.kind not in "iu":
            raise TypeError(f"units must be integers, got {index.dtype}")
        if index.ndim != 1 or ((index < 0) | (index >= n)).any():
            raise ValueError(f"units must be a vector of numbers between 0 and {n - 1}")
        return index.astype(np.int64)


def _generator(random_state: RandomState) -> torch.Generator | None:
    if random_state is None:
        return None
    seed: Any = random_state
    if isinstance(seed, np.random.Generator):
        seed = seed.integers(_SEEDS, dtype=np.uint64)
    elif isinstance(seed, np.random.RandomState):
        seed = seed.randint(_SEEDS, dtype=np.uint64)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"random_state must be an integer, a generator of NumPy or None, got {random_state!r}")
    if not 0 <= seed < _SEEDS:
        raise ValueError(f"random_state must be between 0 and 2**64 - 1, got {seed}")
    return torch.Generator().manual_seed(int(seed))


def pps_sample(df: pd.DataFrame, k: int, weights: Any, random_state: RandomState = None) -> pd.DataFrame:
    """Exactly k rows of a data frame, included with probability proportional to their weights, in their order.

    ``DataFrame.sample(k, weights=...)`` draws one row after the other, which includes rows of weights 4, 3, 2, 1 and
    k = 2 with probability .716, .608, .441, .235, where .8, .6, .4, .2 is meant, and is had here.

    References:
        Hájek (1964), https://doi.org/10.1214/aoms/1177700375, for the design, that of `SamplingDesign`.

    Arguments:
        df: The rows.
        k: How many are drawn.
        weights: The name of a column, or one number for each row, `(N)`; see `SamplingDesign.from_sizes`.
        random_state: Seed, or a generator of NumPy, which goes on; by default torch's generator goes on.

    Raises:
        TypeError: `df` is no data frame, or as `SamplingDesign.from_sizes` and `sample` say.
        ValueError: There is no such column, the index of `weights` is another one, or as
            `SamplingDesign.from_sizes` and `sample` say.

    Example:
        >>> import pandas as pd
        >>> towns = pd.DataFrame({"name": list("abcd"), "people": [4, 3, 2, 1]})
        >>> len(pps_sample(towns, 2, "people", random_state=0))
        2
    """
    if not isinstance(df, pd.DataFrame):
        raise TypeError(f"df must be a pandas DataFrame, got {kind(df)}")
    check_rows(df.index, "df", weights=weights)
    sizes = numbers(column_of(df, weights, "weights"), "weights", len(df))
    return df.iloc[SamplingDesign.from_sizes(sizes, k).sample(random_state=random_state)]
