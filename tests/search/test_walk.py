"""How proposals are made: effects of items, temperatures, and swaps, each against an obvious twin."""

import math
from typing import Any

import numpy as np
import pytest

from ksubset.search import Apart, AtMost, Budget, Search, minimize
from ksubset.search.archive import Archive, Keys
from ksubset.search.cooling import Cooling
from ksubset.search.effects import Effects
from ksubset.search.space import SearchSpace
from ksubset.search.walk import Walk


@pytest.mark.parametrize("count", [1, 3])
def test_effects_are_a_filter_without_covariances(count: int) -> None:
    rng = np.random.default_rng(0)
    effects = Effects(12, rng)
    for _ in range(40):
        places = rng.permutation(12)
        out, into = places[:count], places[count : 2 * count]
        effects.learn(out, into, float(rng.standard_normal()))
        row, mean, covariance = np.zeros(12), effects._mean.copy(), np.diag(effects._variance)
        row[out], row[into] = -1, 1
        noise, difference = effects._noise, float(rng.standard_normal())
        gain = covariance @ row / (row @ covariance @ row + count * noise)
        effects.learn(out, into, difference)
        np.testing.assert_allclose(effects._mean, mean + gain * (difference - row @ mean))
        np.testing.assert_allclose(effects._variance, np.diag(covariance - np.outer(gain, row @ covariance)))
        effects.moved()


def test_effects_find_those_of_a_sum_and_survive_a_penalty() -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal(60)
    effects = Effects(60, rng)
    for step in range(600):
        out, into = rng.permutation(60)[:2, None]
        penalty = 1e200 if step % 50 == 0 else 0.0
        effects.learn(out, into, float(truth[into[0]] - truth[out[0]]) + penalty)
    drawn = effects.draw()
    assert np.isfinite(drawn).all()
    effects = Effects(60, rng)
    for _ in range(600):
        out, into = rng.permutation(60)[:2, None]
        effects.learn(out, into, float(truth[into[0]] - truth[out[0]]))
    assert np.corrcoef(effects.draw(), truth)[0, 1] > 0.99


def test_temperatures_fall_to_each_end_and_then_in_cycles() -> None:
    cooling = Cooling([100, 300])
    assert cooling.temperature(50) == 0
    for difference in (1.0, -3.0, 2.0):
        cooling.observe(difference, 1)
    # The mean of the absolute differences, which is 2.
    falls = [cooling.temperature(evaluations) / 2 for evaluations in (0, 50, 100, 200, 300, 800, 1799)]
    half = math.sqrt(0.3 * 0.01)
    np.testing.assert_allclose(falls[:6], [0.3, half, 0.3, half, 0.3, 0.3])
    assert falls[6] == pytest.approx(0.01, rel=0.01)
    cooling.observe(1e9, 1)
    assert cooling.temperature(0) <= 0.3 * 2 * 2


def walk_on(space: SearchSpace, seed: int) -> Walk:
    rng = np.random.default_rng(seed)
    keys = Keys(len(space.free))
    walk = Walk(space, Archive(), keys, rng)
    point = space.sample(rng)
    walk.move(point, keys.of(point), 0.0)
    return walk


@pytest.mark.parametrize("constrained", [False, True])
def test_proposals_are_feasible_swaps_and_each_of_them_may_come(constrained: bool) -> None:
    rng = np.random.default_rng(2)
    places = rng.random((9, 2))
    constraints = [Budget(np.arange(9.0), 18), AtMost(2, range(4)), Apart(0.1, coordinates=places)]
    space = SearchSpace(9, 3, constraints=constraints if constrained else [])
    walk = walk_on(space, 3)
    found = set()
    for step in range(2000):
        swap = walk.propose()
        assert swap is not None
        assert swap.key == Keys(len(space.free)).of(swap.point)
        assert sorted({*walk.members.tolist()} - {*swap.out.tolist()} | {*swap.into.tolist()}) == swap.point.tolist()
        assert len(swap.out) == len(swap.into) == len(np.setdiff1d(swap.point, walk.members))
        assert space.feasible(swap.point[None])[0]
        # What was learned speaks for the same few swaps again and again.
        if step < 100:
            walk.learn(swap, float(swap.into.sum() - swap.out.sum()))
        walk.adapt(better=False)
        found.add(tuple(swap.point.tolist()))
    near = {
        tuple(sorted({*walk.members.tolist()} - {out} | {into}))
        for out in walk.members.tolist() for into in walk.others.tolist()
    }  # fmt: skip
    feasible = {one for one in near if space.feasible(np.array([one]))[0]}
    assert len(feasible) > 3
    assert feasible <= found


