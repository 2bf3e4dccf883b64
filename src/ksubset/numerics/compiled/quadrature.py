"""The quadrature of `ksubset.numerics.quadrature`: a row after another, the nodes of a row side by side."""

import math

import numpy as np

from ksubset.numerics.compiled.options import Array, exact, in_any_order
from ksubset.numerics.compiled.tilting import mean_and_variance

__all__ = ["solve_rows"]

# As of eager torch, in `ksubset.numerics.tilt` and `ksubset.numerics.nodes`.
_STEPS, _NEAR, _GROUP = 10, 1 / 16, 8
# A logit so far from the k-th largest is certain to all digits, and its odds are a number still.
_FAR = 650.0
# Terms that are added up before their sum is added to others, which keeps the digits of long sums.
_TERMS = 64


@exact
def solve_rows(logits: Array, sizes: Array, exponent: float, number: int) -> tuple[Array, Array, Array, Array]:
    """Solve each row, or leave it unclear: with a logit of +inf or NaN, or without a choice.

    Arguments:
        logits: Log-odds.
        sizes: Subset sizes.
        exponent: L of the quadrature.
        number: Nodes of a row.

    Returns:
        Tilted logits and flip probabilities given the size; residuals, log normalisers, shifts and prices, which are 0;
        sines and cosines of the nodes, and the parts of their weights; and whether the row is clear.

    Shapes:
        logits `(R, n)`, sizes `(R)` -> `(2, R, n)`, `(4, R)`, `(4, R, J)`, `(R)`.
    """
    rows, n = logits.shape
    of_item, of_row, nodes = np.empty((2, rows, n)), np.zeros((4, rows)), np.empty((4, rows, number))
    clear = np.empty(rows, dtype=np.bool_)
    free = np.empty(n)
    moment = np.empty((4, number))
    for row in range(rows):
        size = sizes[row]
        clear[row] = _has_choice(logits[row], size)
        if not clear[row]:
            continue
        tilted = of_item[0, row]
        kth = _kth_smallest(logits[row].copy(), n - size)
        shift = _shift(logits[row], kth, size, free)
        for i in range(n):
            # In this order: beside a large logit, differences of the others would be rounded away.
            tilted[i] = (logits[row, i] - kth) + shift
            odds = math.exp(-abs(tilted[i]))
            free[i] = odds / (1 + odds)
        majority, positive, variance, unmoved = _sums(logits[row], tilted, free)
        period = exponent / 3 + math.sqrt(exponent * exponent / 9 + 2 * exponent * variance)
        period = min(2 * math.ceil(period / 2) + 1, n + 1 + n % 2)
        sine, cosine, real, imag = nodes[0, row], nodes[1, row], nodes[2, row], nodes[3, row]
        _characteristic_function(free, tilted, period, real, imag)
        total = 0.0
        for j in range(number):
            angle = 2 * math.pi * j / period
            turn, share = (size - majority) * angle, 1.0 if j == 0 else 2.0
            c, s = share * math.cos(turn), share * math.sin(turn)
            real[j], imag[j] = real[j] * c + imag[j] * s, imag[j] * c - real[j] * s
            sine[j], cosine[j] = math.sin(angle / 2), math.cos(angle / 2)
            total += real[j]
        for j in range(number):
            real[j], imag[j] = real[j] / total, imag[j] / total
            moment[0, j], moment[1, j] = real[j], 2 * sine[j] * sine[j] * real[j]
            moment[2, j], moment[3, j] = 2 * sine[j] * cosine[j] * imag[j], cosine[j] * cosine[j]
        _given_size(free, tilted, moment, of_item[1, row])
        residual = math.log(total / period) - unmoved
        of_row[0, row], of_row[2, row] = residual, shift - kth
        of_row[1, row] = positive + (majority - size) * (shift - kth) + residual
    return of_item, of_row, nodes, clear


@exact
def _has_choice(logits: Array, size: int) -> bool:
    possible = 0
    for i in range(len(logits)):
        if not logits[i] < math.inf:
            return False
        possible += logits[i] > -math.inf
    return 0 < size < possible


@exact
def _kth_smallest(values: Array, place: int) -> float:
    """The value that would be at a place if all were sorted; reorders them (Hoare, 1961, algorithm 65: FIND)."""
    low, high, number = 0, len(values) - 1, 1
    while low < high:
        # Any fixed place of the pivot has an order, such as one of a single peak, which takes n^2 steps.
        number = (1103515245 * number + 12345) % 2**31
        pivot = values[low + number % (high - low + 1)]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return float(values[place])


