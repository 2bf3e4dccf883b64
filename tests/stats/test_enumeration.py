"""Small made data: likelihoods by enumeration, their derivatives by autograd."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ksubset.stats import ConditionalLogit, CoxPH
from ksubset.stats.newton import Evaluation

ROWS, COLUMNS = 24, 2
TIES = ("exact", "marginal", "efron", "breslow")


@pytest.fixture
def made() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    entry = rng.integers(0, 3, ROWS) - 1.0
    time = entry + rng.integers(1, 5, ROWS)
    return {
        "x": rng.normal(size=(ROWS, COLUMNS)) + np.array([40, -3]),
        "y": rng.integers(0, 2, ROWS),
        "group": rng.choice(["north", "south", "east"], ROWS),
        "offset": rng.normal(size=ROWS),
        "entry": entry,
        "time": time,
        "event": rng.random(ROWS) < 0.7,
    }


def subset_likelihood(eta: Tensor, y: Any) -> Tensor:
    """Log-probability of these rows among all sets of so many rows."""
    n, k = len(eta), int(np.sum(y))
    sums = torch.stack([eta[list(chosen)].sum() for chosen in itertools.combinations(range(n), k)])
    return eta[torch.as_tensor(np.asarray(y) == 1)].sum() - torch.logsumexp(sums, 0)


def tied_likelihood(eta: Tensor, at_risk: Any, dies: Any, ties: str) -> Tensor:
    """Log-likelihood of one event time; of the marginal one, the sum over all orders of the events."""
    if ties == "exact":
        return subset_likelihood(eta[at_risk], dies[at_risk])
    phi = eta.exp()
    dead = np.flatnonzero(dies)
    total, d = phi[at_risk].sum(), len(dead)
    if ties == "marginal":
        orders = []
        for order in itertools.permutations(dead):
            left, chance = total, torch.ones(())
            for i in order:
                chance, left = chance * phi[i] / left, left - phi[i]
            orders.append(chance)
        return torch.stack(orders).sum().log()
    own = phi[dead].sum()
    used = [total - (event / d if ties == "efron" else 0) * own for event in range(d)]
    return eta[dead].sum() - torch.stack(used).log().sum()


def cox_likelihood(beta: Tensor, made: dict[str, Any], ties: str) -> Tensor:
    eta = torch.from_numpy(made["x"]) @ beta + torch.from_numpy(made["offset"])
    value = torch.zeros((), dtype=torch.float64)
    for name in np.unique(made["group"]):
        inside = made["group"] == name
        for t in np.unique(made["time"][inside & made["event"]]):
            at_risk = inside & (made["entry"] < t) & (made["time"] >= t)
            dies = inside & made["event"] & (made["time"] == t)
            value = value + tied_likelihood(eta, at_risk, dies, ties)
    return value


def logit_likelihood(beta: Tensor, made: dict[str, Any]) -> Tensor:
    eta = torch.from_numpy(made["x"]) @ beta + torch.from_numpy(made["offset"])
    inside = [made["group"] == name for name in np.unique(made["group"])]
    return torch.stack([subset_likelihood(eta[rows], made["y"][rows]) for rows in inside]).sum()


def cox(made: dict[str, Any], ties: Any, **changes: Any) -> CoxPH:
    made = made | changes
    return CoxPH(
        made["time"], made["event"], made["x"], ties, entry=made["entry"], strata=made["group"],
        weights=made.get("weights"), offset=made["offset"],
    )  # fmt: skip


def agrees(model: Any, likelihood: Callable[[Tensor], Tensor]) -> None:
    """Value, score and information at some coefficients, and the results at the estimates."""
    beta = torch.tensor([0.4, -0.7], dtype=torch.float64)
    here: Evaluation = model._evaluate(beta.numpy() * model._scale)
    assert here.value == pytest.approx(likelihood(beta).item(), rel=1e-12)
    gradient = torch.autograd.functional.jacobian(likelihood, beta).numpy()
    hessian = torch.autograd.functional.hessian(likelihood, beta).numpy()
    np.testing.assert_allclose(here.score * model._scale, gradient, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(here.information * np.outer(model._scale, model._scale), -hessian, rtol=1e-9, atol=1e-10)
    results = model.fit()
    estimates = torch.from_numpy(results.params.to_numpy().copy())
    assert torch.autograd.functional.jacobian(likelihood, estimates).abs().max() < 1e-8
    information = -torch.autograd.functional.hessian(likelihood, estimates)
    np.testing.assert_allclose(results.cov_params(), torch.linalg.inv(information), rtol=1e-6)
    assert results.llf == pytest.approx(likelihood(estimates).item(), rel=1e-12)
    assert results.llnull == pytest.approx(likelihood(torch.zeros(2, dtype=torch.float64)).item(), rel=1e-12)


def test_conditional_logit(made: dict[str, Any]) -> None:
    model = ConditionalLogit(made["y"], made["x"], made["group"], offset=made["offset"])
    agrees(model, lambda beta: logit_likelihood(beta, made))


@pytest.mark.parametrize("ties", TIES)
def test_cox(made: dict[str, Any], ties: Any) -> None:
    agrees(cox(made, ties), lambda beta: cox_likelihood(beta, made, ties))


@pytest.mark.parametrize("ties", TIES)
def test_a_last_time_at_which_all_have_their_event(made: dict[str, Any], ties: Any) -> None:
    last = made["time"] >= 4
    changed = made | {"event": made["event"] | last, "time": np.minimum(made["time"], 4.0)}
    agrees(cox(changed, ties), lambda beta: cox_likelihood(beta, changed, ties))


@pytest.mark.parametrize("ties", TIES)
def test_martingale_residuals_are_derivatives_in_the_linear_predictor(made: dict[str, Any], ties: Any) -> None:
    results = cox(made, ties).fit()
    beta = torch.from_numpy(results.params.to_numpy().copy())

    def likelihood(extra: Tensor) -> Tensor:
        changed = made | {"x": np.zeros((ROWS, 0)), "offset": np.zeros(ROWS)}
        fixed = torch.from_numpy(made["x"]) @ beta + torch.from_numpy(made["offset"])
        changed["x"] = np.eye(ROWS)
        return cox_likelihood(fixed + extra, changed, ties)

    gradient = torch.autograd.functional.jacobian(likelihood, torch.zeros(ROWS, dtype=torch.float64))
    np.testing.assert_allclose(results.residuals(), gradient, atol=1e-10)
    schoenfeld = results.residuals("schoenfeld")
    np.testing.assert_allclose(schoenfeld.sum(), 0, atol=1e-8)


@pytest.mark.parametrize("ties", TIES)
def test_weights_are_copies(made: dict[str, Any], ties: Any) -> None:
    weights = np.random.default_rng(0).integers(1, 4, ROWS)
    some = cox(made, ties, weights=weights)
    copies = np.repeat(np.arange(ROWS), weights)
    all_rows = cox({name: values[copies] for name, values in made.items()}, ties)
    one, other = some.fit(), all_rows.fit()
    np.testing.assert_allclose(one.params, other.params, rtol=1e-10)
    np.testing.assert_allclose(one.bse, other.bse, rtol=1e-10)
    assert one.nobs == other.nobs == weights.sum()
    np.testing.assert_allclose(one.residuals().to_numpy()[copies], other.residuals(), atol=1e-10)
    if ties in {"efron", "breslow"}:
        np.testing.assert_allclose(some.fit("robust").bse, all_rows.fit("robust").bse, rtol=1e-10)


def test_weights_of_strata_are_copies(made: dict[str, Any]) -> None:
    group = np.repeat(np.arange(6), 4)
    weights = np.repeat([1, 2, 3, 1, 2, 1], 4)
    y = np.tile([1, 0, 0, 1, 0, 0, 1, 0], 3)
    one = ConditionalLogit(y, made["x"], group, weights=weights)
    index = np.concatenate([np.flatnonzero(group == g) for g, w in enumerate([1, 2, 3, 1, 2, 1]) for _ in range(w)])
    other = ConditionalLogit(y[index], made["x"][index], np.repeat(np.arange(10), 4))
    for covariance in ("hessian", "robust"):
        a, b = one.fit(covariance), other.fit(covariance)
        np.testing.assert_allclose(a.params, b.params, rtol=1e-10)
        np.testing.assert_allclose(a.bse, b.bse, rtol=1e-10)
    assert (a.nobs, a.llf) == (b.nobs, pytest.approx(b.llf))


@pytest.mark.parametrize("ties", TIES)
def test_one_event_at_a_time_is_one_likelihood(made: dict[str, Any], ties: Any) -> None:
    time = np.random.default_rng(1).permutation(ROWS) + 5.0
    results = cox(made, ties, time=time).fit()
    np.testing.assert_allclose(results.params, cox(made, "breslow", time=time).fit().params, rtol=1e-10)


def test_late_entry_loses_no_digits_where_large_hazards_have_left() -> None:
    """The first risk sets outweigh the last by a factor of exp(60)."""
    n = 40
    time = np.r_[np.full(n, 10.0) + np.arange(n), np.arange(n) / 10 + 1]
    entry = np.r_[np.full(n, 9.5), np.zeros(n)]
    x = np.r_[np.tile([60.0, 61.0], n // 2), np.tile([0.0, 1.0, 1.0, 0.0], n // 4)]
    model = CoxPH(time, np.ones(2 * n), x, "breslow", entry=entry)
    early = CoxPH(time[n:], np.ones(n), x[n:], "breslow")
    late = CoxPH(time[:n], np.ones(n), x[:n], "breslow")
    value = [one._evaluate(np.ones(1) * one._scale).value for one in (model, early, late)]
    assert value[0] == pytest.approx(value[1] + value[2], rel=1e-12)


@pytest.mark.parametrize("spread", [0.1, 20.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (40, 1), (40, 20), (300, 290), (3000, 1000)])
def test_long_strata_against_the_recursion(n: int, k: int, spread: float) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    y = np.zeros(n)
    y[rng.permutation(n)[:k]] = 1
    model = ConditionalLogit(y, x, np.zeros(n))
    logits = torch.from_numpy(x * spread)

    def likelihood(scale: Tensor) -> Tensor:
        eta = logits * scale
        row = [eta.new_zeros(()), *[eta.new_full((), -torch.inf)] * k]
        sums = torch.stack(row)
        for item in eta:
            moved = torch.cat([sums.new_full((1,), -torch.inf), sums[:-1] + item])
            sums = torch.where(moved.isinf(), sums, torch.where(sums.isinf(), moved, torch.logaddexp(
                torch.where(sums.isinf(), 0.0, sums), torch.where(moved.isinf(), 0.0, moved))))  # fmt: skip
        return (eta * torch.from_numpy(y)).sum() - sums[k]

    here = model._evaluate(np.array([spread]) * model._scale)
    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    value = likelihood(one)
    (gradient,) = torch.autograd.grad(value, one)
    assert here.value == pytest.approx(value.item(), rel=1e-11)
    assert here.score.item() * model._scale.item() * spread == pytest.approx(gradient.item(), rel=1e-9, abs=1e-9)


def test_predictions_and_residuals(made: dict[str, Any]) -> None:
    results = ConditionalLogit(made["y"], made["x"], made["group"], offset=made["offset"]).fit()
    eta = torch.from_numpy(made["x"] @ results.params.to_numpy() + made["offset"])
    probability = results.predict()
    for name in np.unique(made["group"]):
        inside = made["group"] == name
        n, k = inside.sum(), made["y"][inside].sum()
        hot = torch.tensor([[i in s for i in range(n)] for s in itertools.combinations(range(n), k)]).double()
        np.testing.assert_allclose(probability[inside], torch.softmax(hot @ eta[inside], 0) @ hot, rtol=1e-10)
        again = results.predict(made["x"][inside], made["group"][inside], cases=int(k), offset=made["offset"][inside])
        np.testing.assert_allclose(probability[inside], again, rtol=1e-12)
    np.testing.assert_allclose(results.residuals(), made["y"] - probability)
    deviation = np.sqrt(probability * (1 - probability))
    np.testing.assert_allclose(results.residuals("pearson"), (made["y"] - probability) / deviation)
    hazards = cox(made, "efron").fit()
    expected = np.exp(made["x"] @ hazards.params.to_numpy())
    np.testing.assert_allclose(hazards.predict(made["x"]), expected)
    np.testing.assert_allclose(hazards.predict(), expected * np.exp(made["offset"]))


def test_progress_is_told(made: dict[str, Any]) -> None:
    told: list[tuple[int, float]] = []
    results = cox(made, "exact").fit(notify=lambda iteration, value: told.append((iteration, value)))
    assert [iteration for iteration, _ in told] == list(range(1, results.iterations + 1))
    assert [value for _, value in told] == sorted(value for _, value in told)
    assert told[0][1] == results.llnull
    assert told[-1][1] == results.llf
    assert results.aic == 2 * COLUMNS - 2 * results.llf


@pytest.mark.parametrize("entry", [False, True])
def test_sums_over_a_stratum_know_nothing_of_the_others(entry: bool) -> None:
    """Where others have rows of so large a hazard that what comes after them adds a multiple of their sums."""
    rng = np.random.default_rng(0)
    x, time, event = rng.normal(size=(40, 2)), rng.exponential(size=40).round(1) + 0.1, rng.random(40) < 0.7
    enters = time * rng.choice([0, 0.5], 40) if entry else None
    first, beta = slice(20), np.array([0.3, -0.2])
    alone = CoxPH(time[first], event[first], x[first], entry=None if enters is None else enters[first])
    expected = np.empty(20)
    expected[alone._order] = alone._expected(beta * alone._scale)
    for offset in (0.0, 20.0, 40.0):
        high = np.where((np.arange(40) >= 20) & (time < 0.6), offset, 0.0)
        both = CoxPH(time, event, x, strata=np.repeat(["a", "b"], 20), offset=high, entry=enters)
        found = np.empty(40)
        found[both._order] = both._expected(beta * both._scale)
        np.testing.assert_allclose(found[first], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("offset", [20.0, 40.0, 80.0])
def test_rows_that_enter_late_keep_their_digits_beside_large_hazards(offset: float) -> None:
    """Early rows share no risk set with late ones, whose hazards are larger or smaller by any factor."""
    rng = np.random.default_rng(0)
    x, event, beta = rng.normal(size=(40, 2)), rng.random(40) < 0.7, np.array([0.3, -0.2])
    time, late = rng.exponential(size=40).round(1) + 0.1, np.arange(40) >= 20
    enters = np.where(late, 10.0, time * rng.choice([0, 0.5], 40))
    time = time + 10 * late

    def found(model: CoxPH) -> tuple[np.ndarray, np.ndarray]:
        expected, scores = np.empty(len(model._order)), np.empty((len(model._order), 2))
        expected[model._order] = model._expected(beta * model._scale)
        scores[model._order] = model._scores(beta * model._scale)[0] * model._scale
        return expected, scores

    for shift in (np.where(late, offset, 0.0), np.where(late, 0.0, offset)):
        both = found(CoxPH(time, event, x, entry=enters, offset=shift))
        for half in (late, ~late):
            alone = found(CoxPH(time[half], event[half], x[half], entry=enters[half]))
            np.testing.assert_allclose(both[0][half], alone[0], rtol=1e-9)
            np.testing.assert_allclose(both[1][half], alone[1], rtol=1e-9, atol=1e-11)


def test_hazards_beyond_all_numbers_are_an_error_in_residuals() -> None:
    time, event, x = np.arange(1.0, 9), [1, 1, 0, 1, 1, 0, 1, 1], [0.3, -1, 0.5, 0.2, -0.7, 1, 0.1, -0.4]
    late = np.arange(8) >= 4

    def residuals(offset: float, **strata: Any) -> np.ndarray:
        model = CoxPH(time, event, x, entry=4.0 * late, offset=np.where(late, 0.0, offset), **strata)
        values: np.ndarray = model.fit().residuals().to_numpy()
        return values

    expected = residuals(0.0, strata=late)
    np.testing.assert_allclose(residuals(700.0), expected, rtol=1e-9)
    np.testing.assert_allclose(residuals(1e4, strata=late), expected, rtol=1e-9)
    for offset in (720.0, 750.0):
        with pytest.raises(
            ValueError, match="offset: expected linear predictors of rows at risk that are less than 700"
        ):
            residuals(offset)


@pytest.mark.parametrize("offset", [700.0, 708.25, 708.5, 708.9, 709.0, 709.25, 730.0])
def test_sums_of_hazards_near_the_largest_number_are_right_or_an_error(offset: float) -> None:
    rng = np.random.default_rng(0)
    time, late, x = np.arange(1.0, 31), np.arange(30) >= 15, rng.normal(size=(30, 2)) * [1, 5]
    beta = np.array([0.3, -0.2])

    def values(**arguments: Any) -> np.ndarray:
        model = CoxPH(time, np.ones(30), x, entry=15.0 * late, **arguments)
        found = np.empty((30, 3))
        found[model._order, 0] = model._expected(beta * model._scale)
        found[model._order, 1:] = model._scores(beta * model._scale)[0] * model._scale
        return found

    try:
        found = values(offset=np.where(late, 0.0, offset))
    except ValueError:
        assert offset > 708
    else:
        assert offset < 730
        np.testing.assert_allclose(found, values(strata=late), rtol=1e-7, atol=1e-9)
