"""Gumbel top-k draws from another distribution, and the tests of the samplers see that."""

import torch
from oracle import FALSE_ALARM, binomial_p_value, chi_square_p_value, gumbel_top_k, recursion


def test_gumbel_top_k_fails_the_test_of_all_subsets() -> None:
    logits = torch.randn(6, dtype=torch.float64)
    indices = gumbel_top_k(logits, 3, 200_000)
    sample = torch.zeros(200_000, 6).scatter_(-1, indices, 1.0)
    assert chi_square_p_value(sample, logits, 3) < FALSE_ALARM


def test_gumbel_top_k_fails_the_test_of_inclusion_frequencies() -> None:
    logits = 1.5 * torch.randn(784, dtype=torch.float64)
    counts = torch.bincount(gumbel_top_k(logits, 30, 100_000).flatten(), minlength=784)
    assert binomial_p_value(counts, recursion(logits, 30)[1], 100_000) < FALSE_ALARM
