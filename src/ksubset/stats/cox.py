"""Cox's proportional hazards model with four ways to take tied event times."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ksubset.stats import data as reading
from ksubset.stats.formulas import Covariates, by_formula, new_rows
from ksubset.stats.newton import Evaluation
from ksubset.stats.results import Covariance, Estimates, Results, Summary, estimate
from ksubset.stats.scaling import centred, scaled
from ksubset.stats.ties import BRESLOW, EFRON, EXACT, MARGINAL, add_events

__all__ = ["CoxPH", "CoxPHResults", "Ties"]

Array = NDArray[np.float64]
Ties = Literal["exact", "marginal", "efron", "breslow"]
# Near the logarithm of the largest number.
_RANGE = 700.0
_METHODS = {"exact": EXACT, "marginal": MARGINAL, "efron": EFRON, "breslow": BRESLOW}


class CoxPH:
    r"""Cox's proportional hazards model, with exact and approximate likelihoods of tied event times.

    The ties say what two equal event times mean, and with it what is estimated:

    - ``"exact"``: time is discrete. Given that d of the rows at risk have their event at this time, it is these; with
      logits :math:`\eta` a k-subset distribution. Coefficients are log odds ratios (SAS: DISCRETE; R: ``exact``).
    - ``"marginal"``: time is continuous and was rounded. The likelihood is the sum over all orders in which the tied
      events may have happened; coefficients are log hazard ratios (SAS: EXACT; Stata: ``exactm``).
    - ``"efron"`` and ``"breslow"``: approximations of the latter; Efron's is usually close, Breslow's is not where many
      events are tied.

    Without ties all four are the same. Risk sets are slices of the sorted rows, so that memory is in proportion to the
    rows; a time with several events takes, with ``"exact"``, time in proportion to its risk set.

    References:
        Cox (1972), https://doi.org/10.1111/j.2517-6161.1972.tb00899.x, for the discrete model.
        Kalbfleisch and Prentice (2002), The Statistical Analysis of Failure Time Data, section 4.2.
        DeLong, Guirguis and So (1994), https://doi.org/10.1093/biomet/81.3.607, for the integral of ``"marginal"``.
        Efron (1977), https://doi.org/10.1080/01621459.1977.10480613.
        Breslow (1974), https://doi.org/10.2307/2529620.

    Arguments:
        time: When each row had its event or was seen last, `(N)`.
        event: Whether it had its event then: 1 or 0, or booleans, `(N)`.
        exog: Covariates, an array `(N, p)` or `(N)`, a series, or a data frame of pandas, polars or another
            library; an intercept has no meaning here.
        ties: How tied event times are taken.
        entry: When each row came under observation (left truncation): it is at risk at times t with
            `entry < t <= time`, `(N)`.
        strata: Rows with equal labels share a baseline hazard and are compared, `(N)`.
        weights: How often each row was observed, positive integers: the same as so many copies of it, `(N)`.
        offset: Part of the linear predictor with coefficient 1, `(N)`.

    Raises:
        TypeError: Something is not numeric.
        ValueError: Shapes or indices do not fit, values are missing or infinite, `ties` is another one, an event is
            not 0 or 1, an entry is not before its time, or no row has an event.

    Example:
        >>> time, event, treated = [1, 1, 2, 2, 3, 4, 5], [1, 1, 1, 0, 1, 1, 0], [0, 0, 1, 0, 0, 1, 1]
        >>> [CoxPH(time, event, treated, ties).fit().params.round(4).item() for ties in ("exact", "efron")]
        [-1.3483, -1.3364]
    """

    _covariates: Covariates | None = None

    def __init__(
        self,
        time: Any,
        event: Any,
        exog: Any,
        ties: Ties = "efron",
        *,
        entry: Any = None,
        strata: Any = None,
        weights: Any = None,
        offset: Any = None,
    ) -> None:
        if ties not in _METHODS:
            raise ValueError(f"ties must be one of {sorted(_METHODS)}, got {ties!r}")
        x, self._names, self._index = reading.columns(exog)
        rows = {"time": time, "event": event, "entry": entry, "strata": strata, "weights": weights, "offset": offset}
        self._rows = reading.check_rows(self._index, "exog", **rows)
        n = len(x)
        leaves, had = reading.numbers(time, "time", n), reading.events(event, "event", n)
        enters = np.full(n, -np.inf) if entry is None else reading.numbers(entry, "entry", n)
        if (late := enters >= leaves).any():
            i = int(late.argmax())
            raise ValueError(f"entry must be before time in every row, got {enters[i]:g} and {leaves[i]:g} in row {i}")
        if not had.any():
            raise ValueError("no row has an event")
        stratum = np.zeros(n, np.int64) if strata is None else reading.labels(strata, "strata", n)[0]
        weight = reading.integers(weights, "weights", n)
        extra = np.zeros(n) if offset is None else reading.numbers(offset, "offset", n)
        self.ties: Ties = ties
        self._time_name = str(getattr(time, "name", None) or "time")
        self._x, self._given_offset = x, extra

        order = np.lexsort((had, -leaves, stratum))
        self._order = reading.copies(order, weight)
        leaves, enters, had, stratum = leaves[self._order], enters[self._order], had[self._order], stratum[self._order]
        self._time, self._entry, self._event = leaves, enters, had
        starts = np.flatnonzero(np.r_[True, stratum[1:] != stratum[:-1]])
        row_start = np.repeat(starts, np.diff(starts, append=len(stratum)))
        self._scaled, self._scale = scaled(x[self._order], starts, self._names)
        self._offset = centred(extra[self._order], starts)
        self._leaving = np.lexsort((-enters, stratum))

        # Events are last among the rows of their time and stratum.
        new = np.r_[True, (leaves[1:] != leaves[:-1]) | (stratum[1:] != stratum[:-1])]
        span = np.cumsum(new) - 1
        deaths, last = np.bincount(span, had).astype(np.int64), np.r_[np.flatnonzero(new)[1:], len(new)]
        used = deaths > 0
        self._deaths, self._last = deaths[used], last[used]
        self._at, self._first = leaves[self._last - 1], row_start[self._last - 1]
        self._group_of: NDArray[np.int64] = np.subtract(np.cumsum(used), used)[span]
        self._until = self._ends_of_exposure(starts, stratum)
        self._strata, self._silent = len(starts), len(starts) - len(np.unique(self._first))
        self._sums = np.add.reduceat(self._scaled[had], np.r_[0, np.cumsum(self._deaths)[:-1]])
        self._shift = np.full(len(self._at), np.nan)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        event: Any,
        data: pd.DataFrame,
        ties: Ties = "efron",
        *,
        entry: Any = None,
        strata: Any = None,
        weights: Any = None,
        offset: Any = None,
    ) -> "CoxPH":
        """The model of a formula ``"time ~ x + z"``.

        Arguments:
            formula: Time and covariates, as of formulaic and patsy.
            event: Column of the events, or values.
            data: Where the columns are.
            ties: See the class.
            entry: Column, or values.
            strata: Column, or labels.
            weights: Column, or values.
            offset: Column, or values.

        Raises:
            TypeError, ValueError: As the class says; or a column is missing.
        """
        time, exog, covariates = by_formula(formula, data)
        given = {"event": event, "entry": entry, "strata": strata, "weights": weights, "offset": offset}
        found = {name: reading.column_of(data, column, name) for name, column in given.items()}
        model = cls(time, found.pop("event"), exog, ties, **found)
        model._covariates = covariates
        return model

    def __repr__(self) -> str:
        numbers = f"rows={len(self._x)}, strata={self._strata}, covariates={len(self._names)}"
        return f"CoxPH({numbers}, ties={self.ties!r})"

    def _ends_of_exposure(self, starts: NDArray[np.int64], stratum: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of each row the first event time, as times fall, at which it has not entered yet."""
        until = np.empty(len(stratum), np.int64)
        bounds: NDArray[np.int64] = np.searchsorted(self._first, np.append(starts, len(stratum)))
        for start, end, low, high in zip(starts, np.r_[starts[1:], len(stratum)], bounds[:-1], bounds[1:], strict=True):
            until[start:end] = low + np.searchsorted(-self._at[low:high], -self._entry[start:end], side="left")
        return until

    def _solved(self, coefficients: Array) -> tuple[Array, ...]:
        return self._solved_at(self._scaled @ coefficients + self._offset)

    def _solved_at(self, eta: Array) -> tuple[Array, ...]:
        p, groups = len(self._names), len(self._at)
        value, hazard, own = np.empty((3, groups))
        mean, drift, own_drift = np.empty((3, groups, p))
        information, expected = np.zeros((p, p)), np.zeros(len(eta))
        add_events(
            _METHODS[self.ties], eta, self._scaled, self._entry, self._leaving, self._at, self._first, self._last,
            self._deaths, self._shift, value, mean, information, hazard, drift, own, own_drift, expected,
        )  # fmt: skip
        information += np.tril(information, -1).T
        return eta, value, mean, information, hazard, drift, own, own_drift, expected

    def _evaluate(self, coefficients: Array) -> Evaluation:
        eta, value, mean, information, *_ = self._solved(coefficients)
        return Evaluation(float(eta[self._event].sum() - value.sum()), (self._sums - mean).sum(0), information)

    def _exposures(self, increments: Array) -> Array:
        """Sums of what event times add to the rows at risk, `(N, ...)`, each row's own time left out of an event's.

        Increments are relative to the largest linear predictor of their stratum, and so are the sums.
        """
        # By sums over 1, 2, 4, ... event times: the difference of two running sums would lose the digits of a row that
        # enters late beside others of a much larger linear predictor.
        place = self._group_of + self._event
        count = np.maximum(self._until - place, 0)
        total, sums, width = np.zeros((len(place), *increments.shape[1:])), increments, 1
        while width <= count.max():
            rows = np.flatnonzero(count & width)
            total[rows] += sums[place[rows]]
            place[rows] += width
            sums, width = sums[:-width] + sums[width:], 2 * width
        return total

    def _relative(self, eta: Array) -> Array:
        """The exponential of the linear predictor, relative to the largest that was at risk in the stratum."""
        starts, place = np.unique(self._first, return_index=True)
        ends = self._last[np.r_[place[1:], len(self._last)] - 1]
        origin = np.full(len(eta), np.inf)
        for start, end in zip(starts, ends, strict=True):
            origin[start:end] = eta[start:end].max()
        relative: Array = np.exp(eta - origin)
        return relative

    def _expected(self, coefficients: Array) -> Array:
        """Expected numbers of events of the sorted rows."""
        eta, _, _, _, hazard, _, own, _, expected = self._solved(coefficients)
        relative = self._relative(eta)
        with np.errstate(over="ignore", invalid="ignore"):
            total = expected + relative * self._exposures(hazard)
            total[self._event] += relative[self._event] * own[self._group_of[self._event]]
        return _checked(total)

    def _scores(self, coefficients: Array) -> tuple[Array, NDArray[np.int64]]:
        if self.ties in {"exact", "marginal"} and (self._deaths > 1).any():
            raise ValueError(f"scores of single rows are not defined with ties={self.ties!r}: use covariance='hessian'")
        eta, _, mean, _, hazard, drift, own, own_drift, _ = self._solved(coefficients)
        relative, x = self._relative(eta)[:, None], self._scaled
        at = self._group_of[self._event]
        with np.errstate(over="ignore", invalid="ignore"):
            score = relative * (self._exposures(drift) - x * self._exposures(hazard)[:, None])
            score[self._event] += x[self._event] - mean[at] / self._deaths[at, None]
            score[self._event] += relative[self._event] * (own_drift[at] - x[self._event] * own[at, None])
        return _checked(score), self._order

    def fit(
        self,
        covariance: Covariance = "hessian",
        clusters: Any = None,
        notify: Callable[[int, float], None] | None = None,
    ) -> "CoxPHResults":
        """Maximise the partial likelihood by Newton's method.

        Arguments:
            covariance: ``"hessian"``; ``"robust"``, the sandwich with rows as independent units (Lin and Wei, 1989,
                https://doi.org/10.1080/01621459.1989.10478874); ``"clustered"``, with clusters of rows as such. The
                last two need scores of single rows, which only ``"efron"`` and ``"breslow"`` have where times are tied.
            clusters: For ``"clustered"``, the label of each row.
            notify: Called before each iteration with its number and the log-likelihood: `print`, for example.

        Raises:
            ValueError: Collinear columns, columns that are constant in all risk sets, or a likelihood that grows as
                coefficients go to infinity, all named; or the arguments do not fit.
            RuntimeError: No convergence.
        """
        if clusters is not None:
            reading.check_rows(*self._rows, clusters=clusters)
            reading.labels(clusters, "clusters", len(self._x))
        events = int(self._deaths.sum())
        design = self._solved_at(np.zeros(len(self._order)))[3] if self._offset.any() else None
        estimates = estimate(
            self._evaluate, design, self._scores, self._names, self._scale, events, covariance, clusters, notify
        )  # fmt: skip
        return CoxPHResults(self, estimates)


