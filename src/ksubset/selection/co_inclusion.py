"""Which columns the good subsets of a selector have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ksubset.numerics import inclusion_probabilities

__all__ = ["CoInclusion", "as_good_as_the_best", "co_inclusion", "joint_probabilities", "likeliest"]


@dataclass(frozen=True)
class CoInclusion:
    """Which columns occur together, or replace each other, in the subsets that a selector found good.

    Of a `KSubsetSelector` these are the subsets that are as good as the best, and each counts the same; of a
    `NeuralSubsetSelector` those of the learned distribution, and each counts as much as it is likely, so that shares
    are probabilities.

    A column that is in all of them has no substitute. Two that are in many of them, and in few together, replace each
    other; two whose common share is that of each come as a pair.

    Arguments:
        columns: Indices of the columns that are in any of these subsets, the most frequent first, `(m)`, int64.
        names: Of these columns, `(m)`, strings.
        shares: Fraction of the subsets that hold both of two columns, on the diagonal of those that hold the one,
            `(m, m)`, float64.
        num_subsets: How many subsets are as good as the best; None of a learned distribution, which has them all.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from ksubset.selection import KSubsetSelector
        >>> selector = KSubsetSelector(GaussianNB(), n_features_to_select=2, random_state=0)
        >>> found = selector.fit(*load_iris(return_X_y=True)).co_inclusion()
        >>> found.names.tolist()
        ['x3', 'x0', 'x2']
        >>> found.shares  # x3 is in both of the good subsets; x0 and x2 replace each other
        array([[1. , 0.5, 0.5],
               [0.5, 0.5, 0. ],
               [0.5, 0. , 0.5]])
    """

    columns: NDArray[np.int64]
    names: NDArray[np.object_]
    shares: NDArray[np.float64]
    num_subsets: int | None


def likeliest(probabilities: NDArray[np.float64], support: NDArray[np.bool_], max_columns: int) -> NDArray[np.int64]:
    """Columns of the largest inclusion probabilities, descending; of those as likely what is kept comes first.

    Arguments:
        probabilities: Of all columns, `(n)`.
        support: The columns that are kept, `(n)`.
        max_columns: Columns to return, at most.
    """
    return np.lexsort((~support, -probabilities))[:max_columns]


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
    holder = np.repeat(np.arange(len(subsets)), [len(subset) for subset in subsets])
    occurring, places, counts = np.unique(columns, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:max_columns]
    rank = np.full(len(occurring), -1)
    rank[order] = np.arange(len(order))
    held = rank[places] >= 0
    members = np.zeros((len(subsets), len(order)))
    members[holder[held], rank[places][held]] = 1.0
    found = occurring[order]
    return CoInclusion(found, names[found], members.T @ members / len(subsets), len(subsets))


def joint_probabilities(
    logits: Tensor, size: int, group_index: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.float64]:
    r"""Probability of each two of some columns to be in a subset together, on the diagonal of the one.

    Exact, as :math:`\pi_{il} = \pi_i \, \pi_{l \mid i}`: given that i is in the subset, the rest of it is a
    (k-1)-subset of the others. No matrix of all columns is made: it takes O(n) memory, and O(mn) time.

    Arguments:
        logits: Of the free groups, `(u)`, float64.
        size: Free groups in a subset, k.
        group_index: As `SubsetSpace.group_index`, `(n)`.
        columns: Some of positive probability, `(m)`.

    Returns:
        `(m, m)`, symmetric.
    """
    groups, places = np.unique(group_index[columns], return_inverse=True)
    single = _with_certain(logits, size)
    joint = np.empty((len(groups), len(groups)))
    for row, group in enumerate(groups.tolist()):
        given = single
        if group < len(logits):
            others = logits.clone()
            others[group] = -torch.inf
            given = _with_certain(others, size - 1)
            given[group] = 1.0
        joint[row] = single[group] * given[groups]
    # The two ways to a pair differ by rounding.
    symmetric = (joint + joint.T) / 2
    return symmetric[places[:, None], places]


def _with_certain(logits: Tensor, size: int) -> NDArray[np.float64]:
    """Inclusion probabilities of groups, and behind them those of what is always in, and never."""
    probabilities = inclusion_probabilities(logits, size).numpy() if len(logits) else np.empty(0)
    return np.append(probabilities, [1.0, 0.0])
