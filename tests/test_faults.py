"""What once came out wrong, by kind: each input with its right value, and others of its kind."""

import copy
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from makers import MAKERS
from oracle import FALSE_ALARM, binomial_p_value, gradient, z_limit
from torch import Tensor, nn

from ksubset import (
    IMLE,
    NCPSS,
    SIMPLE,
    AtMostKSubset,
    Estimator,
    GumbelTopK,
    KSubset,
    LeaveOneOut,
    PartitionedKSubset,
    ReplayedSlope,
    ScoreFunction,
    SubsetDistribution,
    expectation,
)
from ksubset.nn import FeatureGate, SubsetHead, SubsetLayer
from ksubset.numerics import (
    Sampler,
    covariance,
    exclusion_probabilities,
    inclusion_probabilities,
    joint_inclusion_probabilities,
    log_normalizer,
)

UNBIASED = [name for name, make in MAKERS.items() if make().unbiased]
BLACK_BOX = [name for name, make in MAKERS.items() if not make().needs_gradient]
LARGE = [3e38, -3e38, torch.finfo(torch.float32).max, torch.finfo(torch.float32).min]


@pytest.fixture(params=MAKERS)
def estimator(request: pytest.FixtureRequest) -> Estimator:
    return MAKERS[request.param]()


def z_scores(logits: Tensor, f: Callable[[Tensor], Any], estimator: Estimator, rows: int, exact: Tensor) -> Tensor:
    """How far the mean of many gradients, by rows of their own, is from the exact one, in its standard errors."""
    many = logits.detach().repeat(rows, 1).requires_grad_()
    expectation(f, KSubset(2, many), estimator, 4).sum().backward()
    assert many.grad is not None
    found = many.grad.double()
    # Where an estimator is exact, all that is left is rounding.
    return (found.mean(0) - exact) / (found.std(0) / math.sqrt(rows) + 1e-12)


class TestExpandedParameters:
    """Rows that share their memory are independent inputs all the same."""

    @pytest.mark.parametrize("quantity", ["log_normalizer", "mean", "entropy", "variance"])
    @pytest.mark.parametrize("name", ["logits", "probs"])
    def test_each_row_has_its_own_gradient(self, name: str, quantity: str) -> None:
        base = torch.rand(4, dtype=torch.float64)

        def result(w: Tensor) -> Tensor:
            found = getattr(KSubset(2, **{name: w}), quantity)
            found = found() if callable(found) else found
            return found.reshape(3, -1).square().sum() * 1.0

        shared, own = base.expand(3, 4).requires_grad_(), base.repeat(3, 1).requires_grad_()
        (got,) = torch.autograd.grad(result(shared), shared)
        (right,) = torch.autograd.grad(result(own), own)
        torch.testing.assert_close(got, right)

    def test_the_reported_case(self) -> None:
        w = torch.zeros(4).expand(3, 4).requires_grad_()
        KSubset(2, w).log_normalizer.sum().backward()
        torch.testing.assert_close(w.grad, torch.full((3, 4), 0.5))

    def test_of_what_a_network_returns(self) -> None:
        net = nn.Linear(2, 4)
        rows = net(torch.ones(1, 2)).expand(3, 4)
        rows.retain_grad()
        weight = torch.tensor([1.0, 2, 3])
        (KSubset(2, rows).log_normalizer * weight).sum().backward(retain_graph=True)
        assert rows.grad is not None
        kept = rows.grad.clone()
        (asked,) = torch.autograd.grad((KSubset(2, rows).log_normalizer * weight).sum(), rows)
        mean = KSubset(2, rows).mean.detach()
        for got in (asked, kept):
            torch.testing.assert_close(got, weight[:, None] * mean)

    def test_of_every_estimator(self, estimator: Estimator) -> None:
        # The second row has no loss, and must have no gradient.
        rows = torch.randn(1, 5).expand(2, 5).requires_grad_()
        weight = torch.tensor([1.0, 0.0])
        torch.manual_seed(0)
        expectation(lambda z: (z * torch.arange(5)).sum(-1) ** 2, KSubset(2, rows), estimator, 8).mul(
            weight
        ).sum().backward()
        assert rows.grad is not None
        assert rows.grad[0].abs().max() > 0
        assert rows.grad[1].abs().max() == 0