class CoxPHResults(Results):
    """A fitted `CoxPH`, as `fit` returns it; see `Results` for what it has of all models.

    Arguments:
        model: The model, which is kept as an attribute.
        estimates: What was found.

    Example:
        >>> time, event, treated = [1, 1, 2, 2, 3, 4, 5], [1, 1, 1, 0, 1, 1, 0], [0, 0, 1, 0, 0, 1, 1]
        >>> results = CoxPH(time, event, treated).fit()
        >>> results.predict([0, 1]).round(4).tolist()  # hazard ratios to a row of zeros
        [1.0, 0.2628]
        >>> bool(abs(results.residuals("martingale").sum()) < 1e-9)
        True
    """

    def __init__(self, model: CoxPH, estimates: Estimates) -> None:
        super().__init__(estimates, len(model._order))
        self.model = model

    def predict(self, exog: Any = None, offset: Any = None) -> pd.Series:
        """Hazards (with exact ties: odds) relative to a row of zeros, `exp(X beta + offset)`.

        Arguments:
            exog: Covariates of new rows, after `from_formula` a table with the columns of the formula, whose categories
                and transforms are those of the fit; by default the covariates of the model.
            offset: Of the new rows; after `from_formula` also the name of a column of `exog`.

        Raises:
            TypeError: As of the model.
            ValueError: As of the model; `exog` has other columns, or categories that the fit did not have; or a hazard
                is beyond all floats.
        """
        model = self.model
        if exog is None:
            if offset is not None:
                raise ValueError("offset is that of new rows, and exog must be given with it")
            return _hazards(model._x @ self._estimates.params + model._given_offset, model._index)
        x, index, given = new_rows(exog, model._names, model._covariates, offset=offset)
        extra = 0 if offset is None else reading.numbers(given["offset"], "offset", len(x))
        return _hazards(x @ self._estimates.params + extra, index)

    def residuals(self, kind: Literal["martingale", "schoenfeld"] = "martingale") -> pd.Series | pd.DataFrame:
        """Residuals of the rows, or of the event times.

        ``"martingale"``: events less their expected number, the derivative of the log-likelihood in the linear
        predictor of each row, of one of its copies. ``"schoenfeld"``: for each event time of a stratum the sum of the
        covariates of its events less what was expected, indexed by the time, rising.

        Raises:
            ValueError: Another `kind`.
        """
        model = self.model
        coefficients = self._estimates.coefficients
        if kind == "martingale":
            values = np.empty(len(model._x))
            values[model._order] = model._event - model._expected(coefficients)
            return pd.Series(values, index=model._index)
        if kind != "schoenfeld":
            raise ValueError(f"kind must be 'martingale' or 'schoenfeld', got {kind!r}")
        mean = model._solved(coefficients)[2]
        frame = pd.DataFrame((model._sums - mean) * model._scale, index=model._at, columns=model._names)
        return frame.sort_index(kind="stable")

    def summary(self) -> Summary:
        """The estimates as a table in the layout of statsmodels."""
        model = self.model
        tied = model._deaths > 1
        head = [
            ("Dep. Variable", model._time_name),
            ("Model", "CoxPH"),
            ("Ties", model.ties),
            ("Log-Likelihood", f"{self.llf:.4f}"),
            ("LL-Null", f"{self.llnull:.4f}"),
            ("AIC", f"{self.aic:.4f}"),
            ("Covariance Type", self.cov_type),
            ("No. Observations", f"{self.nobs}"),
            ("No. events", f"{int(model._deaths.sum())}"),
            ("Event times", f"{len(tied)}"),
            ("Tied times (events)", f"{int(tied.sum())} ({int(model._deaths[tied].sum())})"),
            ("No. strata", f"{model._strata}"),
            ("Dropped strata", f"{model._silent} (no events)"),
            ("Iterations", f"{self.iterations}"),
        ]
        return self._table("Proportional Hazards Model Regression Results", head)


def _hazards(eta: Array, index: pd.Index) -> pd.Series:
    with np.errstate(over="ignore"):
        hazards = np.exp(eta)
    if not np.isfinite(hazards).all():
        raise ValueError(
            f"exog: expected hazards relative to a row of zeros that are finite numbers, got exp({eta.max():.4g}); fit "
            "to columns, and offsets, less their means"
        )
    return pd.Series(hazards, index=index)


def _checked(values: Array) -> Array:
    """Values of rows, or an error where hazards, or their sums, are beyond all numbers."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"offset: expected linear predictors of rows at risk that are less than {_RANGE:g} below others of their "
            "stratum; rows that are never at risk together may have strata of their own"
        )
    return values
