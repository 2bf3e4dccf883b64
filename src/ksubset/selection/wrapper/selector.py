"""The scikit-learn selector that keeps exactly k columns for any model."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from ksubset.search.arguments import check_integer, check_positive, is_integer, listed_callbacks
from ksubset.selection._sklearn import check_feature_names_in
from ksubset.selection.arguments import check_target, positions, seed_of
from ksubset.selection.co_inclusion import CoInclusion, as_good_as_the_best, co_inclusion
from ksubset.selection.groups import FeatureGroups
from ksubset.selection.substitutes import Substitute, substitutes
from ksubset.selection.wrapper import results
from ksubset.selection.wrapper.acceptance import check_columns_by_name, is_all_numbers
from ksubset.selection.wrapper.cache import ScoreStore
from ksubset.selection.wrapper.delegation import DelegatingMixin, classifies, tags_of
from ksubset.selection.wrapper.evaluation import FitLimits, shuffles_anew, with_seed
from ksubset.selection.wrapper.honest import (
    crossfitted_score,
    null_searches,
    outer_searches,
    smallest_within_one_standard_error,
)
from ksubset.selection.wrapper.problem import Problem, warn_of_failures

__all__ = ["KSubsetSelector"]


class KSubsetSelector(DelegatingMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Keep exactly k columns: those with which a model, any model, has the best cross-validated score.

    Columns are scored together, so that those are found which help only jointly. A distribution over the k-subsets
    is learned from the scores of sampled ones, swaps refine the best, and the few best are compared on fresh folds;
    see `ksubset.selection.wrapper.racing`. What costs is fitting models, and is limited by `max_evaluations`.

    Subsets are scored on the same folds. Fresh folds are those of `cv` shuffled anew; where it does not shuffle (a
    number of folds, an iterable, groups, time series) there are none, and the best score on the folds wins.

    Columns with one value in all rows, or the same values as a column before, are left out as long as there are others.
    Near-copies (a correlation beyond 0.99) are kept together only where fewer of them score significantly worse.
    Missing values are for the model to take or to refuse.

    Arguments:
        estimator: The model, with `fit` and, unless `scoring` says otherwise, `score`. It is cloned, and sees columns
            in the container that X is: a DataFrame of pandas or polars, an array, a sparse matrix.
        n_features_to_select: Columns to keep, k; of `feature_groups` the number of groups; a float below 1 is a
            fraction of them, rounded down, one at least. Of several sizes the smallest is kept whose score is within
            one standard error of the best; one without a finite score, as where fits of many columns fail, is left
            out with a warning. "auto" tries 1, 2, 4, ... and all.
        scoring: A scorer, or the name of one; None is the model's `score`.
        cv: Number of folds, a splitter, or an iterable of splits.
        max_evaluations: Most model fits, one for a subset on a fold, for each size, the fit of `estimator_` aside; they
            are used, unless all subsets are known before. None allows as many as forward selection would take,
            10,000 at most, or up to 1,000 where these are enough to try all subsets, and the search ends where it
            finds nothing better. If what it has found is no better than chance, and 10,000 are enough to try all
            subsets, it goes on to do so.
        max_seconds: Most seconds of the search of each size; what is found by then is kept. None for no end.
        timeout: Seconds that one fit with its score may take; a fit that takes longer fails. It needs the signals of
            Unix, and the main thread, which processes of joblib have.
        error_score: Score of a fit that fails, as scikit-learn has it: a subset that fails on a fold is not kept, and a
            FitFailedWarning says how many did. "raise" lets the first error through. Where the first ten fits all
            fail, that is an error in any case.
        column_params: Function of the indices of the columns of a subset that returns more arguments of the model's
            `fit` as a dict, for those that hold columns of their own, as
            `lambda columns: {"eval_set": [(X_valid[:, columns], y_valid)]}`.
        n_jobs: Fits at a time, as joblib has it.
        random_state: Seed of the search. A size has the same result alone and among others.
        verbose: Above 0, prints a line as often as callbacks are called.
        callbacks: A function or several, called with a `Progress` after each batch, and after each fit where the last
            call is a tenth of a second ago; if one returns True, the search ends with the best so far, and of several
            sizes with those that are finished. So it does, with a warning, on KeyboardInterrupt.
        feature_groups: Sequences of columns, by name or index, that are kept or dropped together, without overlap.
        always_include: Columns, by name or index, that are kept, with their groups; they count towards k.
        exclude: Columns, by name or index, that are not, nor are their groups.
        checkpoint: Path of an SQLite file to which every score is written, within half a second of its fit. Another
            fit with the same data, estimator, scoring, folds, metadata and random_state takes what is there instead of
            fitting models again, and so resumes; sizes, columns and `max_evaluations` may change. One file serves many
            fits, of other data, too, as of `cross_val_score`, and of several processes at a time. Functions, as of
            `scoring`, are told apart by their names, and need one; `column_params` is not told apart. A fit that failed
            is tried again.
        warm_start: Whether every score is kept in memory, so that the next `fit` resumes as from a
            `checkpoint`: more sizes, or a larger `max_evaluations`, cost what was not scored yet. With other data,
            estimator, scoring, folds, metadata or random_state it starts afresh. If random_state is None, the seed of
            the fit before is taken over. A clone has no scores, a pickled selector has.
        outer_cv: Number of folds, a splitter, or an iterable of splits, for nested cross-validation: the search is done
            again without the test rows of each split, and `score_` is of these; a split without a score of any size,
            as one class alone has no ROC AUC, is left out, with a warning. None is the splitter of `cv` for
            "auto", which chooses a size by these scores, unless `cv` is an iterable of splits; and none otherwise.
        n_permutations: Searches with shuffled targets, for `null_scores_` and `p_value_`; of groups, whole groups are
            exchanged where they have one target each, and else rows within them; of a `TimeSeriesSplit` they are moved
            along, in their order. Weights go with the targets. A search without a finite score is left out, with a
            warning.

    Attributes:
        support_: `(n)`, boolean, the columns that are kept.
        estimator_: The model, fitted to these columns of all rows.
        n_features_: Their number.
        n_features_in_, feature_names_in_: Of the data.
        inclusion_probabilities_: `(n)`, of each column in the learned distribution.
        best_score_: Mean score of the columns that are kept, on the fresh folds if there are any. The search went by
            it, so that it promises too much, and a lot where few rows meet many columns.
        score_: The score to believe: of the whole search on rows that it has not seen, the mean over the outer splits,
            where the others choose among sizes; NaN without `outer_cv`.
        outer_scores_: Of the sizes on the outer splits, `(S, O)`.
        null_scores_: The best score of each search with shuffled targets, `(P)`.
        p_value_: Of there being nothing to find, against `null_scores_`: the share of searches, this one included,
            whose best score is at least as good; NaN without them.
        n_fits_: Model fits of all searches, those whose scores were in the checkpoint or in memory included.
        cv_results_: Of every subset that was scored: `n_features_to_select`, `columns`, `split<i>_test_score` (NaN
            where it was not scored), `mean_test_score` over the folds where it was, `n_splits`, their number, and
            `mean_fresh_score`, over the fresh folds (NaN if it was no finalist).
        path_: Of every size: `n_features_to_select`, `support`, `mean_test_score` as `best_score_`,
            `standard_error`, and `inclusion_probabilities`.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range; the message names them. To ask
            for more columns than there are is an error, too.

    References:
        Wijk, Vinuesa and Azizpour (2024), https://arxiv.org/abs/2407.16058, for gradients of k-subset distributions.
        Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, section 3.4.3, for the rule of
        one standard error.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> selector = KSubsetSelector(DecisionTreeClassifier(random_state=0), n_features_to_select=2, random_state=0)
        >>> selector.fit(X, y).get_support(indices=True)
        array([2, 3])
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_features_to_select: int | str | Sequence[int],
        scoring: Any = None,
        cv: Any = 5,
        max_evaluations: int | None = None,
        max_seconds: float | None = None,
        timeout: float | None = None,
        error_score: Any = np.nan,
        column_params: Callable[[NDArray[np.int64]], Mapping[str, Any]] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
        feature_groups: Sequence[Sequence[str | int]] | None = None,
        always_include: Sequence[str | int] | None = None,
        exclude: Sequence[str | int] | None = None,
        checkpoint: str | Path | None = None,
        warm_start: bool = False,
        outer_cv: Any = None,
        n_permutations: int = 0,
    ) -> None:
        self.estimator, self.n_features_to_select, self.scoring, self.cv = estimator, n_features_to_select, scoring, cv
        self.max_evaluations, self.max_seconds, self.timeout = max_evaluations, max_seconds, timeout
        self.error_score, self.column_params = error_score, column_params
        self.n_jobs, self.random_state = n_jobs, random_state
        self.verbose, self.callbacks, self.checkpoint, self.warm_start = verbose, callbacks, checkpoint, warm_start
        self.feature_groups, self.always_include, self.exclude = feature_groups, always_include, exclude
        self.outer_cv, self.n_permutations = outer_cv, n_permutations

    def fit(self, X: Any, y: Any = None, **params: Any) -> "KSubsetSelector":
        """Find the columns, and fit the model to them.

        Arguments:
            X: Data `(N, n)`.
            y: Targets `(N)` or `(N, m)`; None if the model needs none.
            params: Where scikit-learn's metadata routing is enabled, metadata for the model's `fit`, the scorer and the
                splitter. Where it is not, `groups` go to the splitter and all else, such as `sample_weight`, to the
                model's `fit`; what has a value for each row is cut to the rows of the fold.
        """
        data, target = self._check_data(X, y)
        problem, outer = self._problem(data, target, params)
        self._ask_the_model(problem)
        found = problem.search()
        problem = replace(problem, seed=(found.seed, found.seed), sizes=[result.size for result in found.results])
        searches = [found]
        scores: list[NDArray[np.float64]] = []
        if not found.ended:
            for inner, score in outer_searches(problem, outer):
                searches.append(inner)
                scores.append(score)
        complete = not found.ended and len(scores) == len(outer)
        nulls = list(null_searches(problem, self.n_permutations, found.seed)) if complete else []
        if self._store is not None and complete and len(nulls) == self.n_permutations:
            self._store.forget_earlier()
        warn_of_failures([*searches, *nulls])
        self.outer_scores_ = np.stack(scores, 1) if scores else np.empty((len(found.results), 0))
        self.score_ = crossfitted_score(self.outer_scores_)
        self.null_scores_ = np.array([null.best_score for null in nulls])
        self.p_value_ = (
            (1 + int((self.null_scores_ >= found.best_score).sum())) / (1 + len(nulls)) if nulls else float("nan")
        )
        place = smallest_within_one_standard_error(self.outer_scores_) if len(scores) > 1 else None
        kept = results.within_one_standard_error(found.results) if place is None else found.results[place]
        self.support_, self.best_score_, self.inclusion_probabilities_ = kept.support, kept.score, kept.inclusion
        self.n_features_ = int(kept.support.sum())
        self.n_fits_ = sum(result.n_fits for search in [*searches, *nulls] for result in search.results)
        self.path_, self.cv_results_ = results.path(found.results), results.cv_results(found.results)
        self.estimator_ = problem.fitted(np.flatnonzero(self.support_))
        return self

    def co_inclusion(self, *, max_columns: int = 30) -> CoInclusion:
        """Which columns occur together, or replace each other, in the subsets that are as good as the best.

        These are the subsets of the size that is kept which were scored on every fold of `cv`, and whose mean score is
        within one standard error of the best such mean; the error is that of the best one's mean over the folds. The
        columns that are kept are always one of them: fresh folds, where there are any, have chosen them. All
        models that are about as good are called their Rashomon set.

        Arguments:
            max_columns: Columns in the result at most, those that occur most often.

        Raises:
            TypeError, ValueError: `max_columns` is no integer, or less than 1.
            sklearn.exceptions.NotFittedError: There has been no fit.

        References:
            Fisher, Rudin and Dominici (2019), All models are wrong, but many are useful: learning a variable's
            importance by studying an entire class of prediction models simultaneously, Journal of Machine Learning
            Research 20(177), https://jmlr.org/papers/v20/18-760.html.
        """
        check_is_fitted(self)
        check_integer("max_columns", max_columns, 1)
        size = self.path_["n_features_to_select"][self._kept]
        best = as_good_as_the_best(self.cv_results_, size, self.support_)
        return co_inclusion(best, check_feature_names_in(self), max_columns)

    def substitutes(self) -> list[Substitute]:
        """Which columns could stand in for those that are kept, and at what loss, the smallest losses first.

        Of the subsets that were scored on every fold those that differ from the kept one by one swap, of columns or of
        `feature_groups`. What racing gave up early is not among them, nor what was never tried; a pair that is not
        listed is not known to be a bad one.

        Raises:
            sklearn.exceptions.NotFittedError: There has been no fit.

        Example:
            >>> from sklearn.datasets import load_iris
            >>> from sklearn.neighbors import KNeighborsClassifier
            >>> X, y = load_iris(return_X_y=True)
            >>> selector = KSubsetSelector(KNeighborsClassifier(), n_features_to_select=2, random_state=0).fit(X, y)
            >>> one = selector.substitutes()[0]
            >>> one.kept, one.stand_in, round(one.loss, 3)
            (('x2',), ('x1',), 0.013)
        """
        check_is_fitted(self)
        names = check_feature_names_in(self)
        places = {name: place for place, name in enumerate(names)}
        units = {
            frozenset(positions(group, "feature_groups", places, len(names)).tolist())
            for group in self.feature_groups or ()
        }
        size = self.path_["n_features_to_select"][self._kept]
        return substitutes(self.cv_results_, size, self.support_, units, names)

    def _first_panel(self, plotting: ModuleType) -> Callable[[Any], None] | None:
        return partial(plotting.scores, self.path_, self._kept) if len(self.path_["support"]) > 1 else None

    @property
    def _kept(self) -> int:
        """The place in the path of what is kept: sizes differ, and so do their columns."""
        return int(np.flatnonzero((self.path_["support"] == self.support_).all(1))[0])

    def _problem(self, data: Any, target: Any, params: dict[str, Any]) -> tuple[Problem, list[Any]]:
        """What to search, and the outer splits."""
        callbacks = listed_callbacks(self.callbacks)
        check_integer("n_permutations", self.n_permutations, 0)
        if self.n_permutations and target is None:
            raise ValueError(f"n_permutations: expected 0 without targets, got {self.n_permutations}")
        fit_params, score_params, split_params, outer_params = self._routed(params)
        store = self._score_store()
        before = None if store is None or self.random_state is not None else store.seed
        drawn = seed_of(self.random_state) if before is None else before
        splitter = check_cv(self.cv, target, classifier=classifies(self.estimator))
        if shuffles_anew(splitter):
            if self.checkpoint is not None and self.random_state is None:
                raise ValueError(f"cv: expected one with a random_state, or one of the selector, got {self.cv!r}")
            splitter = with_seed(splitter, drawn)
        outer = self._outer_splits(data, target, splitter, outer_params)
        groups, sizes = self._groups(data)
        if isinstance(self.scoring, list | tuple | set | dict):
            raise TypeError(f"scoring: expected one scorer, or its name, got {self.scoring!r}")
        problem = Problem(
            estimator=self.estimator, scoring=self.scoring, scorer=check_scoring(self.estimator, scoring=self.scoring),
            splitter=splitter, data=data, target=target, groups=groups, sizes=sizes, fit_params=fit_params,
            score_params=score_params, split_params=split_params, column_params=self.column_params,
            n_jobs=self.n_jobs, limits=self._limits(), max_evaluations=self.max_evaluations,
            max_seconds=self.max_seconds, callbacks=callbacks, verbose=self.verbose, store=store,
            seed=(None if self.random_state is None else drawn, drawn),
        )  # fmt: skip
        return problem, outer

    def _limits(self) -> FitLimits:
        if self.max_seconds is not None:
            check_positive("max_seconds", self.max_seconds)
        if self.timeout is not None:
            check_positive("timeout", self.timeout)
            if not hasattr(signal, "setitimer"):
                raise ValueError(f"timeout: expected None on a system without interval timers, got {self.timeout}")
        if self.error_score != "raise" and not isinstance(self.error_score, int | float | np.number):
            raise ValueError(f"error_score: expected a number or 'raise', got {self.error_score!r}")
        if self.column_params is not None and not callable(self.column_params):
            raise TypeError(f"column_params: expected a function of columns or None, got {self.column_params!r}")
        return FitLimits(self.timeout, self.error_score)

    def _check_data(self, data: Any, target: Any) -> tuple[Any, Any]:
        self._check_labels(data)
        data = self._check_features(data, reset=True)
        if target is None:
            tags = tags_of(self.estimator)
            if tags is not None and tags.target_tags.required:
                name = type(self.estimator).__name__
                raise ValueError(f"y: {name} requires y to be passed, but the target y is None")
            return data, None
        return data, check_target(target, data)

    def _ask_the_model(self, problem: Problem) -> None:
        """Let the model itself refuse what is missing, infinite or of any type, whatever its tags say: in one fit."""
        check_columns_by_name(self.estimator, getattr(self, "feature_names_in_", ()), problem.groups.always_kept)
        self._takes_missing = False
        if not is_all_numbers(problem.data):
            candidates = problem.groups.candidates(problem.sizes[-1])
            try:
                problem.fitted(candidates)
            except Exception as error:
                error.add_note(f"The model was asked about {len(candidates)} columns, as not all are finite numbers.")
                raise
            self._takes_missing = True

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.n_features_to_select, str) and self.n_features_to_select == "auto"

    def _groups(self, data: Any) -> tuple[FeatureGroups, list[int]]:
        groups, wanted = self._feature_groups(data), self.n_features_to_select
        if self._is_auto:
            powers = [2**power for power in range(groups.most.bit_length())]
            sizes = [size for size in (groups.least, *powers, groups.most) if size >= groups.least]
        else:
            sizes = list(wanted) if isinstance(wanted, list | tuple | range | np.ndarray) else [wanted]
            # 0.29 of 100 are 29, though their product is a little less.
            sizes = [max(1, int(round(size * len(groups), 9))) if _is_fraction(size) else size for size in sizes]
        if not sizes or not all(map(is_integer, sizes)):
            raise TypeError(f'n_features_to_select: expected integers, fractions or "auto", got {wanted!r}')
        groups.check_sizes(sizes, wanted)
        return groups, sorted({int(size) for size in sizes})

    def _outer_splits(self, data: Any, target: Any, splitter: Any, split_params: dict[str, Any]) -> list[Any]:
        """Training and test rows of the outer splits; none if there are to be none."""
        splits_again = is_integer(self.cv) or hasattr(self.cv, "split") or self.cv is None
        if self.outer_cv is None:
            if not self._is_auto or not splits_again:
                return []
            outer = splitter
        else:
            if not splits_again:
                raise ValueError(
                    f"outer_cv: expected cv to be a number or a splitter, to split the rest again, got {self.cv!r}"
                )
            outer = check_cv(self.outer_cv, target, classifier=classifies(self.estimator))
        splits = list(outer.split(data, target, **split_params))
        if len(splits) < 2:
            raise ValueError(f"outer_cv: expected two splits or more, got {len(splits)}")
        return splits

    def _score_store(self) -> ScoreStore | None:
        earlier: ScoreStore | None = getattr(self, "_store", None) if self.warm_start else None
        self._store = None
        if not self.warm_start and self.checkpoint is None:
            return None
        store = ScoreStore(None if self.checkpoint is None else Path(self.checkpoint), earlier)
        if self.warm_start:
            self._store = store
        return store


def _is_fraction(size: Any) -> bool:
    return isinstance(size, float | np.floating) and bool(0 < size < 1)
