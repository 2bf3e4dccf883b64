"""Whether other rows would have chosen the same columns."""

import inspect
import math
import numbers
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils.parallel import Parallel, delayed

from ksubset._support.extras import require
from ksubset.search.arguments import check_integer
from ksubset.search.workers import streaming
from ksubset.selection._sklearn import check_feature_names_in, check_method_params, num_rows
from ksubset.selection.arguments import seed_of
from ksubset.selection.groups import take_rows
from ksubset.selection.wrapper.delegation import classifies
from ksubset.selection.wrapper.selector import KSubsetSelector

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Stability", "nogueira_index", "stability"]


@dataclass(frozen=True)
class Stability:
    """How often columns are chosen on parts of the rows, and how alike the choices are.

    Arguments:
        names: Of the columns, `(n)`, strings.
        supports: Columns of each choice, `(B, n)`, boolean.
        frequencies: Share of the choices that hold each column, `(n)`.
        index: Nogueira's index: 1 where all choices are the same, 0 on average where columns are chosen at random;
            below 0.4 is poor, above 0.75 excellent, by its authors.
        standard_error: Of the index.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from sklearn.feature_selection import SelectKBest
        >>> X, y = load_wine(return_X_y=True, as_frame=True)
        >>> found = stability(SelectKBest(k=3), X, y, num_parts=20, random_state=0)
        >>> found.names[found.frequencies > 0.5].tolist()
        ['flavanoids', 'od280/od315_of_diluted_wines', 'proline']
        >>> round(found.index, 2), [round(end, 2) for end in found.interval()]
        (0.88, [0.78, 0.98])
    """

    names: NDArray[np.object_]
    supports: NDArray[np.bool_]
    frequencies: NDArray[np.float64]
    index: float
    standard_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the index, normal, for parts of these rows.

        Raises:
            ValueError: The level is not above 0 and below 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level: expected a number above 0 and below 1, got {level}")
        half = float(norm.ppf((1 + level) / 2)) * self.standard_error
        return self.index - half, self.index + half

    def plot(self, *, max_columns: int = 20) -> "Figure":
        """Draw how often each column was chosen, the most frequent first.

        Arguments:
            max_columns: Columns at most.

        Raises:
            ImportError: matplotlib is missing.
            TypeError, ValueError: `max_columns` is no integer, or less than 1.
        """
        check_integer("max_columns", max_columns, 1)
        low, high = self.interval()
        title = f"stability {self.index:.2f} (95 %: {low:.2f} to {high:.2f})"
        plotting = require("ksubset.selection.plotting", "selection")
        figure: Figure = plotting.frequencies(self.frequencies, self.names, len(self.supports), title, max_columns)
        return figure


