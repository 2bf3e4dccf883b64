"""Cross-validated scores of column subsets: folds, and fits in parallel."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.parallel import Parallel, delayed

from ksubset.selection._sklearn import check_method_params
from ksubset.selection.groups import SubsetSpace, column_by_column, take_columns, take_rows
from ksubset.selection.wrapper.cache import ScoreCache

__all__ = ["CrossValidation", "fresh_splitters"]

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
# Rows, their targets if there are any, and their metadata.
Part = tuple[NDArray[np.intp], tuple[Any, ...], Mapping[str, Any]]


class CrossValidation:
    """Fits a model on columns and folds and scores it; the one place where models are fitted to search.

    Arguments:
        estimator: The model; a clone of it is fitted each time.
        scorer: Maps a fitted model, data and targets to a number, larger being better.
        data, target: All rows; the target is an array, or None.
        folds: Indices of the rows to fit on and of those to score on.
        fresh: Folds to confirm with, whose numbers follow those of the folds.
        fit_params, score_params: Metadata for the model's `fit` and for the scorer.
        n_jobs: Fits at a time, as joblib has it.
        cache: Where scores are looked up first and remembered, if anywhere.
    """

    def __init__(
        self,
        estimator: Any,
        scorer: Any,
        data: Any,
        target: Any,
        folds: Sequence[Fold],
        fresh: Sequence[Fold],
        fit_params: Mapping[str, Any],
        score_params: Mapping[str, Any],
        n_jobs: int | None,
        cache: ScoreCache | None,
    ) -> None:
        # A copy of a clone is another clone, for a fifth of the time.
        self._model, self._scorer, self._target = clone(estimator), scorer, target
        self._data = column_by_column(data)
        self.num_folds, self.num_fresh, self._folds = len(folds), len(fresh), [*folds, *fresh]
        self._fit_params, self._score_params, self._cache = fit_params, score_params, cache
        self._alone = effective_n_jobs(n_jobs) == 1
        self.workers = Parallel(n_jobs=n_jobs)
        """To be entered around many calls: a cluster starts workers anew for each call otherwise, in seconds."""

    def __call__(self, space: SubsetSpace, subsets: NDArray[np.int64], fold: int) -> NDArray[np.float64]:
        """Scores of subsets on one fold.

        Raises:
            Whatever the model's `fit` and the scorer do: a subset that cannot be scored cannot be ranked.

        Shapes:
            subsets `(S, k)` of the free groups of the space -> `(S)`.
        """
        columns = [space.columns(subset) for subset in subsets]
        known = {} if self._cache is None else self._cache.known
        keys = [(fold, tuple(one.tolist())) for one in columns]
        new = [place for place, key in enumerate(keys) if key not in known]
        train, test = self._folds[fold]
        # Once for all subsets; and columns are taken here, so that workers are sent k of them, and not all.
        parts = (self._part(train, self._fit_params), self._part(test, self._score_params))
        calls = ((self._model, self._scorer, take_columns(self._data, columns[place]), *parts) for place in new)
        if self._alone:
            # Without the dispatcher, whose time is a tenth of that of a small model's fit.
            scores = [_fit_and_score(*call) for call in calls]
        else:
            scores = self.workers(delayed(_fit_and_score)(*call) for call in calls)
        known.update(zip((keys[place] for place in new), scores, strict=True))
        return np.array([known[key] for key in keys], dtype=np.float64)

    def _part(self, rows: NDArray[np.intp], params: Mapping[str, Any]) -> Part:
        target = () if self._target is None else (self._target[rows],)
        return rows, target, check_method_params(self._data, params=params, indices=rows)


def _fit_and_score(estimator: Any, scorer: Any, data: Any, train: Part, test: Part) -> float:
    model = copy.deepcopy(estimator)
    (rows, target, params), (test_rows, truth, test_params) = train, test
    model.fit(take_rows(data, rows), *target, **params)
    return float(scorer(model, take_rows(data, test_rows), *truth, **test_params))


def fresh_splitters(cv: Any, splitter: Any, seed: int, count: int) -> list[Any]:
    """Splitters like the given one that split otherwise, if it is of a kind that can.

    Arguments:
        cv: What the user gave; a number of folds stands for folds that may be shuffled.
        splitter: What it means, as of `sklearn.model_selection.check_cv`.
        seed: Of the shuffling.
        count: How many.
    """
    seeds = [seed + 1 + turn for turn in range(count)]
    if (cv is None or isinstance(cv, int | np.integer)) and isinstance(splitter, KFold | StratifiedKFold):
        return [type(splitter)(splitter.n_splits, shuffle=True, random_state=own) for own in seeds]
    # Splitters that shuffle have a random state, and a switch for it or none.
    if hasattr(splitter, "random_state") and getattr(splitter, "shuffle", True):
        fresh = [copy.copy(splitter) for _ in seeds]
        for one, own in zip(fresh, seeds, strict=True):
            one.random_state = own
        return fresh
    return []
