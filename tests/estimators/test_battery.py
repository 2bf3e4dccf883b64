"""One battery over all estimators: what they declare is proved or refuted against enumeration."""

import copy
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from makers import MAKERS
from oracle import gradient, probabilities, subsets, z_limit
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
    SlopeAtMean,
    SlopeAtSamples,
    StochasticGates,
    UnorderedSet,
    expectation,
)
from ksubset.estimators.imle import sum_of_gamma

N, K = 6, 3
BLOCK = 20_000
LOGITS = torch.tensor([0.8, -0.5, 0.3, -1.0, 0.0, 0.6], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -0.6, 0.4, 0.9, -1.2, 0.2], dtype=torch.float64)

ESTIMATORS = [
    ScoreFunction(),
    LeaveOneOut(),
    GumbelTopK(temperature=0.5),
    GumbelTopK(temperature=0.5, straight_through=True),
    IMLE(beta=2.5),
    SIMPLE(),
    NCPSS(),
    ReinMax(),
    DPS(temperature=0.5),
    StochasticGates(),
    UnorderedSet(),
    Hybrid(SlopeAtMean()),
    Hybrid(SlopeAtSamples()),
    Hybrid(ReplayedSlope(memory=64)),
]


def curved(z: Tensor) -> Tensor:
    """A nonlinear function of the subset, differentiable."""
    return torch.cos(2 * (z * WEIGHTS.to(z)).sum(-1)) + 2 * z[..., 0] * z[..., 3] + z[..., 1] * z[..., 4] * z[..., 5]


def by_name(estimator: Estimator) -> str:
    part = getattr(estimator, "slope", getattr(estimator, "straight_through", ""))
    return type(estimator).__name__ + (type(part).__name__ if isinstance(estimator, Hybrid) else str(part))


@pytest.fixture(params=ESTIMATORS, ids=by_name)
def estimator(request: pytest.FixtureRequest) -> Estimator:
    """Each of the estimators, with nothing in its memory."""
    return copy.deepcopy(request.param)  # type: ignore[no-any-return]


@pytest.fixture(params=[estimator for estimator in ESTIMATORS if not estimator.needs_gradient], ids=by_name)
def black_box(request: pytest.FixtureRequest) -> Estimator:
    """Each of the estimators that need no gradient of f."""
    return copy.deepcopy(request.param)  # type: ignore[no-any-return]


def estimates(
    estimator: Estimator,
    f: object,
    repeats: int,
    num_samples: int,
    device: torch.device,
    parameters: Tensor = LOGITS,
    name: str = "logits",
) -> Tensor:
    """Independent estimates of the gradient, one a row: `(repeats, N)`."""

    def block(estimator: Estimator, rows: Tensor) -> Tensor:
        rows = rows.to(device, copy=True).requires_grad_()
        dist = KSubset(K, **{name: rows}, validate_args=False)  # type: ignore[arg-type]
        expectation(f, dist, estimator, num_samples).sum().backward()  # type: ignore[arg-type]
        assert rows.grad is not None
        return rows.grad.cpu()

    # Estimators that remember have something to remember by the time they are tested, and all blocks the same.
    for _ in range(10):
        block(estimator, parameters.repeat(100, 1))
    # Blocks that stay in the processor's cache take a fraction of the time of one large batch.
    blocks = parameters.expand(repeats, N).split(BLOCK)
    return torch.cat([block(copy.deepcopy(estimator), rows) for rows in blocks])


def z_scores(sample: Tensor, exact: Tensor) -> Tensor:
    return (sample.mean(0) - exact) / (sample.std(0) / math.sqrt(len(sample)))


