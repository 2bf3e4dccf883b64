"""The sampler against exact probabilities."""

import math

import pytest
import torch
from oracle import FALSE_ALARM, binomial_p_value, chi_square_p_value, probabilities, recursion, subsets, z_limit

from ksubset import AtMostKSubset, KSubset, PartitionedKSubset
from ksubset.numerics import (
    Sampler,
    inclusion_probabilities,
    joint_inclusion_probabilities,
    thinning,
)


@pytest.fixture(autouse=True, params=["inversion", "splitting", "thinning", "thinning in many parts"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """Each test with each way of drawing."""
    if "thinning" in request.param:
        pytest.importorskip("numba", reason="thinning is compiled by numba, which is not installed")
        if device.type != "cpu":
            pytest.skip(f"thinning is compiled for the CPU, and the tests were asked to run on {device}")
    monkeypatch.setattr(Sampler, "_way", lambda self, num_samples: request.param.split()[0])
    if request.param == "thinning in many parts":
        # Tables of two items, so that small problems have all kinds of parts.
        monkeypatch.setattr(thinning, "_WALKED", 2)
        monkeypatch.setattr(thinning, "_FACTOR", 2)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (6, 3), (7, 6), (8, 4), (9, 3)])
def test_frequencies_of_all_subsets(n: int, k: int, device: torch.device) -> None:
    logits = torch.randn(n, dtype=torch.float64)
    sample = KSubset(k, logits.to(device)).sample((200_000,))
    assert chi_square_p_value(sample, logits, k) > FALSE_ALARM


def test_ten_million_draws(device: torch.device) -> None:
    logits = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    dist = KSubset(2, logits.to(device))
    codes = torch.zeros(25, dtype=torch.int64)
    for _ in range(10):
        indices = dist.sample_indices((1_000_000,)).cpu()
        codes += torch.bincount(indices[:, 0] * 5 + indices[:, 1], minlength=25)
    pairs = subsets(5, 2).nonzero()[:, 1].reshape(-1, 2)
    counts = codes[pairs[:, 0] * 5 + pairs[:, 1]]
    assert counts.sum() == 10_000_000
    assert binomial_p_value(counts, probabilities(logits, 2), 10_000_000) > FALSE_ALARM


def test_pairs_at_the_size_of_the_paper(device: torch.device) -> None:
    logits = 1.5 * torch.randn(784, dtype=torch.float64)
    sample = KSubset(30, logits.to(device)).sample((50_000,)).cpu().float()
    i, j = torch.triu_indices(784, 784, offset=1)
    together = (sample.T @ sample)[i, j]
    assert binomial_p_value(together, joint_inclusion_probabilities(logits, 30)[i, j], 50_000) > FALSE_ALARM


def test_inclusion_frequencies_at_the_size_of_the_paper(device: torch.device) -> None:
    logits = 1.5 * torch.randn(784, dtype=torch.float64)
    _, mean = recursion(logits, 30)
    indices = KSubset(30, logits.to(device)).sample_indices((100_000,)).cpu()
    assert binomial_p_value(torch.bincount(indices.flatten(), minlength=784), mean, 100_000) > FALSE_ALARM


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("k", [1, 30, 400, 783, 784])
def test_sizes_are_always_k_and_indices_ascend(scale: float, k: int, device: torch.device) -> None:
    logits = scale * torch.randn(2, 784, device=device)
    dist = KSubset(k, logits)
    indices = dist.sample_indices((20,))
    assert indices.shape == (20, 2, k)
    assert (indices.diff(dim=-1) > 0).all()
    assert indices.min() >= 0
    assert indices.max() < 784
    assert (dist.sample((20,)).sum(-1) == k).all()


def test_spread_logits_reach_their_exact_frequencies(device: torch.device) -> None:
    # Ascending, descending and shuffled order: the sampler walks from the last item to the first.
    logits = torch.linspace(-60, 60, 200, dtype=torch.float64)
    for order in (torch.arange(200), torch.arange(199, -1, -1), torch.randperm(200)):
        _, mean = recursion(logits[order], 100)
        indices = KSubset(100, logits[order].to(device)).sample_indices((20_000,)).cpu()
        assert binomial_p_value(torch.bincount(indices.flatten(), minlength=200), mean, 20_000) > FALSE_ALARM


