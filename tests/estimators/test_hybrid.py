import copy
import math
from collections.abc import Callable

import pytest
import torch
from oracle import gradient
from torch import Tensor

from ksubset import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    KSubset,
    LeaveOneOut,
    ReinMax,
    ReplayedSlope,
    ScoreFunction,
    Slope,
    SlopeAtMean,
    SlopeAtSamples,
    StochasticGates,
    SubsetDistribution,
    UnorderedSet,
    expectation,
)
from ksubset.estimators.hybrid import ridge

N, K = 8, 3
LOGITS = torch.tensor([0.8, -0.5, 0.3, -1.0, 0.0, 0.6, -0.2, 1.1], dtype=torch.float64)
WEIGHTS = torch.linspace(-1, 1, N, dtype=torch.float64)
SLOPES = [SlopeAtMean(), SlopeAtSamples(), ReplayedSlope(memory=64)]


def linear(z: Tensor) -> Tensor:
    return z @ WEIGHTS


def bent(z: Tensor) -> Tensor:
    return torch.sin(z @ WEIGHTS) + z[..., 0] * z[..., 1] / 2


def useless(z: Tensor) -> Tensor:
    """Nothing that a linear function resembles, with gradients that mislead."""
    return torch.cos(math.pi * z[..., ::2].sum(-1)) + 3 * (z * (1 - z)) @ WEIGHTS


@pytest.fixture(params=SLOPES, ids=lambda slope: type(slope).__name__)
def hybrid(request: pytest.FixtureRequest) -> Hybrid:
    return Hybrid(copy.deepcopy(request.param))


def variance(estimator: Estimator, f: Callable[[Tensor], Tensor], num_samples: int, logits: Tensor = LOGITS) -> float:
    """Total variance of the gradient, over the independent rows of one batch, after ten to learn from."""
    for rows in (*(100,) * 10, 20_000):
        w = logits.repeat(rows, 1).requires_grad_()
        expectation(f, KSubset(K, w, validate_args=False), estimator, num_samples).sum().backward()
    assert w.grad is not None
    return float(w.grad.var(0).sum())


def test_a_linear_loss_leaves_no_variance(hybrid: Hybrid) -> None:
    assert variance(hybrid, linear, 4) < 1e-6 * variance(LeaveOneOut(), linear, 4)


def test_less_variance_where_the_slope_tells_something(hybrid: Hybrid) -> None:
    assert variance(hybrid, bent, 8) < 0.9 * variance(LeaveOneOut(), bent, 8)


@pytest.mark.parametrize("num_samples", [2, 8])
def test_never_worse_than_leave_one_out_by_more_than_noise(hybrid: Hybrid, num_samples: int) -> None:
    # Of 20,000 rows a variance is known to about 1.5 percent.
    logits = torch.zeros(N, dtype=torch.float64)
    base = variance(LeaveOneOut(), useless, num_samples, logits)
    assert variance(hybrid, useless, num_samples, logits) < 1.05 * base


def test_without_a_scale_the_slope_of_two_samples_would_do_harm() -> None:
    # So the scale is needed, and the test above can fail.
    hybrid = Hybrid(SlopeAtSamples())
    hybrid._scale = lambda explained, spread: torch.ones_like(spread)  # type: ignore[method-assign]
    logits = torch.zeros(N, dtype=torch.float64)
    assert variance(hybrid, useless, 2, logits) > 1.2 * variance(LeaveOneOut(), useless, 2, logits)


def test_the_formula(hybrid: Hybrid) -> None:
    w = LOGITS.clone().requires_grad_()
    dist = KSubset(K, w)
    for _ in range(20):
        expectation(bent, dist, hybrid, 5)
    slopes = copy.deepcopy(hybrid.slope)
    torch.manual_seed(7)
    (grad,) = torch.autograd.grad(expectation(bent, dist, hybrid, 5), w)
    torch.manual_seed(7)
    z = dist.sample((5,))
    loss, slope = slopes(bent, z, dist)
    loss, slope = loss.detach(), slope.expand(5, N)
    others = [[r for r in range(5) if r != s] for s in range(5)]
    a = torch.stack([loss[s] - loss[others[s]].mean() for s in range(5)])
    h = torch.stack([slope[s] @ (z[s] - z[others[s]].mean(0)) for s in range(5)])
    explained, spread = (x / 0.99 for x in hybrid.measured)
    scale = ((explained - (a * h).sum()) / (spread - (h * h).sum())).clamp(0, 1)
    assert scale > 0
    score = torch.stack([(a[s] - scale * h[s]) * (z[s] - dist.mean.detach()) for s in range(5)]).mean(0)
    torch.testing.assert_close(grad, score + scale * dist.covariance_matrix.detach() @ slope.mean(0))


