r"""The partial likelihood of Cox's model at one value of the coefficients, with four ways to take tied event times.

At an event time with the risk set R, and D of its rows having the event, d of them, the logarithm of the likelihood is
`sum_{i in D} eta_i` less, with `phi = exp(eta)`,

| ties | |
| --- | --- |
| breslow | `d log sum_R phi` |
| efron | `sum_{l < d} log(sum_R phi - l / d sum_D phi)` |
| exact | `log e_d(phi_R)`, the k-subset normaliser |

and with `marginal` it is `log int_0^inf prod_{i in D} (1 - exp(-t phi_i / sum_{R - D} phi)) exp(-t) dt`, the
probability that the rows of D have their events, in some order, before any other row: in `s = log t` the integrand is
log-concave with its mode between 0 and `log(d + 1)`, and decays so fast at both sides that the trapezoidal rule
converges geometrically. With one event at a time all four are the same.

Rows are sorted by stratum, then by falling time, events last among equal times, so that a risk set is a slice of rows,
of those that have entered. Sums over them are updated from time to time; where rows are left out that enter only later,
and the sum has fallen far below the largest one since, it is taken afresh, so that nothing cancels.
"""

import math

import numpy as np

from ksubset.numerics.compiled.options import Array, exact
from ksubset.stats.subsets import add_subset, workspace

__all__ = ["BRESLOW", "EFRON", "EXACT", "MARGINAL", "add_events"]

BRESLOW, EFRON, EXACT, MARGINAL = range(4)
# Of the largest sum: below it, what has been subtracted since may have taken three digits.
_FALLEN = 1e-3
# What is left out of the integral, in the exponent; steps of the trapezoidal rule, in standard deviations and at most.
_TAIL, _RELATIVE_STEP, _STEP = 40.0, 0.5, 0.25


