"""The whole tool against enumeration, and what ends or resumes it."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ksubset.search import Apart, AtLeast, AtMost, Budget, Exactly, Search, minimize

N, K = 20, 5


def instance(seed: int) -> tuple[Callable[[Any], float], dict[str, Any], list[tuple[int, ...]]]:
    """A function with interactions, what is asked, and all subsets that fulfil it, by the definitions."""
    rng = np.random.default_rng(seed)
    square, costs, places = rng.standard_normal((N, N)), rng.random(N), rng.random((N, 2))
    limit, chosen, distance = rng.uniform(1.8, 3), rng.permutation(N)[:8].tolist(), 0.15

    def function(subset: Any) -> float:
        return float(square[np.ix_(subset, subset)].sum())

    far = np.linalg.norm(places[:, None] - places, axis=2) >= distance
    feasible = [
        subset
        for subset in combinations(range(N), K)
        if 3 in subset and 4 not in subset
        and costs[list(subset)].sum() <= limit
        and all(far[pair] for pair in combinations(subset, 2))
        and 1 <= len(set(subset) & set(chosen)) <= 3
    ]  # fmt: skip
    constraints = [Budget(costs, limit), Apart(distance, coordinates=places), AtMost(3, chosen), AtLeast(1, chosen)]
    return function, {"always": [3], "exclude": [4], "constraints": constraints}, feasible


@pytest.mark.parametrize("seed", range(50))
def test_the_optimum_and_its_certificate(seed: int) -> None:
    function, asked, feasible = instance(seed)
    best = min(feasible, key=function)
    result = minimize(function, N, K, max_evaluations=len(feasible), random_state=0, **asked)
    assert result.subset.tolist() == list(best)
    assert result.value == function(best)
    assert result.optimal
    assert result.num_evaluations == len(feasible)
    seen: list[tuple[int, ...]] = []

    def watched(subset: Any) -> float:
        seen.append(tuple(subset.tolist()))
        return function(subset)

    budget = min(150, len(feasible) - 1)
    result = minimize(watched, N, K, max_evaluations=budget, random_state=0, **asked)
    assert not result.optimal
    assert len(seen) == len(set(seen)) <= budget
    assert set(seen) <= set(feasible)


def test_groups_are_kept_together() -> None:
    weights = np.array([5.0, -3, 1, -4, 3, 0])
    groups = [[0, 1], [2, 3], [4, 5]]
    result = minimize(lambda subset: weights[subset].sum(), 6, 2, groups=groups)
    by_hand = min((a + b for a, b in combinations(groups, 2)), key=lambda one: weights[one].sum())
    assert result.subset.tolist() == by_hand
    assert minimize(lambda mask: mask.sum(), 6, 2, groups=[[0, 1, 2]], encoding="mask").value == 2
    with pytest.raises(ValueError, match="encoding"):
        minimize(len, 6, 2, groups=[[0, 1, 2]], vectorized=True)


def test_a_budget_that_just_fits() -> None:
    worth = np.array([3.0, 1, 2, 4])
    result = minimize(lambda subset: -worth[subset].sum(), 4, 2, constraints=[Budget([3, 1, 2, 4], 5)])
    assert result.value == -5
    assert result.optimal
    assert minimize(len, 2, 2, constraints=[Budget([0.1, 0.2], 0.3)]).subset.tolist() == [0, 1]
    assert minimize(len, 4, 0).subset.tolist() == []
    assert minimize(len, 4, 4).subset.tolist() == [0, 1, 2, 3]
    each = [Exactly(1, [0, 1]), Exactly(1, [2, 3])]
    assert minimize(lambda subset: -worth[subset].sum(), 4, 2, constraints=each).subset.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"always": [0], "exclude": [0]}, r"always, exclude: .*\[0\]"),
        ({"always": [0, 1, 2]}, "always: expected at most k = 2"),
        ({"exclude": range(3)}, "exclude: expected to leave"),
        ({"constraints": [Budget([1] * 4, 9), Budget([3, 1, 2, 4], 2)]}, r"fulfils constraints\[1\] = Budget"),
        (
            {"always": [0], "constraints": [AtMost(3, [1]), Apart(pairs=[(0, 1), (0, 2), (0, 3)])]},
            r"size 2 fulfils always and constraints\[1\] = Apart\(3 pairs\)$",
        ),
        ({"constraints": [Budget([1, 2, 3], 9)]}, "costs: expected one for each of 4 items, got 3"),
        ({"initial": [[0, 1, 2]]}, "initial: expected k = 2"),
    ],
)
def test_what_cannot_be_is_named(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        minimize(len, 4, 2, **asked)


@pytest.mark.parametrize("cost", [-1.0, np.nan, np.inf])
def test_costs_that_are_none(cost: float) -> None:
    with pytest.raises(ValueError, match="costs"):
        Budget([1, cost], 5)


def test_values_that_are_none() -> None:
    result = minimize(lambda subset: [np.nan, np.inf, 7][subset[0]], 3, 1)
    assert (result.subset.tolist(), result.value) == ([2], 7)
    with pytest.raises(ValueError, match="f: expected finite values"):
        minimize(lambda subset: np.nan, 3, 1)
    with pytest.raises(ValueError, match=r"f: .*got shape \(2,\)"):
        minimize(lambda subset: np.zeros(2), 3, 1)
    with pytest.raises(ValueError, match=r"f: .*\(3,\).*got shape \(\)"):
        minimize(lambda subsets: 0.0, 3, 1, vectorized=True)


def rough(subset: Any) -> float:
    """Of the module, so that it can be pickled."""
    return float(np.sin(np.square(subset).sum()) + subset.sum() / 50)


class Killed(BaseException):
    pass


def test_a_killed_search_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = minimize(rough, 30, 6, max_evaluations=200, random_state=1)
    calls, limit, path, plain = [0], [70], tmp_path / "search.jsonl", rough.__call__

    def counted(subset: Any) -> float:
        calls[0] += 1
        if calls[0] > limit[0]:
            raise Killed
        return float(plain(subset))

    counted.__module__, counted.__qualname__ = rough.__module__, rough.__qualname__
    monkeypatch.setitem(test_a_killed_search_resumes.__globals__, "rough", counted)
    with pytest.raises(Killed):
        minimize(counted, 30, 6, max_evaluations=200, random_state=1, checkpoint=path)
    path.write_bytes(path.read_bytes() + b"[[1,2")
    limit[0] = 1000
    resumed = minimize(counted, 30, 6, max_evaluations=200, random_state=1, checkpoint=path)
    assert calls[0] == 201  # the one that was killed, and 200
    assert resumed.subset.tolist() == alone.subset.tolist()
    np.testing.assert_array_equal(resumed.trace, alone.trace)
    with pytest.raises(ValueError, match=r"differs in k, random_state;"):
        minimize(counted, 30, 5, max_evaluations=200, random_state=2, checkpoint=path)


def test_callbacks_patience_seconds_and_interrupts_end_it() -> None:
    result = minimize(rough, 30, 6, callbacks=lambda progress: progress.num_evaluations >= 10)
    assert result.num_evaluations == 10
    assert minimize(lambda subset: 1.0, 30, 6, patience=20, max_evaluations=None).num_evaluations == 21
    assert minimize(rough, 30, 6, max_seconds=0.05, max_evaluations=None).num_evaluations > 1
    calls = [0]

    def interrupted(subset: Any) -> float:
        calls[0] += 1
        if calls[0] == 10:
            raise KeyboardInterrupt
        return rough(subset)

    with pytest.warns(UserWarning, match="interrupted"):
        assert minimize(interrupted, 30, 6).num_evaluations == 9


def test_many_at_a_time_and_in_workers_find_as_good() -> None:
    weights = np.random.default_rng(0).standard_normal(40)
    best = np.sort(weights)[:5].sum()
    found = minimize(
        lambda masks: masks @ weights, 40, 5, vectorized=True, encoding="mask", max_evaluations=1500, random_state=0
    )
    assert found.value == pytest.approx(best)
    alone, together = (minimize(rough, 30, 6, max_evaluations=50, n_jobs=jobs, random_state=0) for jobs in (1, 2))
    assert together.num_evaluations == alone.num_evaluations == 50


def test_noise_is_averaged_and_fresh_values_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    result = minimize(
        lambda mask: rng.standard_normal() - mask[:4].sum(),
        20,
        4,
        encoding="mask",
        noisy=True,
        max_evaluations=3000,
        random_state=0,
    )
    assert result.subset.tolist() == [0, 1, 2, 3]
    assert result.confirmed_value == result.value
    # Five standard errors: a false alarm in a million seeds, and the seed is fixed.
    assert abs(result.value + 4) < 5 * result.standard_error
    assert not result.optimal


def test_a_warm_start_and_shares() -> None:
    known = {(0, 1): 5.0, (2, 3): None}
    asked = Search(6, 2, initial=known, max_evaluations=14, random_state=0)
    first = asked.ask(20)
    assert first[0].tolist() == [2, 3]
    assert [0, 1] not in first.tolist()
    assert len(first) == 14
    asked.tell(first, first.sum(1))
    result = asked.result()
    assert (result.subset.tolist(), result.num_evaluations) == ([0, 2], 14)
    np.testing.assert_allclose(np.diag(result.co_inclusion()), result.inclusion)
    assert result.inclusion.sum() == pytest.approx(2)