def test_wider_swaps_while_they_help() -> None:
    walk = walk_on(SearchSpace(100, 40), 4)
    for better, widths in ((True, {20}), (False, {1})):
        for _ in range(200):
            walk.adapt(better=better)
        proposals = [walk.propose() for _ in range(20)]
        assert {len(swap.out) for swap in proposals if swap is not None} <= widths


def uniform(function: Any, n: int, k: int, evaluations: int, seed: int) -> float:
    """Random swaps, taken if they are not worse."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    value = function(order[:k])
    for _ in range(evaluations - 1):
        out, into = rng.integers(k), rng.integers(k, n)
        order[[out, into]] = order[[into, out]]
        if (found := function(order[:k])) <= value:
            value = found
        else:
            order[[out, into]] = order[[into, out]]
    return float(value)


@pytest.mark.parametrize("evaluations", [200, 1000])
def test_what_was_learned_helps(evaluations: int) -> None:
    rng = np.random.default_rng(7)
    member = rng.random((150, 1500)) < rng.uniform(0.005, 0.05, 150)[:, None]

    def function(chosen: Any) -> float:
        return -float(member[chosen].any(0).sum())

    # The worst of three against the best of three.
    ours = [minimize(function, 150, 20, max_evaluations=evaluations, random_state=seed).value for seed in range(3)]
    assert max(ours) < min(uniform(function, 150, 20, evaluations, seed) for seed in range(3))


def test_a_known_penalty_does_not_derail_it() -> None:
    weights = np.random.default_rng(5).standard_normal(60)

    def function(chosen: Any) -> float:
        return float(weights[chosen].sum()) + (1e200 if 7 in chosen else 0.0)

    weights[7] = 1
    assert minimize(function, 60, 10, max_evaluations=2000, random_state=0).value == pytest.approx(
        np.sort(weights)[:10].sum()
    )


def rough(subset: Any) -> float:
    return float(np.sin(np.square(subset).sum()) + subset.sum() / 50)


@pytest.mark.parametrize(("first", "second", "calls"), [(150, 260, 110), (None, 260, 110), (260, 150, 0)])
def test_other_limits_use_all_values_in_the_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, first: int | None, second: int, calls: int
) -> None:
    count, plain = [0], rough.__call__

    def counted(subset: Any) -> float:
        count[0] += 1
        return float(plain(subset))

    counted.__module__, counted.__qualname__ = rough.__module__, rough.__qualname__
    monkeypatch.setitem(globals(), "rough", counted)
    path = tmp_path / "search.jsonl"
    # Without a limit, a callback ends it.
    minimize(
        counted, 30, 6, max_evaluations=first, max_seconds=None if first else 1e6, random_state=1, checkpoint=path,
        callbacks=lambda progress: first is None and progress.num_evaluations == 150,
    )  # fmt: skip
    count[0] = 0
    result = minimize(counted, 30, 6, max_evaluations=second, random_state=1, checkpoint=path)
    assert count[0] == calls
    assert result.num_evaluations == second


def test_values_told_late_and_in_another_order() -> None:
    weights = np.random.default_rng(6).standard_normal(50)
    search = Search(50, 10, random_state=0)
    waiting = [search.ask(5) for _ in range(4)]
    while search.num_evaluations < 1500:
        subsets = waiting.pop(search.num_evaluations % 4)[::-1]
        search.tell(subsets, weights[subsets].sum(1))
        waiting.append(search.ask(5))
        asked = [tuple(subset) for batch in waiting for subset in batch.tolist()]
        assert len(set(asked)) == len(asked)
    assert search.result().value == pytest.approx(np.sort(weights)[:10].sum())
