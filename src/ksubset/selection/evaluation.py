"""Cross-validated scores of column subsets: folds, fits in parallel, and the file that remembers them."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from ksubset.files import write
from ksubset.selection.columns import Choice, take_columns, take_rows

__all__ = ["CrossValidation", "Record", "fresh_splitters"]

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]


class Record:
    """The scores known so far, in a file that is whole at all times.

    Arguments:
        path: The file; it need not exist.
        fingerprint: Of everything that the scores depend on.
        seed: Of the search; None takes the one in the file.

    Raises:
        ValueError: The file is none of this kind, or of other data, model, folds, or seed.
    """

    def __init__(self, path: Path, fingerprint: str, seed: int | None) -> None:
        self._path, self._fingerprint = path, fingerprint
        self.seed = seed
        self.scores: dict[tuple[int, tuple[int, ...]], float] = {}
        if not path.exists():
            return
        try:
            content = json.loads(path.read_bytes())
            found, self.seed = content["fingerprint"], int(content["seed"])
            self.scores = {(fold, tuple(columns)): score for fold, columns, score in content["scores"]}
        # A file of another kind fails in one of these ways: no JSON, not a mapping, missing or malformed fields.
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"checkpoint: expected a file of a selector, got {path} ({error!r})") from error
        if found != fingerprint or seed not in (None, self.seed):
            raise ValueError(
                f"checkpoint: expected a file of the same data, estimator, scoring, folds, metadata and random_state, "
                f"got {path}, which is of others; delete it, or give another path"
            )

    def save(self) -> None:
        """Write all scores.

        Raises:
            OSError: The file cannot be written; what was there stays.
        """
        scores = [(fold, columns, score) for (fold, columns), score in self.scores.items()]
        content = {"fingerprint": self._fingerprint, "seed": self.seed, "scores": scores}
        write(self._path, json.dumps(content).encode())


class CrossValidation:
    """Fits a model on columns and folds and scores it; the one place where models are fitted to search.

    Arguments:
        estimator: The model, cloned for every fit.
        scorer: Maps a fitted model, data and targets to a number, larger being better.
        data, target: All rows; the target is an array, or None.
        folds: Indices of the rows to fit on and of those to score on.
        fresh: Folds to confirm with, whose numbers follow those of the folds.
        fit_params, score_params: Metadata for the model's `fit` and for the scorer.
        n_jobs: Fits at a time, as joblib has it.
        record: Where scores are looked up first and remembered, if anywhere.
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
        record: Record | None,
    ) -> None:
        self._model, self._scorer, self._data, self._target = estimator, scorer, data, target
        self.num_folds, self.num_fresh, self._folds = len(folds), len(fresh), [*folds, *fresh]
        self._fit_params, self._score_params, self._n_jobs, self._record = fit_params, score_params, n_jobs, record

    def __call__(self, choice: Choice, subsets: NDArray[np.int64], fold: int) -> NDArray[np.float64]:
        """Scores of subsets on one fold.

        Raises:
            Whatever the model's `fit` and the scorer do: a subset that cannot be scored cannot be ranked.

        Shapes:
            subsets `(S, k)` of the choice's free units -> `(S)`.
        """
        columns = [choice.columns(subset) for subset in subsets]
        known = {} if self._record is None else self._record.scores
        keys = [(fold, tuple(one.tolist())) for one in columns]
        new = [place for place, key in enumerate(keys) if key not in known]
        train, test = self._folds[fold]
        # Once for all subsets; and columns are taken here, so that workers are sent k of them, and not all.
        targets = () if self._target is None else (self._target[train],)
        truths = () if self._target is None else (self._target[test],)
        fit_params = _check_method_params(self._data, params=self._fit_params, indices=train)
        score_params = _check_method_params(self._data, params=self._score_params, indices=test)
        scores = Parallel(n_jobs=self._n_jobs)(
            delayed(_fit_and_score)(
                self._model, self._scorer, take_columns(self._data, columns[place]),
                train, targets, fit_params, test, truths, score_params,
            )
            for place in new
        )  # fmt: skip
        found = dict(zip((keys[place] for place in new), scores, strict=True))
        if self._record is not None:
            known.update(found)
        return np.array([found[key] if key in found else known[key] for key in keys], dtype=np.float64)


def _fit_and_score(
    estimator: Any,
    scorer: Any,
    data: Any,
    train: NDArray[np.intp],
    targets: tuple[Any, ...],
    fit_params: Mapping[str, Any],
    test: NDArray[np.intp],
    truths: tuple[Any, ...],
    score_params: Mapping[str, Any],
) -> float:
    model = clone(estimator)
    model.fit(take_rows(data, train), *targets, **fit_params)
    return float(scorer(model, take_rows(data, test), *truths, **score_params))


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
