r"""The normaliser of k-subsets with its first two derivatives in the coefficients of `eta = X beta`, loop by loop.

As in `ksubset.numerics.quadrature`, a tilt gives every row of a stratum a majority state and a flip probability
`r <= 1/2`, and a few nodes `t_j` with weights `W_j` give everything. With `c_ij` the conditional flip probability of
row i under node j (`ksubset.numerics.covariance`), `s_i` the sign of its flip, `V_j = sum_i s_i c_ij x_i` and
`d_i = Re sum_j W_j c_ij (1 - c_ij)`,

    E = Re sum_j W_j V_j,    H = Re sum_j W_j (V_j - E)(V_j - E)^T + sum_i d_i x_i x_i^T

are the mean of the flips' covariates and the Hessian of `log e_k`: O(J n p + J p^2 + n p^2) for J <= 28 nodes, whatever
k is. The nodes of a row of n items are at most `n / 2 + 1`, so that short strata need no algorithm of their own: with
p covariates the recursion that is usual for them takes about `k p^2 / 2` numbers a row, and this one `J p + p^2 / 2`.
"""

import math

import numpy as np

from ksubset.numerics.compiled.options import Array, in_any_order

__all__ = ["MOST_NODES", "add_subset", "add_subsets", "workspace"]

# Aliasing and cut tails are below exp(-38), and no more nodes are ever needed, as in `ksubset.numerics.quadrature`.
_EXPONENT = 38.0
MOST_NODES = 28
_STEPS = 200
# Factors of at most 2 that are multiplied before a logarithm is taken.
_FACTORS = 512


@in_any_order
def workspace(rows: int, columns: int) -> tuple[Array, Array, Array, Array]:
    """Memory for strata of up to so many rows: for the rows, their covariates, the nodes, and sums at the nodes."""
    return (
        np.empty((4, rows)),
        np.empty((rows, columns)),
        np.empty((12, MOST_NODES)),
        np.empty((2, columns, MOST_NODES)),
    )


@in_any_order
def add_subset(
    eta: Array,
    x: Array,
    members: Array,
    size: int,
    start: float,
    factor: float,
    mean: Array,
    hessian: Array,
    expected: Array,
    space: tuple[Array, Array, Array, Array],
) -> tuple[float, float]:
    """Solve one stratum: the log normaliser of its subsets, and the shift of its tilt.

    Arguments:
        eta: Logits of all rows.
        x: Their covariates.
        members: The rows of the stratum, more than `size`.
        size: Of the subsets, at least 1.
        start: Where the search for the shift starts; NaN if nothing is known.
        factor: What the Hessian and the inclusion probabilities are multiplied by.
        mean: Receives the mean of the sum of a subset's covariates.
        hessian: To this the Hessian is added.
        expected: To this the inclusion probabilities are added.
        space: Of `workspace`.

    Shapes:
        eta and expected `(N)`, x `(N, p)`, members `(n)`, mean `(p)`, hessian `(p, p)`.
    """
    n, p = len(members), x.shape[1]
    row, centred, node, total = space
    logit, flip, sign, spread = row
    shift, log_ratio = _tilt(eta, members, size, start, logit, flip, sign)
    variance, chosen, positive = 0.0, 0, 0.0
    for i in range(n):
        variance += flip[i] * (1 - flip[i])
        if sign[i] < 0:
            chosen += 1
            positive += logit[i]
    nodes, log_probability = _rule(flip, sign, n, size - chosen, variance, node)
    cosine, sine, real, imag, a, b, squared = (
        node[0], node[1], node[2], node[3], node[4], node[5], node[6],
    )  # fmt: skip
    for q in range(p):
        centre = 0.0
        for i in range(n):
            centre += x[members[i], q]
        centre /= n
        for i in range(n):
            centred[i, q] = x[members[i], q] - centre
        mean[q] = size * centre
        for j in range(nodes):
            total[0, q, j] = 0.0
            total[1, q, j] = 0.0
    for i in range(n):
        r, s = flip[i], sign[i]
        v = r * (1 - r)
        probability, spread[i] = 0.0, 0.0
        for j in range(nodes):
            inverse = 1 / ((1 - 2 * r) ** 2 + 4 * v * squared[j])
            u = (v * cosine[j] + r * r) * inverse
            w = v * sine[j] * inverse
            probability += real[j] * u - s * imag[j] * w
            spread[i] += real[j] * (u - u * u + w * w) - s * imag[j] * w * (1 - 2 * u)
            a[j] = s * u
            b[j] = w
        for q in range(p):
            value = centred[i, q]
            for j in range(nodes):
                total[0, q, j] += value * a[j]
                total[1, q, j] += value * b[j]
        # Rounding errors of 1e-16 alone are taken off.
        probability = min(max(probability, 0.0), 1.0)
        expected[members[i]] += factor * (probability if s > 0 else 1 - probability)
        if s < 0:
            for q in range(p):
                mean[q] += centred[i, q]
    for q in range(p):
        change = 0.0
        for j in range(nodes):
            change += real[j] * total[0, q, j] - imag[j] * total[1, q, j]
        mean[q] += change
        for j in range(nodes):
            total[0, q, j] -= change
    for q in range(p):
        for j in range(nodes):
            a[j] = real[j] * total[0, q, j] - imag[j] * total[1, q, j]
            b[j] = real[j] * total[1, q, j] + imag[j] * total[0, q, j]
        for h in range(q + 1):
            entry = 0.0
            for j in range(nodes):
                entry += a[j] * total[0, h, j] - b[j] * total[1, h, j]
            hessian[q, h] += factor * entry
    for i in range(n):
        for q in range(p):
            value = factor * spread[i] * centred[i, q]
            for h in range(q + 1):
                hessian[q, h] += value * centred[i, h]
    return log_probability + log_ratio + positive + (chosen - size) * shift, shift


