"""The sampler against exact probabilities; Gumbel top-k must fail the very same test."""

import math

import pytest
import torch
from oracle import FALSE_ALARM, binomial_p_value, gumbel_top_k, probabilities, recursion, subsets
from scipy.stats import chi2

from ksubset import KSubset
from ksubset.numerics import joint_inclusion_probabilities
from ksubset.numerics.sampling import sample_indices, sampling_table


def chi_square_p_value(sample: torch.Tensor, logits: torch.Tensor, k: int) -> float:
    """P-value of the observed frequencies of all subsets, `(S, n)` k-hot draws."""
    n = logits.shape[-1]
    powers = 2 ** torch.arange(n)
    codes = subsets(n, k).long() @ powers
    counts = torch.bincount(sample.cpu().long() @ powers, minlength=2**n)[codes]
    assert counts.sum() == len(sample)
    expected = probabilities(logits, k) * len(sample)
    assert expected.min() > 5
    return float(chi2.sf(float(((counts - expected) ** 2 / expected).sum()), len(codes) - 1))


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (6, 3), (7, 6), (8, 4)])
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
    sample = KSubset(30, logits.to(device)).sample((50_000,)).cpu()
    i, j = torch.triu_indices(784, 784, offset=1)
    together = (sample.T @ sample)[i, j]
    assert binomial_p_value(together, joint_inclusion_probabilities(logits, 30)[i, j], 50_000) > FALSE_ALARM


def test_gumbel_top_k_fails_the_test_of_all_subsets() -> None:
    logits = torch.randn(6, dtype=torch.float64)
    indices = gumbel_top_k(logits, 3, 200_000)
    sample = torch.zeros(200_000, 6).scatter_(-1, indices, 1.0)
    assert chi_square_p_value(sample, logits, 3) < FALSE_ALARM


def test_inclusion_frequencies_at_the_size_of_the_paper(device: torch.device) -> None:
    logits = 1.5 * torch.randn(784, dtype=torch.float64)
    _, mean = recursion(logits, 30)
    indices = KSubset(30, logits.to(device)).sample_indices((100_000,)).cpu()
    assert binomial_p_value(torch.bincount(indices.flatten(), minlength=784), mean, 100_000) > FALSE_ALARM
    other = gumbel_top_k(logits, 30, 100_000)
    assert binomial_p_value(torch.bincount(other.flatten(), minlength=784), mean, 100_000) < FALSE_ALARM


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


def test_the_table_holds_elementary_symmetric_polynomials() -> None:
    logits = torch.tensor([0.0, math.log(2.0), math.log(3.0), math.log(4.0)])
    table = sampling_table(logits, 2)
    ratio = torch.exp(table.kept[2][0] - table.kept[2][0, -1])
    torch.testing.assert_close(ratio, torch.tensor([0, 0, 2, 11, 35], dtype=torch.float64) / 35)
    assert sample_indices(table, 4).shape == (4, 1, 2)


@pytest.mark.parametrize("k", [1, 2, 7, 9, 10, 12, 15, 23])
def test_a_table_of_few_kept_rows_gives_the_same_samples(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(2, 24)
    logits[0, 3] = math.inf
    draws = []
    for whole in (2**26, 0):
        monkeypatch.setattr("ksubset.numerics.sampling._WHOLE", whole)
        table = sampling_table(logits, k)
        draws.append(sample_indices(table, 500, torch.Generator().manual_seed(0)))
    drawn = min(k, 24 - k)
    assert len(table.kept) == drawn // math.isqrt(drawn) + 1
    assert torch.equal(*draws)
