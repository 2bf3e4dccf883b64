"""Errors left out in closed form against decoders that are fitted anew, and sets against enumeration."""

from itertools import combinations

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from ksubset.design.decoding import Decoding
from ksubset.design.placement import extensions, grown, pivots, swapped
from ksubset.search import Apart, AtMost, Budget, Exactly
from ksubset.search.space import SearchSpace

M, N = 16, 12


@pytest.fixture
def readings() -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(M, N, dtype=torch.float64, generator=generator).cumsum(1) + 5


def left_out(readings: Tensor, targets: Tensor, subset: list[int], ridge: float, noise: float) -> float:
    """Fit m decoders."""
    x, z = readings.numpy()[:, subset], targets.numpy()

    def fit(rows: list[int]) -> np.ndarray:
        centred = x[rows] - x[rows].mean(0)
        inner = centred.T @ centred + ridge * np.eye(len(subset))
        return np.linalg.solve(inner, centred.T @ (z[rows] - z[rows].mean(0)))

    total = M * noise**2 * np.square(fit(list(range(M)))).sum()
    for i in range(M):
        rows = [row for row in range(M) if row != i]
        predicted = z[rows].mean(0) + (x[i] - x[rows].mean(0)) @ fit(rows)
        total += np.square(z[i] - predicted).sum()
    return float(total / np.square(z - z.mean(0)).sum())


@pytest.mark.parametrize("noise", [None, 0.3])
@pytest.mark.parametrize("others", [False, True])
def test_errors_are_those_of_decoders_fitted_anew(readings: Tensor, noise: float | None, others: bool) -> None:
    targets = readings[:, :2] ** 2 if others else readings
    decoding = Decoding(readings, targets, noise)
    if noise is None:
        decoding.ridge = 0.5
    subset = [1, 5, 9]
    # Without noise sets are compared under that for which the ridge is made.
    assumed = noise or (0.5 / M) ** 0.5
    told = left_out(readings, targets, subset, decoding.ridge, noise or 0.0)
    assert decoding.told(torch.tensor(subset)) == pytest.approx(told, rel=1e-9)
    expected = left_out(readings, targets, subset, decoding.ridge, assumed)
    state = decoding.of(torch.tensor(subset))
    assert decoding.error(state) == pytest.approx(expected, rel=1e-9)
    assert float(decoding.errors(torch.tensor([subset]))) == pytest.approx(expected, rel=1e-9)
    errors = decoding.with_each(state)
    for more in (0, 7, 11):
        expected = left_out(readings, targets, [*subset, more], decoding.ridge, assumed)
        assert float(errors[more]) == pytest.approx(expected, rel=1e-9)
        assert decoding.error(decoding.add(state, more)) == pytest.approx(expected, rel=1e-9)
    expected = left_out(readings, targets, [1, 9], decoding.ridge, assumed)
    assert decoding.error(decoding.remove(state, torch.tensor(subset), 1)) == pytest.approx(expected, rel=1e-9)


def test_updates_end_where_a_new_state_begins(readings: Tensor) -> None:
    decoding = Decoding(readings, readings, 0.2)
    state = decoding.of(torch.tensor([2, 3]))
    state = decoding.add(state, 8)
    state = decoding.remove(state, torch.tensor([2, 3, 8]), 0)
    anew = decoding.of(torch.tensor([3, 8]))
    for name in ("projection", "rest", "spread", "residual", "trace"):
        torch.testing.assert_close(getattr(state, name), getattr(anew, name))


def test_a_set_that_explains_all_snapshots_has_no_small_error(readings: Tensor) -> None:
    decoding = Decoding(readings[:6], readings[:6], None)
    subset = torch.arange(9)
    # A tiny ridge leaves residuals and leverages of rounding alone.
    assert decoding.told(subset) > 1e-3
    decoding.choose_ridge(subset)
    expected = left_out_of(readings[:6], subset.tolist(), decoding.ridge)
    assert decoding.told(subset) == pytest.approx(expected, rel=1e-3)


def left_out_of(readings: Tensor, subset: list[int], ridge: float) -> float:
    x, total = readings.numpy(), 0.0
    for i in range(len(x)):
        rest = np.delete(x, i, 0)
        mean, centred = rest.mean(0), rest - rest.mean(0)
        # In the space of the snapshots, where nothing is ill-conditioned.
        dual = np.linalg.solve(centred[:, subset] @ centred[:, subset].T + ridge * np.eye(len(rest)), centred)
        predicted = mean + (x[i] - mean)[subset] @ centred[:, subset].T @ dual
        total += np.square(x[i] - predicted).sum()
    return float(total / np.square(x - x.mean(0)).sum())


