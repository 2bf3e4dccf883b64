"""Cross-validated scores of column subsets: folds, and fits in parallel."""

import contextlib
import copy
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from ksubset.search.workers import streaming
from ksubset.selection._sklearn import check_method_params
from ksubset.selection.groups import column_by_column, take_columns, take_rows
from ksubset.selection.wrapper.cache import ScoreCache

__all__ = ["CrossValidation", "FitLimits", "fresh_splitters"]

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
# Rows, their targets if there are any, and their metadata.
Part = tuple[NDArray[np.intp], tuple[Any, ...], Mapping[str, Any]]
# A fold and columns.
Key = tuple[int, tuple[int, ...]]
# So many fits that fail, and none that does not, are no bad luck.
_HOPELESS = 10


class CrossValidation:
    """Fits a model on columns and folds and scores it; the one place where models are fitted to search.

    Arguments:
        estimator: The model; a clone of it is fitted each time.
        scorer: Maps a fitted model, data and targets to a number, larger being better.
        data, target: All rows; the target is an array, or None.
        folds: Indices of the rows to fit on and of those to score on.
        fresh: Folds to confirm with, whose numbers follow those of the folds.
        fit_params, score_params: Metadata for the model's `fit` and for the scorer.
        column_params: Maps the columns of a subset to more arguments of the model's `fit`; None for no more.
        n_jobs: Fits at a time, as joblib has it.
        cache: Where scores are looked up first and remembered, if anywhere.
        limits: What becomes of a fit that fails or takes too long.
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
        column_params: Callable[[NDArray[np.int64]], Mapping[str, Any]] | None,
        n_jobs: int | None,
        cache: ScoreCache | None,
        limits: "FitLimits",
    ) -> None:
        self._model, self._scorer, self._target = clone(estimator), scorer, target
        self._data = column_by_column(data)
        self.num_fresh, self._folds = len(fresh), [*folds, *fresh]
        self.fold_rows = [len(test) for _, test in folds]
        """Rows that each fold is scored on."""
        self._fit_params, self._score_params, self._column_params = fit_params, score_params, column_params
        self._cache, self._limits, self._copy = cache, limits, _way_to_copy(self._model)
        self._alone = effective_n_jobs(n_jobs) == 1
        self.workers = streaming(Parallel, n_jobs)
        """To be entered around many calls: a cluster starts workers anew for each call otherwise, in seconds."""
        self.failures: list[Exception] = []
        """What went wrong in fits that failed."""
        self.num_fits = 0
        """Models fitted by this object, whose scores were not known."""

    def __call__(self, columns: Sequence[NDArray[np.int64]], folds: NDArray[np.intp]) -> Iterator[float]:
        """Scores of subsets, each on its fold, in their order, as they come.

        Arguments:
            columns: Of each subset.
            folds: Of each, `(S)`.

        Raises:
            Whatever the model's `fit` and the scorer do, if that is asked for, and if the first ten fits all fail.
        """
        known: dict[Key, float] = {} if self._cache is None else self._cache.known
        keys = [(fold, tuple(one.tolist())) for fold, one in zip(folds.tolist(), columns, strict=True)]
        new = [place for place, key in enumerate(keys) if key not in known]
        # Once for all subsets; and columns are taken here, so that workers are sent k of them, and not all.
        parts = {fold: self._parts(fold) for fold in {keys[place][0] for place in new}}
        calls = (
            (self._copy, self._model, self._scorer, take_columns(self._data, columns[place]), *parts[keys[place][0]],
             self._more(columns[place]), self._limits)
            for place in new
        )  # fmt: skip
        # Without the dispatcher, whose time is a tenth of that of a small model's fit.
        scores = map(_fit_and_score, calls) if self._alone else self.workers(map(delayed(_fit_and_score), calls))
        scores, waiting = iter(scores), set(new)
        for place, key in enumerate(keys):
            if place not in waiting:
                yield known[key]
                continue
            score, failure = next(scores)
            self._note(failure, known)
            if failure is None:  # else a fit with more time or memory, or another error_score, would have its score
                known[key] = score
            yield score

    def _note(self, failure: Exception | None, known: Mapping[Key, float]) -> None:
        self.num_fits += 1
        if failure is None:
            return
        self.failures.append(failure)
        # A resumed search tries again what failed, and knows fits that did not.
        if len(self.failures) == self.num_fits == _HOPELESS and not known:
            failure.add_note(f"So the first {_HOPELESS} fits have all failed.")
            raise failure

    def _more(self, columns: NDArray[np.int64]) -> Mapping[str, Any]:
        return {} if self._column_params is None else self._column_params(columns)

    def _parts(self, fold: int) -> tuple[Part, Part]:
        train, test = self._folds[fold]
        return self._part(train, self._fit_params), self._part(test, self._score_params)

    def _part(self, rows: NDArray[np.intp], params: Mapping[str, Any]) -> Part:
        target = () if self._target is None else (self._target[rows],)
        return rows, target, check_method_params(self._data, params=params, indices=rows)


@dataclass(frozen=True)
class FitLimits:
    """What becomes of a fit that fails or takes too long.

    Arguments:
        timeout: Seconds that a fit and its score may take, if not any number.
        error_score: The score of a fit that fails; "raise" lets the error through.
    """

    timeout: float | None
    error_score: Any

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Interrupt what takes too long by a TimeoutError; in the main thread, and where the system has signals."""
        if self.timeout is None:
            yield
            return
        message = f"a fit took more than {self.timeout} seconds"

        def stop(*_: Any) -> None:
            raise TimeoutError(message)

        before, start = signal.signal(signal.SIGALRM, stop), time.monotonic()
        # Again and again: a search inside the model takes the error for one of the fit that it interrupts.
        left, interval = signal.setitimer(signal.ITIMER_REAL, self.timeout, self.timeout)
        try:
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if left:  # of a timer that was set before, as by a test's own limit
                signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 1e-6), interval)
        # A model may also set the timer itself.
        if time.monotonic() - start > self.timeout:
            raise TimeoutError(message)


