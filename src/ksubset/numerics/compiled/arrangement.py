"""What all samples of a row share: its items by their flip probabilities, and the probabilities of numbers of them."""

import math

import numpy as np

from ksubset.numerics.compiled.options import Array, exact

__all__ = ["NODES", "arrange", "characteristics", "number_probability", "size_shares"]

# As in `ksubset.numerics.quadrature`.
NODES, _EXPONENT = 28, 38.0


@exact
def arrange(
    signed: Array,
    final: int,
    factor: int,
    order: Array,
    flip: Array,
    ends: Array,
    cuts: Array,
    levels: Array,
) -> None:
    """Sort the items of each row by the binary exponents of their flip probabilities, the likeliest to flip first.

    Arguments:
        signed: Flip probabilities, negative where the majority state is in the subset.
        final: Items that are walked through one by one.
        factor: How many times larger the parts are that a row is split into before.
        order: Receives the items.
        flip: Receives their signed flip probabilities.
        ends: Receives where the items end that have probabilities below 2^-b, and from 2^-(b + 1) on; the last b takes
            all smaller ones but those that are certain, which come last.
        cuts: Receives the ends of the parts, from all items that are not certain to the final ones.
        levels: Receives the number of parts beside the final one.

    Shapes:
        signed, order and flip `(R, n)`, ends `(R, b)`, cuts `(R, l)`, levels `(R)`.
    """
    rows, n = signed.shape
    classes = ends.shape[1]
    certain = math.exp(-64.0) / n
    place = np.empty(classes + 1, np.int64)
    kind = np.empty(n, np.uint8)
    for row in range(rows):
        bits = signed[row].view(np.int64)
        place[:] = 0
        for i in range(n):
            exponent = 1022 - ((bits[i] >> 52) & 2047)
            kind[i] = classes if abs(signed[row, i]) < certain else min(max(exponent, 0), classes - 1)
            place[kind[i]] += 1
        start = 0
        for b in range(classes + 1):
            place[b], start = start, start + place[b]
            if b < classes:
                ends[row, b] = start
        for i in range(n):
            order[row, place[kind[i]]] = i
            flip[row, place[kind[i]]] = signed[row, i]
            place[kind[i]] += 1
        # Where there is no number, nothing can be drawn.
        size = cuts[row, 0] = 0 if np.isnan(signed[row]).any() else ends[row, classes - 1]
        level = 0
        while size > final:
            size = size // factor if size > 4 * factor * final else final
            level += 1
            cuts[row, level] = size
        levels[row] = level


@exact
def characteristics(flip: Array, cuts: Array, levels: Array, nodes: Array) -> None:
    """What gives the probabilities of the numbers of flips in each part that is not the last.

    Shapes:
        flip `(R, n)`, cuts `(R, l)`, levels `(R)`, nodes `(R, l, 3 NODES + 1)`.
    """
    for row in range(len(flip)):
        for level in range(1, levels[row]):
            _characteristic(flip[row, : cuts[row, level]], nodes[row, level])


@exact
def _characteristic(flip: Array, nodes: Array) -> int:
    """Of the signed sum of flips: weights and angles of the quadrature, and the largest probability; returns the mode.

    The mode of a Poisson-binomial distribution is next to its mean (Darroch, 1964).
    """
    mean = 0.0
    variance = 0.0
    for i in range(len(flip)):
        mean += flip[i]
        variance += abs(flip[i]) * (1 - abs(flip[i]))
    period = _EXPONENT / 3 + math.sqrt(_EXPONENT**2 / 9 + 2 * _EXPONENT * variance)
    period = min(2 * math.ceil(period / 2) + 1, len(flip) + 1 + len(flip) % 2)
    real, imag = np.ones(NODES), np.zeros(NODES)
    angle = 2 * math.pi / period * np.arange(NODES)
    cosine, sine = -2 * np.sin(angle / 2) ** 2, np.sin(angle)
    for i in range(len(flip)):
        signed, size = flip[i], abs(flip[i])
        for j in range(NODES):
            a, b = 1 + size * cosine[j], signed * sine[j]
            real[j], imag[j] = real[j] * a - imag[j] * b, real[j] * b + imag[j] * a
    for j in range(NODES):
        share = (0.0 if 2 * j > period else 1.0 if j == 0 else 2.0) / period
        nodes[j], nodes[NODES + j], nodes[2 * NODES + j] = real[j] * share, imag[j] * share, angle[j]
    mode = math.floor(mean)
    if number_probability(nodes, mode + 1) > number_probability(nodes, mode):
        mode += 1
    nodes[3 * NODES] = number_probability(nodes, mode)
    return int(mode)


@exact
def number_probability(nodes: Array, number: int) -> float:
    """The probability of a signed sum of flips."""
    probability = 0.0
    for j in range(NODES):
        angle = number * nodes[2 * NODES + j]
        probability += nodes[j] * math.cos(angle) + nodes[NODES + j] * math.sin(angle)
    return probability


@exact
def size_shares(
    flip: Array, uncertain: Array, least: Array, most: Array, price: Array, reference: Array, share: Array
) -> None:
    """Cumulative probabilities of the sizes from `least` on, up to a factor.

    Arguments:
        flip: Signed flip probabilities, the certain items last.
        uncertain: How many are not certain.
        least: The smallest sizes.
        most: The largest sizes.
        price: What each item beyond the size `reference` is charged, in nats.
        reference: The size that nothing is charged for.
        share: Receives them.

    Shapes:
        flip `(R, n)`, share `(R, s)`, all else `(R)`.
    """
    nodes = np.empty(3 * NODES + 1)
    for row in range(len(flip)):
        in_majority = (flip[row] < 0).sum()
        mode = in_majority + _characteristic(flip[row, : uncertain[row]], nodes)
        certain = (flip[row, uncertain[row] :] < 0).sum()
        # Half a period at each side has all that is probable.
        reach = math.ceil(2 * math.pi / nodes[2 * NODES + 1])
        total = 0.0
        for place in range(share.shape[1]):
            size = least[row] + place
            if certain <= size <= min(most[row], certain + uncertain[row]) and abs(size - mode) <= reach:
                charge = math.exp(-price[row] * (size - reference[row]))
                total += charge * max(number_probability(nodes, size - in_majority), 0.0)
            share[row, place] = total