class TestSamplingAtAnySize:
    """Masks of large finite size, and anything else that rounding might swallow the differences beside."""

    @pytest.mark.parametrize("large", [3e38, 1e30, 1e15, 1e8, 1e4])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_the_reported_case(self, large: float, dtype: torch.dtype) -> None:
        dist = KSubset(2, torch.tensor([large, 0, 0, 0], dtype=dtype))
        counts = dist.sample((20_000,)).sum(0)
        assert counts[0] == 20_000
        assert binomial_p_value(counts[1:], torch.full((3,), 1 / 3), 20_000) > FALSE_ALARM

    @pytest.mark.parametrize("mask", [torch.finfo(torch.float32).min, -1e9, -1e4, -math.inf])
    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_masks(self, mask: float, k: int) -> None:
        logits = torch.tensor([0.5, mask, -0.3, 1.2, mask])
        kept = KSubset(k, logits[[0, 2, 3]]).mean
        counts = KSubset(k, logits).sample((20_000,)).sum(0)
        assert counts[[1, 4]].sum() == 0
        assert binomial_p_value(counts[[0, 2, 3]], kept, 20_000) > FALSE_ALARM

    def test_masks_that_are_needed_are_chosen_evenly(self) -> None:
        low = torch.finfo(torch.float64).min
        logits = torch.tensor([low, 0.0, low, low, 0.0], dtype=torch.float64)
        for counts in (
            KSubset(3, logits).sample((20_000,)).sum(0),
            (GumbelTopK(0.1, straight_through=True).sample(KSubset(3, logits), 20_000) > 0.5).sum(0),
            IMLE().sample(KSubset(3, logits), 20_000).sum(0),
        ):
            assert (counts[[1, 4]] == 20_000).all()
            assert binomial_p_value(counts[[0, 2, 3]], torch.full((3,), 1 / 3), 20_000) > FALSE_ALARM

    def test_differences_beside_a_common_size(self) -> None:
        logits = torch.tensor([1e12, 1e12 + 1, 1e12 - 1, 1e12, -1e300, 1e300], dtype=torch.float64)
        dist = KSubset(3, logits)
        right = KSubset(2, torch.tensor([0.0, 1, -1, 0], dtype=torch.float64)).mean
        torch.testing.assert_close(dist.mean[:4], right)
        counts = dist.sample((20_000,)).sum(0)
        assert binomial_p_value(counts[:4], right, 20_000) > FALSE_ALARM
        distinct = dist.sample_distinct(6)
        assert len({tuple(z) for z in distinct.tolist()}) == 6
        assert (distinct[:, 5] == 1).all()

    def test_other_distributions(self) -> None:
        logits = torch.tensor([3e38, 0.0, 0.0, -3e38])
        counts = AtMostKSubset(2, logits).sample((20_000,)).sum(0)
        assert counts[[0, 3]].tolist() == [20_000, 0]
        assert binomial_p_value(counts[1:3], torch.full((2,), 1 / 3), 20_000) > FALSE_ALARM
        counts = PartitionedKSubset([0, 1, 1, 0], 1, logits).sample((20_000,)).sum(0)
        assert counts[[0, 3]].tolist() == [20_000, 0]
        assert binomial_p_value(counts[1:3], torch.full((2,), 1 / 2), 20_000) > FALSE_ALARM


