"""The distributions whose size varies, or is that of groups: against enumeration, and against one another."""

import copy
import itertools
import math
import pickle
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from makers import MAKERS
from oracle import FALSE_ALARM, z_limit
from torch import Tensor
from torch.distributions import kl_divergence

from ksubset import (
    IMLE,
    NCPSS,
    AtMostKSubset,
    GumbelTopK,
    KSubset,
    LeaveOneOut,
    PartitionedKSubset,
    SubsetDistribution,
    expectation,
)

N = 6
GROUPS = [2, 0, 1, 0, 2, 2]
CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[tuple[int, ...]], bool]]] = {
    "at most 2": (lambda w: AtMostKSubset(2, w), lambda z: sum(z) <= 2),
    "at most all": (lambda w: AtMostKSubset(N, w), lambda z: True),
    "none": (lambda w: AtMostKSubset(0, w), lambda z: sum(z) == 0),
    "2 to 4": (lambda w: AtMostKSubset(4, w, low=2), lambda z: 2 <= sum(z) <= 4),
    "at least 5": (lambda w: AtMostKSubset(N, w, low=5), lambda z: sum(z) >= 5),
    "3 to 3": (lambda w: AtMostKSubset(3, w, low=3), lambda z: sum(z) == 3),
    "one of each": (lambda w: PartitionedKSubset(GROUPS, 1, w), lambda z: _counts(z) == (1, 1, 1)),
    "some of each": (lambda w: PartitionedKSubset(GROUPS, [1, 0, 2], w), lambda z: _counts(z) == (1, 0, 2)),
    "at most 2 of each": (
        lambda w: PartitionedKSubset(GROUPS, [2, 1, 2], w, low=[0, 1, 1]),
        lambda z: all(a <= c <= b for a, b, c in zip((0, 1, 1), (2, 1, 2), _counts(z), strict=True)),
    ),
}


def _counts(z: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(value for value, group in zip(z, GROUPS, strict=True) if group == g) for g in range(3))


def support(allowed: Callable[[tuple[int, ...]], bool]) -> Tensor:
    return torch.tensor([z for z in itertools.product((0, 1), repeat=N) if allowed(z)], dtype=torch.float64)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Callable[[Tensor], Any], Tensor]:
    make, allowed = CASES[request.param]
    return make, support(allowed)


LOGITS = [
    torch.tensor([0.8, -0.5, 0.3, -1.0, 0.0, 0.6], dtype=torch.float64),
    torch.tensor([3.0, 2.0, 4.0, 2.5, 1.0, 3.0], dtype=torch.float64),
    torch.tensor([-9.0, -2.0, -4.0, -12.0, -1.0, -3.0], dtype=torch.float64),
    torch.tensor([60.0, -80.0, 5.0, -30.0, 100.0, -5.0], dtype=torch.float64),
]


@pytest.mark.parametrize("logits", LOGITS)
def test_against_enumeration(case: tuple[Callable[[Tensor], Any], Tensor], logits: Tensor) -> None:
    make, z = case
    w = logits.clone().requires_grad_()
    dist = make(w)
    log_prob = torch.log_softmax(z @ w, 0)
    p = log_prob.exp()
    torch.testing.assert_close(dist.log_prob(z), log_prob)
    torch.testing.assert_close(dist.log_normalizer, torch.logsumexp(z @ w, 0))
    mean, out = p @ z, p @ (1 - z)
    torch.testing.assert_close(dist.mean, mean, rtol=1e-11, atol=1e-300)
    torch.testing.assert_close(dist.variance, mean * out, rtol=1e-11, atol=1e-300)
    torch.testing.assert_close(dist.entropy(), -(p * torch.where(p > 0, log_prob, 0.0)).sum(), rtol=1e-10, atol=1e-14)
    centred = z - mean
    covariance = centred.T @ (p[:, None] * centred)
    torch.testing.assert_close(dist.covariance_matrix, covariance.detach(), rtol=1e-9, atol=1e-14)
    vector = torch.randn(3, N, dtype=torch.float64)
    torch.testing.assert_close(dist.covariance_product(vector), (vector @ covariance).detach(), rtol=1e-9, atol=1e-13)
    best = z[p.argmax()]
    assert dist.log_prob(dist.mode).item() == pytest.approx(dist.log_prob(best).item(), abs=1e-12)
    listed = dist.enumerate_support()
    assert {tuple(row) for row in listed.tolist()} == {tuple(row) for row in z.tolist()}
    assert len(listed) == len(z)
    weight = torch.linspace(-1, 2, N, dtype=torch.float64)
    for value, twin in ((dist.log_normalizer, torch.logsumexp(z @ w, 0)), (dist.mean @ weight, mean @ weight)):
        (found,) = torch.autograd.grad(value, w)
        (right,) = torch.autograd.grad(twin, w, retain_graph=True)
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-13)