@exact
def add_events(
    method: int,
    eta: Array,
    x: Array,
    entry: Array,
    leaving: Array,
    at: Array,
    first: Array,
    last: Array,
    deaths: Array,
    shift: Array,
    value: Array,
    mean: Array,
    hessian: Array,
    hazard: Array,
    drift: Array,
    own: Array,
    own_drift: Array,
    expected: Array,
) -> None:
    """Take each event time in turn; of the Hessian the lower triangle is written.

    Arguments:
        method: One of the four.
        eta: Logits of the rows.
        x: Their covariates.
        entry: When they enter; -inf at all of them if none enters late.
        leaving: Rows in the order in which they leave the risk set as time falls: by stratum, then by falling entry.
        at: The event times, by stratum and falling.
        first: The first row of each one's stratum.
        last: The end of its risk set, of which the last `deaths` rows have the event.
        deaths: How many have the event.
        shift: Of the tilts, kept from call to call; NaN at first.
        value: Receives what is subtracted from the sum of the logits of D.
        mean: Receives its derivative in the coefficients.
        hessian: To this minus the second derivative is added.
        hazard: Receives the factors h of `phi_i h`, which each row at risk (of efron and marginal: outside of D) adds
            to its expected number of events; they are relative to the largest `eta` of the stratum.
        drift: Receives the sums of h times the means of the covariates that belong to them (breslow and efron).
        own: Receives the same for the rows of D.
        own_drift: Receives the same for the rows of D.
        expected: To this the expected numbers of events are added that are not of this form.

    Shapes:
        eta, entry, leaving and expected `(N)`, x `(N, p)`; at, first, last, deaths, shift, value, hazard and own `(G)`;
        mean, drift and own_drift `(G, p)`, hessian `(p, p)`.
    """
    p = x.shape[1]
    longest = 0
    for g in range(len(at)):
        longest = max(longest, last[g] - first[g])
    space = workspace(longest if method == EXACT else 1, p)
    members = np.empty(longest, np.int64)
    all_sums, dead = _sums(p), _sums(p)
    average = np.empty(p)
    stratum, origin, done, gone = -1, 0.0, 0, 0
    for g in range(len(at)):
        d = deaths[g]
        if first[g] != stratum:
            stratum = first[g]
            done, gone = stratum, stratum
            _clear(all_sums)
            origin = -math.inf
            end = g
            while end < len(at) and first[end] == stratum:
                for i in range(last[end - 1] if end > g else stratum, last[end]):
                    origin = max(origin, eta[i])
                end += 1
        hazard[g], own[g] = 0.0, 0.0
        drift[g], own_drift[g] = 0.0, 0.0
        simple = method == BRESLOW or d == 1
        while done < last[g] - d:
            _add(all_sums, eta, x, done, 1.0)
            done += 1
        while gone < last[g] and entry[leaving[gone]] >= at[g]:
            _add(all_sums, eta, x, leaving[gone], -1.0)
            gone += 1
        if all_sums[0][0] < _FALLEN * all_sums[0][2]:
            _clear(all_sums)
            for i in range(first[g], last[g] - d):
                if entry[i] < at[g]:
                    _add(all_sums, eta, x, i, 1.0)
        survivors = all_sums[0][0]
        if method == EXACT and not simple:
            number = 0
            for i in range(first[g], last[g]):
                if entry[i] < at[g]:
                    members[number] = i
                    number += 1
            if number > d:
                value[g], shift[g] = add_subset(
                    eta, x, members[:number], d, shift[g], 1.0, mean[g], hessian, expected, space
                )  # fmt: skip
            else:
                value[g] = eta[last[g] - d : last[g]].sum()
                for q in range(p):
                    mean[g, q] = x[last[g] - d : last[g], q].sum()
                expected[last[g] - d : last[g]] += 1.0
        elif method == MARGINAL and not simple:
            if survivors > 0:
                value[g], hazard[g] = _marginal(
                    eta, x, last[g] - d, last[g], all_sums, mean[g], hessian, expected
                )  # fmt: skip
                hazard[g] *= math.exp(origin - all_sums[0][1])
            else:
                value[g] = eta[last[g] - d : last[g]].sum()
                for q in range(p):
                    mean[g, q] = x[last[g] - d : last[g], q].sum()
                expected[last[g] - d : last[g]] += 1.0
        _clear(dead)
        for i in range(last[g] - d, last[g]):
            _add(all_sums, eta, x, i, 1.0)
            _add(dead, eta, x, i, 1.0)
        done = last[g]
        if not simple and method in (EXACT, MARGINAL):
            continue
        value[g], mean[g] = 0.0, 0.0
        scale = math.exp(origin - all_sums[0][1])
        ratio = math.exp(dead[0][1] - all_sums[0][1])
        for event in range(d):
            share = 0.0 if simple else ratio * event / d
            total = all_sums[0][0] - share * dead[0][0]
            value[g] += math.log(total) + all_sums[0][1]
            hazard[g] += scale / total
            own[g] += (1 - (0.0 if simple else event / d)) * scale / total
            for q in range(p):
                average[q] = (all_sums[1][q] - share * dead[1][q]) / total
                mean[g, q] += average[q]
                drift[g, q] += average[q] * scale / total
                own_drift[g, q] += (1 - (0.0 if simple else event / d)) * average[q] * scale / total
            for q in range(p):
                for h in range(q + 1):
                    hessian[q, h] += (all_sums[2][q, h] - share * dead[2][q, h]) / total - average[q] * average[h]


@exact
def _sums(p: int) -> tuple[Array, Array, Array]:
    """The sum of phi, the exponent that all are relative to, the largest sum so far; sums of phi x and phi x x^T."""
    return np.zeros(3), np.zeros(p), np.zeros((p, p))


@exact
def _clear(sums: tuple[Array, Array, Array]) -> None:
    sums[0][0], sums[0][1], sums[0][2] = 0.0, -math.inf, 0.0
    sums[1][:] = 0.0
    sums[2][:] = 0.0


@exact
def _add(sums: tuple[Array, Array, Array], eta: Array, x: Array, i: int, sign: float) -> None:
    """Add a row, or take it off."""
    size, one, two = sums
    if eta[i] > size[1]:
        factor = math.exp(size[1] - eta[i])
        size[0] *= factor
        size[2] *= factor
        one *= factor
        two *= factor
        size[1] = eta[i]
    phi = sign * math.exp(eta[i] - size[1])
    size[0] += phi
    size[2] = max(size[2], size[0])
    for q in range(len(one)):
        value = phi * x[i, q]
        one[q] += value
        for h in range(q + 1):
            two[q, h] += value * x[i, h]