class TestLossesOfAnyType:
    """Losses keep their precision, whatever that of the logits."""

    # The others need a gradient of f, which Python's numbers do not have.
    @pytest.mark.parametrize("name", [name for name in UNBIASED if name in BLACK_BOX])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    def test_large_losses_of_small_differences(self, name: str, dtype: torch.dtype) -> None:
        exact = torch.tensor([3.0, -1, -1, -1], dtype=torch.float64) / 12
        for convert in (
            lambda z: (1000 + z[..., 0].double()).numpy(),
            lambda z: (1000 + z[..., 0].double()).tolist(),
            lambda z: 1000 + z[..., 0].long(),
        ):
            z = z_scores(torch.zeros(4, dtype=dtype), convert, MAKERS[name](), 5_000, exact)
            assert (z.abs() < z_limit(4)).all()

    def test_integers_beyond_single_precision(self) -> None:
        logits = torch.zeros(4, requires_grad=True)
        value = expectation(lambda z: 2**24 + z[..., 0].long(), KSubset(2, logits), LeaveOneOut(), 1000)
        assert value.dtype == torch.float64
        assert 2**24 + 0.4 < value.item() < 2**24 + 0.6

    def test_complex_losses_are_refused(self) -> None:
        with pytest.raises(TypeError, match=r"f must return real losses, got torch\.complex64"):
            expectation(lambda z: z[..., 0] + 1j, KSubset(2, torch.zeros(4)), LeaveOneOut(), 4)


class TestNoiseInHalfPrecision:
    @pytest.mark.parametrize("size", [64.0, -64.0, 3e4])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    @pytest.mark.parametrize("name", ["straight-through", "IMLE"])
    def test_no_item_is_favoured(self, name: str, dtype: torch.dtype, size: float) -> None:
        dist = KSubset(10, torch.full((200,), size, dtype=dtype))
        chosen = MAKERS[name]().sample(dist, 2_000).float().round()
        counts = chosen.reshape(2_000, 4, 50).sum((0, 2))
        # Hypergeometric, narrower than the binomial that it is held against.
        assert binomial_p_value(counts, torch.full((4,), 0.25), 20_000) > FALSE_ALARM

    def test_single_precision_beside_a_common_size(self) -> None:
        dist = KSubset(10, torch.full((200,), 1e8))
        counts = GumbelTopK(1.0, straight_through=True).sample(dist, 10_000).round().reshape(10_000, 4, 50).sum((0, 2))
        assert binomial_p_value(counts, torch.full((4,), 0.25), 100_000) > FALSE_ALARM


class TestFunctionsThatChangeTheirArgument:
    # Through numpy only where no gradient of f is needed.
    @pytest.mark.parametrize(
        ("name", "through_numpy"), [(n, t) for n in UNBIASED for t in (False, True) if not t or n in BLACK_BOX]
    )
    def test_the_gradient_is_that_on_a_copy(self, name: str, through_numpy: bool) -> None:
        values = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)

        def f(z: Tensor) -> Tensor:
            if through_numpy:
                z.numpy()[..., 0] = 1
            else:
                z[..., 0] = 1
            return z @ values

        # Of f on a copy: item 0 always counts, the others are as they were.
        exact = gradient(lambda z: z[:, 1:] @ values[1:], torch.zeros(4), 2)
        torch.testing.assert_close(exact, torch.tensor([-9.0, -1, 3, 7], dtype=torch.float64) / 12)
        z = z_scores(torch.zeros(4, dtype=torch.float64), f, MAKERS[name](), 10_000, exact)
        assert (z.abs() < z_limit(4)).all()


