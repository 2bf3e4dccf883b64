"""The tilt of `ksubset.numerics.tilt`, row by row."""

import math

from ksubset.numerics.compiled import TINY
from ksubset.numerics.compiled.options import Array, in_any_order

__all__ = ["mean_and_variance", "tilt_rows"]

_STEPS = 16
# Of the largest weight; where the odds have to make up for more, small weights may have lost their digits.
_FAR = 1e200


@in_any_order
def mean_and_variance(weight: Array, factor: float) -> tuple[float, float]:
    """Of the number of members, where the odds of each item are factor * weight."""
    mean, square = 0.0, 0.0
    for i in range(len(weight)):
        odds = factor * weight[i]
        chance = odds / (1 + odds)
        mean += chance
        square += chance * chance
    return mean, mean - square


@in_any_order
def tilt_rows(rows: Array, sizes: Array, settled: Array) -> None:
    """Replace the logits of each row by flip probabilities, negative for items whose majority state is in the subset.

    A row is spoiled, and not marked in `settled`, where Newton's method on the odds does not converge at once: with
    logits of +inf or NaN, without items to choose, or with clusters of logits far from each other.

    Shapes:
        rows `(R, n)`, float64; sizes and settled `(R)`.
    """
    n = rows.shape[1]
    for row in range(len(rows)):
        settled[row] = False
        weight = rows[row]
        target = sizes[row] - 0.5
        largest = -math.inf
        for i in range(n):
            largest = max(largest, weight[i])
        if not (math.isfinite(largest) and target > 0):
            continue
        for i in range(n):
            weight[i] = math.exp(weight[i] - largest)
        total = 0.0
        for i in range(n):
            total += weight[i]
        # The odds are factor * weight, and the first factor is too small.
        factor, low, high = target / total, 0.0, math.inf
        for _ in range(_STEPS):
            mean, variance = mean_and_variance(weight, factor)
            # The formulas hold for any shift: a fraction of the deviation changes the probability of the size little.
            if abs(mean - target) < max(0.0625, 0.25 * math.sqrt(variance)):
                settled[row] = factor < _FAR
                break
            if mean < target:
                low = factor
            else:
                high = factor
            gap = math.log(target * (n - mean) / (mean * (n - target)))
            newton = factor * math.exp(gap * mean * (n - mean) / (n * variance))
            if low < newton < high:
                factor = newton
            elif high < math.inf:
                factor = math.sqrt(low * high)
            else:
                factor = 8 * low
        for i in range(n):
            odds = factor * weight[i]
            flip = 1 / (1 + odds)
            weight[i] = -max(flip, TINY) if odds > 1 else odds * flip
