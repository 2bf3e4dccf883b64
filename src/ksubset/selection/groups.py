"""Columns of data in any container, and the groups of them that a selector keeps or drops as one."""

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset._support.extras import require
from ksubset.selection._sklearn import check_feature_names_in, get_output_config, safe_indexing
from ksubset.selection.arguments import check_distinct, check_labels, listed, positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FeatureGroups", "SubsetSpace", "SupportMixin", "column_by_column", "first_alike", "is_constant", "is_dataframe",
    "take_columns", "take_rows",
]  # fmt: skip


def is_dataframe(data: Any) -> bool:
    """Whether data is a table with typed columns, of pandas, polars or another library, which models get as such."""
    return hasattr(data, "columns") and hasattr(data, "shape")


def column_by_column(data: Any) -> Any:
    """An array in Fortran order, from which columns are taken quickly; other containers as they are."""
    if not isinstance(data, np.ndarray) or data.flags.f_contiguous:
        return data
    result = np.empty_like(data, order="F", subok=False)
    # A few rows at a time stay in the cache, which is ten times as fast as all at once.
    for start in range(0, len(data), 1024):
        result[start : start + 1024] = data[start : start + 1024]
    return result


def take_columns(data: Any, columns: NDArray[np.int64]) -> Any:
    """Columns of an array, sparse matrix or DataFrame, as the same container; sparse ones in rows, as models want them.

    Shapes:
        data `(N, n)`, columns `(k)` -> `(N, k)`.
    """
    # scikit-learn looks for many kinds of tables first, which takes longer than to index an array.
    taken = data[:, columns] if isinstance(data, np.ndarray) else safe_indexing(data, columns, axis=1)
    return taken.tocsr() if hasattr(taken, "tocsr") else taken


def take_rows(data: Any, rows: NDArray[np.intp]) -> Any:
    """Rows of an array, sparse matrix or DataFrame, as the same container.

    Shapes:
        data `(N, k)`, rows `(M)` -> `(M, k)`.
    """
    return data[rows] if isinstance(data, np.ndarray) else safe_indexing(data, rows)


def is_constant(data: Any) -> NDArray[np.bool_]:
    """Which columns have one value in all rows; data `(N, n)` -> `(n)`."""
    if is_dataframe(data):
        columns = (safe_indexing(data, column, axis=1) for column in range(data.shape[1]))
        return np.array([len(column.unique()) <= 1 for column in columns], dtype=bool)
    if hasattr(data, "tocsc"):
        low, high = data.min(axis=0), data.max(axis=0)
        return np.asarray(low.toarray() == high.toarray()).ravel()
    # What is missing is the same value everywhere, and not equal to itself.
    first = data[:1]
    missing = np.not_equal(data, data) & np.not_equal(first, first)
    same: NDArray[np.bool_] = np.all((data == first) | missing, axis=0)
    return same


def first_alike(data: Any) -> NDArray[np.int64]:
    """The first column with the same values, in all rows, as each; data `(N, n)` -> `(n)`."""
    first: dict[bytes, int] = {}
    digests = (hashlib.blake2b(content).digest() for content in _contents(data))
    return np.array([first.setdefault(digest, column) for column, digest in enumerate(digests)], dtype=np.int64)


def _contents(data: Any) -> Iterator[bytes]:
    """What is in each column, and its type; the same bytes mean the same values."""
    if hasattr(data, "tocsc"):
        data = data.tocsc(copy=True)
        data.sum_duplicates()
        data.eliminate_zeros()
        for start, end in pairwise(data.indptr.tolist()):
            yield data.indices[start:end].tobytes() + data.data[start:end].tobytes()
        return
    data = column_by_column(data)
    for column in range(data.shape[1]):
        values = np.asarray(safe_indexing(data, column, axis=1))
        if values.dtype.kind == "O":
            # Equal objects that are not the same one may pass for different ones, which at worst keeps a copy.
            yield pickle.dumps(values.tolist())
        else:
            yield values.dtype.str.encode() + values.tobytes()


