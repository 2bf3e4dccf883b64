"""Columns that tell the target all by themselves: often they are known only when it is."""

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from ksubset.selection.tabular.types import Table

__all__ = ["leaks"]

_ROWS = 2000
_LEAVES = 8
# Of the error of the commonest class, or of the mean, what a leak leaves at most.
_LEFT = 0.1
# How likely chance alone finds a leak among all columns, at most.
_CHANCE = 0.01


def leaks(table: Table, seed: int = 0) -> dict[str, float]:
    """Columns with which alone a small tree leaves a tenth of the error, or less, on rows that it was not fitted to.

    None where these rows are so few, or the error is on so few of them, that one of the columns may do so by chance.

    Arguments:
        table: Features and target, of which 2,000 rows are looked at.
        seed: Of these rows, and of the half of them that trees are fitted to.

    Returns:
        Accuracy or R2 on the other half, by the name of the column, descending.
    """
    classify = table.classes is not None
    rows = np.random.default_rng(seed).permutation(len(table.target))[:_ROWS]
    fitted, other = train_test_split(np.arange(len(rows)), test_size=0.5, random_state=seed)
    target = table.target[rows] if classify else _standardized(table.target)[rows]
    baseline = np.bincount(target[fitted]).argmax() if classify else target[fitted].mean()
    errors = _errors(np.full(len(other), baseline), target[other], classify=classify)
    if _may_be_chance(errors, table.features.shape[1]):
        return {}
    found, error = {}, errors.mean()
    for name in table.features:
        column = table.features[name].iloc[rows]
        codes = column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column
        # The order is all that a tree looks at, and it refuses numbers that single precision does not hold.
        values = codes.rank().to_numpy()[:, None]
        tree = (DecisionTreeClassifier if classify else DecisionTreeRegressor)(max_leaf_nodes=_LEAVES, random_state=0)
        guess = tree.fit(values[fitted], target[fitted]).predict(values[other])
        left = _errors(guess, target[other], classify=classify).mean()
        if left <= _LEFT * error:
            found[str(name)] = float(1 - left if classify else 1 - left / error)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _errors(guess: NDArray[Any], truth: NDArray[Any], *, classify: bool) -> NDArray[np.float64]:
    errors: NDArray[np.float64] = (guess != truth).astype(np.float64) if classify else np.square(guess - truth)
    return errors


def _standardized(target: NDArray[np.float64]) -> NDArray[np.float64]:
    # In their own unit squares may be beyond all numbers, or so small that a tree takes them for 0.
    scaled = target / np.abs(target).max()
    standardized: NDArray[np.float64] = (scaled - scaled.mean()) / scaled.std()
    return standardized


def _may_be_chance(errors: NDArray[np.float64], num_columns: int) -> bool:
    """Whether one of the columns may well tell by chance which rows the error is on, out of all sets of as many."""
    if not errors.any():
        return True
    shares = errors / errors.sum()
    # Of errors of one size it is their number; few that outweigh all others count alone.
    count = round(1 / np.square(shares).sum())
    return num_columns > _CHANCE * math.comb(len(errors), count)