class TestUnusedBranches:
    def test_the_reported_case(self) -> None:
        w = torch.full((20,), 17.0, requires_grad=True)
        expectation(lambda z: z[..., 0], KSubset(10, w), NCPSS(), 4).backward()
        twin = torch.full((20,), 17.0, dtype=torch.float64, requires_grad=True)
        p = twin.sigmoid()
        (right,) = torch.autograd.grad((p * 10 / p.sum())[0], twin)
        torch.testing.assert_close(w.grad, right.float(), rtol=1e-5, atol=0)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("k", [1, 10, 19])
    def test_gradients_are_numbers(self, estimator: Estimator, dtype: torch.dtype, k: int) -> None:
        # Rows of all sizes at once.
        size = torch.tensor([0.0, 17, -17, 40, -40, 100, -100, 800, -800, 3e4, -3e4])
        w = (torch.linspace(-1, 1, 20) + size[:, None]).to(dtype).requires_grad_()
        expectation(lambda z: z[..., 0] + z[..., 1] * z[..., 2], KSubset(k, w), estimator, 2).sum().backward()
        assert w.grad is not None
        assert not w.grad.isnan().any()
        if not (isinstance(estimator, GumbelTopK) and dtype == torch.float16):  # whose range is documented
            assert w.grad.isfinite().all()