@pytest.mark.parametrize("num_samples", [2, 5])
def test_declared_bias(estimator: Estimator, num_samples: int, device: torch.device) -> None:
    exact = gradient(curved, LOGITS, K)
    # To refute takes fewer than to prove: the biases are larger than one percent by far.
    subsets_drawn = 2_000_000 if estimator.unbiased else 500_000
    sample = estimates(estimator, curved, subsets_drawn // num_samples, num_samples, device)
    # Each component, and the component along the gradient, in multiples of its length.
    axes = torch.cat([torch.eye(N, dtype=torch.float64), exact[None] / exact.square().sum()])
    components, limit = sample @ axes.T, z_limit(N + 1)
    unbiased = bool((z_scores(components, exact @ axes.T).abs() < limit).all())
    assert unbiased == estimator.unbiased
    standard_error = components.std(0) / math.sqrt(len(sample))
    assert standard_error[:N].norm() < 0.01 * exact.norm()
    if unbiased:  # a gradient that were one percent too long or too short would be noticed
        assert limit * standard_error[N] < 0.01


def test_unbiased_for_a_function_without_gradient(black_box: Estimator, device: torch.device) -> None:
    def step(z: Tensor) -> Tensor:
        return ((z.cpu().double() @ WEIGHTS) > 0.25).double()

    def plain_python(z: Tensor) -> list[list[float]]:
        return step(z).tolist()  # type: ignore[no-any-return]

    exact = gradient(step, LOGITS, K)
    sample = estimates(black_box, plain_python, 300_000, 4, device)
    assert (z_scores(sample, exact).abs() < z_limit(N)).all()


def test_unbiased_in_the_parameters_of_the_paper(black_box: Estimator) -> None:
    theta = torch.sigmoid(LOGITS).requires_grad_()
    expected = (probabilities(theta.logit(), K) * curved(subsets(N, K))).sum()
    (exact,) = torch.autograd.grad(expected, theta)
    sample = estimates(black_box, curved, 400_000, 4, torch.device("cpu"), theta.detach(), "probs")
    assert (z_scores(sample, exact).abs() < z_limit(N)).all()


def test_gradient_of_what_f_closes_over(estimator: Estimator, device: torch.device) -> None:
    # One sample is the whole truth at a point mass, for every estimator that samples hard.
    slope = torch.tensor(2.0, dtype=torch.float64, device=device, requires_grad=True)
    logits = torch.tensor([50.0, -50, 50, -50], dtype=torch.float64, device=device, requires_grad=True)
    value = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64, device=device)
    loss = expectation(lambda z: slope**2 * (z * value).sum(-1), KSubset(2, logits), estimator, 2)
    loss.backward()
    assert slope.grad is not None
    assert loss.item() == pytest.approx(16.0)
    assert slope.grad.item() == pytest.approx(16.0)


def test_constant_f_has_zero_mean_gradient(estimator: Estimator, device: torch.device) -> None:
    sample = estimates(estimator, lambda z: 3.0 + 0 * z.sum(-1), 50_000, 3, device)
    spread = sample.std(0)
    if spread.max() == 0:
        assert sample.abs().max() == 0
    else:
        assert (z_scores(sample, torch.zeros(N, dtype=torch.float64)).abs() < z_limit(N)).all()


def test_float32_batches_and_infinite_logits(estimator: Estimator, device: torch.device) -> None:
    logits = torch.randn(3, 4, 6, device=device)
    logits[..., 0], logits[..., 1] = math.inf, -math.inf
    logits.requires_grad_()
    value = expectation(lambda z: z.square().sum(-1) * z[..., 2], KSubset(3, logits), estimator, 5)
    assert value.shape == (3, 4)
    assert value.dtype == torch.float32
    value.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[..., :2].abs().max() == 0


def test_leave_one_out_is_the_sample_covariance(device: torch.device) -> None:
    logits = torch.randn(8, dtype=torch.float64, device=device, requires_grad=True)
    seen: list[Tensor] = []

    def f(z: Tensor) -> Tensor:
        seen.append(z)
        return z[..., 0] * z[..., 1] + z[..., 2]

    expectation(f, KSubset(4, logits), LeaveOneOut(), 9).backward()
    (z,) = seen
    loss = f(z)
    covariance = ((loss - loss.mean())[:, None] * z).sum(0) / 8
    torch.testing.assert_close(logits.grad, covariance)


def test_leave_one_out_excludes_the_sample_itself() -> None:
    # Eight losses, three of them 1: advantages 5/7 and -3/7; a mean that includes the sample would give 5/8 and -3/8.
    logits = torch.zeros(2, requires_grad=True)
    dist = KSubset(1, logits)
    loss = torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 0])
    for index, advantage in ((0, 5 / 7), (7, -3 / 7)):
        sample = torch.tensor([0.0, 1.0]).repeat(8, 1)
        sample[index] = torch.tensor([1.0, 0.0])
        (grad,) = torch.autograd.grad(LeaveOneOut().surrogate(loss, sample, dist).sum(), logits)
        assert (grad[0] - grad[1]).item() == pytest.approx(2 * advantage, rel=1e-6)


