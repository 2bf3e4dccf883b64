"""The regression of scores on membership."""

import numpy as np
import pytest
import torch

from ksubset.search.slope import fit_slope, weighted_subset_ridge


@pytest.mark.parametrize(("rows", "n"), [(400, 12), (30, 50)])
def test_ridge_against_dense_normal_equations(rows: int, n: int) -> None:
    rng = np.random.default_rng(0)
    subsets = torch.from_numpy(np.stack([rng.choice(n, 4, replace=False) for _ in range(rows)]))
    values, weights = torch.from_numpy(rng.standard_normal(rows)), torch.from_numpy(rng.random(rows))
    strengths = torch.tensor([1.0, 100.0], dtype=torch.float64)
    z = torch.zeros(rows, n, dtype=torch.float64).scatter_(1, subsets, 1.0)
    z = z - (weights @ z) / weights.sum()
    y = values - (weights @ values) / weights.sum()
    slow = torch.stack(
        [
            torch.linalg.solve((z.T * weights) @ z + s * torch.eye(n, dtype=z.dtype), (z.T * weights) @ y)
            for s in strengths
        ],
        1,
    )
    torch.testing.assert_close(
        weighted_subset_ridge(subsets, values, weights, n, strengths), slow, rtol=1e-4, atol=1e-6
    )


def test_slopes_of_noise_are_no_news_and_those_of_a_linear_score_are_exact() -> None:
    rng = np.random.default_rng(0)
    subsets = torch.from_numpy(np.stack([rng.choice(50, 5, replace=False) for _ in range(2000)]))
    weights = torch.ones(2000, dtype=torch.float64)
    noise = fit_slope(subsets, torch.from_numpy(rng.standard_normal(2000)), weights, 50)
    assert (noise.mean / noise.deviation).abs().max() < 4
    slope = torch.from_numpy(rng.standard_normal(50))
    linear = fit_slope(subsets, slope[subsets].sum(-1), weights, 50)
    torch.testing.assert_close(linear.mean - linear.mean.mean(), slope - slope.mean(), rtol=1e-2, atol=1e-2)
    flat = fit_slope(subsets, torch.ones(2000, dtype=torch.float64), weights, 50)
    assert not flat.mean.any()
