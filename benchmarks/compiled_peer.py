"""The peer that needs a compiler: importing it fails where numba is not installed."""

import math

import numba
import numpy as np

__all__ = ["compiled_recursion"]


@numba.njit(fastmath=True, cache=False)
def compiled_recursion(logits: np.ndarray, k: int) -> tuple[float, np.ndarray]:
    """Log normaliser and inclusion probabilities of one row by the O(n k) recursion for sums of Bernoulli draws.

    One thread; the logits are shifted by a few Newton steps for a mean of k, without which P(sum = k) underflows. Only
    the part of the table that can reach k is filled. For 0 < k < n.

    Shapes:
        `(n)` -> a number and `(n)`.
    """
    n = len(logits)
    origin = np.partition(logits, n - k)[n - k]
    p = 1 / (1 + np.exp(origin - logits))
    for _ in range(20):
        mean = p.sum()
        if abs(mean - k) < 0.25:
            break
        slope = n * (p * (1 - p)).sum() / (mean * (n - mean))
        origin -= math.log(k * (n - mean) / (mean * (n - k))) / slope
        p = 1 / (1 + np.exp(origin - logits))
    after = np.zeros((n + 1, k + 1))
    after[n, 0] = 1
    for i in range(n - 1, -1, -1):
        q = 1 - p[i]
        after[i, 0] = q * after[i + 1, 0]
        for j in range(1, min(k, n - i) + 1):
            after[i, j] = q * after[i + 1, j] + p[i] * after[i + 1, j - 1]
    probability = after[0, k]
    before = np.zeros(k + 1)
    before[0] = 1
    inclusion = np.empty(n)
    softplus = 0.0
    for i in range(n):
        total = 0.0
        for j in range(min(i, k - 1) + 1):
            total += before[j] * after[i + 1, k - 1 - j]
        inclusion[i] = p[i] * total / probability
        q = 1 - p[i]
        for j in range(min(i + 1, k), 0, -1):
            before[j] = q * before[j] + p[i] * before[j - 1]
        before[0] *= q
        softplus += max(logits[i] - origin, 0.0) + np.log1p(np.exp(-abs(logits[i] - origin)))
    return math.log(probability) + softplus + k * origin, inclusion