@in_any_order
def _tilt(
    eta: Array, members: Array, size: int, start: float, logit: Array, flip: Array, sign: Array
) -> tuple[float, float]:
    """The shift under which the expected size is `size - 1/2`, or near it, and the sum of `-log(1 - r)`."""
    n = len(members)
    least, most = math.inf, -math.inf
    for i in range(n):
        logit[i] = eta[members[i]]
        least, most = min(least, logit[i]), max(most, logit[i])
    target = size - 0.5
    origin = math.log(target / (n - target))
    low, high = origin - most, origin - least
    shift = start if low < start < high else 0.5 * (low + high)
    log_ratio = 0.0
    for _ in range(_STEPS):
        mean, variance, log_ratio, product, factors = 0.0, 0.0, 0.0, 1.0, 0
        for i in range(n):
            t = logit[i] + shift
            small = math.exp(-abs(t))
            r = small / (1 + small)
            flip[i] = r
            sign[i] = -1.0 if t > 0 else 1.0
            mean += 1 - r if t > 0 else r
            variance += r * (1 - r)
            product *= 1 + small
            factors += 1
            if factors == _FACTORS:
                log_ratio += math.log(product)
                product, factors = 1.0, 0
        log_ratio += math.log(product)
        # The formulas hold for any shift: a fraction of the deviation changes the probability of the size little.
        if abs(mean - target) < max(0.0625, 0.25 * math.sqrt(variance)) or low == high:
            break
        if mean < target:
            low = shift
        else:
            high = shift
        newton = math.nan
        if 0 < mean < n and variance > 0:
            gap = math.log(target * (n - mean) / (mean * (n - target)))
            newton = shift + gap * mean * (n - mean) / (n * variance)
        shift = newton if low < newton < high else 0.5 * (low + high)
    return shift, log_ratio


@in_any_order
def _rule(flip: Array, sign: Array, n: int, end: int, variance: float, node: Array) -> tuple[int, float]:
    """The nodes and their weights, `node[:4]`, `node[6]`: how many they are, and the logarithm of P(S = k)."""
    period = _EXPONENT / 3 + math.sqrt(_EXPONENT**2 / 9 + 2 * _EXPONENT * variance)
    period = min(2 * math.ceil(period / 2) + 1, n + 1 + n % 2)
    cosine, sine, real, imag, squared, twice = node[0], node[1], node[2], node[3], node[6], node[7]
    nodes = 0
    while nodes < MOST_NODES and 2 * nodes < period:
        angle = 2 * math.pi * nodes / period
        half = math.sin(0.5 * angle) ** 2
        if half * 2 * variance > _EXPONENT:
            break
        cosine[nodes], sine[nodes], twice[nodes], squared[nodes] = math.cos(angle), math.sin(angle), 2 * half, 1 - half
        real[nodes], imag[nodes] = 1.0, 0.0
        nodes += 1
    for i in range(n):
        r, s = flip[i], sign[i] * flip[i]
        for j in range(nodes):
            a, b = 1 - r * twice[j], s * sine[j]
            old = real[j]
            real[j] = old * a - imag[j] * b
            imag[j] = old * b + imag[j] * a
    total = 0.0
    for j in range(nodes):
        turn, share = end * 2 * math.pi * j / period, 1.0 if j == 0 else 2.0
        a, b, old = share * math.cos(turn), -share * math.sin(turn), real[j]
        real[j] = old * a - imag[j] * b
        imag[j] = old * b + imag[j] * a
        total += real[j]
    for j in range(nodes):
        real[j] /= total
        imag[j] /= total
    return nodes, math.log(total / period)


@in_any_order
def add_subsets(
    eta: Array,
    x: Array,
    first: Array,
    last: Array,
    size: Array,
    weight: Array,
    shift: Array,
    value: Array,
    mean: Array,
    hessian: Array,
    expected: Array,
) -> None:
    """Solve strata that are slices of rows; see `add_subset`, and of the Hessian the lower triangle is written.

    Shapes:
        first, last, size, weight, shift and value `(S)`, mean `(S, p)`.
    """
    longest = 0
    for s in range(len(first)):
        longest = max(longest, last[s] - first[s])
    space = workspace(longest, x.shape[1])
    members = np.empty(longest, np.int64)
    part = np.empty((x.shape[1], x.shape[1]))
    for s in range(len(first)):
        n = last[s] - first[s]
        for i in range(n):
            members[i] = first[s] + i
        part[:] = 0.0
        value[s], shift[s] = add_subset(
            eta, x, members[:n], size[s], shift[s], 1.0, mean[s], part, expected, space
        )  # fmt: skip
        hessian += weight[s] * part
