"""Whether a fitted model predicts held-out rows better than chance."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor

from ksubset.selection.tabular.types import Table
from ksubset.selection.wrapper.honest import shuffled

__all__ = ["baseline", "p_value"]

_SHUFFLES = 199
"""The least p-value is 1 / 200."""
_METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function")


def baseline(table: Table) -> Any:
    """The model that looks at no column: the most frequent class, with the shares of all, or the mean."""
    return DummyRegressor() if table.classes is None else DummyClassifier(strategy="prior")


def p_value(
    table: Table, score: Callable[[Any, Any, Any], float], model: Any, rows: NDArray[np.intp], columns: Any, seed: int
) -> float:
    """The share of orders of the targets, the true one included, in which the predictions score as well; NaN of NaN.

    Whole groups are exchanged where their rows share a target, and else rows within groups. Where rows are in the
    order of time the targets are moved along, as neighbours may be alike.

    Arguments:
        table: Of which the rows are held out.
        score: Maps a model, features and targets to a score.
        model: Fitted to other rows.
        rows: To predict.
        columns: That the model takes.
        seed: Of the orders.
    """
    features, target, answers = table.features.iloc[rows, columns], table.target[rows], _Answers(model)
    groups = None if table.groups is None else table.groups[rows]
    rng = np.random.default_rng(seed)
    own, as_good = score(answers, features, target), 1
    if math.isnan(own):
        return own
    for _ in range(_SHUFFLES):
        other = np.roll(target, rng.integers(len(rows))) if table.ordered else target[shuffled(target, groups, rng)]
        # One that is not defined is as good, too.
        as_good += not score(answers, features, other) < own
    return as_good / (1 + _SHUFFLES)


class _Answers:
    """A fitted model that is always asked about the same rows, and so answers each question once."""

    def __init__(self, model: Any) -> None:
        self._model, self._known = model, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._model, name)
        if name not in _METHODS:
            return own

        @wraps(own)
        def answer(rows: Any) -> Any:
            if name not in self._known:
                self._known[name] = own(rows)
            return self._known[name]

        return answer
