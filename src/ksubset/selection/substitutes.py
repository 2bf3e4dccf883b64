"""Which columns could stand in for those that are kept, and at what loss."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Substitute", "substitutes"]


@dataclass(frozen=True)
class Substitute:
    """Columns that could stand in for others which are kept.

    Arguments:
        kept: Names of the columns that are kept: one, or a group of `feature_groups`.
        stand_in: Names of those in their place.
        loss: Mean over the folds of how much lower the score is; below 0 where it is higher.
        standard_error: Of that mean: the two subsets are scored on the same folds, so that what folds have in common
            plays no part.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from ksubset.selection import KSubsetSelector
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> selector = KSubsetSelector(GaussianNB(), n_features_to_select=2, random_state=0).fit(X, y)
        >>> cheapest = selector.substitutes()[0]
        >>> cheapest.kept, cheapest.stand_in, round(cheapest.loss, 3)  # of the accuracy
        (('petal length (cm)',), ('sepal length (cm)',), 0.007)
    """

    kept: tuple[str, ...]
    stand_in: tuple[str, ...]
    loss: float
    standard_error: float


def substitutes(
    results: Mapping[str, NDArray[Any]],
    size: int,
    support: NDArray[np.bool_],
    units: Collection[frozenset[int]],
    names: NDArray[np.object_],
) -> list[Substitute]:
    """Of all subsets that differ from the kept one by a swap and were scored on every fold, the smallest losses first.

    Arguments:
        results: `cv_results_` of a selector.
        size: Of the subsets.
        support: The columns that are kept, `(n)`.
        units: Groups of several columns, which are swapped together.
        names: Of all columns, `(n)`.
    """
    rows = np.flatnonzero(results["n_features_to_select"] == size)
    scores = np.stack([results[name][rows] for name in results if name.startswith("split")], 1)
    kept = frozenset(np.flatnonzero(support).tolist())
    subsets = [frozenset(columns.tolist()) for columns in results["columns"][rows]]
    if kept not in subsets:
        return []
    own, found = scores[subsets.index(kept)], []
    for subset, score in zip(subsets, scores, strict=True):
        out, into = kept - subset, subset - kept
        losses = own - score
        if out and all(len(part) == 1 or part in units for part in (out, into)) and np.isfinite(losses).all():
            error = float(losses.std(ddof=1)) / len(losses) ** 0.5 if len(losses) > 1 else 0.0
            found.append(Substitute(_named(out, names), _named(into, names), float(losses.mean()), error))
    return sorted(found, key=lambda one: one.loss)


def _named(columns: frozenset[int], names: NDArray[np.object_]) -> tuple[str, ...]:
    return tuple(names[sorted(columns)].tolist())
