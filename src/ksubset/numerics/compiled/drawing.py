"""Subsets drawn from arranged rows; `ksubset.numerics.thinning` says how."""

import math

import numpy as np

from ksubset.numerics.compiled.arrangement import LAW, number_probability
from ksubset.numerics.compiled.options import Array, exact

__all__ = ["draw_subsets"]

# Tries of one part, after which the sample is begun anew, and beginnings, after which there is none: a part is accepted
# with a probability of about 1/2, unless what was drawn before was beyond the digits of its table.
_TRIES, _BEGINNINGS = 10_000, 100
# Flip probabilities below 2^-3 are thinned, others are tried one by one.
_THINNED = 3


@exact
def _uniform(state: Array) -> float:
    """A uniform number of 53 bits in [0, 1), by xoshiro256++ (Blackman and Vigna, 2021)."""
    first = state[0] + state[3]
    result = ((first << np.uint64(23)) | (first >> np.uint64(41))) + state[0]
    shifted = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = (state[3] << np.uint64(45)) | (state[3] >> np.uint64(19))
    return np.float64(result >> np.uint64(11)) * 2.0**-53


@exact
def draw_subsets(
    order: Array,
    flip: Array,
    ends: Array,
    cuts: Array,
    levels: Array,
    laws: Array,
    least: Array,
    share: Array,
    seeds: Array,
    chosen: Array,
) -> None:
    """Draw S subsets of each of R rows, as indices in no order; where there are none left, all is left as it is.

    Arguments:
        order: Items, those that are likeliest to flip first.
        flip: Their signed flip probabilities.
        ends: Where those of each binary exponent end.
        cuts: Ends of the parts.
        levels: Numbers of parts.
        laws: Of the numbers of flips in the parts, as of `characteristics`.
        least: The smallest sizes.
        share: Cumulative probabilities of the sizes from there on, up to a factor.
        seeds: Random words.
        chosen: Receives the items.

    Shapes:
        least `(R)`, share `(R, s)`, seeds `(R, 4)`, chosen `(R, S, K)` for the largest size K.
    """
    rows, samples, _ = chosen.shape
    n = order.shape[1]
    final = 0
    for row in range(rows):
        final = max(final, cuts[row, levels[row]])
    table = np.zeros((final + 1, final + 1))
    flipped, majority = np.empty(n, np.int64), np.empty(n, np.int64)
    is_flipped = np.zeros(n, np.bool_)
    members = np.empty(cuts.shape[1], np.int64)
    for row in range(rows):
        depth, uncertain = levels[row], cuts[row, 0]
        walked = cuts[row, depth]
        certain = (flip[row, uncertain:] < 0).sum()
        for level in range(1, depth + 1):
            members[level] = (flip[row, cuts[row, level] : cuts[row, level - 1]] < 0).sum()
        width = min(walked, least[row] + share.shape[1] - 1)
        peak = _fill(table, flip[row, :walked], width)
        in_majority = 0
        for i in range(walked, n):
            majority[in_majority] = i
            in_majority += flip[row, i] < 0
        for s in range(samples):
            for _ in range(_BEGINNINGS):
                size = least[row] + _inverted(share[row], seeds[row])
                left = size - certain
                if not 0 <= left <= uncertain:
                    break
                count = 0
                for level in range(1, depth + 1):
                    last = level == depth
                    count, left = _part(
                        flip[row], ends[row], cuts[row, level], cuts[row, level - 1], left - members[level],
                        table[0, : width + 1] if last else laws[row, level], peak, last, seeds[row], flipped, count,
                    )  # fmt: skip
                    if left < 0:
                        break
                if left < 0:
                    continue
                _write(order[row], flip[row, :walked], table, left, majority[:in_majority], flipped[:count], is_flipped,
                       seeds[row], chosen[row, s])  # fmt: skip
                break


@exact
def _inverted(share: Array, state: Array) -> int:
    """Which of the sizes it is."""
    if len(share) == 1:
        return 0
    return int(np.searchsorted(share, _uniform(state) * share[-1], side="right"))


@exact
def _fill(table: Array, flip: Array, width: int) -> float:
    """Probabilities of j members among the items from i on, into `table[i, j]`; returns the largest for all items."""
    items = len(flip)
    table[items, 0] = 1.0
    table[items, 1 : width + 1] = 0.0
    for i in range(items - 1, -1, -1):
        size = abs(flip[i])
        chance, other = (size, 1 - size) if flip[i] > 0 else (1 - size, size)
        row, after = table[i], table[i + 1]
        row[0] = other * after[0]
        for j in range(1, width + 1):
            row[j] = other * after[j] + chance * after[j - 1]
    return float(table[0, : width + 1].max())


@exact
def _write(
    order: Array,
    walked: Array,
    table: Array,
    left: int,
    majority: Array,
    flipped: Array,
    is_flipped: Array,
    state: Array,
    chosen: Array,
) -> None:
    """Walk through the first items, of which `left` are to be chosen, and add those that follow from the flips."""
    number = 0
    for i in range(len(walked)):
        if left == 0:
            break
        chance = walked[i] if walked[i] > 0 else 1 + walked[i]
        if _uniform(state) * table[i, left] < chance * table[i + 1, left - 1]:
            chosen[number] = order[i]
            number += 1
            left -= 1
    for i in flipped:
        is_flipped[i] = True
    for i in majority:
        if is_flipped[i]:
            is_flipped[i] = False
        else:
            chosen[number] = order[i]
            number += 1
    for i in flipped:
        if is_flipped[i]:
            is_flipped[i] = False
            chosen[number] = order[i]
            number += 1


@exact
def _part(
    flip: Array,
    ends: Array,
    low: int,
    high: int,
    wanted: int,
    law: Array,
    peak: float,
    last: bool,
    state: Array,
    flipped: Array,
    count: int,
) -> tuple[int, int]:
    """Draw the flips of the items from `low` to `high` until those before are accepted to have the rest of `wanted`.

    The law is that of the number of members before, as a table where it is the last part, else of the sum of flips.
    Returns the new number of flipped places, and how many members there are before; -1 if no try was accepted.
    """
    before_majority = 0
    if not last:
        before_majority = (flip[:low] < 0).sum()
    for _ in range(_TRIES):
        end, change = _flips(flip, ends, low, high, state, flipped, count)
        left = wanted - change
        if not 0 <= left <= low:
            continue
        if last:
            accepted = left < len(law) and _uniform(state) * peak < law[left]
        else:
            accepted = _uniform(state) * law[LAW - 3] < number_probability(law, left - before_majority)
        if accepted:
            return end, left
    return count, -1


@exact
def _flips(flip: Array, ends: Array, low: int, high: int, state: Array, flipped: Array, count: int) -> tuple[int, int]:
    """Draw all items from `low` to `high` for themselves: the new number of flipped places, and their signed sum."""
    change = 0
    start = 0
    for b in range(len(ends)):
        i, end = max(start, low), min(ends[b], high)
        start = ends[b]
        if i >= end:
            continue
        if b < _THINNED:
            for place in range(i, end):
                hit = _uniform(state) < abs(flip[place])
                flipped[count] = place
                count += hit
                change += hit * (1 if flip[place] > 0 else -1)
            continue
        # All could flip with probability `bound`; the steps between those that do are geometric.
        bound = 2.0**-b
        scale = 1 / math.log1p(-bound)
        while True:
            step = math.log(1 - _uniform(state)) * scale
            if step >= end - i:
                break
            i += int(step)
            if _uniform(state) * bound < abs(flip[i]):
                flipped[count] = i
                count += 1
                change += 1 if flip[i] > 0 else -1
            i += 1
    return count, change
