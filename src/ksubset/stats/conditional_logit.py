"""Conditional logistic regression: cases are compared with the controls of their own stratum."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ksubset.stats import data as reading
from ksubset.stats.formulas import Covariates, by_formula, new_rows
from ksubset.stats.newton import Evaluation
from ksubset.stats.results import Covariance, Estimates, Results, Summary, estimate
from ksubset.stats.scaling import centred, scaled
from ksubset.stats.subsets import add_subsets

__all__ = ["ConditionalLogit", "ConditionalLogitResults"]

Array = NDArray[np.float64]


class ConditionalLogit:
    r"""Conditional logistic regression for strata with any number of cases.

    Given that k of the n rows of a stratum are cases, the probability that it is these does not depend on the stratum's
    own intercept:

    .. math:: P(y \mid \textstyle\sum_i y_i = k) = \exp\langle \eta, y\rangle / e_k(\exp \eta), \qquad
        \eta = X \beta + \text{offset},

    the k-subset distribution. A stratum whose rows are all cases or all controls says nothing and is left out. Each
    evaluation of the log-likelihood with its derivatives takes time and memory in proportion to the rows, whatever the
    strata's sizes and numbers of cases are.

    References:
        Breslow and Day (1980), Statistical Methods in Cancer Research I, chapter 7.
        Gail, Lubin and Rubinstein (1981), https://doi.org/10.1093/biomet/68.3.703.

    Arguments:
        endog: Whether each row is a case: 0 or 1, or booleans, `(N)`.
        exog: Covariates, an array `(N, p)` or `(N)`, a series, or a data frame of pandas, polars or another
            library; an intercept has no meaning here.
        groups: The stratum of each row: labels of any kind, in any order, `(N)`.
        weights: How often each stratum was observed, positive integers, the same in all rows of a stratum, `(N)`.
        offset: Part of the logits with coefficient 1, `(N)`.

    Raises:
        TypeError: Covariates, outcome, weights or offset are not numeric.
        ValueError: Shapes or indices do not fit, values are missing or infinite, the outcome is not 0 or 1, or no
            stratum has both cases and controls.

    Example:
        >>> endog, groups = [1, 0, 0, 1, 1, 0, 1, 0, 0], [1, 1, 1, 2, 2, 2, 3, 3, 3]
        >>> exposed = [1, 0, 1, 1, 0, 1, 1, 0, 0]
        >>> results = ConditionalLogit(endog, exposed, groups).fit()
        >>> results.params.round(4).to_dict()
        {'x1': 1.0051}
        >>> results.predict().round(3).tolist()
        [0.423, 0.155, 0.423, 0.789, 0.423, 0.789, 0.577, 0.211, 0.211]
    """

    _covariates: Covariates | None = None

    def __init__(self, endog: Any, exog: Any, groups: Any, *, weights: Any = None, offset: Any = None) -> None:
        x, self._names, self._index = reading.columns(exog)
        given = {"endog": endog, "groups": groups, "weights": weights, "offset": offset}
        self._rows = reading.check_rows(self._index, "exog", **given)
        n = len(x)
        y = reading.events(endog, "endog", n)
        self._offset = np.zeros(n) if offset is None else reading.numbers(offset, "offset", n)
        group, found = reading.labels(groups, "groups", n)
        weight = reading.integers(weights, "weights", n)
        self._outcome_name = str(getattr(endog, "name", None) or "y")
        self._x, self._y, self._group = x, y, group
        rows, cases = np.bincount(group), np.bincount(group, y).astype(np.int64)
        informative = (cases > 0) & (cases < rows)
        if not informative.any():
            kind = "case" if not y.any() else "control" if y.all() else None
            reason = f"endog has no {kind} at all" if kind else f"each of the {len(found)} is all cases or all controls"
            raise ValueError(f"no stratum of groups has both cases and controls: {reason}")
        smallest, largest = np.full(len(found), np.iinfo(np.int64).max), np.zeros(len(found), np.int64)
        np.minimum.at(smallest, group, weight)
        np.maximum.at(largest, group, weight)
        if (bad := smallest < largest).any():
            raise ValueError(
                f"weights must be the same in all rows of a stratum, and differ in {found[bad].tolist()[0]!r}"
            )
        self.dropped_strata = int((~informative).sum())
        self.dropped_rows = int(rows[~informative].sum())
        kept = np.flatnonzero(informative[group])
        self._order = kept[np.argsort(group[kept], kind="stable")]
        used = np.flatnonzero(informative)
        self._sizes, self._cases, self._weight = rows[used], cases[used], largest[used].astype(np.float64)
        self._last = np.cumsum(self._sizes)
        self._first = self._last - self._sizes
        self._scaled, self._scale = scaled(x[self._order], self._first, self._names)
        self._eta = centred(self._offset[self._order], self._first)
        self._sums = np.add.reduceat(self._scaled * y[self._order, None], self._first)
        self._shift = np.full(len(used), np.nan)

    @classmethod
    def from_formula(
        cls, formula: str, groups: Any, data: pd.DataFrame, *, weights: Any = None, offset: Any = None
    ) -> "ConditionalLogit":
        """The model of a formula ``"case ~ x + z"``.

        Arguments:
            formula: Outcome and covariates, as of formulaic and patsy.
            groups: Column of the strata, or their labels.
            data: Where the columns are.
            weights: Column, or values; see the class.
            offset: Column, or values.

        Raises:
            TypeError, ValueError: As the class says; or a column is missing.
        """
        endog, exog, covariates = by_formula(formula, data)
        given = {"groups": groups, "weights": weights, "offset": offset}
        found = {name: reading.column_of(data, column, name) for name, column in given.items()}
        model = cls(endog, exog, found.pop("groups"), **found)
        model._covariates = covariates
        return model

    def __repr__(self) -> str:
        strata = len(self._sizes) + self.dropped_strata
        return f"ConditionalLogit(rows={len(self._x)}, strata={strata}, covariates={len(self._names)})"

    def _solved(self, coefficients: Array) -> tuple[Array, Array, Array, Array]:
        """See `_solved_at`."""
        return self._solved_at(self._scaled @ coefficients + self._eta)

    def _solved_at(self, eta: Array) -> tuple[Array, Array, Array, Array]:
        """Log-likelihoods `(S)` and scores `(S, p)` of the strata, the information, and the probabilities of rows."""
        p = len(self._names)
        normalizer, mean = np.empty(len(self._first)), np.empty((len(self._first), p))
        information, expected = np.zeros((p, p)), np.zeros(len(eta))
        add_subsets(
            eta, self._scaled, self._first, self._last, self._cases, self._weight, self._shift, normalizer, mean,
            information, expected,
        )  # fmt: skip
        value = np.add.reduceat(np.where(self._y[self._order], eta, 0.0), self._first) - normalizer
        return value, self._sums - mean, information + np.tril(information, -1).T, expected

    def _evaluate(self, coefficients: Array) -> Evaluation:
        value, score, information, _ = self._solved(coefficients)
        return Evaluation(float(self._weight @ value), self._weight @ score, information)

    def _scores(self, coefficients: Array) -> tuple[Array, NDArray[np.int64]]:
        copies = self._weight.astype(np.int64)
        score = self._solved(coefficients)[1]
        return np.repeat(score, copies, 0), np.repeat(self._order[self._first], copies)

    def fit(
        self,
        covariance: Covariance = "hessian",
        clusters: Any = None,
        notify: Callable[[int, float], None] | None = None,
    ) -> "ConditionalLogitResults":
        """Maximise the conditional likelihood by Newton's method.

        Arguments:
            covariance: ``"hessian"``; ``"robust"``, the sandwich with strata as independent units; ``"clustered"``,
                with clusters of strata as such. Neither has a factor for small samples.
            clusters: For ``"clustered"``, the label of each row, the same in all rows of a stratum.
            notify: Called before each iteration with its number and the log-likelihood: `print`, for example.

        Raises:
            ValueError: Collinear columns, columns that are constant in all strata, or separation, all named; or the
                arguments do not fit.
            RuntimeError: No convergence.
        """
        if clusters is not None:
            reading.check_rows(*self._rows, clusters=clusters)
            code, _ = reading.labels(clusters, "clusters", len(self._x))
            if (code[self._order] != np.repeat(code[self._order[self._first]], self._sizes)).any():
                raise ValueError("clusters must be the same in all rows of a stratum")
        events = int(self._weight @ self._cases)
        design = self._solved_at(np.zeros(len(self._order)))[2] if self._eta.any() else None
        estimates = estimate(
            self._evaluate, design, self._scores, self._names, self._scale, events, covariance, clusters, notify
        )  # fmt: skip
        return ConditionalLogitResults(self, estimates)


class ConditionalLogitResults(Results):
    """A fitted `ConditionalLogit`, as `fit` returns it; see `Results` for what it has of all models.

    Arguments:
        model: The model, which is kept as an attribute.
        estimates: What was found.

    Example:
        >>> endog, groups = [1, 0, 0, 1, 1, 0, 1, 0, 0], [1, 1, 1, 2, 2, 2, 3, 3, 3]
        >>> results = ConditionalLogit(endog, [1, 0, 1, 1, 0, 1, 1, 0, 0], groups).fit()
        >>> round(results.llf, 4), round(results.lr_test.pvalue, 4)
        (-2.9649, 0.4159)
        >>> results.predict([1, 0, 0], groups=["new"] * 3, cases=1).round(4).tolist()  # of another stratum
        [0.5774, 0.2113, 0.2113]
    """

    def __init__(self, model: ConditionalLogit, estimates: Estimates) -> None:
        super().__init__(estimates, int(model._weight @ model._sizes))
        self.model = model

    def predict(self, exog: Any = None, groups: Any = None, cases: Any = 1, offset: Any = None) -> pd.Series:
        """Probability of each row to be a case, given how many of its stratum are: its inclusion probability.

        Arguments:
            exog: Covariates of new rows, after `from_formula` a table with the columns of the formula, whose categories
                and transforms are those of the fit; by default the covariates of the model, with their
                strata and numbers of cases.
            groups: The strata of the new rows; after `from_formula` also the name of a column of `exog`.
            cases: How many rows of each new stratum are cases, by default 1; where strata differ a mapping, or a
                series, by their labels.
            offset: Of the new rows, likewise.

        Raises:
            TypeError: As of the model.
            ValueError: As of the model; `exog` has other columns, or categories that the fit did not have; or `cases`
                is out of range in a stratum.
        """
        model = self.model
        if exog is None:
            if groups is not None or offset is not None:
                raise ValueError("groups and offset are those of new rows, and exog must be given with them")
            group, index = model._group, model._index
            eta = model._x @ self._estimates.params + model._offset
            size = np.bincount(group, model._y).astype(np.int64)
        else:
            if groups is None:
                raise ValueError("groups must be given with exog")
            x, index, given = new_rows(exog, model._names, model._covariates, groups=groups, offset=offset)
            group, found = reading.labels(given["groups"], "groups", len(x))
            extra = 0 if offset is None else reading.numbers(given["offset"], "offset", len(x))
            eta = x @ self._estimates.params + extra
            size = _numbers_of_cases(cases, found, np.bincount(group))
        return pd.Series(_probabilities(eta, group, size), index=index)

    def residuals(self, kind: Literal["response", "pearson"] = "response") -> pd.Series:
        """Outcome less its probability; divided, as ``"pearson"``, by its standard deviation. 0 in dropped strata.

        Raises:
            ValueError: Another `kind`.
        """
        if kind not in {"response", "pearson"}:
            raise ValueError(f"kind must be 'response' or 'pearson', got {kind!r}")
        probability = self.predict()
        response = self.model._y - probability
        if kind == "response":
            return response
        deviation = np.sqrt(probability * (1 - probability))
        return (response / deviation.where(deviation > 0, 1.0)).rename(None)

    def summary(self) -> Summary:
        """The estimates as a table in the layout of statsmodels."""
        model = self.model
        sizes = model._sizes
        head = [
            ("Dep. Variable", model._outcome_name),
            ("Model", "ConditionalLogit"),
            ("Log-Likelihood", f"{self.llf:.4f}"),
            ("LL-Null", f"{self.llnull:.4f}"),
            ("AIC", f"{self.aic:.4f}"),
            ("Covariance Type", self.cov_type),
            ("Dropped groups", f"{model.dropped_strata} ({model.dropped_rows} rows)"),
            ("No. Observations", f"{self.nobs}"),
            ("No. cases", f"{int(model._weight @ model._cases)}"),
            ("No. groups", f"{int(model._weight.sum())}"),
            ("Min group size", f"{sizes.min()}"),
            ("Max group size", f"{sizes.max()}"),
            ("Mean group size", f"{sizes.mean():.1f}"),
            ("Iterations", f"{self.iterations}"),
        ]
        return self._table("Conditional Logit Model Regression Results", head)


def _numbers_of_cases(cases: Any, strata: pd.Index, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows of each stratum are cases."""
    if isinstance(cases, pd.Series | Mapping):
        if isinstance(cases, pd.Series) and not cases.index.is_unique:
            raise ValueError("cases must have one number for each stratum, got labels that occur twice")
        if missing := [label for label in strata if label not in cases]:
            raise ValueError(f"cases must have a number for each stratum, and has none for {missing[:10]}")
        numbers = [cases[label] for label in strata]
    elif isinstance(cases, int | np.integer):
        numbers = [cases] * len(strata)
    else:
        raise TypeError(f"cases must be an integer, or a mapping or series by stratum, got {type(cases).__name__}")
    for label, number, most in zip(strata, numbers, rows, strict=True):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number <= most:
            raise ValueError(
                f"cases must be an integer between 0 and a stratum's rows, got {number} for {label!r} of {most} rows"
            )
    return np.array(numbers, np.int64)


def _probabilities(eta: Array, group: NDArray[np.int64], size: NDArray[np.int64]) -> Array:
    """Inclusion probabilities of all rows, in strata of which so many rows are cases."""
    rows = np.bincount(group)
    probability: Array = (size == rows)[group].astype(np.float64)
    open_strata = (size > 0) & (size < rows)
    kept = np.flatnonzero(open_strata[group])
    if not len(kept):
        return probability
    order = kept[np.argsort(group[kept], kind="stable")]
    last = np.cumsum(rows[open_strata])
    number = len(last)
    expected = np.zeros(len(order))
    add_subsets(
        eta[order], np.empty((len(order), 0)), last - rows[open_strata], last, size[open_strata], np.ones(number),
        np.full(number, np.nan), np.empty(number), np.empty((number, 0)), np.zeros((0, 0)), expected,
    )  # fmt: skip
    probability[order] = expected
    return probability