class SupportMixin(SelectorMixin):  # type: ignore[misc]
    """A selector whose `support_` says which columns it keeps, `(n)`, boolean.

    It has `feature_groups`, `always_include` and `exclude`, as of `FeatureGroups`; `inclusion_probabilities_`,
    `co_inclusion` and `_first_panel`, which gives the panel of a figure, or None.
    """

    def transform(self, X: Any) -> Any:
        """The columns that are kept; a DataFrame of the library that `set_output` names keeps the types of its columns.

        Arguments:
            X: Data `(N, n)`.
        """
        if not is_dataframe(X):
            return super().transform(X)
        check_is_fitted(self)
        data = validate_data(self, X, reset=False, skip_check_array=True)
        kept = take_columns(data, np.flatnonzero(self.support_))
        if type(X).__module__.partition(".")[0] == get_output_config("transform", estimator=self)["dense"]:
            return kept
        # A pipeline that fills in what is missing may say of itself that it takes nothing missing.
        return check_array(kept, dtype=None, ensure_all_finite=False)

    def plot(self, *, max_columns: int = 20) -> "Figure":
        """Draw what was found: scores or losses, inclusion probabilities, and `co_inclusion`.

        The first panel of a `KSubsetSelector` is the score of each size, with error bars of one standard error, and is
        left out if there is one size. That of a `NeuralSubsetSelector` is the loss over the steps: losses before and
        after the columns were chosen differ in kind, as at first the network sees more columns than k, then various
        subsets, and at last, from the dashed line on, those alone that are kept. What is kept is orange in all panels.
        The figure is none of pyplot's: a notebook shows it where it is the value of a cell, `figure.savefig` writes it
        to a file, and nothing has to be closed.

        Arguments:
            max_columns: Columns in a panel at most: the likeliest, and those of `co_inclusion`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: matplotlib is missing.
            TypeError, ValueError: `max_columns` is no integer, or less than 1.
            sklearn.exceptions.NotFittedError: There has been no fit.
        """
        together = self.co_inclusion(max_columns=max_columns)
        plotting = require("ksubset.selection.plotting", "selection")
        own, names = self._first_panel(plotting), check_feature_names_in(self)
        figure: Figure = plotting.draw(own, self.support_, self.inclusion_probabilities_, names, together, max_columns)
        return figure

    def _check_labels(self, data: Any) -> None:
        check_distinct(data)
        check_labels(data, feature_groups=self.feature_groups, always_include=self.always_include, exclude=self.exclude)

    def _feature_groups(self, data: Any) -> "FeatureGroups":
        """The groups of the columns of data, as the arguments of the selector have them."""
        names = getattr(self, "feature_names_in_", None)
        return FeatureGroups(
            is_constant(data), first_alike(data), names, self.feature_groups, self.always_include, self.exclude
        )

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        support: NDArray[np.bool_] = self.support_
        return support


