"""What a fitted model says: estimates, tests, and a table in the layout of statsmodels."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from ksubset.stats.data import labels
from ksubset.stats.newton import Evaluation, maximise

__all__ = ["ChiSquaredTest", "Covariance", "Estimates", "Results", "Summary", "estimate"]

Array = NDArray[np.float64]
Covariance = Literal["hessian", "robust", "clustered"]
_WIDTH = 78
# Of the squares of scores, what is left at the estimates of those whose sum is zero.
_ROUNDING = 1e-12


class ChiSquaredTest(NamedTuple):
    """A chi-squared test of all coefficients being zero."""

    statistic: float
    df: int
    pvalue: float


class Estimates(NamedTuple):
    """Coefficients, their covariance, and what the tests need, of columns that were divided by their scale."""

    names: list[str]
    scale: Array
    coefficients: Array
    covariance: Array
    kind: Covariance
    llf: float
    llnull: float
    score_statistic: float
    iterations: int

    @property
    def params(self) -> Array:
        """Coefficients in the units of the data."""
        return self.coefficients / self.scale


def estimate(
    evaluate: Callable[[Array], Evaluation],
    design: Array | None,
    scores: Callable[[Array], tuple[Array, NDArray[np.int64]]],
    names: list[str],
    scale: Array,
    events: int,
    kind: Covariance,
    clusters: Any,
    notify: Callable[[int, float], None] | None,
) -> Estimates:
    """Fit a model.

    Arguments:
        evaluate: The log-likelihood in columns of standard deviation 1.
        design: See `maximise`.
        scores: At given coefficients the scores `(U, p)` of independent units, and a row of the data of each.
        names: Of the columns.
        scale: What the columns were divided by.
        events: How many there are.
        kind: Of the covariance.
        clusters: A label for each row of the data, for the clustered covariance.
        notify: See `maximise`.

    Raises:
        ValueError, RuntimeError: See `maximise`; or covariance and clusters do not go together.
    """
    if kind not in {"hessian", "robust", "clustered"}:
        raise ValueError(f"covariance must be 'hessian', 'robust' or 'clustered', got {kind!r}")
    if (kind == "clustered") != (clusters is not None):
        raise ValueError("clusters must be given for covariance='clustered', and only for it")
    maximum = maximise(evaluate, design, names, events, notify)
    covariance = np.asarray(np.linalg.inv(maximum.there.information), np.float64)
    if kind != "hessian":
        score, row = scores(maximum.coefficients)
        if kind == "clustered":
            rows = len(np.asarray(clusters))
            if rows <= row.max(initial=-1):
                raise ValueError(f"clusters must have one label for each row, got {rows}")
            code = labels(clusters, "clusters", rows)[0]
            score = _summed(score, code[row])
        spread = score.T @ score
        rank = _rank(spread, maximum.there.information)
        if rank < len(names):
            raise ValueError(
                f"covariance={kind!r} needs more independent units than columns, got {len(score)} units, "
                f"and their scores have rank {rank} for {len(names)} columns"
            )
        covariance = covariance @ spread @ covariance
    null = maximum.null
    try:
        statistic = float(null.score @ np.linalg.solve(null.information, null.score))
    except np.linalg.LinAlgError:
        statistic = float("nan")
    llf, llnull = maximum.there.value, null.value
    return Estimates(names, scale, maximum.coefficients, covariance, kind, llf, llnull, statistic, maximum.iterations)


def _rank(spread: Array, information: Array) -> int:
    """Rank of the scores whose squares have this sum, which the information is the expectation of."""
    basis = np.linalg.inv(np.linalg.cholesky(information))
    share = np.linalg.eigvalsh(basis @ spread @ basis.T)
    return int((share > _ROUNDING * max(1.0, share[-1])).sum())


def _summed(score: Array, code: NDArray[np.int64]) -> Array:
    """Sums of the rows of each number."""
    used, place = np.unique(code, return_inverse=True)
    total = np.zeros((len(used), score.shape[1]))
    np.add.at(total, place, score)
    return total


def _readable(value: float, digits: int) -> str:
    """A number with so many digits behind the point, unless these do not show it or it does not fit into its cell."""
    fits = value == 0 or 10.0**-digits <= abs(value) < 1e5
    return f"{value:.{digits}f}" if fits else f"{value:.2e}"


class Summary:
    """A table of text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class Results:
    """Estimates of a model, and inference on them.

    Arguments:
        estimates: What a fit has found.
        nobs: As of the attribute.

    Attributes:
        llf: Log-likelihood at the estimates.
        llnull: Log-likelihood with all coefficients zero.
        nobs: Rows that were used, each as often as its weight says.
        df_model: Number of coefficients.
        cov_type: ``"hessian"``, ``"robust"`` or ``"clustered"``.
        iterations: Of Newton's method.

    Example:
        >>> from ksubset.stats import CoxPH
        >>> results = CoxPH([5, 3, 9, 8, 2, 7], [1, 1, 0, 1, 1, 1], pd.DataFrame({"dose": [1, 0, 2, 3, 0, 1]})).fit()
        >>> results.conf_int().round(3).loc["dose"].tolist()
        [-3.655, 0.296]
    """

    def __init__(self, estimates: Estimates, nobs: int) -> None:
        self._estimates = estimates
        self.llf, self.llnull, self.nobs = estimates.llf, estimates.llnull, nobs
        self.df_model = len(estimates.names)
        self.cov_type: Covariance = estimates.kind
        self.iterations = estimates.iterations

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nobs={self.nobs}, covariates={self.df_model}, llf={self.llf:.4f})"

    def _series(self, values: Array) -> pd.Series:
        return pd.Series(values, index=self._estimates.names)

    @property
    def params(self) -> pd.Series:
        """Coefficients, by the names of their columns."""
        return self._series(self._estimates.params)

    @property
    def bse(self) -> pd.Series:
        """Standard errors."""
        return self._series(np.sqrt(np.diag(self._estimates.covariance)) / self._estimates.scale)

    @property
    def zvalues(self) -> pd.Series:
        """Coefficients over their standard errors."""
        return self._series(self._estimates.coefficients / np.sqrt(np.diag(self._estimates.covariance)))

    @property
    def pvalues(self) -> pd.Series:
        """Two-sided p-values of the coefficients, by the normal distribution."""
        return self._series(2 * stats.norm.sf(np.abs(self.zvalues.to_numpy())))

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Intervals that hold with probability `1 - alpha`, one row for each coefficient.

        Raises:
            ValueError: `alpha` is not between 0 and 1.
        """
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
        half = stats.norm.ppf(1 - alpha / 2) * self.bse
        return pd.DataFrame({0: self.params - half, 1: self.params + half})

    def cov_params(self) -> pd.DataFrame:
        """Covariance matrix of the coefficients."""
        names, scale = self._estimates.names, self._estimates.scale
        # A product of two scales may be beyond the range of floats.
        return pd.DataFrame(self._estimates.covariance / scale / scale[:, None], index=names, columns=names)

    @property
    def aic(self) -> float:
        """Akaike's information criterion."""
        return 2 * self.df_model - 2 * self.llf

    def _test(self, statistic: float) -> ChiSquaredTest:
        return ChiSquaredTest(statistic, self.df_model, float(stats.chi2.sf(statistic, self.df_model)))

    @property
    def lr_test(self) -> ChiSquaredTest:
        """Likelihood-ratio test."""
        return self._test(2 * (self.llf - self.llnull))

    @property
    def wald_test(self) -> ChiSquaredTest:
        """Wald's test, with the covariance of `cov_type`."""
        coefficients = self._estimates.coefficients
        return self._test(float(coefficients @ np.linalg.solve(self._estimates.covariance, coefficients)))

    @property
    def score_test(self) -> ChiSquaredTest:
        """Rao's score test (for Cox's model the log-rank test), with the information at zero.

        Its statistic is NaN where offsets leave no information there.
        """
        return self._test(self._estimates.score_statistic)

    def _table(self, title: str, head: Sequence[tuple[str, str]]) -> Summary:
        """A summary of pairs of a heading and a value, two a line."""
        half = _WIDTH // 2 - 1
        cells = [f"{name + ':':<{half - 20}}{value:>20}" for name, value in head]
        cells += [""] * (len(cells) % 2)
        middle = len(cells) // 2
        pairs = zip(cells[:middle], cells[middle:], strict=True)
        lines = [title.center(_WIDTH).rstrip(), "=" * _WIDTH]
        lines += [f"{left:<{half}}  {right:<{half}}".rstrip() for left, right in pairs]
        columns = ("coef", "std err", "z", "P>|z|", "[0.025", "0.975]")
        width = max(13, *(len(name) for name in self._estimates.names))
        size = (_WIDTH - 13) // len(columns)
        lines += ["=" * _WIDTH, " " * width + "".join(f"{column:>{size}}" for column in columns), "-" * _WIDTH]
        interval = self.conf_int()
        for name in self._estimates.names:
            cells = [
                _readable(self.params[name], 4), _readable(self.bse[name], 3), f"{self.zvalues[name]:.3f}",
                f"{self.pvalues[name]:.3f}", *(_readable(end, 3) for end in interval.loc[name]),
            ]  # fmt: skip
            lines.append(f"{name:<{width}}" + "".join(f"{cell:>{size}}" for cell in cells))
        lines.append("=" * _WIDTH)
        for name, test in (
            ("Likelihood ratio test", self.lr_test),
            ("Wald test", self.wald_test),
            ("Score test", self.score_test),
        ):
            lines.append(f"{name + ':':<23}{test.statistic:>12.4g} on {test.df} df, p = {test.pvalue:.3g}")
        return Summary("\n".join(lines))
