"""KSubset against enumeration, and against the habits of torch.distributions."""

import copy
import math
import pickle
import weakref

import pytest
import torch
from oracle import probabilities, subsets
from torch.distributions import Bernoulli, Categorical, kl_divergence

from ksubset import KSubset
from ksubset.distributions.ksubset import k_hot


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (5, 2), (6, 3), (8, 7)])
def test_everything_equals_enumeration(n: int, k: int, device: torch.device) -> None:
    logits = torch.randn(n, dtype=torch.float64)
    dist = KSubset(k, logits.to(device))
    z, p = subsets(n, k), probabilities(logits, k)
    support = dist.enumerate_support().cpu()
    assert sorted(map(tuple, support.tolist())) == sorted(map(tuple, z.tolist()))
    torch.testing.assert_close(dist.log_prob(z.to(device)).cpu(), p.log())
    torch.testing.assert_close(dist.mean.cpu(), p @ z)
    torch.testing.assert_close(dist.variance.cpu(), p @ z - (p @ z) ** 2)
    torch.testing.assert_close(dist.stddev.cpu(), dist.variance.cpu().sqrt())
    torch.testing.assert_close(dist.entropy().cpu(), -(p * p.log()).sum())
    torch.testing.assert_close(dist.log_normalizer.cpu(), torch.logsumexp(z @ logits, 0))
    assert dist.mode.cpu().tolist() == z[p.argmax()].tolist()


def test_gradients_equal_enumeration() -> None:
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    other = torch.randn(6, dtype=torch.float64)
    p, q = probabilities(logits, 3), probabilities(other, 3)
    for mine, expected in (
        (KSubset(3, logits).entropy(), -(p * p.log()).sum()),
        (kl_divergence(KSubset(3, logits), KSubset(3, other)), (p * (p / q).log()).sum()),
        (kl_divergence(KSubset(3, other), KSubset(3, logits)), (q * (q / p).log()).sum()),
        (KSubset(3, logits).variance[2], (p @ subsets(6, 3) - (p @ subsets(6, 3)) ** 2)[2]),
    ):
        torch.testing.assert_close(mine, expected)
        gradients = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (mine, expected)]
        torch.testing.assert_close(*gradients)


def test_the_score_in_both_parameters() -> None:
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    dist = KSubset(3, logits)
    z = dist.sample()
    (score,) = torch.autograd.grad(dist.log_prob(z), logits)
    torch.testing.assert_close(score, z - dist.mean)
    theta = logits.detach().sigmoid().requires_grad_()
    dist = KSubset(3, probs=theta)
    (score,) = torch.autograd.grad(dist.log_prob(z), theta)
    torch.testing.assert_close(score, (z - dist.mean) / (theta * (1 - theta)))
    assert torch.autograd.gradcheck(lambda t: KSubset(3, probs=t).log_prob(z), theta)


def test_probs_are_bernoulli_parameters() -> None:
    theta = torch.tensor([0.1, 0.5, 0.9, 0.3])
    dist = KSubset(2, probs=theta)
    z = dist.enumerate_support()
    joint = Bernoulli(theta).log_prob(z).sum(-1)
    torch.testing.assert_close(dist.log_prob(z), joint - joint.logsumexp(0))
    torch.testing.assert_close(KSubset(2, logits=dist.logits).probs, theta)


def test_probs_of_zero_and_one_fix_their_items() -> None:
    theta = torch.tensor([0.0, 1.0, 0.5, 0.5], requires_grad=True)
    dist = KSubset(2, probs=theta)
    assert dist.mean.tolist() == [0, 1, 0.5, 0.5]
    assert dist.log_prob(torch.tensor([0.0, 1, 1, 0])).item() == pytest.approx(math.log(0.5))
    dist.log_prob(torch.tensor([0.0, 1, 1, 0])).backward()
    assert theta.grad is not None
    assert theta.grad.tolist() == [0, 0, 2, -2]


def test_one_of_n_is_categorical() -> None:
    logits = torch.randn(3, 5)
    dist, known = KSubset(1, logits), Categorical(logits=logits)
    torch.testing.assert_close(dist.mean, known.probs)
    torch.testing.assert_close(dist.entropy(), known.entropy())
    index = known.sample((4,))
    hot = torch.nn.functional.one_hot(index, 5).float()
    torch.testing.assert_close(dist.log_prob(hot), known.log_prob(index))
    assert dist.sample_indices((4,)).shape == (4, 3, 1)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("sample", [(), (4,), (2, 5)])
