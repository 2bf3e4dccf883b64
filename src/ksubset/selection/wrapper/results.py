"""Progress of a search, and its results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset.selection.groups import SubsetSpace
from ksubset.selection.wrapper.racing import RacingSearch

__all__ = [
    "NoScoreError",
    "Progress",
    "Result",
    "cv_results",
    "path",
    "progress_of",
    "result_of",
    "within_one_standard_error",
]


class NoScoreError(ValueError):
    """No subset has a finite score on all folds."""


@dataclass(frozen=True)
class Progress:
    """Where a search stands, as callbacks get it.

    Arguments:
        n_features_to_select: The size k that is searched at present.
        n_fits: Model fits spent on this size.
        max_evaluations: Model fits that may be.
        n_subsets: Subsets scored on one fold or more.
        best_score: Mean score of the best subset so far.
        support: Its columns, `(n)`, boolean.
        part: Of the fit: "search", "outer split 2 of 5" or "permutation 3 of 20".
        seconds: Since this size was begun.
        seconds_left: Until `max_evaluations` are used, at the pace so far.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from ksubset.selection import KSubsetSelector
        >>> told = []
        >>> selector = KSubsetSelector(GaussianNB(), n_features_to_select=2, callbacks=told.append, random_state=0)
        >>> _ = selector.fit(*load_iris(return_X_y=True))
        >>> told[-1].n_subsets, told[-1].n_fits  # the 6 pairs of columns on 5 folds each
        (6, 30)
    """

    n_features_to_select: int
    n_fits: int
    max_evaluations: int
    n_subsets: int
    best_score: float
    support: NDArray[np.bool_]
    part: str
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class Result:
    """The best subset of one size, and every subset that was scored.

    Arguments:
        size: Groups k in the subset.
        support: Its columns, `(n)`, boolean.
        score: Mean of its scores, on fresh folds if it was confirmed.
        standard_error: Of that mean.
        inclusion: Inclusion probability of each column, `(n)`.
        columns: Of each subset that was scored.
        scores: Of each of them on each fold, `(N, F)`, NaN where there is none.
        fresh: Mean scores on fresh folds, `(N)`, NaN where there is none.
        n_fits: Model fits.
    """

    size: int
    support: NDArray[np.bool_]
    score: float
    standard_error: float
    inclusion: NDArray[np.float64]
    columns: list[NDArray[np.int64]]
    scores: NDArray[np.float64]
    fresh: NDArray[np.float64]
    n_fits: int


def progress_of(search: RacingSearch, space: SubsetSpace, part: str, seconds: float) -> Progress:
    """Where a search stands that has scored a subset, after so many seconds."""
    best, table = search.best, search.table
    return Progress(
        space.total, search.evaluations, search.budget, len(table),
        float(np.nanmean(search.fresh.get(best, table.scores[best]))), space.support(table.subsets[best]),
        part, seconds, seconds * (search.budget - search.evaluations) / search.evaluations,
    )  # fmt: skip


def result_of(search: RacingSearch, space: SubsetSpace) -> Result:
    """What a search has found, however it ended; a `NoScoreError` if no score is finite."""
    best, table = search.best, search.table
    scores = np.array(search.fresh.get(best, table.scores[best]))
    scores = scores[~np.isnan(scores)]
    if not np.isfinite(scores).all() or (search.finished and table.incumbent is None):
        raise NoScoreError(
            f"scoring: expected finite scores of the estimator, got none on all folds at size {space.total}"
        )
    # Repeats of the folds measure the same rows again, and so do not make the error smaller.
    error = float(scores.std(ddof=1)) / search.num_folds**0.5 if len(scores) > 1 else 0.0
    fresh = np.full(len(table.scores), np.nan)
    for row, values in search.fresh.items():
        fresh[row] = np.mean(values)
    columns = [space.columns(subset) for subset in table.subsets]
    inclusion = space.to_columns(search.proposal.inclusion.numpy())
    return Result(
        space.total, space.support(table.subsets[best]), float(scores.mean()), error,
        inclusion, columns, table.scores, fresh, search.evaluations,
    )  # fmt: skip


def within_one_standard_error(results: Sequence[Result]) -> Result:
    """The smallest size whose score is at most a standard error of the best below it."""
    best = max(results, key=lambda result: result.score)
    enough = [result for result in results if result.score >= best.score - best.standard_error]
    return min(enough, key=lambda result: result.size)


def path(results: Sequence[Result]) -> dict[str, NDArray[Any]]:
    """The sizes side by side."""
    return {
        "n_features_to_select": np.array([result.size for result in results]),
        "mean_test_score": np.array([result.score for result in results]),
        "standard_error": np.array([result.standard_error for result in results]),
        "support": np.stack([result.support for result in results]),
        "inclusion_probabilities": np.stack([result.inclusion for result in results]),
    }


def cv_results(results: Sequence[Result]) -> dict[str, NDArray[Any]]:
    """All subsets of all sizes, in the form of scikit-learn's `cv_results_`."""
    columns = [subset for result in results for subset in result.columns]
    listed = np.empty(len(columns), dtype=object)
    listed[:] = columns
    scores, counts = np.concatenate([result.scores for result in results]), [len(result.columns) for result in results]
    return {
        "n_features_to_select": np.repeat([result.size for result in results], counts),
        "columns": listed,
        **{f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])},
        "mean_test_score": np.nanmean(scores, 1),
        "n_splits": (~np.isnan(scores)).sum(1),
        "mean_fresh_score": np.concatenate([result.fresh for result in results]),
    }
