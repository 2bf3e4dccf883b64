"""What is searched: a model, rows, folds, and sizes; and the search of all sizes."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import FitFailedWarning

from ksubset.search.arguments import is_integer
from ksubset.selection._sklearn import check_method_params
from ksubset.selection.groups import FeatureGroups, SubsetSpace, take_columns, take_rows
from ksubset.selection.wrapper import results
from ksubset.selection.wrapper.cache import ScoreCache, ScoreStore, identity
from ksubset.selection.wrapper.delegation import classifies, regresses
from ksubset.selection.wrapper.evaluation import CrossValidation, FitLimits, fresh_splitters
from ksubset.selection.wrapper.near_copies import NearCopies
from ksubset.selection.wrapper.racing import ROUNDS, RacingSearch
from ksubset.selection.wrapper.reporting import EndedByCallbackError, OutOfTimeError, Reporter
from ksubset.selection.wrapper.univariate import univariate_scores

__all__ = ["Found", "Problem", "default_budget", "warn_of_failures"]

_MOST = 10_000
"""Fits by default, at most."""
_MOST_PROMISING = 20
"""Columns whose correlations are looked at before a search, for each that is kept: there may be dozens of searches."""
_REPEATED = 0.9
"""Correlation beyond which a column promises nothing beside a better one."""


@dataclass(frozen=True)
class Found:
    """What a search of all sizes has found.

    Arguments:
        results: Of each size that was searched to its end and has a finite score, ascending.
        ended: Whether a callback or an interrupt ended it.
        num_fits: Models fitted, whose scores were not known.
        failures: What went wrong in some of them.
        seed: Of the search.
    """

    results: list[results.Result]
    ended: bool
    num_fits: int
    failures: list[Exception]
    seed: int

    @property
    def best_score(self) -> float:
        """Of all sizes."""
        return max(result.score for result in self.results)


@dataclass(frozen=True)
class Problem:
    """All that a search depends on.

    Arguments:
        estimator, scoring, column_params, n_jobs, max_evaluations, max_seconds, verbose: As of `KSubsetSelector`.
        scorer: What scoring stands for.
        splitter: What `cv` stands for.
        data, target: All rows; the target is an array, or None.
        groups: Columns that are kept or dropped together.
        sizes: Groups to keep, ascending.
        fit_params, score_params, split_params: Metadata for the model's `fit`, the scorer and the splitter.
        limits: What becomes of a fit that fails or takes too long.
        callbacks: Called with a `Progress`.
        store: Where scores are looked up first and remembered, if anywhere.
        seed: Of the search, None if it is not given, and what it is then, unless a store knows better.
    """

    estimator: Any
    scoring: Any
    scorer: Any
    splitter: Any
    data: Any
    target: NDArray[Any] | None
    groups: FeatureGroups
    sizes: list[int]
    fit_params: Mapping[str, Any]
    score_params: Mapping[str, Any]
    split_params: Mapping[str, Any]
    column_params: Callable[[NDArray[np.int64]], Mapping[str, Any]] | None
    n_jobs: int | None
    limits: FitLimits
    max_evaluations: int | None
    max_seconds: float | None
    callbacks: list[Callable[[results.Progress], Any]]
    verbose: int
    store: ScoreStore | None
    seed: tuple[int | None, int]

    def of_rows(self, rows: NDArray[np.intp]) -> "Problem":
        """The same for some rows."""
        fit_params, score_params, split_params = (
            check_method_params(self.data, params=params, indices=rows)
            for params in (self.fit_params, self.score_params, self.split_params)
        )
        return replace(
            self, data=take_rows(self.data, rows), target=None if self.target is None else self.target[rows],
            fit_params=fit_params, score_params=score_params, split_params=split_params,
        )  # fmt: skip

    def fitted(self, columns: NDArray[np.int64]) -> Any:
        """A clone of the model, fitted to these columns of all rows."""
        more = {} if self.column_params is None else self.column_params(columns)
        targets = () if self.target is None else (self.target,)
        model = clone(self.estimator)
        model.fit(take_columns(self.data, columns), *targets, **self.fit_params, **more)
        return model

    def search(self, part: str = "search") -> Found:
        """Search sizes one by one, until a callback or an interrupt ends it.

        Arguments:
            part: What this search is a part of, for those who watch.

        Raises:
            NoScoreError: No size has a finite score; where one has, those without are left out with a warning.
            Exception: Of the model, where no fit succeeds.
        """
        folds = list(self.splitter.split(self.data, self.target, **self.split_params))
        if not folds:
            raise ValueError("cv: expected one split or more, got none (a generator serves one fit: give a list)")
        cache, seed = self._scores(folds)
        fresh = [
            fold
            for other in fresh_splitters(self.splitter, seed, ROUNDS)
            for fold in other.split(self.data, self.target, **self.split_params)
        ]
        evaluate = CrossValidation(
            self.estimator, self.scorer, self.data, self.target, folds, fresh, self.fit_params, self.score_params,
            self.column_params, self.n_jobs, cache, self.limits,
        )  # fmt: skip
        chance = self._chance(folds) if self.max_evaluations is None else None
        copies = NearCopies(self.data)
        with evaluate.workers:
            try:
                return self._search_sizes(evaluate, self._prior(copies), chance, copies, seed, cache, part)
            except results.NoScoreError:
                # No score is finite because no fit succeeds.
                if 0 < evaluate.num_fits == len(evaluate.failures):
                    raise evaluate.failures[0] from None
                raise

    def held_out_scores(
        self, columns: Sequence[NDArray[np.int64]], train: NDArray[np.intp], test: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Scores on some rows of models fitted to others, each to columns of its own, `(S)`."""
        evaluate = CrossValidation(
            self.estimator, self.scorer, self.data, self.target, [(train, test)], [], self.fit_params,
            self.score_params, self.column_params, self.n_jobs, None, self.limits,
        )  # fmt: skip
        scores = np.array(list(evaluate(columns, np.zeros(len(columns), dtype=np.intp))))
        for failure in evaluate.failures:
            warnings.warn(f"a fit to an outer split failed with {failure!r}", FitFailedWarning, stacklevel=4)
        return scores

    def _prior(self, copies: NearCopies) -> NDArray[np.float64]:
        """What each column promises by itself, `(n)`."""
        scores = univariate_scores(self.data, self.target, classify=classifies(self.estimator))
        num_rows, num_columns = self.data.shape
        # Scores of few rows are too noisy to unlearn that many columns which say the same were promised the most.
        if num_columns > num_rows:
            first = np.argsort(-scores, kind="stable")[: _MOST_PROMISING * max(self.sizes)]
            scores[first[copies.repeating(first, _REPEATED)]] = 0
        return scores

    def _chance(self, folds: list[Any]) -> NDArray[np.float64] | None:
        """Scores `(F)` of a model that predicts the classes' shares or the mean; None if there are no such scores."""
        if self.target is None or not (classifies(self.estimator) or regresses(self.estimator)):
            return None
        model = DummyClassifier() if classifies(self.estimator) else DummyRegressor()
        weights = {name: value for name, value in self.fit_params.items() if name == "sample_weight"}
        evaluate = CrossValidation(
            model, self.scorer, self.data, self.target, folds, [], weights, self.score_params,
            None, None, None, replace(self.limits, error_score=np.nan),
        )  # fmt: skip
        scores = []
        for fold in range(len(folds)):
            scores += list(evaluate([np.zeros(1, dtype=np.int64)], np.array([fold])))
            if not math.isfinite(scores[-1]):
                return None
        return np.array(scores)

    def _scores(self, folds: list[Any]) -> tuple[ScoreCache | None, int]:
        given, drawn = self.seed
        if self.store is None:
            return None, drawn
        metadata = {"fit": self.fit_params, "score": self.score_params, "split": self.split_params}
        try:
            parts = identity(
                self.data, self.target, clone(self.estimator), self.scoring, self.splitter, folds, metadata
            )
        except TypeError as error:
            raise TypeError(
                f"{self.store.argument}: expected an estimator, scoring and metadata that can be pickled, "
                f"to tell them from others ({error})"
            ) from error
        cache = self.store.search(parts, given, drawn)
        return cache, cache.seed

    def _search_sizes(
        self, evaluate: CrossValidation, prior: NDArray[np.float64], chance: NDArray[np.float64] | None,
        copies: NearCopies, seed: int, cache: ScoreCache | None, part: str,
    ) -> Found:  # fmt: skip
        found: list[results.Result] = []
        ended = False
        for size in self.sizes:
            space = self.groups.space(size)
            budget = self._budget(len(space.free), space.size, len(evaluate.fold_rows))
            reporter = Reporter(space, part, cache, self.callbacks, self.verbose, self.max_seconds)
            search = RacingSearch(
                partial(_of_groups, evaluate, space), len(space.free), space.size, evaluate.fold_rows, budget, seed,
                after_score=reporter.after_score, num_fresh=evaluate.num_fresh, prior=space.to_groups(prior),
                use_all=self.max_evaluations is not None, max_seconds=self.max_seconds,
                chance=chance, most=_MOST, alike=partial(copies.alike, space),
            )  # fmt: skip
            reporter.search = search
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
                warnings.warn("interrupted: the selector keeps the best columns found so far", stacklevel=4)
            # Scores that were not confirmed promise too much to stand beside others.
            if not ended or not found:
                try:
                    found.append(results.result_of(search, space))
                except results.NoScoreError as error:
                    if not found and (ended or size == self.sizes[-1]):
                        raise
                    warnings.warn(f"{part}: a size is left out: {error}", stacklevel=4)
            if ended:
                break
        return Found(found, ended, evaluate.num_fits, evaluate.failures, seed)

    def _budget(self, num_free: int, size: int, num_folds: int) -> int:
        if self.max_evaluations is None:
            return default_budget(num_free, size, num_folds)
        if not is_integer(self.max_evaluations):
            raise TypeError(f"max_evaluations: expected an integer or None, got {self.max_evaluations!r}")
        if self.max_evaluations < num_folds:
            raise ValueError(
                f"max_evaluations: expected {num_folds} or more, to score one subset on all folds, "
                f"got {self.max_evaluations}"
            )
        return int(self.max_evaluations)


def warn_of_failures(searches: Sequence[Found]) -> None:
    """Say how many fits of some searches have failed, if any has, to the caller's caller."""
    failures = [failure for search in searches for failure in search.failures]
    if failures:
        fits = sum(search.num_fits for search in searches)
        warnings.warn(
            f"{len(failures)} of {fits} fits failed, the first with {failures[0]!r}", FitFailedWarning, stacklevel=3
        )


def default_budget(num_free: int, size: int, num_folds: int) -> int:
    """Fits of forward selection, 10,000 at most; or up to 1,000 if these are enough to try all subsets."""
    forward = num_folds * sum(num_free - kept for kept in range(size))
    all_on_a_fold = math.comb(num_free, size) * 5 // 4
    return min(max(forward, 1_000) if all_on_a_fold <= 900 else forward, _MOST)


def _of_groups(
    evaluate: CrossValidation, space: SubsetSpace, subsets: NDArray[np.int64], folds: NDArray[np.intp]
) -> Iterator[float]:
    return evaluate([space.columns(subset) for subset in subsets], folds)