def test_shapes(batch: tuple[int, ...], sample: tuple[int, ...], device: torch.device) -> None:
    for dist in (
        KSubset(2, torch.randn(*batch, 6, device=device)),
        KSubset(2, torch.randn(6, device=device)).expand(batch),
        KSubset(torch.tensor(2, device=device).expand(batch), torch.randn(6, device=device)),
    ):
        assert dist.batch_shape == batch
        assert dist.event_shape == (6,)
        z = dist.sample(sample)
        assert z.shape == (*sample, *batch, 6)
        assert z.is_contiguous()
        assert dist.sample_indices(sample).shape == (
            *sample,
            *batch,
            2 if math.prod(batch) else dist.sample_indices().shape[-1],
        )
        assert dist.log_prob(z).shape == (*sample, *batch)
        assert dist.mean.shape == dist.variance.shape == dist.mode.shape == (*batch, 6)
        assert dist.entropy().shape == dist.log_normalizer.shape == batch
        if math.prod(batch):
            assert dist.enumerate_support().shape == (15, *batch, 6)
            assert dist.enumerate_support(expand=False).shape == (15, *(1,) * len(batch), 6)


def test_expand_shares_the_work_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from ksubset.distributions import conditional

    rows: list[torch.Size] = []
    for name in ("solve", "Sampler"):

        def counted(logits: torch.Tensor, *others: object, known: object = getattr(conditional, name)) -> object:
            rows.append(logits.shape)
            return known(logits, *others)  # type: ignore[operator]

        monkeypatch.setattr(conditional, name, counted)
    logits = torch.randn(3, 1, 6, requires_grad=True)
    root = KSubset(2, logits)
    many = root.expand((5, 3, 4)).expand((2, 5, 3, 4))
    z = many.sample((7,))
    many.log_prob(z).sum().backward()
    assert (many.mean - root.mean).abs().max() == 0
    assert rows == [torch.Size([3, 1, 6])] * 2
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, (z - root.mean).sum((0, 1, 2, 4), keepdim=False)[:, None])


def test_expanded_rows_keep_their_own_logits() -> None:
    logits = torch.tensor([[50.0, 50, -50, -50], [-50, -50, 50, 50]]).reshape(2, 1, 4)
    sample = KSubset(2, logits).expand((3, 2, 5, 4)[:3]).sample((6,))
    assert sample.shape == (6, 3, 2, 5, 4)
    assert (sample[:, :, 0] == torch.tensor([1.0, 1, 0, 0])).all()
    assert (sample[:, :, 1] == torch.tensor([0.0, 0, 1, 1])).all()


def test_values_outside_of_the_support() -> None:
    logits = torch.randn(2, 4)
    dist = KSubset(2, logits)
    for value, text in (
        (torch.tensor([1.0, 1, 1, 0]), "k_hot"),
        (torch.tensor([2.0, 0, 0, 0]), "k_hot"),
        (torch.tensor([0.5, 0.5, 0.5, 0.5]), "k_hot"),
        (torch.zeros(2, 5), "size"),
    ):
        with pytest.raises(ValueError, match=text):
            dist.log_prob(value)
    free = KSubset(2, logits, validate_args=False)
    value = torch.tensor([[[1.0, 1, 1, 0], [2, 0, 0, 0]], [[0.5, 0.5, 0.5, 0.5], [1, 0, 0, 1]]])
    assert free.log_prob(value).isneginf().tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64])
def test_events_of_other_dtypes(dtype: torch.dtype) -> None:
    dist = KSubset(2, torch.randn(4))
    z = dist.sample()
    assert dist.log_prob(z.to(dtype)) == dist.log_prob(z)
    assert dist.log_prob(z.to(dtype)).dtype == torch.float32


def test_kl_divergence_at_its_limits() -> None:
    dist = KSubset(2, torch.randn(4))
    assert kl_divergence(dist, KSubset(2, dist.logits + 3)).item() == pytest.approx(0, abs=1e-6)
    assert kl_divergence(dist, KSubset(3, torch.zeros(4))) == math.inf
    narrow = KSubset(2, torch.tensor([0.0, 0, 0, -math.inf]))
    assert kl_divergence(dist, narrow) == math.inf
    assert kl_divergence(narrow, KSubset(2, torch.zeros(4))).item() == pytest.approx(math.log(2))
    assert kl_divergence(dist.expand((3,)), dist).shape == (3,)
    with pytest.raises(ValueError, match="same number of items, got 4 and 5"):
        kl_divergence(dist, KSubset(2, torch.zeros(5)))