def test_leave_one_out_computes_no_normaliser(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("the normaliser was computed")

    monkeypatch.setattr("ksubset.distributions.conditional.solve", fail)
    logits = torch.zeros(5, requires_grad=True)
    expectation(lambda z: z[..., 0], KSubset(2, logits), LeaveOneOut(), 4).backward()
    with pytest.raises(AssertionError, match="normaliser was computed"):
        expectation(lambda z: z[..., 0], KSubset(2, logits), ScoreFunction(), 4)


def test_score_function_is_the_formula() -> None:
    logits = torch.randn(5, dtype=torch.float64, requires_grad=True)
    dist = KSubset(2, logits)
    sample = dist.sample((6,))
    loss = torch.randn(6, dtype=torch.float64)
    (grad,) = torch.autograd.grad(ScoreFunction().surrogate(loss, sample, dist).mean(0), logits)
    torch.testing.assert_close(grad, (loss[:, None] * (sample - dist.mean)).mean(0).detach())


def test_straight_through_samples_are_exactly_hard(device: torch.device) -> None:
    logits = torch.randn(1000, 50, device=device, requires_grad=True)
    sample = GumbelTopK(0.5, straight_through=True).sample(KSubset(10, logits), 1)
    assert set(sample.unique().tolist()) == {0.0, 1.0}
    assert (sample.sum(-1) == 10).all()
    (sample * torch.randn_like(sample)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_expanded_rows_share_a_row(estimator: Estimator) -> None:
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    dist = KSubset(2, logits).expand((4,))
    value = expectation(lambda z: (z * torch.arange(6)).sum(-1), dist, estimator, 3)
    assert value.shape == (4,)
    value.sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() > 0


def test_the_fewest_samples_suffice_and_fewer_are_an_error(estimator: Estimator, device: torch.device) -> None:
    logits = torch.randn(6, device=device, requires_grad=True)
    dist, fewest = KSubset(3, logits), estimator.min_samples
    expectation(curved, dist, estimator, fewest).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    with pytest.raises(ValueError, match=f"{type(estimator).__name__} needs num_samples >= {fewest}, got {fewest - 1}"):
        expectation(curved, dist, estimator, fewest - 1)


def test_losses_of_a_wrong_shape() -> None:
    with pytest.raises(ValueError, match=r"losses of shape \(4,\), got \(\)"):
        expectation(lambda z: z.sum(), KSubset(1, torch.zeros(3)), ScoreFunction(), 4)


def test_pathwise_estimators_refuse_losses_without_gradient() -> None:
    dist = KSubset(1, torch.zeros(3, requires_grad=True))
    with pytest.raises(ValueError, match="GumbelTopK sends the gradient through f"):
        expectation(lambda z: z[..., 0].detach(), dist, GumbelTopK(1.0), 4)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_bad_temperature(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be a positive, finite number"):
        GumbelTopK(temperature)


def test_a_tensor_is_no_temperature() -> None:
    with pytest.raises(TypeError, match="temperature must be a number, got tensor"):
        GumbelTopK(torch.ones(5, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.05, 0.005])
def test_low_temperatures_stay_inside_and_finite(temperature: float) -> None:
    # pytorch/pytorch#18254, tensorflow/probability#1738, pyro-ppl/pyro#3304: samples on the boundary, NaN gradients.
    logits = torch.tensor([-5.0, 0.0, 0.0, 0.0], requires_grad=True)
    sample = GumbelTopK(temperature).sample(KSubset(1, logits), 10_000)
    assert sample.min() >= 0
    assert sample.max() <= 1 + 1e-6
    torch.testing.assert_close(sample.sum(-1), torch.ones(10_000), rtol=0, atol=1e-5)
    (sample * torch.randn_like(sample)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_baseline_that_includes_the_sample_would_shrink_the_gradient() -> None:
    # jsboige/CoursIA#15256: with two samples it halves the gradient; leaving the sample out does not.
    exact = gradient(curved, LOGITS, K)
    estimate = estimates(LeaveOneOut(), curved, 1_000_000, 2, torch.device("cpu")).mean(0)
    assert (estimate @ exact / (exact @ exact)).item() == pytest.approx(1, abs=0.02)


def test_the_scale_of_implicit_maximum_likelihood() -> None:  # uclnlp/torch-imle#3: divide by the step
    logits = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    sample = IMLE(beta=2.0, temperature=0.0).sample(KSubset(1, logits), 1)
    assert sample.tolist() == [[1, 0, 0]]
    (grad,) = torch.autograd.grad(sample, logits, torch.tensor([[1.0, 0.0, 0.0]]))
    assert grad.tolist() == [0.5, -0.5, 0]


def test_the_number_of_samples_does_not_change_the_step() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
    for num_samples in (1, 50):
        loss = expectation(lambda z: z[..., 0], KSubset(1, logits), IMLE(2.0, temperature=0.0), num_samples)
        (grad,) = torch.autograd.grad(loss, logits)
        torch.testing.assert_close(grad, torch.tensor([0.5, -0.5, 0.0]))


def test_a_mean_over_the_batch_scales_the_gradient_and_no_more(estimator: Estimator) -> None:
    # What a constant such as the beta of I-MLE belongs to is the loss of one subset, not what becomes of it.
    grads = []
    for reduce in (torch.sum, torch.mean):
        logits = LOGITS.repeat(8, 1).requires_grad_()
        reduce(
            expectation(curved, KSubset(K, logits), copy.deepcopy(estimator), 4, torch.Generator().manual_seed(0))
        ).backward()
        grads.append(logits.grad)
    torch.testing.assert_close(grads[1] * 8, grads[0])


def test_sums_of_k_noises_tend_to_gumbel_noise() -> None:
    # The sum of k Gamma(1/k, k/i) is k/i times an exponential variable, and the sum of s exponential ones over 1..s is
    # the largest of s (Rényi, 1953): less log s it tends to Gumbel noise, whose mean is 0.5772 and variance pi^2/6.
    terms = torch.arange(1, 8, dtype=torch.float64)
    mean, variance = (1 / terms).sum() - math.log(len(terms)), (1 / terms**2).sum()
    rows = torch.zeros(500_000, 4, dtype=torch.float64).split(BLOCK)
    total = torch.cat([sum_of_gamma(row, 4, terms=len(terms)).sum(-1) for row in rows])
    sample = torch.stack([total, (total - mean) ** 2], -1)
    assert (z_scores(sample, torch.stack([mean, variance])).abs() < z_limit(2)).all()


@pytest.mark.parametrize(
    ("arguments", "message"), [({"beta": 0.0}, "beta"), ({"temperature": -1.0}, "temperature"), ({"terms": 0}, "terms")]
)
def test_bad_arguments_of_implicit_maximum_likelihood(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"{message} must be"):
        IMLE(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_logits_and_half_precision_stay_finite(estimator: Estimator, dtype: torch.dtype) -> None:
    logits = torch.tensor([30_000.0, 30_000, 700, 1, 0], dtype=dtype, requires_grad=True)
    value = expectation(lambda z: z.square().sum(-1), KSubset(2, logits), estimator, 3)
    assert value.dtype == dtype
    assert value.isfinite()
    value.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_tiny_temperatures_stay_finite() -> None:
    logits = torch.tensor([700.0, 0, 1, 2, 3], requires_grad=True)
    sample = GumbelTopK(1e-36).sample(KSubset(2, logits), 50)
    assert set(sample.unique().tolist()) == {0.0, 1.0}


def test_implicit_maximum_likelihood_hides_no_nan() -> None:
    logits = torch.zeros(4, requires_grad=True)
    expectation(lambda z: z.sum(-1) * math.nan, KSubset(2, logits), IMLE(), 3).backward()
    assert logits.grad is not None
    assert logits.grad.isnan().all()


@pytest.mark.parametrize("convert", [lambda x: x.long(), lambda x: x.bool(), lambda x: x.tolist(), lambda x: x.numpy()])
def test_losses_of_any_type(convert: Callable[[Tensor], object]) -> None:
    logits = torch.zeros(4, requires_grad=True)
    value = expectation(lambda z: convert(z[..., 0]), KSubset(2, logits), LeaveOneOut(), 50)
    # Numbers that have no floating-point type of their own count in double precision.
    assert value.dtype == (torch.float32 if isinstance(convert(torch.ones(1)), np.ndarray) else torch.float64)
    value.backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() > 0


def test_a_list_of_tensors_keeps_its_gradients() -> None:
    weight = torch.tensor(2.0, requires_grad=True)
    dist = KSubset(2, torch.zeros(4))
    expectation(lambda z: [weight * subset.sum() for subset in z], dist, LeaveOneOut(), 3).backward()
    assert weight.grad == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": LeaveOneOut}, "estimator must be an instance of Estimator"),
        ({"estimator": "loo"}, "estimator must be an instance of Estimator, such as LeaveOneOut(), got 'loo'"),
        ({"dist": torch.zeros(3)}, "dist must be a SubsetDistribution, such as a KSubset, got Tensor"),
        ({"num_samples": 2.5}, "num_samples must be an integer, got 2.5"),
        ({"num_samples": True}, "num_samples must be an integer, got True"),
    ],
)
def test_arguments_of_the_wrong_kind(change: dict[str, object], message: str) -> None:
    arguments = {"dist": KSubset(1, torch.zeros(3)), "estimator": LeaveOneOut(), "num_samples": 2} | change
    with pytest.raises(TypeError, match=re.escape(message)):
        expectation(lambda z: z[..., 0], **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_seed_gives_the_same_numbers_however_logits_lie_in_memory(name: str) -> None:
    logits = torch.randn(4, 3)
    values = [
        MAKERS[name]().sample(KSubset(1, w), 2, torch.Generator().manual_seed(0))
        for w in (logits, logits.t().contiguous().t(), logits.repeat(1, 2)[:, :3])
    ]
    torch.testing.assert_close(values[1], values[0])
    torch.testing.assert_close(values[2], values[0])