# torch's own tracer makes instances of classes that it warns of, and asks for gradients that are not there.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
class TestSymbolicShapes:
    @pytest.mark.parametrize(
        "what", ["sample", "mean", "GumbelTopK", "IMLE", "NCPSS", "SIMPLE", "DPS", "StochasticGates", "LeaveOneOut"]
    )
    def test_a_short_last_batch_when_compiled(self, what: str) -> None:
        def f(x: Tensor) -> Tensor:
            dist = KSubset(3, x)
            if what in MAKERS:
                return expectation(lambda z: z[..., 0] * z[..., 1], dist, MAKERS[what](), 2)
            return dist.sample((2,)) if what == "sample" else dist.mean

        compiled = torch.compile(f, backend="eager")
        for batch in (4, 7, 2):
            x = torch.randn(batch, 9, requires_grad=True)
            result = compiled(x)
            assert batch in result.shape[:2]
            if what != "sample":
                result.sum().backward()
                assert x.grad is not None
                assert x.grad.shape == (batch, 9)

    def test_export_of_a_mean(self) -> None:
        class Mean(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return KSubset(3, x).mean

        batch = torch.export.Dim("batch")
        program = torch.export.export(Mean(), (torch.randn(4, 9),), dynamic_shapes={"x": {0: batch}})
        x = torch.randn(7, 9)
        torch.testing.assert_close(program.module()(x), KSubset(3, x).mean)

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("dim", [torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO, "named"])
    def test_export_of_a_layer(self, training: bool, dim: Any) -> None:
        layer = SubsetLayer(3, SIMPLE()).train(training)
        dim = torch.export.Dim("batch") if dim == "named" else dim
        program = torch.export.export(layer, (torch.randn(4, 9),), dynamic_shapes={"logits": {0: dim}})
        z = program.module()(torch.randn(7, 9))
        assert z.shape == (7, 9)
        torch.testing.assert_close(z.sum(-1), torch.full((7,), 3.0))


class TestSumsInSinglePrecision:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize(("n", "p"), [(1000, 0.3), (10_000, 0.01), (784, 30 / 784)])
    def test_equal_marginals(self, n: int, p: float, dtype: torch.dtype) -> None:
        dist = KSubset.from_marginals(
            torch.full((n,), p, dtype=dtype), tolerance=0.4 * n * p * torch.finfo(dtype).eps + 1e-5
        )
        assert dist.k == round(float(torch.full((n,), p, dtype=dtype).double().sum()))
        assert dist.logits.abs().max() < 1e-6

    def test_the_reported_case(self) -> None:
        assert KSubset.from_marginals(torch.full((1000,), 0.3)).k == 300

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize(("n", "k"), [(5, 2), (100, 7), (784, 30)])
    def test_our_own_means_fed_back(self, n: int, k: int, dtype: torch.dtype) -> None:
        mean = KSubset(k, torch.randn(n, dtype=dtype)).mean
        dist = KSubset.from_marginals(mean)
        assert dist.k == k
        torch.testing.assert_close(dist.mean, mean, rtol=4 * torch.finfo(dtype).eps, atol=1e-6)

    @pytest.mark.parametrize("tolerance", [math.nan, math.inf, -1e-3])
    def test_tolerances(self, tolerance: float) -> None:
        with pytest.raises(ValueError, match="tolerance must be a finite number of 0 or more"):
            KSubset.from_marginals(torch.full((4,), 0.5), tolerance=tolerance)
        with pytest.raises(TypeError, match="tolerance must be a number or None, got '1'"):
            KSubset.from_marginals(torch.full((4,), 0.5), tolerance="1")  # type: ignore[arg-type]


class TestEmptyRepeatedNested:
    @pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5)])
    def test_empty_batches(self, estimator: Estimator, shape: tuple[int, ...]) -> None:
        w = torch.zeros(shape, requires_grad=True)
        value = expectation(lambda z: z[..., 0] * 2, KSubset(2, w), estimator, 4)
        assert value.shape == shape[:-1]
        value.sum().backward()
        assert w.grad is not None
        assert w.grad.shape == shape

    @pytest.mark.parametrize("name", ["logits", "probs"])
    @pytest.mark.parametrize("expand", [False, True])
    def test_a_second_backward_pass(self, estimator: Estimator, name: str, expand: bool) -> None:
        w = torch.full((5,), 0.4, requires_grad=True)
        dist = KSubset(2, **{name: w})
        dist = dist.expand((3,)) if expand else dist
        for _ in range(2):
            expectation(lambda z: z[..., 0] * z[..., 1], dist, estimator, 8).sum().backward()
        for _ in range(2):
            (dist.mean.square().sum() + dist.entropy().sum() + dist.log_normalizer.sum()).backward()
        assert w.grad is not None
        assert w.grad.isfinite().all()

    def test_inside_of_grad(self, estimator: Estimator) -> None:
        def value(w: Tensor) -> Tensor:
            return expectation(lambda z: z[..., 0] * z[..., 1], KSubset(2, w, validate_args=False), estimator, 8)

        found = torch.func.grad(value)(torch.zeros(5))
        assert found.shape == (5,)
        assert found.isfinite().all()
        # And afterwards as before.
        w = torch.zeros(5, requires_grad=True)
        value(w).backward()

    def test_inside_of_vmapped_grad(self, estimator: Estimator) -> None:
        def value(w: Tensor) -> Tensor:
            return expectation(lambda z: z[..., 0] * z[..., 1], KSubset(2, w, validate_args=False), estimator, 8)

        rows = torch.randn(3, 5)
        found = torch.func.vmap(torch.func.grad(value), randomness="different")(rows)
        assert found.shape == (3, 5)
        assert found.isfinite().all()

    @pytest.mark.parametrize("name", ["LeaveOneOut", "Hybrid(SlopeAtSamples)"])
    def test_a_vmapped_gradient_is_unbiased(self, name: str) -> None:
        def f(z: Tensor) -> Tensor:
            return z[..., 0] * z[..., 1] + z[..., 2]

        def value(w: Tensor) -> Tensor:
            return expectation(f, KSubset(2, w, validate_args=False), MAKERS[name](), 2)

        w = torch.tensor([0.5, -0.5, 0.2, 0.0, 1.0], dtype=torch.float64)
        rows = torch.func.vmap(torch.func.grad(value), randomness="different")(w.repeat(5_000, 1))
        z = (rows.mean(0) - gradient(f, w, 2)) / (rows.std(0) / math.sqrt(len(rows)))
        assert (z.abs() < z_limit(5)).all()

    def test_vmapped_samples_of_sizes_by_row(self) -> None:
        k = torch.tensor([0, 1, 3, 5])
        z = torch.func.vmap(lambda w, k: KSubset(k, w, validate_args=False).sample((2,)), randomness="different")(
            torch.randn(4, 5), k
        )
        assert torch.equal(z.sum(-1), k[:, None].expand(4, 2).float())

    @pytest.mark.parametrize("expand", [False, True])
    def test_copies_of_a_distribution_on_a_parameter(self, expand: bool) -> None:
        w = nn.Parameter(torch.randn(5))
        dist: SubsetDistribution = KSubset(2, w)
        dist = dist.expand((3,)) if expand else dist
        dist.mean.sum().backward()
        dist.sample((3,))
        twin = copy.deepcopy(dist)
        torch.testing.assert_close(twin.mean, dist.mean)
        twin.mean[..., 0].sum().backward()

    def test_a_seeded_gradient_leaves_the_global_state_alone(self, estimator: Estimator) -> None:
        results = []
        for _ in range(2):
            torch.rand(7)
            w = torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_()
            before = torch.get_rng_state()
            generator = torch.Generator().manual_seed(3)
            fresh = copy.deepcopy(estimator)
            expectation(lambda z: z[..., 0] * z[..., 1] + z[..., 2], KSubset(3, w), fresh, 8, generator).backward()
            assert torch.equal(torch.get_rng_state(), before)
            assert w.grad is not None
            results.append(w.grad)
        assert torch.equal(*results)


