"""What the subsets that are as good as the best have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CoInclusion", "as_good_as_the_best", "check_limit", "co_inclusion"]


@dataclass(frozen=True)
class CoInclusion:
    """Which columns stand together, or for each other, among the subsets that are as good as the best.

    A column that is in all of them has no substitute. Two that are often in one, and in few together, stand for each
    other; two whose common share is that of each come as a pair.

    Arguments:
        columns: Indices of the columns that are in any of these subsets, the most frequent first, `(m)`, int64.
        names: Of these columns, `(m)`, strings.
        shares: Share of the subsets that hold both of two columns, on the diagonal of those that hold the one,
            `(m, m)`, float64.
        num_subsets: How many subsets are as good as the best.
    """

    columns: NDArray[np.int64]
    names: NDArray[np.object_]
    shares: NDArray[np.float64]
    num_subsets: int


def check_limit(max_columns: Any) -> None:
    """Refuse what is no number of columns.

    Raises:
        TypeError, ValueError: It is no integer, or less than 1.
    """
    if isinstance(max_columns, bool) or not isinstance(max_columns, int | np.integer):
        raise TypeError(f"max_columns: expected an integer, got {max_columns!r}")
    if max_columns < 1:
        raise ValueError(f"max_columns: expected 1 or more, got {max_columns}")


def as_good_as_the_best(
    results: Mapping[str, NDArray[Any]], size: int, support: NDArray[np.bool_]
) -> list[NDArray[np.int64]]:
    """Columns of the subsets that were scored on all folds and are at most a standard error below the best of these.

    The subset that is kept is one of them however it was scored, and stands alone where a search was ended before any
    was scored on all folds.

    Arguments:
        results: `cv_results_` of a selector.
        size: Of the subsets.
        support: The columns that are kept, `(n)`.
    """
    rows = np.flatnonzero(results["n_features_to_select"] == size)
    scores = np.stack([results[name][rows] for name in results if name.startswith("split")], 1)
    whole = np.isfinite(scores).all(1)
    rows, scores = rows[whole], scores[whole]
    kept = np.flatnonzero(support)
    if not len(rows):
        return [kept]
    mean, best = scores.mean(1), scores[scores.mean(1).argmax()]
    error = best.std(ddof=1) / len(best) ** 0.5 if len(best) > 1 else 0.0
    good = list(results["columns"][rows[mean >= best.mean() - error]])
    return good if any(np.array_equal(columns, kept) for columns in good) else [*good, kept]


def co_inclusion(subsets: Sequence[NDArray[np.int64]], names: NDArray[np.object_], max_columns: int) -> CoInclusion:
    """Count which columns are together; of n columns only those that occur are ever in a matrix.

    Arguments:
        subsets: The columns of each, one subset at least.
        names: Of all columns, `(n)`.
        max_columns: Columns to hold, at most; of those as frequent the first.
    """
    columns = np.concatenate(subsets)
    owners = np.repeat(np.arange(len(subsets)), [len(subset) for subset in subsets])
    occurring, places, counts = np.unique(columns, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:max_columns]
    rank = np.full(len(occurring), -1)
    rank[order] = np.arange(len(order))
    held = rank[places] >= 0
    members = np.zeros((len(subsets), len(order)))
    members[owners[held], rank[places][held]] = 1.0
    found = occurring[order]
    return CoInclusion(found, names[found], members.T @ members / len(subsets), len(subsets))