@dataclass(frozen=True)
class SubsetSpace:
    """The subsets of one size; each is given by indices of `free`.

    Arguments:
        members: Columns of each group.
        always: Groups that are always kept.
        free: Groups that may be kept.
        total: Groups to keep, those always kept included.
        num_columns: Columns of the data, n.
    """

    members: Sequence[NDArray[np.int64]]
    always: NDArray[np.int64]
    free: NDArray[np.int64]
    total: int
    num_columns: int

    @property
    def size(self) -> int:
        """Free groups in a subset."""
        return self.total - len(self.always)

    def columns(self, subset: NDArray[np.int64]) -> NDArray[np.int64]:
        """The columns of a subset with those always kept, ascending."""
        groups = (*self.always.tolist(), *self.free[subset].tolist())
        return np.sort(np.concatenate([self.members[group] for group in groups]))

    def support(self, subset: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The columns of a subset with those always kept, `(n)`."""
        support = np.zeros(self.num_columns, dtype=bool)
        support[self.columns(subset)] = True
        return support

    def to_groups(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the columns `(n)` as values of the free groups: of a group the largest."""
        return np.array([values[self.members[group]].max() for group in self.free.tolist()])

    def group_index(self) -> NDArray[np.int64]:
        """Place of each column's group among the free ones, and next to them that of all always kept, and of no group.

        Behind values of the free groups, a 1 and a 0 are then those of the columns that are kept always, and never.

        Shapes:
            -> `(n)`.
        """
        free = len(self.free)
        index = np.full(self.num_columns, free + 1, dtype=np.int64)
        for group in self.always.tolist():
            index[self.members[group]] = free
        for place, group in enumerate(self.free.tolist()):
            index[self.members[group]] = place
        return index

    def to_columns(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the free groups as values of the columns, `(n)`: 1 where always kept, 0 where never."""
        columns: NDArray[np.float64] = np.append(values, [1.0, 0.0])[self.group_index()]
        return columns


class FeatureGroups:
    """What k counts: columns, or groups of columns that are kept or dropped together.

    Arguments:
        constant: Which of the columns have one value in all rows, `(n)`.
        alike: Of each the first column with the same values, `(n)`.
        names: Their names, if all have one.
        groups: Columns of each group, by name or index; each other column is a group.
        always: Columns whose groups are always kept.
        never: Columns whose groups never are.

    Raises:
        TypeError: A column is neither a name nor an index.
        ValueError: A column is unknown, in two groups or twice in one, or both always kept and never; a group is empty.
    """

    def __init__(
        self,
        constant: NDArray[np.bool_],
        alike: NDArray[np.int64],
        names: Sequence[str] | None,
        groups: Sequence[Sequence[str | int]] | None,
        always: Sequence[str | int] | None,
        never: Sequence[str | int] | None,
    ) -> None:
        places = {name: place for place, name in enumerate(names)} if names is not None else {}
        self._num_columns = len(constant)
        owner = np.full(len(constant), -1)
        self._members: list[NDArray[np.int64]] = []
        for number, group in enumerate(listed(groups, "feature_groups")):
            argument = f"feature_groups[{number}]"
            columns = positions(group, argument, places, len(constant))
            if not len(columns) or len(set(columns.tolist())) < len(columns) or (owner[columns] >= 0).any():
                raise ValueError(f"{argument}: expected columns that are in no other group, each once, got {group!r}")
            owner[columns] = number
            self._members.append(np.sort(columns))
        single = np.flatnonzero(owner < 0)
        owner[single] = len(self._members) + np.arange(len(single))
        self._members += list(single[:, None])
        self.always: NDArray[np.int64] = np.unique(owner[positions(always, "always_include", places, len(constant))])
        """Groups that are always kept."""
        excluded = np.unique(owner[positions(never, "exclude", places, len(constant))])
        if len(both := np.intersect1d(self.always, excluded)):
            columns = self._members[both[0]]
            raise ValueError(
                f"exclude: expected no columns of always_include or of their groups, got columns {columns.tolist()}"
            )
        self.free: NDArray[np.int64] = np.setdiff1d(np.arange(len(self)), np.union1d(self.always, excluded))
        """Groups that may be kept or not."""
        taken = {alike[column] for group in self.always.tolist() for column in self._members[group].tolist()}
        useful = []
        for group in self.free.tolist():
            columns = self._members[group]
            kinds = set(alike[columns[~constant[columns]]].tolist())
            if not kinds <= taken:
                useful.append(group)
                taken |= kinds
        self._useful = np.array(useful, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def always_kept(self) -> NDArray[np.int64]:
        """Columns that are in every subset, ascending."""
        return self._columns(self.always)

    def candidates(self, total: int) -> NDArray[np.int64]:
        """Columns that are in some subset of so many groups, ascending."""
        return self._columns(np.union1d(self.always, self._choices(total)))

    @property
    def least(self) -> int:
        """Groups in the smallest subset."""
        return max(1, len(self.always))

    @property
    def most(self) -> int:
        """Groups in the largest."""
        return len(self.always) + len(self.free)

    def check_sizes(self, sizes: Sequence[int], wanted: Any) -> None:
        """Check that there are subsets of these sizes; else a ValueError with what was wanted."""
        if not self.least <= min(sizes) <= max(sizes) <= self.most:
            raise ValueError(
                f"n_features_to_select: expected {self.least} to {self.most}, as there are {len(self)} columns or "
                f"groups, {len(self.always)} always kept and {len(self) - self.most} excluded, got {wanted!r}"
            )

    def space(self, total: int) -> SubsetSpace:
        """Subsets of so many groups; none that is constant, or says what others do, is free if others are enough."""
        return SubsetSpace(self._members, self.always, self._choices(total), total, self._num_columns)

    def _choices(self, total: int) -> NDArray[np.int64]:
        return self._useful if len(self.always) + len(self._useful) >= total else self.free

    def _columns(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        members = [self._members[group] for group in groups.tolist()]
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *members]))
