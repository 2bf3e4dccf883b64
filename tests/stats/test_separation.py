"""Whether the likelihood has a maximum, by a linear programme, and where, by searches over enumerated likelihoods."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, linprog, minimize_scalar
from scipy.special import expit, logsumexp

from ksubset.stats import ConditionalLogit, CoxPH

TIES = ("exact", "marginal", "efron", "breslow")


def is_separated(differences: list[np.ndarray]) -> bool:
    """Whether in some direction no difference, of what was chosen to what might have been, falls and some rise."""
    matrix = np.array(differences)
    tolerance = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    best = linprog(-matrix.sum(0), A_ub=-matrix, b_ub=np.zeros(len(matrix)), bounds=(-1, 1), options=tolerance)
    return -best.fun > 1e-7


def covariates(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    return [rng.normal(size=(n, p)), rng.integers(-2, 3, (n, p)).astype(float)][rng.integers(2)]


def offsets(rng: np.random.Generator, n: int) -> np.ndarray:
    return [np.zeros(n), rng.normal(size=n), 3 * rng.normal(size=n)][rng.integers(3)]


def agrees(model: Any, separated: bool) -> bool:
    """Whether there is a fit, which is none where columns are constant or collinear."""
    try:
        results = model.fit()
    except ValueError as error:
        if str(error).startswith("separation"):
            assert separated
        return False
    assert not separated
    score = model._evaluate(results.params.to_numpy() * model._scale).score
    np.testing.assert_allclose(score, 0, atol=1e-9)
    return True


def test_strata_against_the_linear_programme() -> None:
    rng = np.random.default_rng(0)
    fitted = 0
    for _ in range(150):
        sizes = rng.integers(2, 6, rng.integers(1, 6))
        group = np.repeat(np.arange(len(sizes)), sizes)
        n = len(group)
        x, y, offset = covariates(rng, n, rng.integers(1, 4)), rng.integers(0, 2, n), offsets(rng, n)
        pairs = [
            x[i] - x[j] for i in range(n) for j in range(n) if y[i] > y[j] and group[i] == group[j]
        ]  # fmt: skip
        if pairs and np.abs(pairs).max(0).all():
            fitted += agrees(ConditionalLogit(y, x, group, offset=offset), is_separated(pairs))
    assert fitted > 40


@pytest.mark.parametrize("ties", TIES)
def test_times_against_the_linear_programme(ties: Any) -> None:
    rng = np.random.default_rng(1)
    fitted = 0
    for _ in range(100):
        n = int(rng.integers(3, 10))
        x, offset = covariates(rng, n, rng.integers(1, 3)), offsets(rng, n)
        time, event = rng.integers(1, 4, n), rng.integers(0, 2, n)
        event[0] = 1
        # What rises for ever must keep each event above all others, and by Efron and Breslow tied ones together.
        together = ties in {"efron", "breslow"}
        pairs = [
            x[i] - x[j]
            for i, j in itertools.permutations(range(n), 2)
            if event[i] and (time[j] > time[i] or (time[j] == time[i] and (together or not event[j])))
        ]
        if pairs and np.abs(pairs).max(0).all():
            fitted += agrees(CoxPH(time, event, x, ties, offset=offset), is_separated(pairs))
    assert fitted > 20


@pytest.mark.parametrize("wide", [0.5, 1, 2, 5])
def test_narrow_gaps_between_cases_and_controls(wide: float) -> None:
    for i in range(1, 200, 6):
        with pytest.raises(ValueError, match=r"separation: .* along 'x1'"):
            ConditionalLogit([1, 1, 0, 0], [wide + 1, i / 1000, 0, -wide], [0] * 4).fit()
    with pytest.raises(ValueError, match=r"separation: .* along 'x1'"):
        ConditionalLogit([1, 1, 0, 0], [wide + 1, 1e-8, 0, -wide], [0] * 4).fit()


def test_separation_that_was_fitted() -> None:
    x = [1.885899474448872, 0.5271447865806792, 0.5198689946949363, -0.1996556653052279]
    with pytest.raises(ValueError, match="separation"):
        ConditionalLogit([1, 1, 0, 0], x, [0] * 4).fit()
    x = [-0.8616945722906917, 0.375822167777633, 0.37901242225763354, -9, 0.3168856383666173]
    with pytest.raises(ValueError, match="separation"):
        ConditionalLogit([0, 1, 1, 1, 0], x, [1, 1, 1, 0, 1], weights=[3, 3, 3, 2, 3]).fit("robust")


@pytest.mark.parametrize("ties", ["exact", "marginal"])
def test_narrow_gaps_between_tied_events_and_others(ties: Any) -> None:
    for i in range(1, 60, 2):
        with pytest.raises(ValueError, match="separation"):
            CoxPH([1, 1, 2, 2], [1, 1, 1, 0], [2, i / 300, 0, -1.0], ties).fit()


def test_a_rare_exposure_in_long_strata() -> None:
    """Its standard deviation is small, so that few standardised steps lead far."""
    n, long = 20_000, 1000
    group = np.arange(n) // long
    y, x = np.zeros(n), np.random.default_rng(0).normal(size=(n, 2))
    y[5::long] = 1
    x[:, 1] = 0
    x[5, 1] = 1
    with pytest.raises(ValueError, match=r"separation: .* along 'x2'"):
        ConditionalLogit(y, x, group).fit()


@pytest.mark.parametrize("overlap", [1e-1, 1e-3, 1e-5])
def test_cases_that_hardly_overlap_with_controls(overlap: float) -> None:
    """Pairs, of which one favours the control by so much: the maximum is far out, and there."""
    for seed in range(10):
        difference = np.abs(np.random.default_rng(seed).normal(size=5))
        difference[0] = -overlap

        def slope(beta: float, difference: np.ndarray = difference) -> float:
            return float(difference @ expit(-difference * beta))

        x = np.c_[difference, np.zeros(5)].ravel()
        results = ConditionalLogit([1, 0] * 5, x, np.repeat(np.arange(5), 2)).fit()
        assert results.params.item() == pytest.approx(brentq(slope, 0, 1e6, xtol=1e-9, rtol=1e-12), rel=1e-7)


@pytest.mark.parametrize(
    ("y", "x", "offset", "expected"),
    [
        ([1, 1, 0, 0], [2, -1, 1, 2], [12, -15, 19, 10], -9.2734),
        ([1, 1, 0, 0], [1, -2, 3, -1], [18, -11, -17, 14], -9.4356),
        ([1, 1, 0], [1.520942606380142, 0.3539765151438953, 0.40731623304875947], [-37, 6.19, 31.27], 39.614429),
        ([1, 1, 0, 0], [0, -1, -2, 0], [-11, 19, -12, 8], 3.5641),
    ],
)
@pytest.mark.parametrize("model", ["strata", "exact"])
def test_offsets_that_outweigh_the_covariates(
    y: list[int], x: list[float], offset: list[float], expected: float, model: str
) -> None:
    chosen = np.array(list(itertools.combinations(range(len(y)), sum(y))))

    def loss(beta: float) -> float:
        eta = np.multiply(x, beta) + offset
        return float(logsumexp(eta[chosen].sum(1)) - eta @ y)

    fitted = (
        ConditionalLogit(y, x, [0] * len(y), offset=offset)
        if model == "strata"
        else CoxPH(2 - np.array(y), y, x, "exact", offset=offset)
    ).fit()
    assert fitted.params.item() == pytest.approx(expected, abs=6e-5)
    best = minimize_scalar(loss, bracket=(expected - 1, expected + 1))
    assert -fitted.llf == pytest.approx(best.fun, rel=1e-12)


def test_many_strata_with_large_offsets() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        x, offset = rng.integers(-3, 4, 4), rng.integers(-14, 15, 4)
        if x[:2].min() >= x[2:].max() or x[:2].max() <= x[2:].min():
            continue
        results = ConditionalLogit([1, 1, 0, 0], x, [0] * 4, offset=offset).fit()
        chosen = np.array(list(itertools.combinations(range(4), 2)))
        weight = np.exp((x * results.params.item() + offset)[chosen].sum(1))
        assert weight @ x[chosen].sum(1) / weight.sum() == pytest.approx(x[:2].sum(), abs=1e-8)


def test_offsets_that_leave_no_information_at_zero() -> None:
    """Pairs whose logits are beyond 800, so that their variances are zero until the coefficient is near."""
    difference, offset = np.array([1, -2, 0.5]), np.array([-900, 900, -800])
    pair = np.repeat(np.arange(3), 2)
    x, offset = (np.c_[values, np.zeros(3)].ravel() for values in (difference, offset))
    results = CoxPH([1, 2] * 3, [1, 0] * 3, x, strata=pair, offset=offset).fit()

    def slope(beta: float) -> float:
        return float(difference @ expit(-difference * beta - offset[::2]))

    assert results.params.item() == pytest.approx(brentq(slope, 0, 2000, xtol=1e-12), rel=1e-12)
    assert np.isnan(results.score_test.statistic)
    assert "nan" in str(results.summary())
