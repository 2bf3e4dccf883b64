"""Columns that tell the target all by themselves: often they are known only when it is."""

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from ksubset.selection.tabular.types import Table

__all__ = ["leaks"]

_ROWS = 2000
_LEAVES = 8
# Of the error of the commonest class, or of the mean, what a leak leaves at most.
_LEFT = 0.1


def leaks(table: Table, seed: int = 0) -> dict[str, float]:
    """Columns with which alone a small tree leaves a tenth of the error, or less, on rows that it was not fitted to.

    Arguments:
        table: Features and target, of which 2,000 rows are looked at.
        seed: Of these rows, and of the half of them that trees are fitted to.

    Returns:
        Accuracy or R2 on the other half, by the name of the column, descending.
    """
    classify = table.classes is not None
    rows = np.random.default_rng(seed).permutation(len(table.target))[:_ROWS]
    fitted, other = train_test_split(rows, test_size=0.5, random_state=seed)
    target = table.target
    baseline = np.bincount(target[fitted]).argmax() if classify else target[fitted].mean()
    error = _error(np.full(len(other), baseline), target[other], classify=classify)
    found = {}
    for name in table.features:
        column = table.features[name]
        codes = column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column
        values = np.asarray(codes, dtype=np.float64)[:, None]
        tree = (DecisionTreeClassifier if classify else DecisionTreeRegressor)(max_leaf_nodes=_LEAVES, random_state=0)
        guess = tree.fit(values[fitted], target[fitted]).predict(values[other])
        left = _error(guess, target[other], classify=classify)
        if left <= _LEFT * error:
            found[str(name)] = 1 - left if classify else 1 - left / error
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _error(guess: np.ndarray, truth: np.ndarray, *, classify: bool) -> float:
    return float((guess != truth).mean() if classify else np.square(guess - truth).mean())