@in_any_order
def _shift(logits: Array, kth: float, size: int, weight: Array) -> float:
    """The shift of `logits - kth` under which the expected size is `size - 1/2`, nearly."""
    n = len(logits)
    for i in range(n):
        weight[i] = math.exp(min(max(logits[i] - kth, -_FAR), _FAR))
    target = size - 0.5
    factor, low, high = 1.0, 1 / (2.0 * (n - size) + 1), 2.0 * size - 1
    for _ in range(_STEPS):
        mean, variance = mean_and_variance(weight, factor)
        if abs(mean - target) < _NEAR:
            break
        if mean < target:
            low = factor
        else:
            high = factor
        gap = math.log(target * (n - mean) / (mean * (n - target)))
        newton = factor * math.exp(gap * mean * (n - mean) / (n * variance))
        factor = newton if low <= newton <= high else math.sqrt(low * high)
    return math.log(factor)


@in_any_order
def _sums(logits: Array, tilted: Array, flip: Array) -> tuple[int, float, float, float]:
    """Over the items: majority states, the logits of these, variances of flips, and logarithms of no flips."""
    majority, positive, variance, unmoved = 0, 0.0, 0.0, 0.0
    for start in range(0, len(flip), _TERMS):
        a, b, c = 0.0, 0.0, 0.0
        for i in range(start, min(start + _TERMS, len(flip))):
            if tilted[i] > 0:
                majority += 1
                a += logits[i]
            b += flip[i] * (1 - flip[i])
            c += math.log1p(-flip[i])
        positive, variance, unmoved = positive + a, variance + b, unmoved + c
    return majority, positive, variance, unmoved


@in_any_order
def _characteristic_function(flip: Array, tilted: Array, period: float, real: Array, imag: Array) -> None:
    """The product `prod_i (1 - r_i + r_i exp(+-i t))` at the nodes, the sign being minus for positive tilted logits;
    0 from t = pi on.

    Groups of items are multiplied out as polynomials, whose positive coefficients lose no accuracy.
    """
    number = min(len(real), math.ceil(period / 2))
    cosine, sine = np.empty((2, 2 * _GROUP + 1, number))
    x, y, a, b = np.empty((4, number))
    coefficient = np.empty(_GROUP + 1)
    for j in range(number):
        for m in range(_GROUP + 1):
            angle = 2 * math.pi * j / period * m
            cosine[_GROUP + m, j] = cosine[_GROUP - m, j] = math.cos(angle)
            sine[_GROUP + m, j], sine[_GROUP - m, j] = math.sin(angle), -math.sin(angle)
    x[:], y[:] = 1.0, 0.0
    for start in range(0, len(flip), _GROUP):
        end = min(start + _GROUP, len(flip))
        coefficient[0], coefficient[1:], lowest = 1.0, 0.0, _GROUP
        for i in range(start, end):
            stay, step = 1 - flip[i], flip[i]
            if tilted[i] > 0:
                stay, step = step, stay
                lowest -= 1
            for m in range(i - start + 1, 0, -1):
                coefficient[m] = stay * coefficient[m] + step * coefficient[m - 1]
            coefficient[0] *= stay
        a[:], b[:] = 0.0, 0.0
        for m in range(end - start + 1):
            for j in range(number):
                a[j] += coefficient[m] * cosine[lowest + m, j]
                b[j] += coefficient[m] * sine[lowest + m, j]
        for j in range(number):
            x[j], y[j] = x[j] * a[j] - y[j] * b[j], x[j] * b[j] + y[j] * a[j]
    for j in range(len(real)):
        real[j], imag[j] = (x[j], y[j]) if j < number else (0.0, 0.0)


@in_any_order
def _given_size(flip: Array, tilted: Array, moment: Array, result: Array) -> None:
    """Flip probabilities given the size, from the moments of the nodes and their squared cosines."""
    for i in range(len(flip)):
        r = flip[i]
        # |g|^2 = (1 - 2r)^2 + 4 r (1 - r) cos^2(t/2): a sum of squares, exact also near t = pi.
        base, slope = (1 - 2 * r) * (1 - 2 * r), 4 * r * (1 - r)
        a, b, c = 0.0, 0.0, 0.0
        for j in range(moment.shape[1]):
            inverse = 1 / (base + slope * moment[3, j])
            a += moment[0, j] * inverse
            b += moment[1, j] * inverse
            c += moment[2, j] * inverse
        chance = r * (a - (1 - r) * (b - c if tilted[i] > 0 else b + c))
        # Takes off rounding errors of 1e-16 alone.
        result[i] = min(max(chance, 0.0), 1.0)
