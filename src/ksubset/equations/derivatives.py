"""Derivatives along an axis: by differences, or weakly, by integrals against test functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array

__all__ = ["Axis", "along", "difference_axis", "difference_matrix", "half_width", "weak_axis"]

Array = NDArray[np.float64]
# What counts as zero of a test function at the edge of its support, and how many standard deviations of its spectrum
# lie below the corner of that of the data.
_EDGE, _DEVIATIONS = 1e-10, 2.0
# A variable whose spectrum is less than this part of its size is constant.
_CONSTANT = 1e-12
# Test functions in half a support.
_OVERLAP = 8
# Order of the error of differences.
_ACCURACY = 4


@dataclass(frozen=True)
class Axis:
    """Derivatives along one axis, all at the same places.

    Attributes:
        matrices: By order from 0 on, sparse, `(M, N)`.
        centres: Indices of the places, `(M)`.
        half_width: How many points to either side take part.
        reach: How far apart places are, in steps, that share no data.
    """

    matrices: list[Any]
    centres: NDArray[np.int64]
    half_width: int
    reach: int


def along(data: Array, matrices: Sequence[Any]) -> Array:
    """Data `(N_1, ..., N_m)` multiplied along each axis by a matrix `(M_i, N_i)`."""
    for matrix in matrices:
        # The first axis becomes the last one, so that after all of them the order is as it was.
        flat = matrix @ data.reshape(len(data), -1)
        data = np.moveaxis(flat.reshape(-1, *data.shape[1:]), 0, -1)
    return data


def difference_matrix(points: Array, order: int) -> Any:
    """A derivative by differences of the nearest points, which need not be evenly spaced; sparse, `(N, N)`.

    It is right for polynomials up to degree order + 3.
    """
    count, size = len(points), order + _ACCURACY + (order + _ACCURACY + 1) % 2
    first = np.clip(np.arange(count) - size // 2, 0, count - size)
    places = first[:, None] + np.arange(size)
    offsets = points[places] - points[:, None]
    scale = np.abs(offsets).max(1, keepdims=True)
    powers = (offsets / scale)[:, None, :] ** np.arange(size)[:, None]
    right = np.zeros((count, size, 1))
    right[:, order, 0] = math.factorial(order) / scale[:, 0] ** order
    weights = np.linalg.solve(powers, right)
    rows = np.repeat(np.arange(count), size)
    return csr_array((weights.ravel(), (rows, places.ravel())), shape=(count, count))


def difference_axis(points: Array, highest: int) -> Axis:
    """Derivatives up to the order `highest` by central differences, where there are points on both sides."""
    half = (highest + _ACCURACY) // 2
    inner = slice(half, len(points) - half)
    matrices = [difference_matrix(points, order)[inner] for order in range(highest + 1)]
    return Axis(matrices, np.arange(len(points))[inner], half, 2 * half + 1)


def weak_axis(step: float, count: int, half: int, highest: int) -> Axis:
    r"""Derivatives up to the order `highest`, weakly: integrals against :math:`\phi(s) = (1 - s^2)^p`.

    By partial integration, :math:`\int \phi\, u^{(a)} = (-1)^a \int \phi^{(a)} u`, so that no data is differentiated.
    The power p lets phi and its derivatives vanish at the edges of its support, so that sums over the points are
    integrals of high order. Its integral is 1. The weights of each derivative of phi are changed by the least, relative
    to phi, with which partial integration holds for sums over the points, too, of polynomials u up to degree
    highest + 3.

    References:
        Messenger and Bortz (2021), https://doi.org/10.1137/20M1343166.

    Arguments:
        step: Between the points, even.
        count: Of the points, N.
        half: Half-width of the support, in steps, :func:`least_half_width` or more.
        highest: Highest order.
    """
    s = np.arange(-half, half + 1) / half
    # phi is near to a Gaussian of variance half^2 / (2 p) in steps, which points a step apart cannot show below 1.
    power = max(highest + 2, min(math.ceil(math.log(_EDGE) / math.log((2 * half - 1) / half**2)), half**2 // 2))
    shape = np.polynomial.Polynomial([1, 0, -1]) ** power
    window = (1 - s**2) ** power
    mass = window.sum()
    window /= mass
    root = np.sqrt(window)
    degrees = range(highest + _ACCURACY)
    monomials = np.stack([s**degree for degree in degrees])
    centres = np.arange(half, count - half, max(1, half // _OVERLAP))
    places = centres[:, None] + np.arange(-half, half + 1)
    rows = np.repeat(np.arange(len(centres)), len(s))
    matrices = []
    for order in range(highest + 1):
        values = (-1) ** order * shape.deriv(order)(s) / mass
        derivatives = np.stack([math.perm(degree, order) * s ** max(degree - order, 0) for degree in degrees])
        missing = derivatives @ window - monomials @ values
        values += root * np.linalg.lstsq(monomials * root, missing, rcond=None)[0]
        values /= (half * step) ** order
        matrices.append(csr_array((np.tile(values, len(centres)), (rows, places.ravel())), shape=(len(centres), count)))
    # Test functions are 0 at the edges of their supports.
    return Axis(matrices, centres, half, 2 * half)


def least_half_width(highest: int) -> int:
    """The least half-width, in steps, with points enough for derivatives up to the order `highest`."""
    return highest + 2


def half_width(data: Array, highest: int) -> int:
    """A half-width, in steps, with which the spectrum of test functions ends where the noise of the data begins.

    References:
        Messenger and Bortz (2021), https://doi.org/10.1016/j.jcp.2021.110525, appendix A.

    Arguments:
        data: `(N, ..., d)`, along the first axis, of d variables, whose units do not matter.
        highest: Highest order of a derivative.
    """
    count, frequency = len(data), _corner(data)

    def excess(half: float) -> float:
        spread = (2 * math.pi * frequency * half) ** 2 - 3 * (count * _DEVIATIONS) ** 2
        return math.log((2 * half - 1) / half**2) * spread - 2 * (count * _DEVIATIONS) ** 2 * math.log(_EDGE)

    least = max(3.0, math.sqrt(3) * count * _DEVIATIONS / (2 * math.pi * frequency))
    most = 10 * count
    half = brentq(excess, least, most) if excess(least) * excess(most) < 0 else least
    return max(least_half_width(highest), min(int(half), (count - 1) // 8))


def _corner(data: Array) -> int:
    """The frequency, 1 to N / 2, where two straight lines fit the sum of all higher amplitudes best."""
    amplitudes = np.abs(np.fft.rfft(data.reshape(len(data), -1, data.shape[-1]), axis=0)).mean(1)
    # Of a constant there is its rounding alone.
    total, sizes = amplitudes[1:].sum(0), np.abs(data).reshape(-1, data.shape[-1]).max(0)
    units = np.where(total > _CONSTANT * len(data) * sizes, total, np.inf)
    sums = np.append(np.cumsum((amplitudes[1:] / units).mean(1)[::-1])[::-1], 0)
    errors = _line_errors(sums) + _line_errors(sums[::-1])[::-1]
    return int(np.argmin(errors[1:-1])) + 2


def _line_errors(values: Array) -> Array:
    """Norms of the differences of all first values, one or more, from a straight line from the first to the last."""
    places = np.arange(len(values))
    risen = values - values[0]
    slopes = risen / np.maximum(places, 1)
    squares = (
        np.cumsum(risen**2) - 2 * slopes * np.cumsum(places * risen) + slopes**2 * np.cumsum(places.astype(float) ** 2)
    )
    errors: Array = np.sqrt(squares.clip(min=0))
    return errors