class TestCostAndAccuracy:
    def test_complements_are_as_quick(self) -> None:
        import time

        def seconds(k: int) -> float:
            start = time.process_time()
            KSubset(k, torch.zeros(10_000)).sample((8,))
            KSubset(k, torch.zeros(10_000)).sample_indices((8,))
            KSubset(torch.tensor([k, 20]), torch.zeros(10_000)).sample((8,))
            return time.process_time() - start

        seconds(20)
        assert seconds(9980) < 4 * seconds(20) + 0.1

    @pytest.mark.parametrize("k", [6, 7, 8])
    def test_complements_are_exact(self, k: int) -> None:
        logits = torch.randn(8, dtype=torch.float64)
        for sample in (
            KSubset(k, logits).sample((50_000,)),
            KSubset(torch.tensor([k, 1]), logits).sample((50_000,))[:, 0],
        ):
            assert (sample.sum(-1) == k).all()
            assert binomial_p_value(sample.sum(0).long(), KSubset(k, logits).mean.clamp(max=1), 50_000) > FALSE_ALARM
        indices = Sampler(logits, k).indices(50_000)
        assert indices.shape == (50_000, 1, k)
        assert (indices.diff() > 0).all()
        twin = KSubset(k, logits).sample_distinct(8 if k == 7 else 1)
        assert len({tuple(z) for z in twin.tolist()}) == len(twin)

    def test_variance(self) -> None:
        logits = torch.tensor([100.0, 50.0, 0.0, -50.0], dtype=torch.float64)
        assert KSubset(2, logits).variance[0].item() == pytest.approx(3.72e-44, rel=1e-3)
        pi, left = inclusion_probabilities(logits, 2), exclusion_probabilities(logits, 2)
        for variance in (
            KSubset(2, logits).variance,
            covariance(logits, 2).diagonal(),
            KSubset(2, logits).covariance_matrix.diagonal(),
        ):
            torch.testing.assert_close(variance, pi * left, rtol=1e-12, atol=0)

    def test_joint_probabilities(self) -> None:
        logits = torch.tensor([137.0, 35, -68, -129, -188, -198], dtype=torch.float64)
        joint = joint_inclusion_probabilities(logits, 3)
        assert joint[3, 2].item() == pytest.approx(5.97e-72, rel=1e-3)
        with mpmath.workdps(60):
            weights = [mpmath.exp(mpmath.mpf(w)) for w in logits.tolist()]
            subsets = [s for s in range(64) if s.bit_count() == 3]

            def mass(*members: int) -> Any:
                return mpmath.fsum(
                    mpmath.fprod(weights[i] for i in range(6) if s >> i & 1)
                    for s in subsets
                    if all(s >> i & 1 for i in members)
                )

            right = [[float(mass(i, j) / mass()) for j in range(6)] for i in range(6)]
        torch.testing.assert_close(joint, torch.tensor(right, dtype=torch.float64), rtol=1e-11, atol=0)

    def test_unlikely_subsets_in_half_precision(self) -> None:
        w = torch.tensor([3e4, 3e4, -6e4, -6e4], dtype=torch.float16, requires_grad=True)
        dist = KSubset(2, w)
        z = torch.tensor([0.0, 0, 1, 1], dtype=torch.float16)
        assert dist.log_prob(z) == -math.inf  # as its docstring says
        assert dist.log_density(z).item() == pytest.approx(-1.8e5, rel=1e-3)
        loss = ScoreFunction().surrogate(torch.ones(1, dtype=torch.float16), z[None], dist)
        assert loss.isfinite().all()


