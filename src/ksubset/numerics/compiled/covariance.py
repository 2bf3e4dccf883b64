"""The covariance product of `ksubset.numerics.covariance`, row by row: nothing as large as nodes times rows is kept."""

import math

import numpy as np

from ksubset.numerics.compiled.options import Array, in_any_order

__all__ = ["product_rows"]


@in_any_order
def product_rows(
    flip: Array, tilted: Array, sine: Array, cosine: Array, real: Array, imag: Array, vector: Array, product: Array
) -> None:
    """Covariance times a vector.

    Arguments:
        flip: Flip probabilities.
        tilted: Tilted logits.
        sine: Of half the angles of the nodes.
        cosine: The same.
        real: Parts of the weights of the nodes.
        imag: The same.
        vector: To be multiplied.
        product: Receives the result.

    Shapes:
        sine, cosine, real and imag `(R, J)`, all else `(R, n)`; all float64.
    """
    rows, n = vector.shape
    nodes = sine.shape[1]
    turn, second, squared = np.empty(nodes), np.empty(nodes), np.empty(nodes)
    above, beside = np.empty(nodes), np.empty(nodes)
    left, right = np.empty((n, nodes)), np.empty((n, nodes))
    for row in range(rows):
        for j in range(nodes):
            squared[j] = cosine[row, j] * cosine[row, j]
            turn[j] = squared[j] - sine[row, j] * sine[row, j]
            second[j] = 2 * sine[row, j] * cosine[row, j]
            above[j] = 0.0
            beside[j] = 0.0
        mean = 0.0
        for i in range(n):
            chance = 1 / (1 + math.exp(abs(tilted[row, i])))
            sign = -1.0 if tilted[row, i] > 0 else 1.0
            value = sign * vector[row, i]
            mean += value * flip[row, i]
            # |g|^2 as a sum of squares, exact also near t = pi.
            still, moving, own = (1 - 2 * chance) ** 2, chance * (1 - chance), chance * chance
            for j in range(nodes):
                scale = 1 / (still + 4 * moving * squared[j])
                left[i, j] = (moving * turn[j] + own) * scale
                right[i, j] = sign * moving * second[j] * scale
                above[j] += value * left[i, j]
                beside[j] += value * right[i, j]
        for j in range(nodes):
            a, b = above[j], beside[j]
            above[j] = real[row, j] * a - imag[row, j] * b
            beside[j] = real[row, j] * b + imag[row, j] * a
        for i in range(n):
            sign = -1.0 if tilted[row, i] > 0 else 1.0
            value = sign * vector[row, i]
            total = 0.0
            for j in range(nodes):
                a, b = left[i, j], right[i, j]
                total += a * above[j] - b * beside[j]
                total += value * ((a - a * a + b * b) * real[row, j] - (b - 2 * a * b) * imag[row, j])
            product[row, i] = sign * (total - flip[row, i] * mean)