def test_subsets_of_sizes_that_differ_by_row_are_not_listed() -> None:
    several = torch.tensor([2, 1])
    with pytest.raises(ValueError, match=r"enumerate_support needs one k for the whole batch, got \[1, 2\]"):
        AtMostKSubset(several, torch.zeros(2, 4)).enumerate_support()
    with pytest.raises(ValueError, match=r"enumerate_support needs one low for the whole batch, got \[1, 2\]"):
        AtMostKSubset(3, torch.zeros(2, 4), low=several).enumerate_support()
    same = AtMostKSubset(torch.tensor([2, 2]), torch.zeros(2, 4), low=1).enumerate_support()
    expected = AtMostKSubset(2, torch.zeros(4), low=1).enumerate_support()
    torch.testing.assert_close(same, expected[:, None].expand(-1, 2, -1))


def test_what_is_no_subset_is_said() -> None:
    with pytest.raises(ValueError, match=r"within the support \(vectors of zeros and ones, with low to k ones\)"):
        AtMostKSubset(2, torch.zeros(4)).log_prob(torch.ones(4))
    with pytest.raises(ValueError, match=r"\(vectors of zeros and ones, with low to k ones in each group\)"):
        PartitionedKSubset([0, 0, 1, 1], 1, torch.zeros(4)).log_prob(torch.ones(4))


def test_outside_of_the_support(case: tuple[Callable[[Tensor], Any], Tensor]) -> None:
    make, z = case
    inside = {tuple(row) for row in z.tolist()}
    outside = [row for row in itertools.product((0.0, 1.0), repeat=N) if row not in inside]
    for row in [*outside, (0.5,) * N]:
        value = torch.tensor(row, dtype=torch.float64)
        with pytest.raises(ValueError, match="support"):
            make(LOGITS[0]).log_prob(value)
        assert make(LOGITS[0]).support.check(value).item() is False


