"""The derivative of the recursion of `ksubset.numerics.compiled.recursion` along a direction."""

import math

import numpy as np

from ksubset.numerics.compiled import SMALL, TINY
from ksubset.numerics.compiled.options import Array, in_any_order

__all__ = ["differentiate_rows"]

# Rows of a block: long enough inner loops, and few enough entries of two tables for the cache.
_LANES = 64


@in_any_order
def differentiate_rows(tilted: Array, flip: Array, sizes: Array, vector: Array, product: Array, clear: Array) -> None:
    """Covariance times a vector, the derivative of the mean along it, or leave a row unclear.

    Arguments:
        tilted: Tilted logits.
        flip: Their flip probabilities.
        sizes: Subset sizes.
        vector: Directions.
        product: Receives the products.
        clear: Receives whether all digits are there.

    Shapes:
        sizes and clear `(R)`, all else `(R, n)`.
    """
    rows, n = tilted.shape
    depth = 0
    for row in range(rows):
        depth = max(depth, sizes[row])
    before, before_slope = np.empty((n + 1, depth + 1, _LANES)), np.zeros((n + 1, depth + 1, _LANES))
    after, after_slope = np.empty((depth + 2, _LANES)), np.empty((depth + 2, _LANES))
    beside, beside_slope = np.empty((n, _LANES)), np.empty((n, _LANES))
    chance, other = np.empty(_LANES), np.empty(_LANES)
    before[:, 0, :] = 1.0
    before[0, 1:, :] = 0.0
    for start in range(0, rows, _LANES):
        number = min(_LANES, rows - start)
        for lane in range(_LANES):
            # What is missing in the last block is done with its last row.
            row = start + min(lane, number - 1)
            largest, centre = -math.inf, 0.0
            for i in range(n):
                largest = max(largest, tilted[row, i])
                centre += vector[row, i] * (1 - flip[row, i] if tilted[row, i] > 0 else flip[row, i])
            # A constant has no effect; without this one the normaliser does not move along the vector.
            centre /= max(sizes[row], 1)
            valid = largest < math.inf
            for i in range(n):
                weight = math.exp(tilted[row, i] - largest) if valid else 0.0
                valid &= weight > TINY or tilted[row, i] == -math.inf
                beside[i, lane], beside_slope[i, lane] = weight, weight * (vector[row, i] - centre)
            clear[row] = valid
        for i in range(n):
            a, b, u = before[i], before[i + 1], beside[i]
            da, db, du = before_slope[i], before_slope[i + 1], beside_slope[i]
            for j in range(1, depth + 1):
                for lane in range(_LANES):
                    b[j, lane] = a[j, lane] + u[lane] * a[j - 1, lane]
                    db[j, lane] = da[j, lane] + u[lane] * da[j - 1, lane] + du[lane] * a[j - 1, lane]
        for lane in range(_LANES):
            row = start + min(lane, number - 1)
            total = before[n, sizes[row], lane]
            clear[row] &= total > SMALL
            for j in range(depth + 2):
                after[j, lane] = 1 / total if j == sizes[row] else 0.0
                after_slope[j, lane] = 0.0
        for i in range(n - 1, -1, -1):
            a, u, da, du = before[i], beside[i], before_slope[i], beside_slope[i]
            for lane in range(_LANES):
                chance[lane] = 0.0
                other[lane] = 0.0
            for j in range(1, depth + 1):
                for lane in range(_LANES):
                    chance[lane] += (u[lane] * da[j - 1, lane] + du[lane] * a[j - 1, lane]) * after[j, lane]
                    chance[lane] += u[lane] * a[j - 1, lane] * after_slope[j, lane]
            for j in range(depth + 1):
                for lane in range(_LANES):
                    other[lane] += da[j, lane] * after[j, lane] + a[j, lane] * after_slope[j, lane]
            for j in range(depth + 1):
                for lane in range(_LANES):
                    after_slope[j, lane] += u[lane] * after_slope[j + 1, lane] + du[lane] * after[j + 1, lane]
                    after[j, lane] += u[lane] * after[j + 1, lane]
            for lane in range(number):
                # The one of the two that has the digits of a small probability.
                product[start + lane, i] = -other[lane] if tilted[start + lane, i] > 0 else chance[lane]