def test_the_ridge_is_the_best_of_its_grid(readings: Tensor) -> None:
    decoding = Decoding(readings, readings, None)
    subset = torch.tensor([0, 4, 5, 6, 11])
    decoding.choose_ridge(subset)
    best = decoding.ridge
    errors = []
    for factor in (1, 0.1, 10):
        decoding.ridge = best * factor
        errors.append(decoding.told(subset))
    assert errors[0] == min(errors)
    noisy = Decoding(readings, readings, 0.5)
    noisy.choose_ridge(subset)
    assert noisy.ridge == M * 0.25


def test_pivots_are_those_of_lapack(readings: Tensor) -> None:
    modes = np.linalg.svd(readings.numpy(), full_matrices=False)[2][:5].T
    expected = scipy.linalg.qr(modes.T, pivoting=True)[2][:5]
    assert pivots(modes, SearchSpace(N, 5), 0).tolist() == sorted(expected.tolist())
    # With more sensors than modes, those come first that a decomposition of what is left has.
    both = pivots(modes, SearchSpace(N, 8), 0)
    assert len(set(both.tolist())) == 8
    assert set(both.tolist()) > set(expected.tolist())


def test_pivots_beside_a_sensor_that_is_there(readings: Tensor) -> None:
    modes = np.linalg.svd(readings.numpy(), full_matrices=False)[2][:3].T
    space = SearchSpace(N, 3, always=[4])
    # Of all places the next has the largest part outside of the span of the first.
    row = modes[4] / np.linalg.norm(modes[4])
    rest = np.linalg.norm(modes - np.outer(modes @ row, row), axis=1)
    found = space.items(pivots(modes, space, 0))
    assert 4 in found
    assert rest.argmax() in found


@pytest.mark.parametrize("constrained", [False, True])
def test_growing_takes_the_best_one_more_and_swaps_end_where_none_is_better(
    readings: Tensor, constrained: bool
) -> None:
    costs, line = np.arange(N) % 4 + 1.0, np.arange(N) / 4
    constraints = [Exactly(1, range(4)), AtMost(1, [8, 9]), Budget(costs, 7.0), Apart(0.4, coordinates=line)]
    space = SearchSpace(N, 3, exclude=[6], constraints=constraints if constrained else ())
    decoding = Decoding(readings, readings, 0.1)
    point = grown(decoding, space, 0)
    assert space.feasible(point[None]).all()
    if not constrained:
        chosen: list[int] = []
        for _ in range(3):
            errors = {
                j: float(decoding.errors(torch.tensor([[*chosen, j]]))) for j in range(N) if j not in (6, *chosen)
            }
            chosen.append(min(errors, key=errors.__getitem__))
        assert space.items(point).tolist() == sorted(chosen)
    better = swapped(decoding, space, point)
    present = float(decoding.errors(torch.from_numpy(space.items(better))[None]))
    assert present <= float(decoding.errors(torch.from_numpy(space.items(point))[None]))
    for subset in combinations(range(len(space.free)), 3):
        if len(set(subset) & set(better.tolist())) == 2 and space.feasible(np.array([subset]))[0]:
            other = float(decoding.errors(torch.from_numpy(space.items(np.array(subset)))[None]))
            assert other >= present * (1 - 1e-3)


def test_no_extension_is_lost_that_a_feasible_set_needs() -> None:
    costs = np.arange(N) % 4 + 1.0
    space = SearchSpace(
        N, 4, constraints=[Exactly(2, range(5)), Budget(costs, 8.0), Apart(1.5, coordinates=np.arange(N))]
    )
    points = space.enumerate(1000)
    assert points is not None
    assert len(points) > 10
    for point in points.tolist():
        for place in range(4):
            assert extensions(space, point[:place])[point[place]]
    assert not extensions(space, [0])[1]


def test_where_growing_ends_too_early_any_feasible_set_is_taken(readings: Tensor) -> None:
    # The middle alone blocks both ends, and is the first to be taken.
    space = SearchSpace(3, 2, constraints=[Apart(pairs=[[0, 1], [1, 2]])])
    decoding = Decoding(readings[:, [0, 6, 11]] * torch.tensor([1e-3, 1.0, 1e-3]), readings[:, 6:7], 0.01)
    assert space.items(grown(decoding, space, 0)).tolist() == [0, 2]
