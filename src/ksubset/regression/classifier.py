"""Logistic regression on exactly k columns, for scikit-learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset.regression.base import BestSubset, units
from ksubset.regression.logistic import Logistic
from ksubset.regression.sizes import penalty
from ksubset.regression.swapping import search_logistic
from ksubset.search.arguments import check_positive
from ksubset.selection.arguments import check_distinct, check_labels, seed_of

__all__ = ["BestSubsetClassifier"]

Array = NDArray[np.float64]
Columns = NDArray[np.int64]
# A column that varies by less than this part of its size is constant.
_CONSTANT = 1e-13


@dataclass(frozen=True)
class _Point:
    """The best subset of one size: coefficients `(k, m)`, intercepts `(m)`, and the sum of log losses."""

    columns: Columns
    coefficients: Array
    intercepts: Array
    loss: float
    optimal: bool


class BestSubsetClassifier(ClassifierMixin, BestSubset):  # type: ignore[misc]
    """Logistic regression on the best k columns, exactly k of them.

    Where there are few subsets, all are fitted, many at once; otherwise descents make the best of the swaps that one
    Newton step finds promising, from several starts, and nothing is proved. For more than two classes the model is
    multinomial, and the k columns are the same for all classes.

    Arguments:
        k: Columns to keep, those of `always_include` among them; several sizes, of which `criterion` chooses one; or
            "auto": all up to N / (log n log log N).
        criterion: "gic", that of Zhu et al. (2020); "aic"; "bic"; "ebic", with gamma = 1; or "cv", the mean log loss of
            cross-validation.
        cv: For "cv", the number of folds, a splitter or an iterable of splits.
        fit_intercept: Whether there are intercepts.
        alpha: Ridge penalty on coefficients of standardised columns, so that the columns' units do not matter: half of
            alpha times the sum of their squares is added to the sum of log losses, as by C = 1 / alpha of
            scikit-learn's LogisticRegression. It is above 0, so that there is a finite fit, too, where columns separate
            the classes.
        always_include: Columns, by name or index, that are kept.
        exclude: Columns, by name or index, that are not.
        n_starts: Random starts for each size at most.
        random_state: Seed of the random starts.

    Attributes:
        classes_: Labels, `(C)`.
        support_: `(n)`, boolean, the columns that are kept.
        coef_: `(1, n)` for two classes, else `(C, n)`, zero outside of them.
        intercept_: `(1)` or `(C)`.
        loss_: Weighted sum of log losses, without the penalty.
        optimal_: Whether all subsets of this size were fitted, so that none is better.
        n_features_: Columns that are kept.
        n_features_in_, feature_names_in_: Of the data.
        path_: Of every size, as arrays: `k`, `support` `(m, n)`, `loss`, `optimal`, and `criterion`, if there are
            several. An interrupt by the keyboard leaves out the sizes that are not finished, with a warning.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range; the message names them.

    References:
        Bertsimas, Pauphilet and Van Parys (2021), https://doi.org/10.1007/s10994-021-06085-5.
        Zhu, Wen, Zhu, Zhang and Wang (2020), https://doi.org/10.1073/pnas.2014241117.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((200, 12))
        >>> y = np.where(X[:, 3] - X[:, 7] + 0.5 * rng.standard_normal(200) > 0, "yes", "no")
        >>> model = BestSubsetClassifier(2).fit(X, y)
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
        alpha: float = 1e-3,
        always_include: Sequence[str | int] | None = None,
        exclude: Sequence[str | int] | None = None,
        n_starts: int = 8,
        random_state: Any = None,
    ) -> None:
        self.k, self.criterion, self.cv, self.fit_intercept, self.alpha = k, criterion, cv, fit_intercept, alpha
        self.always_include, self.exclude = always_include, exclude
        self.n_starts, self.random_state = n_starts, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BestSubsetClassifier":
        """Find the columns, and their coefficients.

        Arguments:
            X: Data `(N, n)`.
            y: Labels `(N)`, of two classes or more.
            sample_weight: Weights of the rows, `(N)`; integers mean repeated rows.
        """
        check_distinct(X)
        check_labels(X, always_include=self.always_include, exclude=self.exclude)
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        check_positive("alpha", self.alpha)
        weights, sizes, always, exclude = self._checked(X, sample_weight)
        self.classes_ = np.unique(y[weights > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected two classes or more among rows with weight, got one class {self.classes_!r}")
        targets = (y[:, None] == self.classes_).astype(np.float64)
        points = self._path(X, targets, weights, sizes, always, exclude)
        sizes = [len(point.columns) for point in points]
        if len(sizes) == 1:
            scores = None
        elif self.criterion == "cv":
            scores = self._cross_validated(X, y, targets, weights, sizes, always, exclude)
        else:
            scores = self._information(points, X.shape[1] - len(exclude), float(weights.sum()))
        best = points[0 if scores is None else int(np.argmin(scores))]
        self.support_ = self._mask(best.columns)
        self.coef_ = np.zeros((best.coefficients.shape[1], X.shape[1]))
        self.coef_[:, best.columns] = best.coefficients.T
        self.intercept_, self.loss_, self.optimal_ = best.intercepts, best.loss, best.optimal
        self.n_features_ = len(best.columns)
        self.path_ = {
            "k": np.array(sizes),
            "support": np.array([self._mask(point.columns) for point in points]),
            "loss": np.array([point.loss for point in points]),
            "optimal": np.array([point.optimal for point in points]),
        }
        if scores is not None:
            self.path_["criterion"] = scores
        return self

    def decision_function(self, X: Any) -> Array:
        """Logits of the classes, `(N, C)`, or for two of them of the second one, `(N)`, for data `(N, n)`."""
        logits = self._logits(X)
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def predict(self, X: Any) -> Any:
        """The most probable class of each row, `(N)`, for data `(N, n)` with all columns."""
        places = self.predict_log_proba(X).argmax(1)
        return self.classes_[places]

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, `(N, C)`, for data `(N, n)` with all columns."""
        probabilities: Array = np.exp(self.predict_log_proba(X))
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms."""
        return _log_probabilities(self._logits(X))

    def _logits(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        logits: Array = X[:, self.support_] @ self.coef_[:, self.support_].T + self.intercept_
        return logits

    def _path(
        self, x: Array, targets: Array, weights: Array, sizes: Sequence[int], always: Columns, exclude: Columns
    ) -> list[_Point]:
        kept = weights > 0
        x, targets, weights = x[kept], targets[kept, 1:] if targets.shape[1] == 2 else targets[kept], weights[kept]
        unit = units(x)
        x = x / unit
        mean = weights @ x / weights.sum() if self.fit_intercept else np.zeros(x.shape[1])
        scale = np.sqrt(weights @ np.square(x - mean) / weights.sum())
        scale[scale <= _CONSTANT * np.abs(x).max(0)] = 0
        scaled = (x - mean) * np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        free = np.setdiff1d(np.arange(x.shape[1]), np.union1d(always, exclude))
        problem = Logistic(
            torch.from_numpy(scaled[:, free]), torch.from_numpy(scaled[:, always]), torch.from_numpy(targets),
            torch.from_numpy(weights), bool(self.fit_intercept), float(self.alpha),
        )  # fmt: skip
        found = search_logistic(
            problem, [size - len(always) for size in sizes], starts=self.n_starts,
            generator=np.random.default_rng(seed_of(self.random_state)),
        )  # fmt: skip
        points = []
        for one in found:
            columns = np.concatenate([always, free[one.subset.numpy()]])
            theta = one.theta.numpy()
            own = scale[columns, None]
            coefficients = np.divide(
                theta[int(problem.intercept) :], own, out=np.zeros((len(columns), theta.shape[1])), where=own > 0
            )
            intercepts = (theta[0] if problem.intercept else 0) - mean[columns] @ coefficients
            if problem.intercept and len(intercepts) > 1:
                # The same added to all of them changes nothing.
                intercepts = intercepts - intercepts.mean()
            order = np.argsort(columns)
            points.append(_Point(
                columns[order], (coefficients / unit[columns, None])[order], intercepts,
                problem.losses(one.subset, one.theta), one.optimal,
            ))  # fmt: skip
        return points

    def _information(self, points: Sequence[_Point], num_columns: int, num_rows: float) -> Array:
        # Each column has one coefficient for each class but one.
        further = len(self.classes_) - 2
        linear = "bic" if self.criterion == "ebic" else self.criterion
        return np.array([
            2 * point.loss
            + penalty(self.criterion, len(point.columns), num_columns, num_rows)
            + further * penalty(linear, len(point.columns), num_columns, num_rows)
            for point in points
        ])  # fmt: skip

    def _cross_validated(
        self, x: Array, y: Any, targets: Array, weights: Array, sizes: Sequence[int], always: Columns, exclude: Columns
    ) -> Array:
        losses, tested = np.zeros(len(sizes)), 0.0
        for train, test in check_cv(self.cv, y, classifier=True).split(x, y):
            points = self._path(x[train], targets[train], weights[train], sizes, always, exclude)
            if len(points) < len(sizes):
                raise KeyboardInterrupt
            tested += float(weights[test].sum())
            for number, point in enumerate(points):
                logits = x[np.ix_(test, point.columns)] @ point.coefficients + point.intercepts
                losses[number] -= weights[test] @ (targets[test] * _log_probabilities(logits)).sum(1)
        if not tested:
            raise ValueError("cv: expected a weight above 0 among the rows of the test sets, got none")
        mean: Array = losses / tested
        return mean


def _log_probabilities(logits: Array) -> Array:
    """Of all classes, `(N, C)`, where for two of them there is the logit of the second one, `(N, 1)`."""
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], 1)
    result: Array = torch.from_numpy(logits).log_softmax(1).numpy()
    return result
