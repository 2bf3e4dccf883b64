"""Selecting columns of a table for a model, and what that is worth on rows that had no part in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    train_test_split,
)
from threadpoolctl import threadpool_limits

from ksubset.selection._sklearn import scores_numbers
from ksubset.selection.stability import Stability, stability
from ksubset.selection.tabular import chance
from ksubset.selection.tabular.types import Table, check_names
from ksubset.selection.wrapper.results import Progress
from ksubset.selection.wrapper.selector import KSubsetSelector

__all__ = ["Selection", "select"]

_DRAWS = 10


@dataclass(frozen=True)
class Selection:
    """The columns that were found, and scores on rows that had no part in finding them.

    Arguments:
        selector: Fitted to the other rows.
        num_test: Rows for the scores below; each model is fitted to all others.
        everything: Score with all columns.
        kept: Score with those that are kept.
        nothing: Score of the most frequent class, or of the mean.
        p_value: Of the kept columns' predictions having nothing to do with the truth.
        random: Scores with as many random ones, of which those always kept are part, a draw each; none if there is
            nothing to draw.
        stability: Of the choice on halves of the other rows, if that was asked for.
    """

    selector: KSubsetSelector
    num_test: int
    everything: float
    kept: float
    nothing: float
    p_value: float
    random: list[float]
    stability: Stability | None

    def columns(self, *, kept: bool) -> dict[str, float]:
        """Columns that are kept, or that are not, with their inclusion probabilities, descending."""
        probabilities, names = self.selector.inclusion_probabilities_, self.selector.feature_names_in_
        order = np.argsort(-probabilities, kind="stable")
        return {names[place]: float(probabilities[place]) for place in order if self.selector.support_[place] == kept}


def select(
    table: Table,
    estimator: Any,
    k: Sequence[int] | str,
    *,
    scoring: str | None = None,
    cv: int = 5,
    max_evaluations: int | None = None,
    jobs: int = 1,
    seed: int = 0,
    always_include: Sequence[str] = (),
    test_share: float = 0.2,
    permutations: int = 0,
    stability_parts: int = 0,
    checkpoint: Path | None = None,
    callback: Callable[[Progress], Any] | None = None,
) -> Selection:
    """Hold rows out, find the best columns on the others, and compare them with all and with random ones.

    Arguments:
        table: Features and target.
        estimator: As of `make_model`.
        k: Columns to keep; of several, or "auto", as the selector has it.
        scoring: Name of a scorer; None is the estimator's own score. Of two classes the last one is the positive one.
        cv: Folds of the cross-validation, shuffled: of whole groups where the table has some; not shuffled, and each
            after the rows that it is predicted from, where these are in the order of time. So are the rows held out:
            whole groups, or the last.
        max_evaluations: Most model fits, for each size.
        jobs: Fits at a time, each on one thread.
        seed: Of the rows held out, the search, and the random columns.
        always_include: Columns that are kept in any case.
        test_share: Fraction of the rows to hold out.
        permutations: Searches with shuffled targets, for a p-value; in the order of time these are moved along.
        stability_parts: Halves of the rows to choose columns on again; 0 or two at least.
        checkpoint: File of the scores, from which the same search resumes.
        callback: Called with the progress after each batch.

    Raises:
        ValueError: An argument is out of range, or there are too few rows, in all or of a class.
    """
    check_names(always_include, table.features.columns, "always_include")
    always, everything = sorted(set(always_include)), np.arange(table.features.shape[1])
    least, most = max(1, len(always)), len(everything)
    if not isinstance(k, str) and not (k and least <= min(k) <= max(k) <= most):
        raise ValueError(f"k: expected {least} to {most}, the number of columns, got {', '.join(map(str, k))}")
    if scoring is not None and scoring not in get_scorer_names():
        raise ValueError(f"scoring: expected a scorer of scikit-learn, such as 'roc_auc' or 'r2', got {scoring!r}")
    if scoring is not None and scores_numbers(scoring) != (table.classes is None):
        wanted = "numbers, such as 'r2'" if table.classes is None else "classes, such as 'roc_auc'"
        raise ValueError(
            f"scoring: expected a scorer of {wanted}, as the target has (task says which), got {scoring!r}"
        )
    if jobs == 0 or jobs < -1:
        raise ValueError(f"jobs: expected 1 or more, or -1 for as many as there are cores, got {jobs}")
    search, test = _split(table, cv, test_share, seed)
    selector = KSubsetSelector(
        estimator, n_features_to_select=k if isinstance(k, str) else list(k), scoring=scoring,
        cv=_folds(table, cv, seed), max_evaluations=max_evaluations, n_jobs=jobs, random_state=seed,
        callbacks=callback, always_include=always, checkpoint=checkpoint, n_permutations=permutations,
    )  # fmt: skip
    params = {} if table.groups is None else {"groups": table.groups[search]}
    scorer = get_scorer(scoring or table.scoring)

    def score(columns: NDArray[Any], model: Any = estimator) -> float:
        features = table.features.iloc[:, columns]
        fitted = clone(model).fit(features.iloc[search], table.target[search])
        return float(scorer(fitted, features.iloc[test], table.target[test]))

    # Small fits on several threads take up to ten times as long as on one.
    with threadpool_limits(1), joblib.parallel_config("loky", inner_max_num_threads=1):
        selector.fit(table.features.iloc[search], table.target[search], **params)
        again = None
        if stability_parts:
            told = None if callback is None else lambda progress: callback(replace(progress, part="half of the rows"))
            halved = clone(selector).set_params(
                n_features_to_select=selector.n_features_, n_permutations=0, callbacks=told
            )
            again = stability(
                halved, table.features.iloc[search], table.target[search], num_parts=stability_parts,
                random_state=seed, groups=params.get("groups"),
            )  # fmt: skip
        fixed = table.features.columns.get_indexer(always)
        free, rng = np.setdiff1d(everything, fixed), np.random.default_rng(seed)
        count = selector.n_features_ - len(fixed)
        draws = _DRAWS if 0 < count < len(free) else 0
        random = [np.sort(np.append(fixed, rng.choice(free, count, replace=False))) for _ in range(draws)]
        kept = np.flatnonzero(selector.support_)
        return Selection(
            selector, len(test), everything=score(everything), kept=score(kept),
            nothing=score(kept, chance.baseline(table)),
            p_value=chance.p_value(table, scorer, selector.estimator_, test, kept, seed),
            random=list(map(score, random)), stability=again,
        )  # fmt: skip


def _split(table: Table, folds: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to search with and rows to hold out; of each class as many as it has, in proportion."""
    if not 0 < share < 1:
        raise ValueError(f"test_share: expected a number above 0 and below 1, got {share}")
    rows, held = np.arange(len(table.target)), round(share * len(table.target))
    if table.groups is not None:
        return _split_groups(table, folds, share, seed)
    if held < max(2, len(table.classes or ())) or held >= len(rows):
        what = "two rows" if table.classes is None else "as many rows as there are classes"
        raise ValueError(f"test_share: expected a fraction that holds out {what}, got {share} of {len(rows)} rows")
    if table.ordered:
        search, test = rows[:-held], rows[-held:]
        if len(search) < 2 * (folds + 1):
            raise ValueError(f"cv: expected two rows in each of {folds + 1} parts, got {len(search)} rows")
        return search, test
    if table.classes is None:
        search, test = train_test_split(rows, test_size=held, random_state=seed)
        if len(search) < 2 * folds:
            raise ValueError(f"cv: expected two rows in each fold, got {folds} folds of {len(search)} rows")
        return search, test
    total = np.bincount(table.target)
    _check_classes(total, 2, table.classes, folds)
    search, test = train_test_split(rows, test_size=held, random_state=seed, stratify=table.target)
    _check_classes(np.bincount(table.target[search], minlength=len(total)), folds, table.classes, folds)
    return search, test


