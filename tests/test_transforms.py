"""The library inside of torch's transforms gives what it gives outside."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from ksubset import (
    IMLE,
    SIMPLE,
    AtMostKSubset,
    Hybrid,
    KSubset,
    LeaveOneOut,
    ReinMax,
    ScoreFunction,
    SlopeAtMean,
    UnorderedSet,
    expectation,
)
from ksubset.estimators import Estimator
from ksubset.nn import SubsetLayer
from ksubset.numerics import (
    compiled,
    covariance,
    covariance_product,
    inclusion_probabilities,
    joint_inclusion_probabilities,
    log_normalizer,
)

# The tracer warns of a use of autograd functions that is its own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(3, 6, dtype=torch.float64)


def normalizer(w: Tensor) -> Tensor:
    return log_normalizer(w, 2)


def log_prob(w: Tensor, z: Tensor) -> Tensor:
    return KSubset(2, w).log_prob(z)


@pytest.mark.parametrize("eager", [True, False])
def test_vmap(logits: Tensor, eager: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if eager:
        monkeypatch.setattr(compiled, "usable", lambda logits: False)
    # Inside of vmap all is eager torch, from which compiled loops differ by rounding.
    same = partial(torch.testing.assert_close, rtol=0 if eager else 1e-14, atol=0)
    z = KSubset(2, logits).sample()
    same(vmap(log_prob)(logits, z), log_prob(logits, z))
    same(vmap(normalizer, in_dims=1)(logits.T), normalizer(logits))
    k = torch.tensor([1, 2, 3])
    same(vmap(inclusion_probabilities)(logits, k), inclusion_probabilities(logits, k))
    by_size = vmap(inclusion_probabilities, in_dims=(None, 0))(logits, k)
    same(by_size[1], inclusion_probabilities(logits, 2))


# Where only the randomness is mapped, vmap's own rule hands searchsorted an expanded table, and that warns of a copy.
@pytest.mark.filterwarnings("ignore:torch.searchsorted")
def test_vmap_of_samples(logits: Tensor) -> None:
    sample = vmap(lambda w: KSubset(2, w).sample((50,)), randomness="different")(logits)
    assert sample.shape == (3, 50, 6)
    assert (sample.sum(-1) == 2).all()
    fixed = vmap(lambda x: x * KSubset(2, logits).sample(), randomness="different")(torch.ones(50))
    assert fixed.shape == (50, 3, 6)
    assert (fixed != fixed[0]).any()


def test_functional_derivatives(logits: Tensor) -> None:
    w, v = logits[0], logits[1]
    mean, matrix = inclusion_probabilities(w, 2), covariance(w, 2)
    torch.testing.assert_close(grad(normalizer)(w), mean)
    torch.testing.assert_close(jvp(normalizer, (w,), (v,))[1], v @ mean)
    torch.testing.assert_close(jvp(lambda w: inclusion_probabilities(w, 2), (w,), (v,))[1], matrix @ v)
    torch.testing.assert_close(hessian(normalizer)(w), matrix)
    torch.testing.assert_close(jacrev(jacrev(normalizer))(w), matrix)
    torch.testing.assert_close(jacrev(lambda w: inclusion_probabilities(w, 2))(w), matrix)


def test_forward_mode_outside_of_functions(logits: Tensor) -> None:
    for dtype in (torch.float64, torch.float32):
        many, direction = logits.to(dtype).repeat(300, 1), torch.randn(900, 6, dtype=dtype)
        with dual_level():
            dist = KSubset(2, make_dual(many, direction))
            tangents = [unpack_dual(x).tangent for x in (dist.log_normalizer, dist.mean)]
        mean, matrix = inclusion_probabilities(many, 2), covariance(many, 2)
        torch.testing.assert_close(tangents[0], (direction * mean).sum(-1))
        torch.testing.assert_close(tangents[1], (matrix @ direction[..., None]).squeeze(-1))


@pytest.mark.parametrize(
    "make", [Hybrid, lambda: Hybrid(SlopeAtMean()), IMLE, SIMPLE, LeaveOneOut, ScoreFunction, UnorderedSet]
)
def test_forward_mode_of_estimates_is_reverse_mode(make: Callable[[], Estimator], logits: Tensor) -> None:
    def estimate(w: Tensor) -> Tensor:
        torch.manual_seed(0)
        return expectation(lambda z: (z * torch.arange(6)).sum(-1) ** 2, KSubset(2, w), make(), 4)

    w, direction = logits[0], logits[1]
    gradient = grad(estimate)(w)
    assert gradient.abs().max() > 0
    torch.testing.assert_close(jacfwd(estimate, randomness="same")(w), gradient)
    with dual_level():
        tangent = unpack_dual(estimate(make_dual(w, direction))).tangent
    leaf = w.clone().requires_grad_()
    torch.testing.assert_close(tangent, torch.autograd.grad(estimate(leaf), leaf)[0] @ direction)


@pytest.mark.parametrize("estimator", [SIMPLE(), ReinMax(), Hybrid(SlopeAtMean()), ScoreFunction(), LeaveOneOut()])
def test_gradient_checkpointing(estimator: Estimator) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(12, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 1))
    x, gradients = torch.randn(8, 12), []

    def loss(x: Tensor) -> Tensor:
        dist = KSubset(2, network[0](x))
        return expectation(lambda z: network[2](z * network[1](dist.mean)).squeeze(-1), dist, estimator, 3).sum()

    for run in (loss, partial(checkpoint, loss, use_reentrant=False)):
        torch.manual_seed(0)
        gradients.append(torch.autograd.grad(run(x), list(network.parameters())))
        if isinstance(estimator, Hybrid):
            estimator.measured.zero_()
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


def test_gradient_checkpointing_of_a_layer() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(12, 6), SubsetLayer(2, SIMPLE())), torch.randn(8, 12)
    (gradient,) = torch.autograd.grad(checkpoint(model, x, use_reentrant=False)[:, 0].sum(), model[0].bias)
    assert gradient.abs().max() > 0


def test_vmap_over_the_largest_size() -> None:
    w, k = torch.randn(3, 6), torch.tensor([1, 2, 3])
    mapped = vmap(lambda a, k: AtMostKSubset(k, a).mode)(w, k)
    assert torch.equal(mapped, AtMostKSubset(k, w).mode)


def test_vmap_of_derivatives(logits: Tensor) -> None:
    torch.testing.assert_close(vmap(grad(normalizer))(logits), inclusion_probabilities(logits, 2))
    torch.testing.assert_close(vmap(hessian(normalizer))(logits), covariance(logits, 2))
    for function in (covariance, joint_inclusion_probabilities):
        torch.testing.assert_close(vmap(lambda w, f=function: f(w, 2))(logits), function(logits, 2))
    product = vmap(covariance_product, in_dims=(0, None, 0))(logits, 2, logits)
    torch.testing.assert_close(product, covariance_product(logits, 2, logits))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_compile(logits: Tensor, dtype: torch.dtype) -> None:
    logits = logits.to(dtype)
    z = KSubset(2, logits).sample()

    def work(w: Tensor) -> tuple[Tensor, ...]:
        dist = KSubset(2, w)
        return dist.log_prob(z), dist.mean, dist.entropy(), dist.log_normalizer, dist.sample((7,))

    # aot_eager traces all of it without a graph break; generating code needs a C++ compiler, which is not everywhere.
    *values, sample = torch.compile(work, fullgraph=True, backend="aot_eager")(logits)
    *expected, _ = work(logits)
    torch.testing.assert_close(values, expected)
    assert (sample.sum(-1) == 2).all()


@pytest.mark.parametrize("estimator", [LeaveOneOut(), ScoreFunction()])
def test_compile_a_training_step(estimator: LeaveOneOut | ScoreFunction) -> None:
    logits = torch.zeros(6, requires_grad=True)

    def loss(w: Tensor) -> Tensor:
        dist = KSubset(2, w)
        return expectation(lambda z: (z * torch.arange(6)).sum(-1), dist, estimator, 200)

    torch.compile(loss, fullgraph=True, backend="aot_eager")(logits).backward()
    assert logits.grad is not None
    assert logits.grad.argmax() in (4, 5)


def test_export() -> None:
    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            return x * KSubset(2, self.logits).mean

    gate, x = Gate(), torch.randn(4, 6)
    exported = torch.export.export(gate, (x,)).module()
    torch.testing.assert_close(exported(x), gate(x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_what_is_recorded_is_no_constant(logits: Tensor) -> None:
    def mean(w: Tensor) -> Tensor:
        return KSubset(2, w, validate_args=False).mean

    traced = torch.jit.trace(mean, torch.zeros(3, 6, dtype=torch.float64))
    for scale in (1.0, 10.0, 1000.0):
        torch.testing.assert_close(traced(scale * logits), mean(scale * logits))
    # Where the quadrature's nodes depend on values, an error is better than the example's result for all.
    with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
        make_fx(mean)(logits)
    with FlopCounterMode(display=False):
        counted = mean(logits)
    torch.testing.assert_close(counted, mean(logits))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_full(dtype: torch.dtype, logits: Tensor) -> None:
    half = logits.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean = inclusion_probabilities(half, 2)
        inside = inclusion_probabilities(logits, 2)
    assert mean.dtype == dtype
    torch.testing.assert_close(mean, inclusion_probabilities(half.double(), 2).to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(inside, inclusion_probabilities(logits, 2), rtol=0, atol=0)
