"""Newton's method for concave log-likelihoods of few coefficients, and what can be wrong with the columns."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Evaluation", "Maximum", "maximise"]

Array = NDArray[np.float64]

_STEPS, _HALVINGS = 60, 30
# Of twice the log-likelihood that is still to be won.
_DECREMENT = 1e-14
# Columns have standard deviation 1: a step as long as this, where nothing is to be won, leads to infinity.
_LONG = 1e-2
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
    names: Sequence[str],
    events: int,
    notify: Callable[[int, float], None] | None = None,
) -> Maximum:
    """Climb from zero, by halved steps where a whole one leads down.

    Arguments:
        evaluate: The log-likelihood, in columns of standard deviation 1.
        names: Of the columns.
        events: What the information grows with.
        notify: Called with the number of each iteration and the log-likelihood before it.

    Raises:
        ValueError: A column is constant, or a linear combination of others, wherever it matters; or the log-likelihood
            has no maximum (separation). Columns are named.
        RuntimeError: No convergence.
    """
    coefficients = np.zeros(len(names))
    here = null = evaluate(coefficients)
    _check_columns(null.information, names, events)
    for iteration in range(1, _STEPS + 1):
        if notify is not None:
            notify(iteration, here.value)
        step = _solved(here)
        if step is None:
            raise _separated(coefficients, names)
        decrement = here.score @ step
        if decrement < _DECREMENT:
            if np.abs(step).max() > _LONG:
                raise _separated(step, names)
            return Maximum(coefficients + step, here, null, iteration)
        for _ in range(_HALVINGS):
            there = evaluate(coefficients + step)
            if there.value >= here.value - 1e-13 * abs(here.value):
                break
            step = step / 2
        else:
            raise RuntimeError(f"no convergence: the log-likelihood does not grow beyond {here.value}")
        coefficients, here = coefficients + step, there
    raise RuntimeError(f"no convergence in {_STEPS} iterations; the last log-likelihood is {here.value}")


def _solved(here: Evaluation) -> Array | None:
    """The Newton step; None where the information has lost its rank, which it had at zero."""
    scale = np.sqrt(np.diag(here.information))
    if not (scale > 0).all():
        return None
    try:
        factor = np.linalg.cholesky(here.information / np.outer(scale, scale))
    except np.linalg.LinAlgError:
        return None
    solution = np.linalg.solve(factor.T, np.linalg.solve(factor, here.score / scale))
    step: Array = solution / scale
    return step


def _separated(direction: Array, names: Sequence[str]) -> ValueError:
    size = np.abs(direction)
    listed = ", ".join(repr(name) for name, s in zip(names, size, strict=True) if s > 0.05 * size.max())
    return ValueError(
        f"separation: the log-likelihood has no maximum, it grows as coefficients go to infinity along {listed}; "
        "leave columns out, or merge categories"
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
