"""Newton's method for concave log-likelihoods of few coefficients, and what can be wrong with the columns."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Evaluation", "Maximum", "maximise"]

Array = NDArray[np.float64]

_STEPS, _HALVINGS = 60, 60
# Of twice the log-likelihood that is still to be won.
_DECREMENT = 1e-14
# A step goes this many times as far as the coefficients already are, plus one, in each direction at most.
_REACH = 10.0
# A step is too long where the slope behind it is as steep downwards as this share of the slope before it.
_OVERSHOT = 0.9
# Where the likelihood levels off towards infinity, a step leaves at most exp(-1) of the information; at a maximum, all.
_STEADY = 0.5
# Of the information of the columns: below it, what is left are rounding errors.
_FLAT = 1e-12
# No division by zero.
_SMALLEST = 1e-200
# Of a column's variance that the others leave to it, and of its information for each event.
_COLLINEAR = 1e-11


class Evaluation(NamedTuple):
    """A log-likelihood at one value of its p coefficients: score `(p)`, information `(p, p)`."""

    value: float
    score: Array
    information: Array


class Maximum(NamedTuple):
    """Where it is, the log-likelihood there, and what was found at zero."""

    coefficients: Array
    there: Evaluation
    null: Evaluation
    iterations: int


def maximise(
    evaluate: Callable[[Array], Evaluation],
    design: Array | None,
    names: Sequence[str],
    events: int,
    notify: Callable[[int, float], None] | None = None,
) -> Maximum:
    """Climb from zero, by halved steps where a whole one leads down or far beyond the top.

    Arguments:
        evaluate: The log-likelihood.
        design: The information where coefficients and offsets are zero, which tells what the columns can say; None
            where there are no offsets, and evaluating finds it.
        names: Of the columns.
        events: What the information grows with.
        notify: Called with the number of each iteration and the log-likelihood before it.

    Raises:
        ValueError: A column is constant, or a linear combination of others, wherever it matters; or the log-likelihood
            has no maximum (separation), or one so flat that it cannot be told from that. Columns are named.
        RuntimeError: No convergence.

    Shapes:
        design `(p, p)`.
    """
    coefficients = np.zeros(len(names))
    here = null = evaluate(coefficients)
    design = null.information if design is None else design
    _check_columns(design, names, events)
    # In coordinates `factor.T @ coefficients`, the information of the columns is the identity for each event.
    factor = np.linalg.cholesky(design / events)
    basis = np.linalg.inv(factor).T
    before = np.zeros_like(design)
    for iteration in range(1, _STEPS + 1):
        if notify is not None:
            notify(iteration, here.value)
        position = factor.T @ coefficients
        distance = float(np.linalg.norm(position))
        relative = basis.T @ here.information @ basis / events
        share, vectors = np.linalg.eigh(relative)
        slopes = vectors.T @ (basis.T @ here.score) / events
        reach = _REACH * (1 + distance)
        step = basis @ (vectors @ np.clip(slopes / np.maximum(share, _SMALLEST), -reach, reach))
        flat = vectors[:, share < _FLAT]
        away = basis @ flat @ (flat.T @ position)
        if here.score @ step < _DECREMENT:
            if flat.size:
                raise _separated(away, names)
            if np.linalg.eigvalsh(relative - _STEADY * before)[0] > 0:
                return Maximum(coefficients + step, here, null, iteration)
        rounding = 1e-13 * (abs(here.value) + events * distance)
        for _ in range(_HALVINGS):
            there = evaluate(coefficients + step)
            slope = there.score @ step
            # A concave function that still rises has risen.
            if slope >= 0 or (slope >= -_OVERSHOT * (here.score @ step) and there.value >= here.value - rounding):
                break
            step = step / 2
        else:
            break
        coefficients, here, before = coefficients + step, there, relative
    if flat.size:
        raise _separated(away, names)
    raise RuntimeError(f"no convergence in {iteration} iterations; the last log-likelihood is {here.value}")


def _separated(direction: Array, names: Sequence[str]) -> ValueError:
    size = np.abs(direction)
    listed = ", ".join(repr(name) for name, s in zip(names, size, strict=True) if s >= 0.05 * size.max())
    return ValueError(
        "separation: the log-likelihood has no maximum, or none that rounding errors leave to be seen; "
        f"it grows as coefficients go to infinity along {listed}; leave columns out, or merge categories"
    )


def _check_columns(information: Array, names: Sequence[str], events: int) -> None:
    variance = np.diag(information)
    constant = [name for name, v in zip(names, variance, strict=True) if not v > _COLLINEAR * events]
    if constant:
        raise ValueError(f"columns that are constant wherever an event is compared with others: {_listed(constant)}")
    correlation = information / np.sqrt(np.outer(variance, variance))
    for j in range(1, len(names)):
        weights = np.linalg.solve(correlation[:j, :j], correlation[:j, j])
        if 1 - weights @ correlation[:j, j] < _COLLINEAR:
            others = [name for name, w in zip(names, weights, strict=False) if abs(w) > 1e-6]
            raise ValueError(f"collinear columns: {names[j]!r} is a linear combination of {_listed(others)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