@exact
def _marginal(
    eta: Array,
    x: Array,
    low: int,
    high: int,
    others: tuple[Array, Array, Array],
    mean: Array,
    hessian: Array,
    expected: Array,
) -> tuple[float, float]:
    """The events of the rows from `low` to `high`, before any of the others; see `add_events`."""
    d, p = high - low, x.shape[1]
    log_others = math.log(others[0][0]) + others[0][1]
    theta = eta[low:high] - log_others
    centred = np.empty((d, p))
    for q in range(p):
        for i in range(d):
            centred[i, q] = x[low + i, q] - others[1][q] / others[0][0]
    # The mode, by Newton's method within its bracket.
    left, right = 0.0, math.log(d + 1.0)
    s, curvature = 0.5 * right, 1.0
    for _ in range(100):
        slope, curvature = 1 - math.exp(s), math.exp(s)
        for i in range(d):
            rate, c, _ = _risen(theta[i] + s)
            slope += c
            curvature -= _bent(rate, c)
        if slope > 0:
            left = s
        else:
            right = s
        step = slope / curvature
        if abs(step) < 1e-6 or right - left < 1e-9:
            break
        s = s + step if left < s + step < right else 0.5 * (left + right)
    step = min(_STEP, _RELATIVE_STEP / math.sqrt(curvature))
    peak, total = -math.inf, 0.0
    each, sums = np.zeros(d), np.zeros(p)
    second = np.zeros((p, p))
    bent = np.zeros(d)
    at_node, slopes = np.empty(p), np.empty(d)
    for direction in range(2):
        node = 0 if direction == 0 else 1
        while True:
            t = s + step * node * (1 if direction == 0 else -1)
            height = t - math.exp(t)
            at_node[:] = 0.0
            for i in range(d):
                _, c, log_share = _risen(theta[i] + t)
                height += log_share
                slopes[i] = c
                for q in range(p):
                    at_node[q] += c * centred[i, q]
            if peak == -math.inf:
                peak = height
            if height < peak - _TAIL:
                break
            weight = math.exp(height - peak)
            total += weight
            for i in range(d):
                rate, c, _ = _risen(theta[i] + t)
                each[i] += weight * slopes[i]
                bent[i] += weight * _bent(rate, c)
            for q in range(p):
                sums[q] += weight * at_node[q]
                for h in range(q + 1):
                    second[q, h] += weight * at_node[q] * at_node[h]
            node += 1
    each /= total
    bent /= total
    sums /= total
    change = each.sum()
    value = theta.sum() + d * log_others - (math.log(total * step) + peak)
    for q in range(p):
        mean[q] = x[low:high, q].sum() - sums[q]
        for h in range(q + 1):
            entry = second[q, h] / total - sums[q] * sums[h]
            for i in range(d):
                entry += bent[i] * centred[i, q] * centred[i, h]
            variance = others[2][q, h] / others[0][0] - others[1][q] * others[1][h] / others[0][0] ** 2
            hessian[q, h] -= entry - change * variance
    for i in range(d):
        expected[low + i] += 1 - each[i]
    return value, change / others[0][0]


@exact
def _risen(exponent: float) -> tuple[float, float, float]:
    """Of `rate = exp(exponent)`: itself, `rate / (exp(rate) - 1)`, and `log(1 - exp(-rate))`."""
    if exponent < -36:
        return 0.0, 1.0, exponent
    rate = math.exp(min(exponent, 700.0))
    if rate > 700:
        return rate, 0.0, 0.0
    gone = -math.expm1(-rate)
    return rate, rate * math.exp(-rate) / gone, math.log(gone)


@exact
def _bent(rate: float, c: float) -> float:
    """The derivative of `c = rate / (exp(rate) - 1)` in the logarithm of the rate; never positive."""
    if rate < 1e-4:
        return -0.5 * rate * (1 - rate / 3)
    return c * (1 - rate - c)
