"""Scores that a search had no part in, and scores of searches where there is nothing to find.

The best of thousands of cross-validated scores is the luckiest, and says more than the columns hold: the fewer rows
and the more columns, the more. Two ways tell what is there.

**Nested cross-validation**: the whole search is done again without the rows of an outer split, and what it finds is
scored on these. That estimates the score of the procedure on new rows. Where sizes compete, the size of a split is
chosen by the others, so that its score has no part in the choice.

**Permutation**: the same search with shuffled targets, where columns say nothing; weights, and all else that has a
value for each row, go with the targets. The share of such searches whose best score is as good, this one included, is a
p-value that is exact for exchangeable rows, however the search works. Of rows in the order of time neighbours may be
alike, and what follows another slowly moving thing looks like it; so the targets are moved along, and keep their order.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit

from ksubset.selection._sklearn import check_method_params
from ksubset.selection.wrapper.problem import Found, Problem
from ksubset.selection.wrapper.results import NoScoreError

__all__ = ["crossfitted_score", "null_searches", "outer_searches", "shuffled", "smallest_within_one_standard_error"]


def outer_searches(
    problem: Problem, splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]
) -> Iterator[tuple[Found, NDArray[np.float64]]]:
    """Search on the training rows of each split, and score on its test rows what each size has found.

    A callback or an interrupt ends it with the splits before. Where a search finds no score that is finite, which a
    warning says, its split has none, or none of that size.

    Arguments:
        problem: All rows.
        splits: Training rows and test rows of each.

    Yields:
        What was found, and scores `(S)` of the sizes.
    """
    for number, (train, test) in enumerate(splits, start=1):
        with _until_interrupted():
            found = _search(problem.of_rows(train), f"outer split {number} of {len(splits)}")
            if found is None:
                yield Found([], False, 0, [], problem.seed[1]), np.full(len(problem.sizes), np.nan)
                continue
            if not found.ended:
                scores = np.full(len(problem.sizes), np.nan)
                places = [problem.sizes.index(result.size) for result in found.results]
                kept = [np.flatnonzero(result.support) for result in found.results]
                scores[places] = problem.held_out_scores(kept, train, test)
                yield found, scores
                continue
        return


def smallest_within_one_standard_error(scores: NDArray[np.float64]) -> int | None:
    """The first size whose mean is at most a standard error of the best below it; None if no mean is finite.

    Arguments:
        scores: Of sizes, ascending, on outer splits, `(S, O)`.
    """
    scores = _of_defined_splits(scores)
    # A model that fails on an outer split is no candidate.
    finite = np.isfinite(scores).all(1)
    if not scores.size or not finite.any():
        return None
    mean = np.where(finite, scores.mean(1), -np.inf)
    best = int(mean.argmax())
    error = scores[best].std(ddof=1) / scores.shape[1] ** 0.5 if scores.shape[1] > 1 else 0.0
    return int(np.flatnonzero(mean >= mean[best] - error)[0])


def crossfitted_score(scores: NDArray[np.float64]) -> float:
    """The mean over splits of the score of the size that the other splits choose; NaN if they cannot choose.

    Splits without a score of any size, as one class alone has no ROC AUC, are left out, which a warning says.

    Arguments:
        scores: Of sizes, ascending, on outer splits, `(S, O)`.
    """
    defined = _of_defined_splits(scores)
    num_splits = defined.shape[1]
    if num_splits < scores.shape[1]:
        warnings.warn(
            f"score_ leaves out {scores.shape[1] - num_splits} of {scores.shape[1]} outer splits, which have no score",
            stacklevel=3,
        )
    if num_splits < 2:
        return float("nan")
    chosen = [smallest_within_one_standard_error(np.delete(defined, split, 1)) for split in range(num_splits)]
    return float(np.mean([np.nan if size is None else defined[size, split] for split, size in enumerate(chosen)]))


def _of_defined_splits(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scores `(S, O)` without the splits that have none of any size."""
    return scores[:, ~np.isnan(scores).all(0)]


def _search(problem: Problem, part: str) -> Found | None:
    try:
        return problem.search(part)
    except NoScoreError as error:
        warnings.warn(f"{part} is left out: {error}", stacklevel=5)
        return None


def null_searches(problem: Problem, count: int, seed: int) -> Iterator[Found]:
    """Search with shuffled targets, again and again, until a callback or an interrupt ends it.

    A search that finds no score that is finite is left out, which a warning says.

    Arguments:
        problem: With the targets to shuffle.
        count: How often.
        seed: Of the shuffling.
    """
    groups = problem.split_params.get("groups")
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        assert problem.target is not None
        if isinstance(problem.splitter, TimeSeriesSplit):
            order = np.roll(np.arange(len(problem.target)), rng.integers(len(problem.target)))
        else:
            order = shuffled(problem.target, None if groups is None else np.asarray(groups), rng)
        # Weights may depend on the targets, as those that balance classes do.
        fit_params, score_params = (
            check_method_params(problem.data, params=params, indices=order)
            for params in (problem.fit_params, problem.score_params)
        )
        other = replace(problem, target=problem.target[order], fit_params=fit_params, score_params=score_params)
        with _until_interrupted():
            found = _search(other, f"permutation {number + 1} of {count}")
            if found is None:
                continue
            if not found.ended:
                yield found
                continue
        return


def shuffled(target: NDArray[Any], groups: NDArray[Any] | None, rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows `(N)` whose targets come in place of those of the first, the second, and so on.

    Rows of one group may be alike, and so are not exchanged one by one with those of others: targets that are the same
    within a group go to another such group as a whole; those that are not, to a group of the same size, or to the same
    one, in any order.

    Arguments:
        target: `(N)` or `(N, m)`.
        groups: Of each row, `(N)`, if there are any.
        rng: Of the shuffling.
    """
    if groups is None:
        return rng.permutation(len(target))
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(places, kind="stable"), sizes.cumsum()[:-1])
    # A class of groups that may be exchanged: 0 for those of one target, the size for others.
    kinds = np.array([0 if (target[members] == target[members[0]]).all() else len(members) for members in rows])
    order = np.empty(len(target), dtype=np.intp)
    for kind in np.unique(kinds):
        alike = np.flatnonzero(kinds == kind)
        for to, source in zip(alike, rng.permutation(alike), strict=True):
            order[rows[to]] = rows[source][0] if kind == 0 else rng.permutation(rows[source])
    return order


@contextmanager
def _until_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        warnings.warn("interrupted: what was found before is kept", stacklevel=4)