def test_excluded_items_are_never_drawn_and_certain_ones_always(device: torch.device) -> None:
    logits = torch.tensor([0.0, -math.inf, math.inf, 1.0, -1.0, math.inf, 2.0], device=device)
    sample = KSubset(4, logits).sample((50_000,))
    assert sample[:, 1].max() == 0
    assert sample[:, [2, 5]].min() == 1
    free = sample[:, [0, 3, 4, 6]]
    assert chi_square_p_value(free, torch.tensor([0.0, 1.0, -1.0, 2.0]), 2) > FALSE_ALARM


def test_rows_of_different_sizes(device: torch.device) -> None:
    logits = torch.randn(3, 6)
    k = torch.tensor([0, 3, 6])
    dist = KSubset(k.to(device), logits.to(device))
    sample = dist.sample((50_000,))
    assert (sample.sum(-1).cpu() == k).all()
    assert chi_square_p_value(sample[:, 1], logits[1], 3) > FALSE_ALARM
    indices = dist.sample_indices()
    assert indices[0].tolist() == [-1] * 6
    assert indices[1, 3:].tolist() == [-1] * 3
    assert indices[2].tolist() == list(range(6))


def test_rows_are_independent_and_expanded_rows_differ(device: torch.device) -> None:
    dist = KSubset(3, torch.randn(6).to(device)).expand((50_000,))
    assert chi_square_p_value(dist.sample(), dist.logits[0].cpu(), 3) > FALSE_ALARM
    pair = KSubset(1, torch.zeros(2, device=device)).expand((40_000, 2)).sample()[..., 0]
    joint = torch.bincount((pair[:, 0] * 2 + pair[:, 1]).long().cpu(), minlength=4)
    assert binomial_p_value(joint, torch.full((4,), 0.25), 40_000) > FALSE_ALARM


def test_generator_repeats_and_leaves_the_global_state_alone(device: torch.device) -> None:
    dist = KSubset(2, torch.randn(5).to(device))
    state = torch.get_rng_state()
    first = dist.sample((5,), generator=torch.Generator(device).manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, dist.sample((5,), generator=torch.Generator(device).manual_seed(0)))
    assert not torch.equal(first, dist.sample((5,), generator=torch.Generator(device).manual_seed(1)))


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_rare_items_and_common_ones(scale: float, device: torch.device) -> None:
    # Flip probabilities of all binary exponents, many of them below 1/8.
    logits = scale * torch.linspace(-3, 3, 16, dtype=torch.float64)[torch.randperm(16)]
    for k in (1, 2, 15):
        sample = KSubset(k, logits.to(device)).sample((400_000,)).cpu()
        mean = joint_inclusion_probabilities(logits, k)
        i, j = torch.triu_indices(16, 16)
        together = (sample.T @ sample).round()[i, j]
        assert binomial_p_value(together, mean[i, j].clamp(max=1), 400_000) > FALSE_ALARM


def test_heavy_tails_and_masks_by_row(device: torch.device) -> None:
    k = torch.tensor([1, 7, 20, 29, 30, 0])
    logits = 10 * torch.tan(math.pi * (torch.rand(6, 40, dtype=torch.float64) - 0.5))
    logits[:, ::4] = -math.inf
    sample = KSubset(k.to(device), logits.to(device)).sample((20_000,)).cpu()
    assert (sample.sum(-1) == k).all()
    for row in range(4):
        counts = sample[:, row].sum(0)
        assert binomial_p_value(counts, recursion(logits[row], int(k[row]))[1].clamp(0, 1), 20_000) > FALSE_ALARM


def test_pairs_of_rows_with_their_own_logits(device: torch.device) -> None:
    logits = torch.randn(3, 784, dtype=torch.float64) * torch.tensor([[0.0], [1.0], [4.0]])
    sample = KSubset(30, logits.to(device)).sample((10_000,)).cpu().float()
    assert (sample.sum(-1) == 30).all()
    i, j = torch.triu_indices(784, 784)
    for row in range(3):
        together = (sample[:, row].T @ sample[:, row])[i, j]
        joint = joint_inclusion_probabilities(logits[row], 30)[i, j]
        assert binomial_p_value(together, joint, 10_000) > FALSE_ALARM