def test_a_step_at_a_time_it_learns_too() -> None:
    torch.manual_seed(0)
    w = LOGITS.clone().requires_grad_()
    exact = gradient(linear, LOGITS, K)
    hybrid, errors = Hybrid(ReplayedSlope(memory=64)), []
    for _ in range(100):
        (grad,) = torch.autograd.grad(expectation(linear, KSubset(K, w), hybrid, 2), w)
        errors.append((grad - exact).square().sum().item())
    assert max(errors[-10:]) < 1e-3 * sum(errors[:10]) / 10


@pytest.mark.parametrize("shape", [(30, 8), (30, 60), (20, 20)])
def test_the_ridge_minimises_the_criterion(shape: tuple[int, int]) -> None:
    # The definition, with the hat matrix written out for every strength.
    x = torch.randn(shape, dtype=torch.float64)
    y = x @ torch.randn(shape[1], dtype=torch.float64) + torch.randn(shape[0], dtype=torch.float64)
    largest = torch.linalg.eigvalsh(x.T @ x).max()
    found = []
    for strength in largest * torch.logspace(-6, 2, 33, dtype=torch.float64):
        inverse = torch.linalg.solve(x.T @ x + strength * torch.eye(shape[1]), x.T)
        left = y - x @ (inverse @ y)
        found.append((float(left @ left / (len(y) - (x @ inverse).trace()) ** 2), inverse @ y))
    torch.testing.assert_close(ridge(x, y), min(found, key=lambda pair: pair[0])[1])


@pytest.mark.parametrize("chosen", [0, 5, 40])
def test_items_that_never_vary_get_no_slope_and_change_nothing(chosen: int) -> None:
    generator = torch.Generator().manual_seed(chosen)
    x, y = torch.zeros(30, 800, dtype=torch.float64), torch.randn(30, generator=generator, dtype=torch.float64)
    x[:, 10 : 10 + chosen] = torch.randn(30, chosen, generator=generator, dtype=torch.float64)
    slope = ridge(x, y)
    assert not slope[:10].any()
    assert not slope[10 + chosen :].any()
    if chosen:
        torch.testing.assert_close(slope[10 : 10 + chosen], ridge(x[:, 10 : 10 + chosen], y))


def test_a_broken_loss_is_shown_once_and_not_remembered() -> None:
    w = LOGITS.clone().requires_grad_()
    hybrid = Hybrid(ReplayedSlope(memory=16))
    for f in (linear, lambda z: linear(z) * math.nan, linear, linear):
        (grad,) = torch.autograd.grad(expectation(f, KSubset(K, w), hybrid, 8), w)
        assert grad.isnan().any() == (f is not linear)


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)])
def test_without_a_gradient_it_is_the_mean(hybrid: Hybrid, rows: tuple[int, ...]) -> None:
    dist = KSubset(K, LOGITS).expand(rows)
    value = expectation(bent, dist, hybrid, 4)
    assert value.shape == rows
    assert not value.requires_grad
    with torch.no_grad():
        expectation(bent, KSubset(K, LOGITS.clone().requires_grad_()), hybrid, 4)


def test_losses_that_do_not_depend_on_the_subset() -> None:
    weight = torch.ones((), requires_grad=True)
    dist = KSubset(K, LOGITS.clone().requires_grad_())
    for slope in (SlopeAtMean(), SlopeAtSamples()):
        with pytest.raises(ValueError, match="do not depend on the subsets through differentiable operations"):
            expectation(lambda z: weight * z.detach()[..., 0], dist, Hybrid(slope), 4)
        with pytest.raises(ValueError, match="f must be differentiable here"):
            expectation(lambda z: z.detach()[..., 0], dist, Hybrid(slope), 4)


def test_memories_stay_in_double_precision() -> None:
    w = LOGITS.clone().requires_grad_()
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), Hybrid())
    estimator = module[1]
    for _ in range(3):
        expectation(lambda z: 1e4 * bent(z), KSubset(K, w), estimator, 8)
    before = {name: value.clone() for name, value in estimator.state_dict().items()}
    assert estimator.measured.max() > torch.finfo(torch.float16).max
    module.half()
    assert module[0].weight.dtype == torch.float16
    assert all(torch.equal(value, before[name]) for name, value in estimator.state_dict().items())
    assert module.to("meta")[1].measured.is_meta


def test_a_memory_belongs_to_one_problem() -> None:
    hybrid = Hybrid()
    expectation(lambda z: z[..., 0], KSubset(2, torch.zeros(4, requires_grad=True)), hybrid, 4)
    with pytest.raises(ValueError, match="remembers subsets of 4 items, got 5"):
        expectation(lambda z: z[..., 0], KSubset(2, torch.zeros(5, requires_grad=True)), hybrid, 4)


