"""Swaps against whole designs, and bounds against enumeration."""

from itertools import combinations

import numpy as np
import pytest

from ksubset.design.criteria import AverageVariance, Criterion, Determinant, SmallestEigenvalue
from ksubset.design.relaxation import project, relax

N, P, K = 12, 3, 5
ROWS = np.random.default_rng(0).normal(size=(N, P))
NONE = np.zeros((P, P))
CRITERIA: list[Criterion] = [
    Determinant(ROWS, NONE),
    AverageVariance(ROWS, NONE, np.eye(P)),
    AverageVariance(ROWS, NONE, ROWS.T @ ROWS / N),
    SmallestEigenvalue(ROWS, NONE),
    SmallestEigenvalue(ROWS, np.eye(P)),
]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_swaps_are_those_of_whole_designs(criterion: Criterion) -> None:
    subset = np.array([0, 3, 4, 8, 11])
    allowed = np.tile(~np.isin(np.arange(N), subset), (K, 1))
    swaps = criterion.swaps(subset, allowed)
    present = criterion.utilities(subset[None])[0]
    whole = np.full((K, N), -np.inf)
    for i in range(K):
        for j in set(range(N)) - set(subset.tolist()):
            whole[i, j] = criterion.utilities(np.append(np.delete(subset, i), j)[None])[0]
    computed = np.isfinite(swaps)
    np.testing.assert_allclose(swaps[computed], whole[computed], rtol=1e-9)
    assert whole.max() > present
    assert swaps.max() == pytest.approx(whole.max(), rel=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_bound_is_above_every_design_and_met_by_the_weights(criterion: Criterion) -> None:
    relaxed = relax(criterion, K)
    utilities = criterion.utilities(np.array(list(combinations(range(N), K))))
    assert utilities.max() <= relaxed.bound
    assert relaxed.weights.sum() == pytest.approx(K)
    reached = criterion.relaxed(relaxed.weights, 1e-9)[0]
    assert reached == pytest.approx(relaxed.bound, rel=1e-3)


def test_the_projection_is_the_nearest_point() -> None:
    point = np.random.default_rng(1).normal(size=9)
    nearest = project(point, 4)
    assert nearest.sum() == pytest.approx(4)
    assert ((nearest >= 0) & (nearest <= 1)).all()
    # Of all vertices none is on the far side of the plane through the projection.
    for chosen in combinations(range(9), 4):
        vertex = np.isin(np.arange(9), chosen)
        assert (point - nearest) @ (vertex - nearest) <= 1e-9
