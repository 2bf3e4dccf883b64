"""The distribution that subsets are drawn from."""

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ksubset import KSubset
from ksubset.selection.wrapper.proposal import Proposal
from ksubset.selection.wrapper.scores import ScoreTable


def scored(table: ScoreTable, subsets: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows of new subsets, with scores on the first fold."""
    rows = table.add(subsets)
    table.scores[rows, 0] = scores
    return rows


def proposal(n: int, k: int, logits: torch.Tensor | None = None) -> tuple[ScoreTable, Proposal]:
    table = ScoreTable(k, 1)
    start = torch.zeros(n, dtype=torch.float64) if logits is None else logits
    return table, Proposal(table, start, torch.Generator().manual_seed(0))


def test_draws_are_distinct_and_new() -> None:
    table, drawing = proposal(6, 3)
    seen: set[tuple[int, ...]] = set()
    while len(batch := drawing.draw(6)):
        subsets = set(map(tuple, batch.tolist()))
        assert len(subsets) == len(batch) <= 6
        assert not subsets & seen
        assert (np.diff(batch) > 0).all()
        seen |= subsets
        scored(table, batch, np.zeros(len(batch)))
    assert len(seen) == 20


def test_mixture_against_log_prob() -> None:
    table, drawing = proposal(15, 3)
    rng = np.random.default_rng(0)
    slope, past = rng.standard_normal(15), []
    for count in (20, 30, 10):
        past.append((drawing.logits, count))
        batch = drawing.draw(count)
        drawing.record(scored(table, batch, slope[batch].sum(1) + rng.standard_normal(count)))
        scored(table, next(drawing.swaps(batch[0], batch[0]))[None], np.zeros(1))  # which was not drawn
        drawing.learn()
    assert len(drawing.drawn) == len(table) - 3 == 60
    z = torch.zeros(60, 15, dtype=torch.float64)
    z.scatter_(1, torch.from_numpy(table.subsets[drawing.drawn]), 1.0)
    expected = sum(count * KSubset(3, logits).log_prob(z).exp() for logits, count in past)
    torch.testing.assert_close(drawing.log_mixture.exp(), expected)
    assert not torch.equal(past[0][0], past[-1][0])


def test_it_learns_which_items_are_good_and_forgets_the_prior() -> None:
    table, drawing = proposal(12, 3, torch.linspace(1, 0, 12, dtype=torch.float64))
    for _ in range(2):
        batch = drawing.draw(40)
        drawing.record(scored(table, batch, np.isin(batch, [1, 6, 11]).sum(1).astype(float)))
        for _ in range(4):
            drawing.learn()
    assert sorted(drawing.likeliest(3).tolist()) == [1, 6, 11]
    assert drawing.inclusion[[1, 6, 11]].min() > 0.8
    assert drawing.inclusion.sum().item() == pytest.approx(3)
    drawing.restart()
    torch.testing.assert_close(drawing.inclusion, torch.full((12,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("k", [0, 4])
def test_no_choice(k: int) -> None:
    assert proposal(4, k)[1].inclusion.tolist() == [float(k > 0)] * 4


def test_a_step_keeps_half_of_the_effective_sample_size() -> None:
    torch.manual_seed(0)
    before = KSubset(3, torch.randn(9, dtype=torch.float64))
    _, moving = proposal(9, 3, before.logits)
    moving.move(20 * torch.randn(9, dtype=torch.float64))
    support = before.enumerate_support()
    weights = (KSubset(3, moving.logits).log_prob(support) - before.log_prob(support)).exp()
    kept = 1 / (before.log_prob(support).exp() * weights.square()).sum()
    assert 0.5 <= kept < 0.52
    near = moving.logits + 0.01 * torch.randn(9, dtype=torch.float64)
    moving.move(near)
    torch.testing.assert_close(moving.logits, near - near.mean())


def test_swaps_are_the_neighbours_likeliest_first() -> None:
    logits = torch.tensor([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0], dtype=torch.float64)
    table, swapping = proposal(8, 3, logits)
    known = np.array([[0, 4, 6]])
    scored(table, known, np.zeros(1))
    swaps = [tuple(subset.tolist()) for subset in swapping.swaps(np.array([0, 2, 4]), np.array([0, 2, 4]))]
    neighbours = {s for s in combinations(range(8), 3) if len({0, 2, 4} & set(s)) == 2}
    assert set(swaps) == neighbours - {(0, 4, 6)}
    totals = [float(logits[list(subset)].sum()) for subset in swaps]
    assert totals == sorted(totals, reverse=True)