def test_the_memory_is_bounded() -> None:
    hybrid = Hybrid(ReplayedSlope(memory=16))
    for _ in range(10):
        expectation(lambda z: z[..., 0], KSubset(2, torch.zeros(50, 4, requires_grad=True)), hybrid, 3)
    assert isinstance(hybrid.slope, ReplayedSlope)
    assert hybrid.slope.subsets is not None
    assert hybrid.slope.losses is not None
    assert len(hybrid.slope.subsets) == len(hybrid.slope.losses) == 16


@pytest.mark.parametrize("calls", [0, 1, 7, 30])
def test_a_fresh_instance_goes_on_from_the_state(hybrid: Hybrid, calls: int) -> None:
    # After 7 calls the memory is filling up, and a part of a new quarter has come in since the last fit; after 30 it
    # has gone round.
    w = LOGITS.clone().requires_grad_()

    def gradients(estimator: Hybrid) -> list[Tensor]:
        torch.manual_seed(3)
        return [torch.autograd.grad(expectation(bent, KSubset(K, w), estimator, 5), w)[0] for _ in range(10)]

    for _ in range(calls):
        expectation(bent, KSubset(K, w), hybrid, 5)
    other = Hybrid(copy.deepcopy(hybrid.slope))
    expectation(linear, KSubset(K, w), other, 5)  # memories of its own, which must go
    state = {name: value.clone() for name, value in hybrid.state_dict().items()}
    other.load_state_dict(state)
    assert other.state_dict().keys() == state.keys()
    expected = gradients(hybrid)
    assert all(torch.equal(a, b) for a, b in zip(gradients(other), expected, strict=True))
    # Neither has written into the state.
    again = Hybrid(copy.deepcopy(hybrid.slope))
    again.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(gradients(again), expected, strict=True))


def test_without_its_state_it_would_go_on_otherwise() -> None:
    # So the test above can fail.
    w = LOGITS.clone().requires_grad_()
    hybrid, fresh = Hybrid(ReplayedSlope(memory=64)), Hybrid(ReplayedSlope(memory=64))
    for _ in range(30):
        expectation(bent, KSubset(K, w), hybrid, 5)
    pair = []
    for estimator in (hybrid, fresh):
        torch.manual_seed(3)
        pair += torch.autograd.grad(expectation(bent, KSubset(K, w), estimator, 5), w)
    assert not torch.equal(*pair)


def test_the_state_of_a_replayed_slope() -> None:
    slope, other = ReplayedSlope(memory=16), ReplayedSlope(memory=16)
    assert slope.state_dict().keys() == {"_extra_state"}
    w = LOGITS.clone().requires_grad_()
    expectation(bent, KSubset(K, w), Hybrid(slope), 5)
    other.load_state_dict(slope.state_dict())
    assert slope.state_dict().keys() == other.state_dict().keys() == {"_extra_state", "subsets", "losses", "slope"}
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in slope.state_dict().items())
    other.load_state_dict(ReplayedSlope().state_dict())
    assert other.state_dict().keys() == {"_extra_state"}


@pytest.mark.parametrize(
    "estimator",
    [
        GumbelTopK(0.5),
        GumbelTopK(0.5, straight_through=True),
        ScoreFunction(),
        LeaveOneOut(),
        UnorderedSet(),
        SIMPLE(),
        IMLE(),
        NCPSS(),
        ReinMax(),
        DPS(0.5),
        StochasticGates(),
    ],
    ids=repr,
)
def test_the_others_remember_nothing(estimator: Estimator) -> None:
    w = LOGITS.clone().requires_grad_()
    expectation(bent, KSubset(K, w), estimator, 5).backward()
    assert estimator.state_dict() == {}
    estimator.load_state_dict({})


@pytest.mark.parametrize(("memory", "error"), [(7, ValueError), (8.0, TypeError), (True, TypeError)])
def test_bad_memory(memory: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="memory must be"):
        ReplayedSlope(memory)  # type: ignore[arg-type]


@pytest.mark.parametrize("slope", ["replay", SlopeAtMean])
def test_bad_slope(slope: object) -> None:
    with pytest.raises(TypeError, match="slope must be an instance of Slope"):
        Hybrid(slope)  # type: ignore[arg-type]


def test_a_slope_of_ones_own() -> None:
    class Known(Slope):
        needs_gradient = False

        def forward(
            self, f: Callable[[Tensor], Tensor], sample: Tensor, dist: SubsetDistribution
        ) -> tuple[Tensor, Tensor]:
            return f(sample), WEIGHTS

    assert variance(Hybrid(Known()), linear, 2) < 1e-20