def _split_groups(table: Table, folds: int, share: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of some groups, and those of the others: of all splits into equal parts the first one of a shuffle."""
    assert table.groups is not None
    parts, count = max(2, round(1 / share)), len(np.unique(table.groups))
    if count < folds + parts:
        raise ValueError(
            f"groups: expected {folds + parts} or more, for {folds} folds and the rows held out, got {count}"
        )
    splitter = _grouped(table, parts, shuffle=True, seed=seed)
    search, test = next(splitter.split(table.features, table.target, table.groups))
    return search, test


def _grouped(table: Table, parts: int, *, shuffle: bool, seed: int | None) -> Any:
    kind = GroupKFold if table.classes is None else StratifiedGroupKFold
    return kind(parts, shuffle=shuffle, random_state=seed)


def _folds(table: Table, cv: int, seed: int) -> Any:
    """What the selector is given as `cv`."""
    if table.ordered:
        return TimeSeriesSplit(cv)
    if table.groups is None:
        return (KFold if table.classes is None else StratifiedKFold)(cv, shuffle=True, random_state=seed)
    return _grouped(table, cv, shuffle=False, seed=None)


def _check_classes(counts: NDArray[np.intp], needed: int, classes: list[str], folds: int) -> None:
    if counts.min() < needed:
        rare = int(counts.argmin())
        raise ValueError(
            f"cv: expected at most as many folds as there are rows of each class to search with, got {folds}, "
            f"and {counts[rare]} of class {classes[rare]!r}"
        )