@pytest.mark.parametrize(("n", "k"), [(20_000, 1000), (6000, 3000)])
def test_long_rows(n: int, k: int, device: torch.device) -> None:
    logits = torch.randn(n)
    indices = KSubset(k, logits.to(device)).sample_indices((500,)).cpu()
    mean = inclusion_probabilities(logits.double(), k)
    # Sums over a hundred groups of items, whose variance is that of the covariance, and at most that of independence.
    drawn = torch.zeros(500, n, dtype=torch.float64).scatter_(-1, indices, 1.0)
    assert (drawn.sum(-1) == k).all()
    of_groups, variance = mean.reshape(100, -1).sum(-1), (mean * (1 - mean)).reshape(100, -1).sum(-1)
    found = drawn.mean(0).reshape(100, -1).sum(-1)
    assert ((found - of_groups) / (variance / 500).sqrt()).abs().max() < z_limit(100)


@pytest.mark.parametrize(("low", "high"), [(0, 2), (1, 4), (3, 5), (4, 6), (2, 2)])
def test_ranges_of_sizes(low: int, high: int, device: torch.device) -> None:
    logits = torch.randn(6, dtype=torch.float64) + 1
    sample = AtMostKSubset(high, logits.to(device), low=low).sample((200_000,)).cpu()
    z = torch.cat([subsets(6, k) for k in range(low, high + 1)])
    expected = torch.softmax(z.double() @ logits, 0)
    powers = 2 ** torch.arange(6)
    counts = torch.bincount(sample.long() @ powers, minlength=64)[z.long() @ powers]
    assert counts.sum() == 200_000
    assert binomial_p_value(counts, expected, 200_000) > FALSE_ALARM


@pytest.mark.parametrize(("n", "high", "low", "logit"), [(64, 64, 0, -2.2), (40, 30, 3, -3.0), (300, 290, 0, 0.0)])
def test_sizes_of_wide_ranges(n: int, high: int, low: int, logit: float, device: torch.device) -> None:
    """Independent draws, whose number is binomial, among ends that are far from what is probable."""
    sizes = AtMostKSubset(high, torch.full((n,), logit, device=device), low=low).sample((50_000,)).sum(-1).cpu()
    binomial = torch.distributions.Binomial(n, logits=torch.tensor(logit, dtype=torch.float64))
    expected = binomial.log_prob(torch.arange(low, high + 1, dtype=torch.float64)).softmax(0)
    counts = torch.bincount(sizes.long(), minlength=n + 1)[low : high + 1]
    assert counts.sum() == 50_000
    assert binomial_p_value(counts, expected, 50_000) > FALSE_ALARM


def test_ranges_of_sizes_by_row(device: torch.device) -> None:
    low, high = torch.tensor([0, 2, 10, 25]), torch.tensor([3, 30, 20, 30])
    logits = 2 * torch.randn(4, 30, dtype=torch.float64)
    dist = AtMostKSubset(high.to(device), logits.to(device), low=low.to(device))
    sample = dist.sample((50_000,)).cpu()
    sizes = sample.sum(-1)
    assert ((sizes >= low) & (sizes <= high)).all()
    assert binomial_p_value(sample.sum(0), dist.mean.cpu().clamp(0, 1), 50_000) > FALSE_ALARM


def test_groups(device: torch.device) -> None:
    groups = torch.tensor([0, 1, 0, 1, 1, 0, 1, 2])
    dist = PartitionedKSubset(groups, torch.tensor([2, 3, 1]), torch.randn(8, dtype=torch.float64).to(device))
    sample = dist.sample((100_000,)).cpu()
    z = dist.enumerate_support().cpu()
    powers = 2 ** torch.arange(8)
    counts = torch.bincount(sample.long() @ powers, minlength=256)[z.long() @ powers]
    assert counts.sum() == 100_000
    assert binomial_p_value(counts, dist.log_prob(z.to(device)).exp().cpu(), 100_000) > FALSE_ALARM


def test_the_same_seed_whatever_was_drawn_before(device: torch.device) -> None:
    logits = torch.randn(2, 300).to(device)
    fresh, used = KSubset(5, logits), KSubset(5, logits)
    used.sample((1000,))
    draws = [dist.sample((3,), generator=torch.Generator(device).manual_seed(0)) for dist in (fresh, used)]
    assert torch.equal(*draws)


def test_rows_without_a_subset_do_not_hang() -> None:
    logits = torch.zeros(4, 6)
    logits[0, 2] = math.nan
    logits[1] = -math.inf
    logits[2] = math.inf
    sample = KSubset(2, logits, validate_args=False).sample((2,))
    assert (sample[:, 3].sum(-1) == 2).all()
