"""What all samples of a row share: its items by their flip probabilities, and the probabilities of numbers of them."""

import math

import numpy as np

from ksubset.numerics.compiled.options import Array, exact

__all__ = ["LAW", "arrange", "characteristics", "number_probability", "size_shares"]

# As in `ksubset.numerics.quadrature`, for a period that is twice as long.
_NODES, _EXPONENT = 57, 38.0
LAW = 3 * _NODES + 3
"""Entries of the law of a number: of each node two weights and the angle; largest probability, mode and reach."""


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
def characteristics(flip: Array, cuts: Array, levels: Array, laws: Array) -> None:
    """The laws of the numbers of flips in each part that is not the last.

    Shapes:
        flip `(R, n)`, cuts `(R, l)`, levels `(R)`, laws `(R, l, LAW)`.
    """
    for row in range(len(flip)):
        for level in range(1, levels[row]):
            _characteristic(flip[row, : cuts[row, level]], laws[row, level])


@exact
def _characteristic(flip: Array, law: Array) -> None:
    """The law of the signed sum of flips.

    Its mode is next to its mean (Darroch, 1964), and no number that is not within reach of the mode is probable. The
    period is so long that none within reach is the alias of a probable one.
    """
    mean = 0.0
    variance = 0.0
    for i in range(len(flip)):
        mean += flip[i]
        variance += abs(flip[i]) * (1 - abs(flip[i]))
    reach = 1 + math.ceil(_EXPONENT / 3 + math.sqrt(_EXPONENT**2 / 9 + 2 * _EXPONENT * variance))
    period = min(2 * reach + 1, len(flip) + 1 + len(flip) % 2)
    real, imag = np.ones(_NODES), np.zeros(_NODES)
    angle = 2 * math.pi / period * np.arange(_NODES)
    cosine, sine = -2 * np.sin(angle / 2) ** 2, np.sin(angle)
    for i in range(len(flip)):
        signed, size = flip[i], abs(flip[i])
        for j in range(_NODES):
            a, b = 1 + size * cosine[j], signed * sine[j]
            real[j], imag[j] = real[j] * a - imag[j] * b, real[j] * b + imag[j] * a
    for j in range(_NODES):
        share = (0.0 if 2 * j > period else 1.0 if j == 0 else 2.0) / period
        law[j], law[_NODES + j], law[2 * _NODES + j] = real[j] * share, imag[j] * share, angle[j]
    law[LAW - 2], law[LAW - 1] = math.floor(mean), reach
    if number_probability(law, law[LAW - 2] + 1) > number_probability(law, law[LAW - 2]):
        law[LAW - 2] += 1
    law[LAW - 3] = number_probability(law, law[LAW - 2])


@exact
def number_probability(law: Array, number: float) -> float:
    """The probability of a signed sum of flips, which must be a possible one."""
    if abs(number - law[LAW - 2]) > law[LAW - 1]:
        return 0.0
    probability = 0.0
    for j in range(_NODES):
        angle = number * law[2 * _NODES + j]
        probability += law[j] * math.cos(angle) + law[_NODES + j] * math.sin(angle)
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
    law = np.empty(LAW)
    for row in range(len(flip)):
        in_majority = (flip[row] < 0).sum()
        _characteristic(flip[row, : uncertain[row]], law)
        certain = (flip[row, uncertain[row] :] < 0).sum()
        total = 0.0
        for place in range(share.shape[1]):
            size = least[row] + place
            if certain <= size <= min(most[row], certain + uncertain[row]):
                charge = math.exp(-price[row] * (size - reference[row]))
                total += charge * max(number_probability(law, size - in_majority), 0.0)
            share[row, place] = total