def stability(
    selector: Any,
    X: Any,
    y: Any = None,
    *,
    num_parts: int = 50,
    fraction: float = 0.5,
    groups: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    **params: Any,
) -> Stability:
    """Choose columns again and again, each time on another part of the rows.

    Parts are drawn without replacement, of classes in proportion: in a bootstrap sample copies of a row are on both
    sides of a fold, so that every score promises too much. With a `checkpoint` of a `KSubsetSelector` it goes on from
    where it was ended. Ctrl-C keeps what was chosen before, and warns.

    Arguments:
        selector: With `fit` and `get_support`, of this library or scikit-learn's; it is cloned.
        X: Data `(N, n)`.
        y: Targets `(N)` or `(N, m)`; None if the selector needs none.
        num_parts: How many parts, B, two at least.
        fraction: Of the rows in a part, above 0 and below 1; of `groups` of the groups.
        groups: Of each row, `(N)`, whose rows stay together; also an argument of the selector's `fit`, if it has one of
            this name or is a `KSubsetSelector`.
        n_jobs: Parts at a time, as joblib has it.
        random_state: Seed of the parts.
        params: More arguments of the selector's `fit`; what has a value for each row is cut to the rows of the part.

    Raises:
        TypeError, ValueError: An argument is of a wrong kind or out of range, or the selector keeps all columns, where
            there is nothing to choose, or cannot tell which.

    References:
        Nogueira, Sechidis and Brown (2018), On the stability of feature selection algorithms, Journal of Machine
        Learning Research 18(174), https://jmlr.org/papers/v18/17-514.html, for the index and its error.
        Meinshausen and Bühlmann (2010), Stability selection, Journal of the Royal Statistical Society B 72(4), for
        halves of the rows.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from sklearn.feature_selection import SelectKBest
        >>> found = stability(SelectKBest(k=3), *load_wine(return_X_y=True), num_parts=20, random_state=0)
        >>> found.frequencies.round(1).tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.1, 0.0, 0.8, 1.0]
    """
    if not hasattr(selector, "get_support"):
        raise TypeError(f"selector: expected fit and get_support, got {type(selector).__name__}")
    check_integer("num_parts", num_parts, 2)
    if not isinstance(fraction, numbers.Real) or not 0 < fraction < 1:
        raise ValueError(f"fraction: expected a number above 0 and below 1, got {fraction!r}")
    share = float(fraction)
    own = {**params, "groups": groups} if groups is not None and _takes_groups(selector) else params
    y = np.asarray(y) if y is not None and not hasattr(y, "iloc") else y
    seed = seed_of(random_state)
    splitter: Any
    if groups is not None:
        splitter = GroupShuffleSplit(num_parts, train_size=share, random_state=seed)
    elif classifies(getattr(selector, "estimator", selector)) and np.ndim(y) == 1:
        splitter = StratifiedShuffleSplit(num_parts, train_size=share, random_state=seed)
    else:
        splitter = ShuffleSplit(num_parts, train_size=share, random_state=seed)
    fitted = clone(selector)
    calls = (
        (fitted, take_rows(X, rows), None if y is None else take_rows(y, rows), check_method_params(X, own, rows))
        # In their order, which may be that of time.
        for rows in (np.sort(part) for part, _ in splitter.split(np.zeros(num_rows(X)), y, groups))
    )
    found = list(_until_interrupted(streaming(Parallel, n_jobs)(map(delayed(_chosen), calls))))
    if len(found) < 2:
        raise KeyboardInterrupt
    supports = np.stack([support for support, _ in found])
    index, error = nogueira_index(supports)
    return Stability(found[0][1], supports, supports.mean(0), index, error)


def _takes_groups(selector: Any) -> bool:
    """Whether `fit` has an argument of this name; that others take any (`**params`) does not tell."""
    return isinstance(selector, KSubsetSelector) or "groups" in inspect.signature(selector.fit).parameters


def _chosen(call: tuple[Any, ...]) -> tuple[NDArray[np.bool_], NDArray[np.object_]]:
    selector, data, target, params = call
    fitted = clone(selector).fit(data, *(() if target is None else (target,)), **params)
    return fitted.get_support(), check_feature_names_in(fitted)


def _until_interrupted(found: Any) -> Iterator[Any]:
    try:
        yield from found
    except KeyboardInterrupt:
        warnings.warn("interrupted: stability is of the parts before", stacklevel=3)


def nogueira_index(supports: NDArray[np.bool_]) -> tuple[float, float]:
    r"""Nogueira's index of stability, and its standard error.

    .. math::

        \hat\Phi = 1 - \frac{\frac{1}{n} \sum_i \frac{B}{B - 1} \hat p_i (1 - \hat p_i)}
        {\frac{\bar k}{n} \left(1 - \frac{\bar k}{n}\right)}

    Arguments:
        supports: Columns of each choice, `(B, n)`, boolean; B is two or more.

    Raises:
        ValueError: All choices hold all columns, or none.
    """
    chosen = supports.astype(np.float64)
    count, share = len(chosen), chosen.mean(0)
    mean = share.mean()
    if not 0 < mean < 1:
        raise ValueError(f"selector: expected one that keeps some of the columns, got {'all' if mean else 'none'} kept")
    scale = mean * (1 - mean)
    index = 1 - (count / (count - 1) * share * (1 - share)).mean() / scale
    sizes = chosen.mean(1)
    # Each choice's part in the index, whose spread is its error (theorem 7).
    parts = ((chosen * share).mean(1) - sizes * mean + index / 2 * (2 * mean * sizes - sizes - mean + 1)) / scale
    error = 2 / count * math.sqrt(((parts - parts.mean()) ** 2).sum())
    return float(index), error
