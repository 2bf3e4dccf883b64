"""The recursion of `ksubset.numerics.recursion`: a block of rows at once, one beside the other."""

import math

import numpy as np

from ksubset.numerics.compiled import CLEAR, SMALL, TINY
from ksubset.numerics.compiled.options import Array, in_any_order

__all__ = ["solve_rows"]

# Rows of a block: long enough inner loops, and few enough entries for the cache.
_LANES = 64


@in_any_order
def solve_rows(
    weight: Array, tilted: Array, sizes: Array, flip: Array, total: Array, origin: Array, residual: Array, clear: Array
) -> None:
    """Solve each row, or leave it unclear.

    Arguments:
        weight: Weights, of which the largest is 1.
        tilted: Their logarithms; receives the tilted logits.
        sizes: Subset sizes.
        flip: Receives the flip probabilities.
        total: Receives the elementary symmetric polynomials of the weights.
        origin: Receives what was taken off the logarithms.
        residual: Receives the log normalisers of the tilted logits, less the positive ones of these.
        clear: Receives whether all digits are there.

    Shapes:
        weight, tilted and flip `(R, n)`, all else `(R)`.
    """
    rows, n = weight.shape
    depth = 0
    for row in range(rows):
        depth = max(depth, sizes[row])
    before = np.empty((n + 1, depth + 1, _LANES))
    after = np.empty((depth + 2, _LANES))
    beside = np.empty((n, _LANES))
    chance, other = np.empty(_LANES), np.empty(_LANES)
    before[:, 0, :] = 1.0
    before[0, 1:, :] = 0.0
    for start in range(0, rows, _LANES):
        number = min(_LANES, rows - start)
        for lane in range(_LANES):
            # What is missing in the last block is done with its last row.
            row = weight[start + min(lane, number - 1)]
            for i in range(n):
                beside[i, lane] = row[i]
        for i in range(n):
            a, b, u = before[i], before[i + 1], beside[i]
            for j in range(1, depth + 1):
                for lane in range(_LANES):
                    b[j, lane] = a[j, lane] + u[lane] * a[j - 1, lane]
        for lane in range(_LANES):
            row = start + min(lane, number - 1)
            total[row] = before[n, sizes[row], lane]
            for j in range(depth + 2):
                after[j, lane] = 1 / total[row] if j == sizes[row] else 0.0
        for i in range(n - 1, -1, -1):
            a, u = before[i], beside[i]
            for lane in range(_LANES):
                chance[lane] = 0.0
            for j in range(1, depth + 1):
                for lane in range(_LANES):
                    chance[lane] += a[j - 1, lane] * after[j, lane]
            likeliest = 0.0
            for lane in range(_LANES):
                chance[lane] *= u[lane]
                likeliest = max(likeliest, chance[lane])
            if likeliest > 0.5:
                for lane in range(_LANES):
                    other[lane] = 0.0
                for j in range(depth + 1):
                    for lane in range(_LANES):
                        other[lane] += a[j, lane] * after[j, lane]
            for j in range(depth + 1):
                for lane in range(_LANES):
                    after[j, lane] += u[lane] * after[j + 1, lane]
            for lane in range(number):
                flip[start + lane, i] = -other[lane] if chance[lane] > 0.5 else chance[lane]
        for row in range(start, start + number):
            clear[row] = total[row] > SMALL
            chosen, least, most = 0, 0.0, -math.inf
            for i in range(n):
                clear[row] &= weight[row, i] > TINY or tilted[row, i] == -math.inf
                if flip[row, i] < 0:
                    chosen += 1
                    least = min(least, tilted[row, i])
                else:
                    most = max(most, tilted[row, i])
            origin[row] = 0.0 if chosen == 0 else least - 1 if most == -math.inf else (least + most) / 2
            residual[row] = math.log(total[row]) - sizes[row] * origin[row]
            for i in range(n):
                tilted[row, i] -= origin[row]
                residual[row] -= max(tilted[row, i], 0.0)
                flip[row, i] = min(abs(flip[row, i]), 1.0)
            clear[row] &= residual[row] > CLEAR