@pytest.mark.parametrize("logits", LOGITS[:2])
def test_samples(case: tuple[Callable[[Tensor], Any], Tensor], logits: Tensor) -> None:
    make, z = case
    dist, draws = make(logits), 80_000
    p = torch.softmax(z @ logits, 0)
    for sample in (dist.sample((draws,)), dist.expand((4, 2)).sample((draws // 8,)).reshape(draws, N)):
        code = (sample @ (2.0 ** torch.arange(N, dtype=torch.float64))).long()
        counts = code.bincount(minlength=2**N)[(z @ (2.0 ** torch.arange(N, dtype=torch.float64))).long()].double()
        assert counts.sum() == draws  # nothing from outside of the support
        assert chi_square_p_value(counts, p) > FALSE_ALARM
    indices = dist.sample_indices((50,))
    assert indices.shape == (50, int(z.sum(-1).max()))
    for row in indices.tolist():
        members = [item for item in row if item >= 0]
        assert members == sorted(set(members))
        assert tuple(float(i in members) for i in range(N)) in {tuple(s) for s in z.tolist()}


def chi_square_p_value(counts: Tensor, p: Tensor) -> float:
    from scipy.stats import chi2

    expected = p / p.sum() * counts.sum()
    rare = expected < 10
    cells = [(counts[~rare], expected[~rare]), (counts[rare].sum()[None], expected[rare].sum()[None])]
    statistic = sum(float(((c - e).square() / e.clamp(min=1)).sum()) for c, e in cells)
    free = int((~rare).sum()) - 1 + int(bool(rare.any()))
    return float(chi2.sf(statistic, free)) if free else 1.0


def test_samples_with_gradients_are_refused_with_what_there_is(case: tuple[Callable[[Tensor], Any], Tensor]) -> None:
    make, _ = case
    dist = make(LOGITS[0])
    assert not dist.has_rsample
    with pytest.raises(NotImplementedError, match=f"^{type(dist).__name__} has no samples .* see ksubset.expectation"):
        dist.rsample((3,))


def test_distinct_samples(case: tuple[Callable[[Tensor], Any], Tensor]) -> None:
    make, z = case
    number = min(len(z), 5)
    rows = 8_000
    dist = make(LOGITS[0]).expand((rows,))
    sets = dist.sample_distinct(number)
    assert sets.shape == (number, rows, N)
    power = 2.0 ** torch.arange(N, dtype=torch.float64)
    code = (sets @ power).long()
    assert (code.sort(0).values.diff(dim=0) > 0).all()
    # The first is an exact sample, the second one of the rest.
    place = {int(c): i for i, c in enumerate((z @ power).long().tolist())}
    p = torch.softmax(z @ LOGITS[0], 0)
    first = torch.tensor([place[c] for c in code[0].tolist()]).bincount(minlength=len(z)).double()
    assert chi_square_p_value(first, p) > FALSE_ALARM
    if number > 1:
        second = torch.tensor([place[c] for c in code[1].tolist()]).bincount(minlength=len(z)).double()
        after = torch.stack([p[i] * p / (1 - p[i]) * (torch.arange(len(p)) != i) for i in range(len(p))]).sum(0)
        assert chi_square_p_value(second, after) > FALSE_ALARM
    if len(z) < 2**N:
        with pytest.raises(ValueError, match=f"there must be {len(z) + 1} or more subsets"):
            make(LOGITS[0]).sample_distinct(len(z) + 1)


def curved(z: Tensor) -> Tensor:
    weights = torch.tensor([1.0, -0.6, 0.4, 0.9, -1.2, 0.2], dtype=z.dtype)
    return torch.cos(2 * (z * weights).sum(-1)) + 2 * z[..., 0] * z[..., 3] + z[..., 1] * z[..., 4]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("which", ["2 to 4", "one of each", "at most 2 of each"])
def test_every_estimator(which: str, name: str) -> None:
    make, allowed = CASES[which]
    z, w = support(allowed), LOGITS[0].clone().requires_grad_()
    (exact,) = torch.autograd.grad((torch.softmax(z @ w, 0) * curved(z)).sum(), w)
    estimator = MAKERS[name]()
    # Of the biased ones there is only to see that they run.
    rows = LOGITS[0].repeat(60_000 if estimator.unbiased else 500, 1).requires_grad_()
    value = expectation(curved, make(rows), estimator, 3)
    value.sum().backward()
    assert rows.grad is not None
    error = rows.grad.std(0) / math.sqrt(len(rows))
    unbiased = bool(((rows.grad.mean(0) - exact).abs() < z_limit(N) * error + 1e-12).all())
    if estimator.unbiased:
        assert unbiased
        assert error.norm() < 0.03 * exact.norm()
    else:
        assert rows.grad.isfinite().all()
        assert rows.grad.abs().max() > 0


def test_distributions_that_coincide() -> None:
    w = torch.randn(4, 10, dtype=torch.float64)
    groups = [0] * 10
    for k in (0, 1, 4, 9, 10):
        one = KSubset(k, w)
        for other in (AtMostKSubset(k, w, low=k), PartitionedKSubset(groups, k, w)):
            same(one, other)
    for low, k in ((0, 3), (2, 7), (0, 10)):
        same(AtMostKSubset(k, w, low=low), PartitionedKSubset(groups, k, w, low=low))
    # Without a limit, independent draws.
    free = AtMostKSubset(10, w)
    torch.testing.assert_close(free.mean, w.sigmoid())
    torch.testing.assert_close(free.log_normalizer, torch.nn.functional.softplus(w).sum(-1))
    # One of each block: independent categorical variables.
    blocks = PartitionedKSubset([0, 0, 1, 1, 1, 2, 2, 2, 2, 2], 1, w)
    torch.testing.assert_close(blocks.mean[:, 2:5], w[:, 2:5].softmax(-1))
    torch.testing.assert_close(blocks.mean[:, 5:], w[:, 5:].softmax(-1))


def same(a: Any, b: Any) -> None:
    for name in ("mean", "variance", "log_normalizer", "covariance_matrix", "mode"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(a.entropy(), b.entropy(), rtol=1e-11, atol=1e-12)
    z = a.sample((20,))
    torch.testing.assert_close(b.log_prob(z), a.log_prob(z))


def test_the_divergence_has_its_digits_where_another_item_costs_much() -> None:
    # Of the first one 3e-7 of the subsets are smaller than nearly all of the second, whose logits are far above.
    p = AtMostKSubset(1, torch.tensor([-15.1, -453.8], dtype=torch.float64).add(30), low=0)
    q = AtMostKSubset(1, torch.tensor([162.7, -53.2], dtype=torch.float64))
    z = p.enumerate_support()
    exact = (p.log_prob(z).exp() * (p.log_prob(z) - q.log_prob(z))).sum()
    torch.testing.assert_close(kl_divergence(p, q), exact, rtol=0.0, atol=1e-12)


def test_unlikely_sizes_are_drawn_as_distinct_subsets_too() -> None:
    drawn = AtMostKSubset(1, torch.tensor([-789.0, -2000.0])).sample_distinct(3)
    assert drawn.tolist() == [[0, 0], [1, 0], [0, 1]]


def test_sizes_by_row_and_infinite_logits() -> None:
    inf = math.inf
    w = torch.tensor([[inf, 0, 1, -inf, 2], [0, 1, 2, 3, 4], [inf, inf, 0, 0, 0], [-inf, -inf, -inf, 1, 2]])
    low, k = torch.tensor([0, 1, 2, 2]), torch.tensor([2, 4, 2, 5])
    dist = AtMostKSubset(k, w.double(), low=low)
    for row in range(4):
        one = AtMostKSubset(int(k[row]), w[row].double(), low=int(low[row]))
        z = one.enumerate_support()
        finite = torch.where(w[row].isfinite(), w[row], 0.0).double()
        possible = ((z == 1) | (w[row] != inf)).all(-1) & ((z == 0) | (w[row] != -inf)).all(-1)
        p = torch.softmax((z @ finite)[possible], 0)
        for found in (one, dist):
            mean = found.mean if found is one else found.mean[row]
            torch.testing.assert_close(mean, p @ z[possible])
            sample = found.sample((2000,)) if found is one else found.sample((2000,))[:, row]
            assert (sample.sum(-1) <= k[row]).all()
            assert (sample.sum(-1) >= low[row]).all()
            assert binomial(sample, p @ z[possible]) > FALSE_ALARM


@pytest.mark.parametrize("logits", LOGITS)
def test_infinite_logits_in_any_place(case: tuple[Callable[[Tensor], Any], Tensor], logits: Tensor) -> None:
    make, z = case
    fixed = torch.cartesian_prod(*[torch.tensor([0.0, math.inf, -math.inf], dtype=torch.float64)] * N)
    contradicts = ((z == 0) & fixed[:, None].isposinf() | (z == 1) & fixed[:, None].isneginf()).any(-1)
    feasible = ~contradicts.all(-1)
    fixed, contradicts = fixed[feasible], contradicts[feasible]
    w = (logits + fixed).requires_grad_()
    dist = make(w)
    free = torch.where(fixed == 0, w, 0.0)
    log_prob = torch.log_softmax(torch.where(contradicts, -math.inf, free @ z.T), -1)
    p = log_prob.exp()
    torch.testing.assert_close(dist.log_prob(z[:, None]), log_prob.T)
    mean, out = p @ z, p @ (1 - z)
    torch.testing.assert_close(dist.mean, mean, rtol=1e-11, atol=1e-300)
    torch.testing.assert_close(dist.variance, mean * out, rtol=1e-11, atol=1e-300)
    entropy = -(p * torch.where(p > 0, log_prob, 0.0)).sum(-1)
    torch.testing.assert_close(dist.entropy(), entropy, rtol=1e-10, atol=1e-14)
    covariance = torch.einsum("ri,ia,ib->rab", p, z, z) - mean[:, :, None] * mean[:, None]
    torch.testing.assert_close(dist.covariance_matrix, covariance.detach(), rtol=1e-9, atol=1e-13)
    without = ~fixed.isposinf().any(-1)
    normalizer = torch.where(contradicts, -math.inf, free @ z.T).logsumexp(-1)
    torch.testing.assert_close(dist.log_normalizer, torch.where(without, normalizer, math.inf))
    torch.testing.assert_close(dist.log_prob(dist.mode), log_prob.amax(-1))
    weight = torch.linspace(-1, 2, N, dtype=torch.float64)
    for found, twin in ((dist.mean, mean), (dist.entropy()[:, None], entropy[:, None])):
        (got,) = torch.autograd.grad((found * weight).sum(), w, retain_graph=True)
        (right,) = torch.autograd.grad((twin * weight).sum(), w, retain_graph=True)
        torch.testing.assert_close(got, torch.where(fixed == 0, right, 0.0), rtol=1e-8, atol=1e-12)
    other_log_prob = torch.log_softmax(torch.where(contradicts, -math.inf, (LOGITS[0] * (fixed == 0)) @ z.T), -1)
    divergence = torch.where(p > 0, p * (log_prob - other_log_prob), 0.0).sum(-1)
    torch.testing.assert_close(kl_divergence(dist, make(LOGITS[0] + fixed)), divergence, rtol=1e-9, atol=1e-12)
    sample = dist.sample((500,))
    assert (dist.log_prob(sample) > -math.inf).all()
    assert binomial(sample, mean.detach()) > FALSE_ALARM


def test_at_every_expected_size(case: tuple[Callable[[Tensor], Any], Tensor]) -> None:
    # Whichever end of the range the draws without a limit are near, within it, and on the way from one to the other.
    make, z = case
    w = LOGITS[0] + torch.linspace(-8, 8, 3001, dtype=torch.float64)[:, None]
    dist = make(w)
    log_prob = torch.log_softmax(w @ z.T, -1)
    torch.testing.assert_close(dist.log_prob(z[:, None]), log_prob.T, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(dist.log_normalizer, (w @ z.T).logsumexp(-1), rtol=1e-12, atol=1e-12)
    p = log_prob.exp()
    torch.testing.assert_close(dist.mean, p @ z, rtol=1e-11, atol=1e-300)
    torch.testing.assert_close(dist.entropy(), -(p * log_prob).sum(-1), rtol=1e-10, atol=1e-14)
    other = make(w.roll(700, 0))
    divergence = (p * (log_prob - log_prob.roll(700, 0))).sum(-1)
    torch.testing.assert_close(kl_divergence(dist, other), divergence, rtol=1e-9, atol=1e-12)


def binomial(sample: Tensor, p: Tensor) -> float:
    from oracle import binomial_p_value

    return binomial_p_value(sample.sum(0).long(), p.clamp(max=1), len(sample))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_dtypes(dtype: torch.dtype) -> None:
    w = torch.randn(3, N).to(dtype)
    for make, _ in CASES.values():
        dist, twin = make(w), make(w.double())
        assert dist.mean.dtype == dist.sample().dtype == dist.entropy().dtype == dtype
        torch.testing.assert_close(dist.mean.double(), twin.mean, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_divergence() -> None:
    p, q = AtMostKSubset(3, LOGITS[0], low=1), AtMostKSubset(4, LOGITS[1])
    z = p.enumerate_support()
    expected = (p.log_prob(z).exp() * (p.log_prob(z) - q.log_prob(z))).sum()
    torch.testing.assert_close(kl_divergence(p, q), expected)
    assert kl_divergence(q, p) == math.inf
    # An item that is certain leaves no empty subset.
    w = torch.tensor([math.inf, 0.3, -0.2])
    assert kl_divergence(AtMostKSubset(2, w), AtMostKSubset(2, w, low=1)) == 0
    a, b = PartitionedKSubset(GROUPS, 1, LOGITS[0]), PartitionedKSubset(GROUPS, 1, LOGITS[1])
    z = a.enumerate_support()
    torch.testing.assert_close(kl_divergence(a, b), (a.log_prob(z).exp() * (a.log_prob(z) - b.log_prob(z))).sum())
    with pytest.raises(NotImplementedError, match="the same groups of items"):
        kl_divergence(a, KSubset(3, LOGITS[0]))


@pytest.mark.parametrize("what", ["range", "groups", "many groups"])
def test_a_million_items_in_under_a_second(what: str, one_thread: None) -> None:
    n = 1_000_000
    logits = torch.randn(n, requires_grad=True)
    groups = torch.arange(n) % (7 if what == "groups" else 1000)
    seconds = []
    for _ in range(4):  # the first is a warm-up, and what else runs on the machine should not count
        logits.grad = None
        start = time.process_time()
        dist: Any = AtMostKSubset(1000, logits) if what == "range" else PartitionedKSubset(groups, 3, logits)
        dist.log_normalizer.backward()
        mean = dist.mean.detach()
        dist.entropy()
        seconds.append(time.process_time() - start)
    assert logits.grad is not None
    torch.testing.assert_close(mean, logits.grad)
    size = 1000 if what == "range" else 3 * (int(groups.max()) + 1)
    assert mean.double().sum().item() == pytest.approx(size, rel=1e-3)
    assert min(seconds) < 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: AtMostKSubset(2, torch.zeros(4), low=3), ValueError, "low must be at most k, got low = 3 and k = 2"),
        (lambda: AtMostKSubset(5, torch.zeros(4)), ValueError, "k must be between 0 and the number of items, 4, got 5"),
        (lambda: AtMostKSubset(2, torch.zeros(4), low=-1), ValueError, "low must be between 0 and the number of items"),
        (lambda: AtMostKSubset(2, torch.zeros(4), low=0.5), TypeError, "low must be an integer"),
        (lambda: AtMostKSubset(1, torch.tensor([math.inf, math.inf, 0])), ValueError, "must include at most k items"),
        (lambda: PartitionedKSubset([0, 0, 1], 1, torch.zeros(4)), ValueError, "groups must have shape (4,)"),
        (lambda: PartitionedKSubset([0, 0, 2, 2], 1, torch.zeros(4)), ValueError, "groups must be numbered from 0"),
        (lambda: PartitionedKSubset([0, 0, -1, 1], 1, torch.zeros(4)), ValueError, "groups must be numbered from 0"),
        (lambda: PartitionedKSubset([0.5] * 4, 1, torch.zeros(4)), TypeError, "groups must be integers"),
        (
            lambda: PartitionedKSubset(["a", "b"], 1, torch.zeros(2)),  # type: ignore[list-item]
            TypeError,
            "groups must be integers, got ['a', 'b']",
        ),
        (lambda: PartitionedKSubset([0, 0], None, torch.zeros(2)), TypeError, "k must be integers, got None"),  # type: ignore[arg-type]
        (
            lambda: PartitionedKSubset([0, 0, 1, 1], [1, 3], torch.zeros(4)),
            ValueError,
            "k must be between 0 and the number of items of the group, 2 in group 1, got 3",
        ),
        (lambda: PartitionedKSubset([0, 0, 1, 1], [1, 2, 1], torch.zeros(4)), ValueError, "one for each of 2 groups"),
        (lambda: PartitionedKSubset([0, 0, 1, 1], 1, torch.zeros(4), low=2), ValueError, "low must be at most k"),
        (
            lambda: PartitionedKSubset([0, 0, 1, 1], 1, torch.tensor([-math.inf, -math.inf, 0, 0])),
            ValueError,
            "above -inf must be at least k in row 0, got 0",
        ),
        (lambda: AtMostKSubset(2, torch.zeros(4)).sample(5), TypeError, "integers such as (5,), got 5"),
        (lambda: AtMostKSubset(2, torch.zeros(4)).sample((2, -1)), ValueError, "no negative entry, got (2, -1)"),
        (lambda: AtMostKSubset(2, torch.zeros(4)).sample_indices((0.5,)), TypeError, "sample_shape must be a sequence"),
        (lambda: AtMostKSubset(2, torch.zeros(4)).expand(5), TypeError, "batch_shape must be a sequence of integers"),
        (lambda: AtMostKSubset(2, torch.zeros(3, 4)).expand((4,)), ValueError, "(3,) expands to, got (4,)"),
        (lambda: AtMostKSubset(2, torch.zeros(3, 4)).expand(()), ValueError, "(3,) expands to, got ()"),
        (lambda: AtMostKSubset(2, torch.zeros(3, 4)).expand((2, -1)), ValueError, "no negative entry, got (2, -1)"),
        (lambda: AtMostKSubset(2, torch.zeros(4), low=torch.tensor(-1)), ValueError, "low must be between 0 and"),
        (lambda: KSubset(torch.tensor(-1), torch.zeros(4)), ValueError, "k must be between 0 and"),
        (lambda: KSubset(2, torch.zeros(4).to_sparse()), TypeError, "logits must be a dense floating-point tensor"),
        (
            lambda: KSubset(2, torch.zeros(4).to(torch.float8_e5m2)),
            TypeError,
            "of 16 bits or more, got torch.float8_e5",
        ),
        (lambda: KSubset(2, torch.zeros(4)).sample_distinct(-1), ValueError, "num_samples must be 0 or more, got -1"),
        (lambda: KSubset(2, torch.zeros(4)).sample_distinct(1.5), TypeError, "num_samples must be an integer, got 1.5"),
    ],
)
def test_wrong_arguments(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.searchsorted")  # torch's own
@pytest.mark.parametrize("which", ["at most 2", "at least 5", "one of each", "at most 2 of each"])
def test_transforms_copies_and_second_passes(which: str) -> None:
    def make(w: Tensor) -> Any:
        dist = CASES[which][0](w)
        dist._validate_args = False
        return dist

    rows = torch.randn(3, N, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(lambda w: make(w).mean)(rows), make(rows).mean)
    hessian = torch.func.hessian(lambda w: make(w).log_normalizer)(rows[0])
    torch.testing.assert_close(hessian, make(rows[0]).covariance_matrix, rtol=1e-9, atol=1e-13)
    assert torch.autograd.gradgradcheck(lambda w: make(w).log_normalizer, rows.clone().requires_grad_())
    z = torch.func.vmap(lambda w: make(w).sample((5,)), randomness="different")(rows)
    assert make(rows[0]).support.check(z).all()
    for name in (
        "LeaveOneOut",
        "UnorderedSet",
        "GumbelTopK",
        "IMLE",
        "NCPSS",
        "DPS",
        "StochasticGates",
        "Hybrid(ReplayedSlope)",
    ):
        found = torch.func.vmap(
            torch.func.grad(lambda w, name=name: expectation(curved, make(w), MAKERS[name](), 2)),
            randomness="different",
        )(rows)
        assert found.isfinite().all()
        w = rows.clone().requires_grad_()
        dist = make(w)
        for _ in range(2):
            expectation(curved, dist, MAKERS[name](), 2).sum().backward()
        empty = torch.zeros(0, N, requires_grad=True)
        assert expectation(curved, make(empty), MAKERS[name](), 2).shape == (0,)
    dist = make(torch.nn.Parameter(rows[0]))
    dist.mean, dist.variance, dist.sample()
    for twin in (copy.deepcopy(dist), copy.deepcopy(dist.expand((4,)))):
        twin.mean.sum().backward()
        torch.testing.assert_close(twin.mean.expand(4, N), dist.mean.expand(4, N))


def test_changes_in_place_are_seen() -> None:
    w = torch.zeros(N, requires_grad=True)
    for name in ("logits", "probs"):
        parameter = w if name == "logits" else w.detach().sigmoid()
        for dist in (KSubset(2, **{name: parameter}), AtMostKSubset(2, **{name: parameter}).expand((3,))):
            dist.mean, dist.variance, dist.sample(), dist.sample_distinct(2)
            earlier = pickle.loads(pickle.dumps(dist))
            with torch.no_grad():
                parameter.copy_(torch.linspace(0.01, 0.99, N).logit() if name == "logits" else torch.rand(N))
            fresh = type(dist)(2, **{name: parameter}).expand(dist.batch_shape)
            for changed in (copy.deepcopy(dist), dist):
                torch.testing.assert_close(changed.mean, fresh.mean)
                torch.testing.assert_close(changed.variance, fresh.variance)
            torch.testing.assert_close(dist.sample((4000,)).mean(0), fresh.mean, atol=0.05, rtol=0)
            torch.manual_seed(0)
            drawn = dist.sample_distinct(3)
            torch.manual_seed(0)
            assert torch.equal(drawn, fresh.sample_distinct(3))
            assert not torch.equal(earlier.mean, dist.mean)
            with torch.no_grad():
                parameter.copy_(torch.zeros(N) if name == "logits" else torch.full((N,), 0.5))


def test_what_torch_does_not_count_is_copied() -> None:
    with torch.inference_mode():
        w = torch.zeros(N) + 0
        dist = KSubset(2, w)
        expected = dist.mean, dist.log_prob(dist.mode)
        w[:2] = -math.inf
        assert torch.equal(dist.mean, expected[0])
        assert torch.equal(dist.log_prob(dist.mode), expected[1])
        assert dist.sample((1000,)).mean(0).min() > 0


def test_sizes_and_groups_are_copied() -> None:
    groups, k, low, w = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor(2), torch.tensor(1), torch.randn(6)

    def make() -> list[Any]:
        return [KSubset(k, w), AtMostKSubset(k, w, low=low), PartitionedKSubset(groups, k.expand(2), w, low=low)]

    expected = [dist.mean for dist in make()]
    dists = make()
    for given in (groups, k, low):
        given.zero_()
    for dist, mean in zip(dists, expected, strict=True):
        assert torch.equal(dist.mean, mean)
        assert (dist.sample((200,)).sum(-1) >= 1).all()
        assert int(dist.k.max()) == 2
    assert dists[2].groups.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_pickle_has_the_same_samples_for_a_seed() -> None:
    # Beyond 256 Python has many objects for one integer.
    for dist in (KSubset(300, torch.randn(1000)), AtMostKSubset(300, torch.randn(1000), low=290)):
        drawn = []
        for each in (dist, pickle.loads(pickle.dumps(dist)), copy.deepcopy(dist), pickle.loads(pickle.dumps(dist))):
            torch.manual_seed(0)
            drawn.append(each.sample((3,)))
        assert all(torch.equal(drawn[0], other) for other in drawn[1:])


@pytest.mark.parametrize(
    "dist",
    [
        KSubset(1, torch.zeros(5), validate_args=False),
        PartitionedKSubset([0, 0, 0, 1, 1], [1, 1], torch.zeros(5), validate_args=False),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (4,), (6,), (2, 4)])
def test_vectors_of_another_length_are_refused(dist: KSubset, shape: tuple[int, ...]) -> None:
    told = r"must have shape \(\.\.\., 5\), got "
    for method, name in ((dist.log_prob, "value"), (dist.log_density, "value"), (dist.covariance_product, "vector")):
        with pytest.raises(ValueError, match=name + " " + told):
            method(torch.ones(shape))


def test_a_distribution_outside_of_the_loop_trains() -> None:
    w = torch.zeros(N, requires_grad=True)
    dist, optimizer = KSubset(2, w), torch.optim.Adam([w], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        expectation(lambda z: (z * torch.arange(N)).sum(-1), dist, LeaveOneOut(), 8).backward()
        optimizer.step()
    assert dist.mode.nonzero().flatten().tolist() == [0, 1]
    assert dist.sample((100,))[:, :2].mean() > 0.9


def test_a_parameter_that_became_wrong_is_refused() -> None:
    w = torch.zeros(N)
    dist = KSubset(2, w)
    assert dist.mean.isfinite().all()
    for value in (math.nan, -math.inf):
        w[:] = value
        for _ in range(2):
            with pytest.raises(ValueError, match="logits"):
                _ = dist.mean
            with pytest.raises(ValueError, match="logits"):
                dist.sample()
    w[:] = 1.0
    torch.testing.assert_close(dist.mean, torch.full((N,), 2 / N))


def test_results_of_inference_mode_have_gradients_later() -> None:
    dist = KSubset(2, torch.randn(N, requires_grad=True))
    with torch.inference_mode():
        dist.mean, dist.variance, dist.sample()
    (dist.mean[0] + dist.variance[1] + dist.log_prob(dist.sample())).backward()


def test_a_distribution_of_ones_own() -> None:
    """Subsets without neighbours on a line, by enumeration: nothing but the abstract class is needed."""

    class NoNeighbours(SubsetDistribution):
        arg_constraints: dict[str, Any] = {}  # noqa: RUF012

        def __init__(self, logits: Tensor) -> None:
            self._logits = logits
            every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=logits.dtype)] * logits.shape[-1])
            self._support = every[(every[:, 1:] * every[:, :-1]).sum(-1) == 0]
            super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=False)

        logits = property(lambda self: self._logits)  # type: ignore[assignment]

        def _log_prob_of_all(self) -> Tensor:
            return torch.log_softmax(self._logits @ self._support.T, -1)

        def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
            shape = (*sample_shape, *self.batch_shape)
            p = self._log_prob_of_all().detach().exp().expand(*shape, -1).flatten(0, -2)
            return self._support[torch.multinomial(p, 1, generator=generator).squeeze(-1)].reshape(*shape, -1)

        def sample_distinct(self, num_samples: int, *, generator: torch.Generator | None = None) -> Tensor:
            p = self._log_prob_of_all().detach().exp().flatten(0, -2)
            chosen = torch.multinomial(p, num_samples, generator=generator)
            return self._support[chosen].movedim(1, 0).reshape(num_samples, *self.batch_shape, -1)

        def log_density(self, value: Tensor) -> Tensor:
            return (value * self._logits).sum(-1).double() - (self._logits @ self._support.T).logsumexp(-1).double()

        mean = property(lambda self: self._log_prob_of_all().exp() @ self._support)  # type: ignore[assignment]
        mode = property(lambda self: self._support[self._log_prob_of_all().argmax(-1)])  # type: ignore[assignment]

        def covariance_product(self, vector: Tensor) -> Tensor:
            p = self._log_prob_of_all().exp()[..., None]
            centred = self._support - self.mean[..., None, :]
            return (centred.mT @ (p * (centred @ vector[..., None]))).squeeze(-1)

    w = LOGITS[0].clone().requires_grad_()
    z = NoNeighbours(w)._support
    (exact,) = torch.autograd.grad((torch.softmax(z @ w, 0) * curved(z)).sum(), w)
    vector = torch.randn(N, dtype=torch.float64)
    (product,) = torch.autograd.grad(NoNeighbours(w).mean @ vector, w)
    torch.testing.assert_close(NoNeighbours(w).covariance_product(vector).detach(), product)
    for make in list(MAKERS.values())[:7]:
        rows = LOGITS[0].repeat(20_000, 1).requires_grad_()
        expectation(curved, NoNeighbours(rows), make(), 3).sum().backward()
        assert rows.grad is not None
        error = rows.grad.std(0) / math.sqrt(len(rows))
        if make().unbiased:
            assert ((rows.grad.mean(0) - exact).abs() < z_limit(N) * error).all()
        else:
            assert rows.grad.isfinite().all()
    # Its largest subset is found by no top-k.
    for relaxed in (GumbelTopK(1.0), IMLE(1.0, 1.0), NCPSS()):
        with pytest.raises(NotImplementedError, match="NoNeighbours has no to_rows and from_rows"):
            expectation(curved, NoNeighbours(w), relaxed, 2)


def test_logits_on_the_cpu_where_another_device_is_the_default() -> None:
    """What is made on the way is made where the logits are; meta stands for a device that there is everywhere."""
    logits, groups, k = torch.randn(2, N), torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([1, 2, 0])
    with torch.device("meta"):
        for dist in (KSubset(2, logits), PartitionedKSubset(groups, k, logits)):
            assert (dist.sample((4,)).sum(-1) == (2 if isinstance(dist, KSubset) else 3)).all()
            assert dist.mean.isfinite().all()
            assert dist.mode.device.type == "cpu"
        loss = expectation(lambda z: z.sum(-1), KSubset(2, logits), LeaveOneOut(), 4)
    assert loss.tolist() == [2, 2]
