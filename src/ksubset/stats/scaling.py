"""Covariates on one scale, so that what is a long step or a small variance does not depend on their units."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["centred", "scaled"]

Array = NDArray[np.float64]
# Deviations from the mean of a stratum, relative to the values, that are rounding errors.
_ROUNDING = 1e-13


def centred(offset: Array, first: NDArray[np.int64]) -> Array:
    """Offsets less the middle of their range in each stratum, which changes no conditional likelihood.

    Arguments:
        offset: Sorted by stratum.
        first: The first row of each stratum.

    Shapes:
        offset `(N)`, first `(S)` -> `(N)`.
    """
    sizes = np.diff(first, append=len(offset))
    # Of one value it is that value to the last digit.
    middle = np.minimum.reduceat(offset, first) / 2 + np.maximum.reduceat(offset, first) / 2
    return offset - np.repeat(middle, sizes)


def scaled(x: Array, first: NDArray[np.int64], names: Sequence[str]) -> tuple[Array, Array]:
    """Columns less their means in each stratum, which changes no conditional likelihood, with standard deviation 1.

    Arguments:
        x: Covariates, sorted by stratum.
        first: The first row of each stratum.
        names: Of the columns.

    Raises:
        ValueError: Columns are constant in each stratum.

    Shapes:
        x `(N, p)`, first `(S)` -> `(N, p)`, and what the columns were divided by, `(p)`.
    """
    sizes = np.diff(first, append=len(x))
    # Powers of two, so that dividing by them rounds nothing.
    size = np.ldexp(1.0, np.frexp(np.abs(x).max(0))[1] - 1)
    values = x / size
    values -= np.repeat(np.add.reduceat(values, first) / sizes[:, None], sizes, 0)
    constant = [name for name, largest in zip(names, np.abs(values).max(0), strict=True) if largest < _ROUNDING]
    if constant:
        raise ValueError(f"columns that are constant within every stratum: {', '.join(map(repr, constant))}")
    deviation = np.sqrt(np.square(values).mean(0))
    return values / deviation, size * deviation
