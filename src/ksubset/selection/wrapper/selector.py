"""The scikit-learn selector that keeps exactly k columns for any model."""

import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_is_fitted

from ksubset.search.arguments import check_integer, check_positive, is_integer, listed_callbacks
from ksubset.selection._sklearn import check_feature_names_in, routing_enabled
from ksubset.selection.arguments import check_target, seed_of
from ksubset.selection.co_inclusion import CoInclusion, as_good_as_the_best, co_inclusion
from ksubset.selection.groups import FeatureGroups, is_dataframe
from ksubset.selection.wrapper import results
from ksubset.selection.wrapper.cache import ScoreCache, identity
from ksubset.selection.wrapper.delegation import DelegatingMixin, classifies, tags_of
from ksubset.selection.wrapper.evaluation import CrossValidation, FitLimits, fresh_splitters
from ksubset.selection.wrapper.racing import ROUNDS, RacingSearch
from ksubset.selection.wrapper.reporting import EndedByCallbackError, OutOfTimeError, Reporter
from ksubset.selection.wrapper.univariate import univariate_scores

__all__ = ["KSubsetSelector"]


class KSubsetSelector(DelegatingMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Keep exactly k columns: those with which a model, any model, has the best cross-validated score.

    Columns are scored together, so that those are found which help only jointly. A distribution over the k-subsets
    is learned from the scores of sampled ones, swaps refine the best, and the few best are compared on fresh folds;
    see `ksubset.selection.wrapper.racing`. What costs is fitting models, and is limited by `max_evaluations`.

    Subsets are scored on the same folds. Fresh folds are those of `cv` shuffled anew; where it does not shuffle (a
    number of folds, an iterable, groups, time series) there are none, and the best score on the folds wins.

    Columns with one value in all rows, or the same values as a column before, are left out as long as there are others.
    Missing values are for the model to take or to refuse.

    Arguments:
        estimator: The model, with `fit` and, unless `scoring` says otherwise, `score`. It is cloned, and sees columns
            in the container that X is: a DataFrame of pandas or polars, an array, a sparse matrix.
        n_features_to_select: Columns to keep, k; of `feature_groups` the number of groups; a float below 1 is a
            fraction of them, rounded down, one at least. Of several sizes the smallest is kept whose score is within
            one standard error of the best. "auto" tries 1, 2, 4, ... and all.
        scoring: A scorer, or the name of one; None is the model's `score`.
        cv: Number of folds, a splitter, or an iterable of splits.
        max_evaluations: Most model fits, one for a subset on a fold, for each size, the fit of `estimator_` aside; they
            are used, unless all subsets are known before. None allows as many as forward selection would take, but
            1,000 at least and 10,000 at most, and the search ends where it finds nothing better.
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
        checkpoint: Path of a file to which every score is written, within half a second of its fit. Another fit with
            the same data, estimator, scoring, folds, metadata and random_state takes what is there instead of fitting
            models again, and so resumes; a file of others is an error, which names them. Sizes, columns and
            `max_evaluations` may change. Functions, as of `scoring`, are told apart by their names, and need one.
        warm_start: Whether every score is kept in memory, so that the next `fit` resumes as from a
            `checkpoint`: more sizes, or a larger `max_evaluations`, cost what was not scored yet. With other data,
            estimator, scoring, folds, metadata or random_state it starts afresh. If random_state is None, the seed of
            the fit before is taken over. A clone has no scores, a pickled selector has.

    Attributes:
        support_: `(n)`, boolean, the columns that are kept.
        estimator_: The model, fitted to these columns of all rows.
        n_features_: Their number.
        n_features_in_, feature_names_in_: Of the data.
        inclusion_probabilities_: `(n)`, of each column in the learned distribution.
        best_score_: Mean score of the columns that are kept, on the fresh folds if there are any.
        n_fits_: Model fits of all sizes, those whose scores were in the checkpoint or in memory included.
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
    ) -> None:
        self.estimator, self.n_features_to_select, self.scoring, self.cv = estimator, n_features_to_select, scoring, cv
        self.max_evaluations, self.max_seconds, self.timeout = max_evaluations, max_seconds, timeout
        self.error_score, self.column_params = error_score, column_params
        self.n_jobs, self.random_state = n_jobs, random_state
        self.verbose, self.callbacks, self.checkpoint, self.warm_start = verbose, callbacks, checkpoint, warm_start
        self.feature_groups, self.always_include, self.exclude = feature_groups, always_include, exclude

    def fit(self, X: Any, y: Any = None, **params: Any) -> "KSubsetSelector":
        """Find the columns, and fit the model to them.

        Arguments:
            X: Data `(N, n)`.
            y: Targets `(N)` or `(N, m)`; None if the model needs none.
            params: Where scikit-learn's metadata routing is enabled, metadata for the model's `fit`, the scorer and the
                splitter. Where it is not, `groups` go to the splitter and all else, such as `sample_weight`, to the
                model's `fit`; what has a value for each row is cut to the rows of the fold.
        """
        callbacks = listed_callbacks(self.callbacks)
        data, target = self._check_data(X, y)
        fit_params, score_params, split_params = self._routed(params)
        splitter = check_cv(self.cv, target, classifier=classifies(self.estimator))
        folds = list(splitter.split(data, target, **split_params))
        if not folds:
            raise ValueError("cv: expected one split or more, got none (a generator serves one fit: give a list)")
        groups, sizes = self._groups(data)
        cache, seed = self._score_cache(data, target, splitter, folds, params)
        fresh = [
            fold
            for other in fresh_splitters(splitter, seed, ROUNDS)
            for fold in other.split(data, target, **split_params)
        ]
        if isinstance(self.scoring, list | tuple | set | dict):
            raise TypeError(f"scoring: expected one scorer, or its name, got {self.scoring!r}")
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        evaluate = CrossValidation(
            self.estimator, scorer, data, target, folds, fresh, fit_params, score_params, self.column_params,
            self.n_jobs, cache, self._limits(),
        )  # fmt: skip
        prior = univariate_scores(data, target, classify=classifies(self.estimator))
        with evaluate.workers:
            try:
                found = self._search(evaluate, groups, sizes, prior, seed, cache, callbacks)
            except ValueError:
                # No score is finite because no fit succeeds.
                if 0 < evaluate.num_fits == len(evaluate.failures):
                    raise evaluate.failures[0] from None
                raise
        if evaluate.failures:
            warnings.warn(
                f"{len(evaluate.failures)} of {evaluate.num_fits} fits failed, the first with {evaluate.failures[0]!r}",
                FitFailedWarning, stacklevel=2,
            )  # fmt: skip
        kept = results.within_one_standard_error(found)
        self.support_, self.best_score_, self.inclusion_probabilities_ = kept.support, kept.score, kept.inclusion
        self.n_features_ = int(kept.support.sum())
        self.n_fits_ = sum(result.n_fits for result in found)
        self.path_, self.cv_results_ = results.path(found), results.cv_results(found)
        targets = () if target is None else (target,)
        self.estimator_ = clone(self.estimator)
        more = {} if self.column_params is None else self.column_params(np.flatnonzero(self.support_))
        self.estimator_.fit(self._selected(data), *targets, **fit_params, **more)
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

    def _first_panel(self, plotting: ModuleType) -> Callable[[Any], None] | None:
        return partial(plotting.scores, self.path_, self._kept) if len(self.path_["support"]) > 1 else None

    @property
    def _kept(self) -> int:
        """The place in the path of what is kept: sizes differ, and so do their columns."""
        return int(np.flatnonzero((self.path_["support"] == self.support_).all(1))[0])

    def _routed(self, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Metadata for the model's `fit`, the scorer and the splitter."""
        if not routing_enabled():
            own = dict(params)
            groups = own.pop("groups", None)
            return own, {}, {} if groups is None else {"groups": groups}
        routed = process_routing(self, "fit", **params)
        return routed["estimator"]["fit"], routed["scorer"]["score"], routed["splitter"]["split"]

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
        data = self._check_features(data, reset=True)
        if target is None:
            tags = tags_of(self.estimator)
            if tags is not None and tags.target_tags.required:
                name = type(self.estimator).__name__
                raise ValueError(f"y: {name} requires y to be passed, but the target y is None")
            return data, None
        target = check_target(target, data)
        self._ask_the_model(data, target)
        return data, target

    def _ask_the_model(self, data: Any, target: Any) -> None:
        """Let the model itself refuse what is missing, infinite or of any type, whatever its tags say: in one fit."""
        if is_dataframe(data) or self.__sklearn_tags__().input_tags.allow_nan:
            return
        values = data.data if hasattr(data, "tocsc") else data
        if values.dtype.kind != "O" and (values.dtype.kind != "f" or np.isfinite(values).all()):
            return
        clone(self.estimator).fit(data, target)

    def _groups(self, data: Any) -> tuple[FeatureGroups, list[int]]:
        groups, wanted = self._feature_groups(data), self.n_features_to_select
        if isinstance(wanted, str) and wanted == "auto":
            powers = [2**power for power in range(groups.most.bit_length())]
            sizes = [size for size in (groups.least, *powers, groups.most) if size >= groups.least]
        else:
            sizes = list(wanted) if isinstance(wanted, list | tuple | range | np.ndarray) else [wanted]
            sizes = [max(1, int(size * len(groups))) if _is_fraction(size) else size for size in sizes]
        if not sizes or not all(map(is_integer, sizes)):
            raise TypeError(f'n_features_to_select: expected integers, fractions or "auto", got {wanted!r}')
        groups.check_sizes(sizes, wanted)
        return groups, sorted({int(size) for size in sizes})

    def _score_cache(
        self, data: Any, target: Any, splitter: Any, folds: Any, metadata: dict[str, Any]
    ) -> tuple[ScoreCache | None, int]:
        drawn = seed_of(self.random_state)
        given = None if self.random_state is None else drawn
        earlier: ScoreCache | None = getattr(self, "_cache", None) if self.warm_start else None
        if not self.warm_start:
            self._cache = None
            if self.checkpoint is None:
                return None, drawn
        try:
            parts = identity(data, target, clone(self.estimator), self.scoring, splitter, folds, metadata)
        except TypeError as error:
            raise TypeError(
                f"{'warm_start' if self.checkpoint is None else 'checkpoint'}: expected an estimator, scoring and "
                f"metadata that can be pickled, to tell them from others ({error})"
            ) from error
        cache = ScoreCache(None if self.checkpoint is None else Path(self.checkpoint), parts, given)
        if earlier is not None:
            cache.take(earlier)
        cache.seed = drawn if cache.seed is None else cache.seed
        if self.warm_start:
            self._cache = cache
        cache.save()
        return cache, cache.seed

    def _search(
        self,
        evaluate: CrossValidation,
        groups: FeatureGroups,
        sizes: list[int],
        prior: NDArray[np.float64],
        seed: int,
        cache: ScoreCache | None,
        callbacks: list[Callable[[results.Progress], Any]],
    ) -> list[results.Result]:
        """Search sizes one by one, until a callback or an interrupt ends it."""
        found: list[results.Result] = []
        for size in sizes:
            space = groups.space(size)
            budget = self._budget(len(space.free), space.size, len(evaluate.fold_rows))
            reporter = Reporter(space, cache, callbacks, self.verbose, self.max_seconds)
            search = RacingSearch(
                partial(evaluate, space), len(space.free), space.size, evaluate.fold_rows, budget, seed,
                after_score=reporter.after_score, num_fresh=evaluate.num_fresh, prior=space.to_groups(prior),
                use_all=self.max_evaluations is not None, max_seconds=self.max_seconds,
            )  # fmt: skip
            reporter.search = search
            ended = False
            try:
                for _ in search.run():
                    reporter.report()
            except OutOfTimeError:
                reporter.save()
            except EndedByCallbackError:
                ended = True
            except KeyboardInterrupt:
                if not found and not len(search.table):
                    raise
                reporter.save()
                ended = True
                warnings.warn("interrupted: the selector keeps the best columns found so far", stacklevel=3)
            # Scores that were not confirmed promise too much to stand beside others.
            if not ended or not found:
                found.append(results.result_of(search, space))
            if ended:
                break
        return found

    def _budget(self, num_free: int, size: int, num_folds: int) -> int:
        if self.max_evaluations is None:
            forward = num_folds * sum(num_free - kept for kept in range(size))
            return min(max(forward, 1_000), 10_000)
        if not is_integer(self.max_evaluations):
            raise TypeError(f"max_evaluations: expected an integer or None, got {self.max_evaluations!r}")
        if self.max_evaluations < num_folds:
            raise ValueError(
                f"max_evaluations: expected {num_folds} or more, to score one subset on all folds, "
                f"got {self.max_evaluations}"
            )
        return int(self.max_evaluations)


def _is_fraction(size: Any) -> bool:
    return isinstance(size, float | np.floating) and bool(0 < size < 1)
