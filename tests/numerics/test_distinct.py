"""Distinct subsets and the order in which they were drawn, against the enumeration of all orders."""

import itertools
import math
import re

import pytest
import torch
from oracle import FALSE_ALARM, binomial_p_value, probabilities, subsets
from torch import Tensor

from ksubset.numerics.distinct import first_two, sample_distinct
from ksubset.numerics.inversion import sampling_table


def draw(logits: Tensor, k: int | Tensor, num_samples: int, sets: int = 1) -> Tensor:
    """Sets from each row: `(R, n)` -> `(sets * R, S, n)`, rows alternating."""
    table = sampling_table(logits, k, far=2.0**20)
    rows = torch.arange(len(logits), device=logits.device).repeat(sets)
    return sample_distinct([(table, rows)], num_samples)[0]


def draw_codes(sample: Tensor, k: int) -> Tensor:
    """Which sequence of `subsets(n, k)` was drawn, as a number in base C(n, k): `(C, S, n)` -> `(C)`."""
    is_subset = (sample.cpu()[:, :, None] == subsets(sample.shape[-1], k).bool()).all(-1)
    assert (is_subset.sum(-1) == 1).all()
    place = is_subset.shape[-1] ** torch.arange(sample.shape[1] - 1, -1, -1)
    return (is_subset.int().argmax(-1) * place).sum(-1)


def sequence_probabilities(p: Tensor, num_samples: int) -> Tensor:
    """Probability of each sequence of distinct draws, zero for one with repeats: `(N)` -> `(N ** S)`."""
    result = torch.zeros((len(p),) * num_samples, dtype=torch.float64)
    for sequence in itertools.permutations(range(len(p)), num_samples):
        left = 1 - torch.cumsum(p[list(sequence)], 0) + p[list(sequence)]
        result[sequence] = (p[list(sequence)] / left).prod()
    return result.flatten()


@pytest.mark.parametrize(("n", "k", "num_samples"), [(5, 2, 3), (5, 4, 4), (4, 1, 2), (6, 3, 2), (4, 2, 1)])
def test_frequencies_of_all_sequences(n: int, k: int, num_samples: int, device: torch.device) -> None:
    logits = torch.randn(1, n, dtype=torch.float64)
    p = probabilities(logits[0], k)
    exact = sequence_probabilities(p, num_samples)
    assert exact.sum().item() == pytest.approx(1)
    codes = draw_codes(draw(logits.to(device), k, num_samples, 200_000), k)
    counts = torch.bincount(codes, minlength=len(exact))
    assert binomial_p_value(counts, exact, 200_000) > FALSE_ALARM
    if num_samples > 1:  # the test would notice draws with repeats, were they but removed from the count
        independent = sequence_probabilities(p, 1)
        product = torch.stack(torch.meshgrid(*[independent] * num_samples, indexing="ij")).prod(0).flatten()
        without = torch.where(exact > 0, product, 0.0)
        assert binomial_p_value(counts, without / without.sum(), 200_000) < FALSE_ALARM


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("k", [1, 30, 783])
def test_subsets_are_distinct_and_of_size_k(scale: float, k: int, device: torch.device) -> None:
    sample = draw(scale * torch.randn(2, 784, device=device), k, 10)
    assert sample.shape == (2, 10, 784)
    assert (sample.sum(-1) == k).all()
    assert all(len(part.unique(dim=0)) == 10 for part in sample)


def test_the_likeliest_subsets_of_spread_logits_come_in_their_order(device: torch.device) -> None:
    # Probabilities fall by factors of exp(-1000): the draws are all but certain, and rejection would never end.
    logits = -1000.0 * torch.tensor([[0.0, 1, 3, 7, 15]], dtype=torch.float64, device=device)
    sample = draw(logits, 2, 10)
    score = (sample * logits).sum(-1)[0]
    assert torch.equal(score, score.sort(descending=True).values)


def test_infinite_logits_fix_their_items(device: torch.device) -> None:
    logits = torch.tensor([[0.0, -math.inf, math.inf, 1.0, -1.0, math.inf, 2.0]], dtype=torch.float64)
    sample = draw(logits.to(device), 4, 2, 100_000)
    assert not sample[..., 1].any()
    assert sample[..., [2, 5]].all()
    free = [0, 3, 4, 6]
    counts = torch.bincount(draw_codes(sample[..., free], 2), minlength=36)
    exact = sequence_probabilities(probabilities(logits[0, free], 2), 2)
    assert binomial_p_value(counts, exact, 100_000) > FALSE_ALARM