class TestContract:
    def test_integers_of_numpy(self) -> None:
        three = np.int64(3)
        assert KSubset(three, torch.zeros(5)).k == 3  # type: ignore[arg-type]
        expectation(lambda z: z[..., 0], KSubset(2, torch.zeros(5)), LeaveOneOut(), three)  # type: ignore[arg-type]
        assert FeatureGate(np.int64(5), three)().k == 3  # type: ignore[arg-type]
        assert SubsetHead(three, nn.Identity())(torch.zeros(5)).k == 3  # type: ignore[arg-type]
        assert ReplayedSlope(np.int64(64)).memory == 64  # type: ignore[arg-type]
        assert IMLE(terms=three).terms == NCPSS(rounds=three).rounds == 3  # type: ignore[arg-type]

    def test_the_size_of_ncpss_is_a_parameter(self) -> None:
        layer = SubsetLayer(2, NCPSS(nn.Parameter(torch.tensor(2.0))))
        assert [name for name, _ in layer.named_parameters()] == ["estimator.size"]
        layer(torch.randn(10, 5)).sum().backward()
        assert layer.estimator.size.grad is not None  # type: ignore[union-attr]
        assert "estimator.size" in layer.state_dict()
        assert layer.double().estimator.size.dtype == torch.float64  # type: ignore[union-attr]

    @pytest.mark.parametrize("module", [lambda k: SubsetHead(k, nn.Identity()), lambda k: SubsetLayer(k, SIMPLE())])
    def test_sizes_of_modules(self, module: Callable[[Any], nn.Module]) -> None:
        with pytest.raises(ValueError, match="k must be 0 or more, got -1"):
            module(-1)
        for wrong in ("a", 1.5, True, None):
            with pytest.raises(TypeError, match="k must be an integer, got"):
                module(wrong)

    def test_messages_speak_of_what_was_given(self) -> None:
        with pytest.raises(ValueError, match="probs above 0 must be at least k, got 1 possible items with k = 2"):
            KSubset(2, probs=torch.tensor([0, 0, 0.3]))
        with pytest.raises(ValueError, match="probs of 1 must include at most k items, got 2 of them with k = 1"):
            KSubset(1, probs=torch.tensor([1, 1, 0.3]))

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own tracer
    def test_probabilities_out_of_range_are_no_numbers(self) -> None:
        def mean(theta: Tensor) -> Tensor:
            return KSubset(2, probs=theta).mean

        theta = torch.tensor([2, 0.5, 0.5, -1])
        assert torch.compile(mean, backend="eager")(theta).isnan().any()
        assert KSubset(2, probs=theta, validate_args=False).logits.isnan().tolist() == [True, False, False, True]

    def test_generators_are_checked(self) -> None:
        with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got 7"):
            expectation(lambda z: z[..., 0], KSubset(2, torch.zeros(5)), LeaveOneOut(), 2, 7)  # type: ignore[arg-type]


def test_every_large_value_gives_a_normaliser() -> None:
    for large in LARGE:
        logits = torch.tensor([large, 0.0, 1.0, large], dtype=torch.float64)
        for k in range(5):
            assert log_normalizer(logits, k).isfinite()
            assert inclusion_probabilities(logits, k).sum().item() == pytest.approx(k)
