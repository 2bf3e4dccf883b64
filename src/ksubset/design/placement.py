"""Sets of sensors one by one: pivots of a QR decomposition, the best one more each time, and the best swaps."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ksubset.design.criteria import Array, Indices
from ksubset.design.decoding import Decoding
from ksubset.search.space import SearchSpace

__all__ = ["grown", "pivots", "swapped"]

# An error that is lower by less, as a share, is not worth another cycle.
_LEAST_GAIN = 1e-3
_CYCLES = 50


def pivots(modes: Array, space: SearchSpace, seed: int) -> Indices:
    """The rows of modes that a QR decomposition with pivots takes first, as far as constraints allow.

    Where there are fewer modes than sensors to choose, the decomposition begins anew with the rows that are left.

    Arguments:
        modes: `(n, r)`.
        space: What may be chosen.
        seed: Of the feasible set that is taken where the pivots leave none.

    Returns:
        A point `(K)`.

    References:
        Businger and Golub (1965), https://doi.org/10.1007/BF01436084. Manohar, Brunton, Kutz and Brunton (2018),
        https://doi.org/10.1109/MCS.2017.2767460, for sensors.
    """
    rest = _projected(modes, modes[space.kept])
    state = {"rest": rest[space.free], "norms": np.zeros(0)}
    begun = np.square(state["rest"]).sum(1).max(initial=0.0)

    def gains(chosen: list[int]) -> Array:
        rest = state["rest"]
        if chosen:
            row = rest[chosen[-1]]
            length = np.linalg.norm(row)
            if length > 0:
                rest = rest - np.outer(rest @ (row / length), row / length)
        norms: Array = np.square(rest).sum(1)
        open_rows = np.setdiff1d(np.arange(len(norms)), chosen)
        if norms[open_rows].max(initial=0.0) <= 1e-18 * begun:
            rest = modes[space.free]
            norms = np.square(rest).sum(1)
        state["rest"] = rest
        return norms

    return _grown(gains, space, seed)


def _projected(rows: Array, taken: Array) -> Array:
    """Rows without their part in the span of some of them."""
    if not len(taken):
        return rows
    basis = np.linalg.svd(taken, full_matrices=False)[2][: np.linalg.matrix_rank(taken)]
    rest: Array = rows - (rows @ basis.T) @ basis
    return rest


def grown(decoding: Decoding, space: SearchSpace, seed: int) -> Indices:
    """A point `(K)`: the sensor with the least error more, again and again, as far as constraints allow.

    Where constraints leave no sensor more, any feasible point.
    """
    free = torch.from_numpy(space.free)
    state = decoding.of(torch.from_numpy(space.kept))

    def gains(chosen: list[int]) -> Array:
        nonlocal state
        if chosen:
            state = decoding.add(state, int(free[chosen[-1]]))
        errors: Array = -decoding.with_each(state)[free].numpy()
        return errors

    return _grown(gains, space, seed)


def _grown(gains: Callable[[list[int]], Array], space: SearchSpace, seed: int) -> Indices:
    chosen: list[int] = []
    while len(chosen) < space.free_size:
        allowed = extensions(space, chosen)
        if not allowed.any():
            break
        chosen.append(int(np.where(allowed, gains(chosen), -np.inf).argmax()))
    point = np.sort(np.array(chosen, dtype=np.int64))
    if len(point) < space.free_size or not space.feasible(point[None])[0]:
        return space.sample(np.random.default_rng(seed))
    return point


def extensions(space: SearchSpace, chosen: Sequence[int]) -> NDArray[np.bool_]:
    """Which free items may follow those chosen, as far as each constraint alone can tell, `(F)`."""
    allowed = np.ones(len(space.free), dtype=bool)
    allowed[list(chosen)] = False
    rules, left = space.rules, space.free_size - len(chosen) - 1
    if rules is None:
        return allowed
    if chosen and rules.excludes.nnz:
        allowed &= rules.excludes[list(chosen)].sum(axis=0) == 0
    for row, low, high in zip(rules.matrix, rules.low, rules.high, strict=True):
        others = np.sort(row[allowed])
        total = row[list(chosen)].sum() + row
        allowed &= (total + others[:left].sum() <= high) & (total + others[len(others) - left :].sum() >= low)
    return allowed


def swapped(decoding: Decoding, space: SearchSpace, point: Indices) -> Indices:
    """Give each sensor in turn the place with the least error, until no sensor moves: a point `(K)` -> `(K)`."""
    free, kept = torch.from_numpy(space.free), torch.from_numpy(space.kept)
    point = point.copy()
    for _ in range(_CYCLES):
        moved = False
        # Anew in each cycle, as rounding adds up.
        subset = torch.cat([free[point], kept])
        state = decoding.of(subset)
        error = decoding.error(state)
        for place in range(len(point)):
            without = decoding.remove(state, subset, place)
            errors = decoding.with_each(without)[free].numpy()
            errors[~_swaps(space, point, place)] = np.inf
            best = int(errors.argmin())
            if errors[best] < error * (1 - _LEAST_GAIN):
                point[place], error, moved = best, float(errors[best]), True
                state = decoding.add(without, int(free[best]))
                subset = torch.cat([free[point], kept])
        if not moved:
            break
    return np.sort(point)


def _swaps(space: SearchSpace, point: Indices, place: int) -> NDArray[np.bool_]:
    """Which free items may take a place of a feasible point, `(F)`."""
    allowed = np.zeros(len(space.free), dtype=bool)
    others = np.setdiff1d(np.arange(len(space.free)), point)
    feasible = space.swaps(point, others)
    allowed[others] = True if feasible is None else feasible[place]
    return allowed