def test_enumerate_support_refuses_what_is_too_large() -> None:
    with pytest.raises(ValueError, match=r"at most 1000000 subsets, got C\(784, 30\)"):
        KSubset(30, torch.zeros(784)).enumerate_support()
    with pytest.raises(ValueError, match=r"one k for the whole batch, got \[1, 2\]"):
        KSubset(torch.tensor([1, 2]), torch.zeros(4)).enumerate_support()


def test_constructor_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="exactly one of logits and probs must be given, got neither"):
        KSubset(1)
    with pytest.raises(ValueError, match="exactly one of logits and probs must be given, got both"):
        KSubset(1, torch.zeros(2), torch.ones(2))
    with pytest.raises(ValueError, match="k must be between 0 and the number of items, 2, got 3"):
        KSubset(3, torch.zeros(2), validate_args=False)
    with pytest.raises(TypeError, match="k must be an integer"):
        KSubset(1.0, torch.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="probs"):
        KSubset(1, probs=torch.tensor([0.5, 1.5]))
    with pytest.raises(ValueError, match="must be at least k in row 1, got 1 possible items with k = 2"):
        KSubset(2, torch.tensor([[0.0, 0, 0], [0, -math.inf, -math.inf]]))


def test_integers_of_other_libraries_are_welcome() -> None:
    import numpy

    assert KSubset(numpy.int64(2), torch.zeros(4)).k == 2  # type: ignore[arg-type]


def test_constraint_and_repr() -> None:
    dist = KSubset(2, torch.zeros(3, 4))
    assert dist.probs.shape == (3, 4)
    assert repr(dist) == "KSubset(k: 2, logits: (3, 4))"
    assert repr(dist.support) == "k_hot(k=2)"
    assert dist.support.event_dim == 1
    assert dist.support.is_discrete
    assert k_hot(torch.tensor([1, 2])).check(torch.tensor([[1.0, 0], [1, 0]])).tolist() == [True, False]


def test_pickle_and_deepcopy() -> None:
    dist = KSubset(2, torch.randn(4))
    for twin in (pickle.loads(pickle.dumps(dist)), copy.deepcopy(dist)):
        assert torch.equal(twin.mean, dist.mean)
        assert twin.sample((3,)).shape == (3, 4)


def test_a_distribution_is_freed_with_its_last_reference() -> None:
    # Waiting for the garbage collector would keep the graph and the sampling table of every step of a training.
    dist = KSubset(2, torch.randn(4, requires_grad=True))
    dist.sample()
    dist.log_prob(dist.sample()).backward()
    seen = weakref.ref(dist)
    del dist
    assert seen() is None


@pytest.mark.parametrize("size", [1e5, 1e8, 1e12, 1e17])
def test_large_logits_lose_nothing(size: float) -> None:
    dist = KSubset(1, torch.tensor([size, size, 0, 0], dtype=torch.float64))
    assert dist.entropy().item() == pytest.approx(math.log(2), rel=1e-15)
    assert dist.log_prob(dist.enumerate_support()).exp().tolist() == pytest.approx([0.5, 0.5, 0, 0], rel=1e-15)


def test_separated_logits_lose_nothing() -> None:
    gap = 50.0
    dist = KSubset(2, torch.tensor([gap, gap, 0, 0], dtype=torch.float64))
    # Four single swaps of probability exp(-gap) each, to leading order.
    swap = math.exp(-gap)
    assert dist.variance.tolist() == pytest.approx([2 * swap] * 4, rel=1e-12)
    assert dist.entropy().item() == pytest.approx(4 * swap * (gap + 1), rel=1e-12)
    narrow = KSubset(2, torch.tensor([math.inf, 0, 0, 0], dtype=torch.float64))
    assert kl_divergence(KSubset(2, torch.tensor([40.0, 0, 0, 0], dtype=torch.float64)), narrow) == math.inf
    assert kl_divergence(dist, KSubset(2, dist.logits + 1e-9)).item() >= 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_small_integer_types_of_k(dtype: torch.dtype) -> None:
    logits = torch.randn(2, 300)
    k = torch.tensor([0, 3])
    assert torch.equal(KSubset(k.to(dtype), logits).mean, KSubset(k, logits).mean)
    assert KSubset(k.to(dtype), logits).sample().sum(-1).tolist() == [0, 3]


def test_errors_name_the_parameter_that_was_given() -> None:
    with pytest.raises(ValueError, match="probs of"):
        KSubset(1, probs=torch.tensor([1.0, 1.0, 0.0]))
    assert repr(KSubset(1, probs=torch.tensor([0.5, 0.5]))) == "KSubset(k: 1, probs: (2,))"