def test_rows_of_different_sizes(device: torch.device) -> None:
    logits = torch.randn(3, 6, dtype=torch.float64)
    logits[1, 4] = math.inf
    k = torch.tensor([1, 3, 4])
    sample = draw(logits.to(device), k.to(device), 3, 100_000).cpu().unflatten(0, (-1, 3))
    assert (sample.sum(-1) == k[:, None]).all()
    rows = [(sample[:, 0], 1, logits[0]), (sample[:, 1][..., [0, 1, 2, 3, 5]], 2, logits[1, [0, 1, 2, 3, 5]])]
    for part, size, row in [*rows, (sample[:, 2], 4, logits[2])]:
        exact = sequence_probabilities(probabilities(row, size), 3)
        counts = torch.bincount(draw_codes(part, size), minlength=len(exact))
        assert binomial_p_value(counts, exact, 100_000) > FALSE_ALARM


def test_all_subsets_and_no_more(device: torch.device) -> None:
    logits = 20 * torch.randn(50, 6, device=device)
    for sample in draw(logits, 3, 20):
        assert len(sample.unique(dim=0)) == 20
    message = "there must be 21 or more subsets to draw distinct ones, got 20 in a row"
    with pytest.raises(ValueError, match=re.escape(message)):
        draw(logits, 3, 21)
    logits[7, 0] = math.inf
    with pytest.raises(ValueError, match="got 10 in a row"):
        draw(logits, 3, 11)


def test_a_size_without_a_choice(device: torch.device) -> None:
    logits = torch.zeros(2, 5, device=device)
    for k in (0, 5):
        assert draw(logits, k, 1).sum(-1).tolist() == [[k], [k]]
        with pytest.raises(ValueError, match="got 1 in a row"):
            draw(logits, k, 2)


def test_blocks_and_a_table_of_few_kept_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 30 * torch.arange(24.0).repeat(7, 1)  # so spread that the draws are certain
    whole = draw(logits, 9, 2)
    monkeypatch.setattr("ksubset.numerics.distinct._BLOCK", 100)
    monkeypatch.setattr("ksubset.numerics.inversion._WHOLE", 0)
    assert torch.equal(draw(logits, 9, 2), whole)


def order_by_enumeration(p: Tensor) -> tuple[Tensor, Tensor]:
    """Twin of `first_two`: adds up the orders of a set; `(S)` -> `(S)`, `(S, S)`."""
    pairs = torch.zeros(len(p), len(p), dtype=torch.float64)
    for order in itertools.permutations(range(len(p))):
        left = 1 - torch.cumsum(p[list(order)], 0) + p[list(order)]
        pairs[order[0], order[1]] += (p[list(order)] / left).prod()
    first = pairs.sum(-1)
    return first / first.sum(), pairs / first[:, None]


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("mass", [1e-9, 0.3, 0.999])
@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0])
def test_the_order_by_enumeration(size: int, mass: float, scale: float) -> None:
    log_prob = torch.log_softmax(scale * torch.randn(20, size, dtype=torch.float64), -1) + math.log(mass)
    first, second = first_two(log_prob)
    for row, *ours in zip(log_prob, first, second, strict=True):
        torch.testing.assert_close(tuple(ours), order_by_enumeration(row.exp()), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [2, 10, 200])
def test_a_set_of_equally_likely_subsets_has_no_order(size: int) -> None:
    for each in (1 / size, 0.999 / size, 1e-3 / size, 1e-50, 0.0):
        log_prob = torch.full((1, size), each, dtype=torch.float64).log()
        first, second = first_two(log_prob)
        torch.testing.assert_close(first, torch.full_like(first, 1 / size), rtol=1e-12, atol=0)
        expected = (1 - torch.eye(size, dtype=torch.float64)) / (size - 1)
        torch.testing.assert_close(second[0], expected, rtol=1e-12, atol=0)


def test_the_set_of_all_subsets_says_nothing() -> None:
    log_prob = torch.log_softmax(3 * torch.randn(50, 12, dtype=torch.float64), -1)
    first, second = first_two(log_prob)
    p = log_prob.exp()
    torch.testing.assert_close(first, p, rtol=1e-9, atol=1e-14)
    others = (1 - torch.eye(12)) * p[:, None] / (1 - p[..., None])
    torch.testing.assert_close(second, others, rtol=1e-9, atol=1e-14)


def test_a_point_mass_was_drawn_first() -> None:
    first, second = first_two(torch.tensor([[0.0, -1e5, -2e5, -30.0]], dtype=torch.float64))
    assert first[0, 0].item() == pytest.approx(1, abs=1e-12)
    assert second.isfinite().all()
    torch.testing.assert_close(second.sum(-1), torch.ones(1, 4, dtype=torch.float64))
