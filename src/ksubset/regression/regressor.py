"""Least squares on exactly k columns, for scikit-learn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset.regression.base import BestSubset, units
from ksubset.regression.heuristic import Solution, search
from ksubset.regression.moments import Fit, Moments
from ksubset.regression.sizes import penalty
from ksubset.search.arguments import check_integer, check_nonnegative
from ksubset.selection.arguments import check_distinct, check_labels, seed_of

__all__ = ["BestSubsetRegressor"]

Array = NDArray[np.float64]
Columns = NDArray[np.int64]


@dataclass(frozen=True)
class _Point:
    """The best subset of one size."""

    columns: Columns
    fit: Fit
    optimal: bool


class BestSubsetRegressor(RegressorMixin, BestSubset):  # type: ignore[misc]
    """Least squares on the best k columns, exactly k of them.

    All subsets are scored from one Gram matrix, and all swaps of a subset at once. Where there are 200,000 subsets or
    fewer, all are enumerated; otherwise descents over swaps from several starts find one, and branch and bound tries to
    prove it, which needs more rows than columns. Memory grows with the square of the number of columns.

    Arguments:
        k: Columns to keep, those of `always_include` among them; several sizes, of which `criterion` chooses one; or
            "auto": all up to N / (log n log log N).
        criterion: "gic", that of Zhu et al. (2020); "aic"; "bic"; "ebic", with gamma = 1; or "cv", the mean squared
            error of cross-validation. Sizes that leave no degree of freedom have an infinite information criterion.
        cv: For "cv", the number of folds, a splitter or an iterable of splits.
        fit_intercept: Whether there is an intercept.
        alpha: Ridge penalty on squared coefficients of standardised columns, so that the columns' units do not
            matter: the sum of squared residuals and alpha times that of the coefficients.
        always_include: Columns, by name or index, that are kept.
        exclude: Columns, by name or index, that are not.
        n_starts: Random starts for each size at most.
        max_nodes: Nodes of branch and bound for each size; None are as many as take about a second, 0 none.
        random_state: Seed of the random starts.

    Attributes:
        support_: `(n)`, boolean, the columns that are kept.
        coef_: `(n)`, zero outside of them.
        intercept_: The intercept.
        rss_: Weighted residual sum of squares.
        optimal_: Whether it is proved that no other columns of this number fit better, by more than a billionth of the
            objective. Where rounding of the data decides which are best, as where several fit exactly, nothing is.
        n_features_: Columns that are kept.
        n_features_in_, feature_names_in_: Of the data.
        path_: Of every size, as arrays: `k`, `support` `(m, n)`, `rss`, `optimal`, and `criterion`, if there are
            several. An interrupt by the keyboard leaves out the sizes that are not finished, with a warning.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range; the message names them.

    References:
        Bertsimas, King and Mazumder (2016), https://doi.org/10.1214/15-AOS1388.
        Zhu, Wen, Zhu, Zhang and Wang (2020), https://doi.org/10.1073/pnas.2014241117.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((100, 30))
        >>> y = X[:, 3] - X[:, 7] + rng.standard_normal(100)
        >>> model = BestSubsetRegressor().fit(X, y)
        >>> model.get_support(indices=True).tolist(), model.optimal_
        ([3, 7], True)
    """

    def __init__(
        self,
        k: int | str | Sequence[int] = "auto",
        *,
        criterion: str = "gic",
        cv: Any = 5,
        fit_intercept: bool = True,
        alpha: float = 0.0,
        always_include: Sequence[str | int] | None = None,
        exclude: Sequence[str | int] | None = None,
        n_starts: int = 32,
        max_nodes: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.k, self.criterion, self.cv, self.fit_intercept, self.alpha = k, criterion, cv, fit_intercept, alpha
        self.always_include, self.exclude = always_include, exclude
        self.n_starts, self.max_nodes, self.random_state = n_starts, max_nodes, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BestSubsetRegressor":
        """Find the columns, and their coefficients.

        Arguments:
            X: Data `(N, n)`.
            y: Target `(N)`.
            sample_weight: Weights of the rows, `(N)`; integers mean repeated rows. Their sum is the number of rows that
                `criterion` and "auto" go by.

        Raises:
            ValueError: An argument is wrong, or no size leaves a degree of freedom to compare sizes by.
        """
        check_distinct(X)
        check_labels(X, always_include=self.always_include, exclude=self.exclude)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = y.astype(np.float64)
        check_nonnegative("alpha", self.alpha)
        if self.max_nodes is not None:
            check_integer("max_nodes", self.max_nodes, 0)
        weights, sizes, always, exclude = self._checked(X, sample_weight)
        unit = units(y[weights > 0])
        in_units = y / unit
        points = self._path(X, in_units, weights, sizes, always, exclude)
        sizes = [len(point.columns) for point in points]
        if len(sizes) == 1:
            scores = None
        elif self.criterion == "cv":
            folds = check_cv(self.cv).split(X, y)
            scores = self._cross_validated(X, in_units, weights, sizes, always, exclude, folds)
        else:
            scores = self._information(in_units, weights, points, X.shape[1] - len(exclude))
            if not np.isfinite(scores).any():
                raise ValueError(
                    f"k: expected sizes that leave a degree of freedom for {self.criterion}, got {sizes} for rows of "
                    f"a total weight of {weights.sum():g} (a sample_weight counts repeated rows)"
                )
        best = points[0 if scores is None else int(np.argmin(scores))]
        self.support_ = self._mask(best.columns)
        self.coef_ = np.zeros(X.shape[1])
        self.coef_[best.columns] = best.fit.coefficients * unit
        self.intercept_, self.rss_ = float(best.fit.intercept * unit), float(best.fit.rss * unit * unit)
        self.optimal_ = best.optimal
        self.n_features_ = len(best.columns)
        self.path_ = {
            "k": np.array(sizes),
            "support": np.array([self._mask(point.columns) for point in points]),
            "rss": np.array([point.fit.rss for point in points]) * unit * unit,
            "optimal": np.array([point.optimal for point in points]),
        }
        if scores is not None:
            self.path_["criterion"] = (
                scores * unit * unit if self.criterion == "cv" else scores + 2 * weights.sum() * np.log(unit)
            )
        return self

    def predict(self, X: Any) -> Array:
        """Predictions `(N)` for data `(N, n)` with all columns."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        predicted: Array = X[:, self.support_] @ self.coef_[self.support_] + self.intercept_
        return predicted

    def _path(
        self, x: Array, y: Array, weights: Array, sizes: Sequence[int], always: Columns, exclude: Columns
    ) -> list[_Point]:
        moments = Moments(
            x, y, weights, intercept=self.fit_intercept, alpha=self.alpha, always=always, exclude=exclude
        )  # fmt: skip
        solutions: list[Solution] = search(
            moments.quadratic, [size - len(always) for size in sizes],
            starts=self.n_starts, max_nodes=self.max_nodes, generator=np.random.default_rng(seed_of(self.random_state)),
        )  # fmt: skip
        columns = [moments.columns(solution.subset) for solution in solutions]
        return [
            _Point(chosen, moments.fit(chosen), solution.optimal)
            for chosen, solution in zip(columns, solutions, strict=True)
        ]

    def _information(self, y: Array, weights: Array, points: Sequence[_Point], num_columns: int) -> Array:
        num_rows = float(weights.sum())
        # A fit without any error has the criterion of one with rounding errors.
        least = max(np.finfo(float).eps ** 2 * float(weights @ np.square(y)), np.finfo(float).tiny)
        return np.array([
            num_rows * math.log(max(point.fit.rss, least) / num_rows)
            + penalty(self.criterion, len(point.columns), num_columns, num_rows)
            if len(point.columns) + self.fit_intercept < num_rows
            else math.inf
            for point in points
        ])  # fmt: skip

    def _cross_validated(
        self, x: Array, y: Array, weights: Array, sizes: Sequence[int], always: Columns, exclude: Columns,
        folds: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]],
    ) -> Array:  # fmt: skip
        errors, tested = np.zeros(len(sizes)), 0.0
        for train, test in folds:
            points = self._path(x[train], y[train], weights[train], sizes, always, exclude)
            if len(points) < len(sizes):
                raise KeyboardInterrupt
            tested += float(weights[test].sum())
            for number, point in enumerate(points):
                predicted = x[np.ix_(test, point.columns)] @ point.fit.coefficients + point.fit.intercept
                errors[number] += weights[test] @ np.square(y[test] - predicted)
        if not tested:
            raise ValueError("cv: expected a weight above 0 among the rows of the test sets, got none")
        mean: Array = errors / tested
        return mean