def _way_to_copy(model: Any) -> Any:
    """How to get another clone: a copy of a clone is one, for a fifth of the time, where it can be copied."""
    try:
        copy.deepcopy(model)
    # A lock, a file or a connection refuses in its own way; a fit whose clone is no good says so itself.
    except Exception:
        return clone
    return copy.deepcopy


def _fit_and_score(call: tuple[Any, ...]) -> tuple[float, Exception | None]:
    """The score, and what went wrong."""
    copied, estimator, scorer, data, (rows, target, params), (test_rows, truth, test_params), more, limits = call
    try:
        with limits.timed():
            model = copied(estimator)
            model.fit(take_rows(data, rows), *target, **params, **more)
            return float(scorer(model, take_rows(data, test_rows), *truth, **test_params)), None
    except Exception as error:
        if limits.error_score == "raise":
            raise
        return float(limits.error_score), error


def shuffles_anew(splitter: Any) -> bool:
    """Whether a splitter gives other folds each time it is asked."""
    return _shuffles(splitter) and splitter.random_state is None


def _shuffles(splitter: Any) -> bool:
    # Splitters that shuffle have a random state, and a switch for it or none.
    return hasattr(splitter, "random_state") and bool(getattr(splitter, "shuffle", True))


def with_seed(splitter: Any, seed: int) -> Any:
    """A copy of a splitter that shuffles, with a seed."""
    copied = copy.copy(splitter)
    copied.random_state = seed
    return copied


def fresh_splitters(splitter: Any, seed: int, count: int) -> list[Any]:
    """Splitters like the given one that split otherwise, if it is of a kind that can.

    One that does not shuffle, as a number of folds stands for, is never shuffled: rows may be in an order that counts.

    Arguments:
        splitter: As of `sklearn.model_selection.check_cv`.
        seed: Of the shuffling.
        count: How many.
    """
    seeds = [seed + 1 + turn for turn in range(count)]
    if _shuffles(splitter):
        return [with_seed(splitter, one) for one in seeds]
    return []
