"""The whole tool against enumeration, and what ends or resumes it."""

import itertools
import math
import re
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ksubset.search import Apart, AtLeast, AtMost, Budget, Exactly, Search, SearchProgress, SearchResult, minimize
from ksubset.search.checkpoint import identity_of
from ksubset.search.space import SearchSpace

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


def total(subset: Any) -> float:
    return -float(subset.sum())


@pytest.mark.parametrize("seed", range(12))
def test_budgets_in_tenths_beside_costs_beyond_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tenths = rng.integers(1, 10, 9)
    tenths[rng.permutation(9)[:2]] = 10 ** rng.integers(5, 14, 2)
    limit = int(np.sort(tenths)[:5].sum())
    feasible = [one for one in combinations(range(9), 4) if tenths[list(one)].sum() <= limit and 0 in one]
    seen: list[tuple[int, ...]] = []

    def watched(subset: Any) -> float:
        seen.append(tuple(subset.tolist()))
        return total(subset)

    # Of tenths few are exact in binary, and their sums are off in both directions.
    asked: dict[str, Any] = {"always": [0], "constraints": [Budget(tenths / 10, limit / 10)]}
    if feasible:
        assert minimize(watched, 9, 4, **asked).optimal
        assert sorted(seen) == feasible
    else:
        with pytest.raises(ValueError, match="constraints: no subset of size 4"):
            minimize(watched, 9, 4, **asked)


def test_a_budget_of_small_costs_is_not_lost_beside_large_ones() -> None:
    assert minimize(total, 5, 2, constraints=[Budget([1, 2, 2, 2, 1e9], 3)]).subset.tolist() == [0, 3]
    assert minimize(total, 3, 2, constraints=[Budget([1e9 + 1, 1e9 + 2, 1e9], 2e9 + 1)]).subset.tolist() == [0, 2]
    for costs, limit in (([1, 1.02, 1.02, 1.02, 1e8], 2.01), ([2, 2, 2, 2, 1e12], 3)):
        with pytest.raises(ValueError, match="constraints: no subset of size 2"):
            minimize(total, 5, 2, constraints=[Budget(costs, limit)])
    costs = np.append(np.random.default_rng(0).random(59), 1e9)
    limit = float(np.sort(costs)[:12].sum())

    def within(subset: Any) -> float:
        assert costs[subset].sum() <= limit * (1 + 1e-14)
        return total(subset)

    minimize(within, 60, 10, constraints=[Budget(costs, limit)], max_evaluations=300, random_state=0)


@pytest.mark.parametrize(
    ("k", "asked", "only"),
    [
        (2, {"always": [0, 1], "constraints": [Budget([1] * 5, 2)]}, [0, 1]),
        (0, {"constraints": [AtMost(0, range(5))]}, []),
        (1, {"always": [0], "constraints": [Apart(pairs=[(0, 1), (0, 2), (0, 3), (0, 4)])]}, [0]),
        (2, {"exclude": [2, 3, 4], "constraints": [AtMost(1, [0]), AtLeast(0, [1])]}, [0, 1]),
    ],
)
def test_constraints_that_leave_no_item_free(k: int, asked: dict[str, Any], only: list[int]) -> None:
    result = minimize(total, 5, k, **asked)
    assert (result.subset.tolist(), result.optimal, result.num_evaluations) == (only, True, 1)
    assert Search(5, k, initial=[only], **asked).ask(3).tolist() == [only]


@pytest.mark.parametrize("seed", range(8))
def test_all_subsets_without_excluded_pairs_are_enumerated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [pair for pair in combinations(range(11), 2) if rng.random() < 0.1 * (1 + seed)]
    wanted = [one for one in combinations(range(11), 3) if not set(combinations(one, 2)) & set(pairs)]
    if wanted:
        space = SearchSpace(11, 3, constraints=[Apart(pairs=pairs)])
        points = space.enumerate(len(wanted))
        assert points is not None
        assert [tuple(space.items(point).tolist()) for point in points] == wanted


def test_few_subsets_among_many_that_begin_well_are_all_evaluated() -> None:
    result = minimize(total, 41, 20, constraints=[Apart(2, coordinates=range(41))], max_evaluations=300)
    assert (result.optimal, result.num_evaluations, result.value) == (True, 231, -420)


@pytest.mark.parametrize(("n", "k", "evaluations"), [(40, 38, 100), (100, 99, 50), (30, 29, 20), (60, 56, 200)])
def test_almost_all_items(n: int, k: int, evaluations: int) -> None:
    seen: set[tuple[int, ...]] = set()

    def watched(subset: Any) -> float:
        seen.add(tuple(subset.tolist()))
        return total(subset)

    for seed in range(5):
        seen.clear()
        result = minimize(watched, n, k, max_evaluations=evaluations, random_state=seed)
        assert result.num_evaluations == len(seen) == evaluations


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


@pytest.mark.parametrize(
    "asked",
    [{"always": 3}, {"exclude": "3"}, {"groups": 3}, {"constraints": AtMost(1, [0, 1])}, {"initial": 3}],
    ids=lambda asked: next(iter(asked)),
)
def test_one_where_several_are_expected(asked: dict[str, Any]) -> None:
    (name,) = asked
    with pytest.raises(TypeError, match=f"{name}: expected a sequence, got {re.escape(repr(asked[name]))}"):
        minimize(len, 4, 2, **asked)
    with pytest.raises(TypeError, match=f"{name}: expected a sequence, got"):
        Search(4, 2, **asked)


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
    with pytest.raises(ValueError, match=r"f: .*too large"):
        minimize(lambda subset: 10**400, 3, 1)


@pytest.mark.parametrize("value", [None, 1j, np.array([1j]), torch.tensor(1j), "1"])
def test_what_is_no_real_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=f"f: expected to return a number, got {type(value).__name__}"):
        minimize(lambda subset: value, 3, 1)
    with pytest.raises(TypeError, match="f: expected to return shape"):
        minimize(lambda subsets: [value] * len(subsets), 3, 1, vectorized=True)
    with pytest.raises(TypeError, match="values: expected shape"):
        Search(3, 1).tell([[0]], [value])


def test_tensors_with_gradients_are_numbers() -> None:
    weights = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    assert minimize(lambda subset: weights[subset].sum(), 3, 1).subset.tolist() == [1]
    assert minimize(lambda subsets: weights[subsets].sum(1), 3, 1, vectorized=True).subset.tolist() == [1]
    search = Search(3, 1)
    search.tell([[0], [1], [2]], weights)
    assert search.result().subset.tolist() == [1]


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
def test_initial_values_that_are_none_are_the_worst(value: float) -> None:
    known = {(0, 1): value}
    result = minimize(total, 5, 2, initial=known)
    assert (result.subset.tolist(), result.num_evaluations) == ([3, 4], 9)
    assert minimize(total, 40, 5, initial={(0, 1, 2, 3, 4): value}, max_evaluations=50).num_evaluations == 50


def test_values_known_before_are_no_evaluations() -> None:
    rng = np.random.default_rng(0)
    subsets = list(combinations(range(20), 3))
    known = {subsets[place]: float(sum(subsets[place])) for place in rng.permutation(len(subsets))[:300]}
    # The best first, so that none that is known improves on it.
    known = dict(sorted(known.items(), key=lambda pair: pair[1]))
    result = minimize(lambda subset: 100.0, 20, 3, initial=known, max_evaluations=None, patience=40)
    assert result.num_evaluations == 40
    assert result.trace[:, 0].tolist() == [0]
    calls = noisy_calls(20, 3, 0, initial=known, max_evaluations=300)
    assert len(calls.values) == 300
    assert calls.result.confirmed_value is not None
    # A tenth of the evaluations since, not of the values.
    calls = noisy_calls(20, 3, 0, initial=known, max_evaluations=None, patience=40)
    assert len(calls.values) < 80


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


def test_checkpoints_tell_functions_apart(tmp_path: Path) -> None:
    def problem(weights: Any, scale: float = 1.0) -> Any:
        import cmath

        def total(subset: Any) -> float:
            return scale * weights[subset].sum() + cmath.sin(subset[0]).real

        def f(subset: Any) -> float:
            return total(subset) if len(subset) else f(subset)

        return f

    def search(f: Any, path: Path = tmp_path / "search.jsonl") -> float:
        return minimize(f, 6, 2, random_state=0, checkpoint=path).value

    weights = np.arange(6.0)
    found = search(problem(weights))
    lines = (tmp_path / "search.jsonl").read_text().splitlines()
    assert search(problem(weights.copy())) == found == minimize(problem(weights), 6, 2).value
    assert (tmp_path / "search.jsonl").read_text().splitlines() == lines
    for other, names in (
        (problem(-weights), "what f holds"),
        (problem(weights, 2.0), "what f holds"),
        (rough, "f, what f holds"),
        (weights.take, "what f holds, f"),
    ):
        with pytest.raises(ValueError, match=rf"which differs in {names}; delete it"):
            search(other)
    with pytest.raises(TypeError, match=r"^what f holds: expected a value that can be pickled"):
        search(problem(weights, threading.Lock()), tmp_path / "lock.jsonl")  # type: ignore[arg-type]


FIRST, SAME = lambda subset: float(subset.sum()), lambda subset: float(subset.sum())
OTHERS = (
    lambda subset: float(subset.max()),
    lambda subset: 2 * float(subset.sum()),
    lambda subset: sum(item + 0.5 for item in subset),
    lambda subset, power=2: float(subset.sum() ** power),
)


def _scaled(given: float) -> Any:
    def f(subset: Any, scale: float = given) -> float:
        return float(scale * subset.sum())

    return f


def test_checkpoints_tell_lambdas_apart(tmp_path: Path) -> None:
    def search(f: Any, name: str) -> float:
        return minimize(f, 6, 2, random_state=0, checkpoint=tmp_path / name).value

    search(FIRST, "first")
    search(SAME, "first")  # wherever it stands
    for other in OTHERS:
        with pytest.raises(ValueError, match="differs in f"):
            search(other, "first")
    for one, other in (
        (lambda subset, *, scale=1.0: scale * subset.sum(), lambda subset, *, scale=2.0: scale * subset.sum()),
        (_scaled(1.0), _scaled(2.0)),
    ):
        (tmp_path / "defaults").unlink(missing_ok=True)
        search(one, "defaults")
        with pytest.raises(ValueError, match="differs in what f holds; delete it"):
            search(other, "defaults")
    # Whose order differs between processes.
    assert "frozenset" not in repr(identity_of(lambda subset: subset[0] in {"u", "v", "w"}))
    weights = np.arange(6.0)
    for sign in (1.0, 1.0, -1.0):
        inner = lambda subset: sign * weights[subset].sum()  # noqa: B023, E731
        if sign > 0:
            assert search(inner, "inner") == 1.0
        else:
            with pytest.raises(ValueError, match="differs in what f holds; delete it"):
                search(inner, "inner")


@contextmanager
def milliseconds() -> Iterator[None]:
    """A clock that goes on by one whenever somebody looks at it, however busy the machine is."""
    count = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(count) / 1000)
        yield


def test_callbacks_patience_seconds_and_interrupts_end_it() -> None:
    result = minimize(rough, 30, 6, callbacks=lambda progress: progress.num_evaluations >= 10)
    assert result.num_evaluations == 10
    assert minimize(lambda subset: 1.0, 30, 6, patience=20, max_evaluations=None).num_evaluations == 21
    with milliseconds():
        found = minimize(rough, 30, 6, max_seconds=0.05, max_evaluations=None).num_evaluations
    assert 10 < found <= 50
    calls = [0]

    def interrupted(subset: Any) -> float:
        calls[0] += 1
        if calls[0] == 10:
            raise KeyboardInterrupt
        return rough(subset)

    with pytest.warns(UserWarning, match="interrupted"):
        assert minimize(interrupted, 30, 6).num_evaluations == 9


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_between_two_calls_of_f_keeps_the_result() -> None:
    def late(progress: SearchProgress) -> None:
        if progress.num_evaluations == 20:
            signal.raise_signal(signal.SIGINT)

    def early(_: Any) -> float:
        signal.raise_signal(signal.SIGINT)
        return 0.0

    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(UserWarning, match="interrupted"):
        assert minimize(np.sum, 30, 6, callbacks=late).num_evaluations == 20
    with pytest.raises(KeyboardInterrupt):
        minimize(early, 30, 6)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_program_keeps_its_own_handler_of_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: told.append(1))
    try:
        calls = iter(range(100))

        def value(_: Any) -> float:
            if next(calls) == 20:
                signal.raise_signal(signal.SIGINT)
            return 0.0

        assert minimize(value, 30, 6, max_evaluations=50).num_evaluations == 50
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == [1]


def test_a_tensor_in_bfloat16_is_a_number() -> None:
    found = minimize(lambda subset: torch.tensor(float(subset.sum()), dtype=torch.bfloat16), 9, 2, max_evaluations=36)
    assert found.subset.tolist() == [0, 1]


@pytest.mark.parametrize(
    "end",
    [
        {"patience": 300},
        {"max_evaluations": None, "patience": 300},
        {"max_seconds": 1e6, "callbacks": lambda progress: progress.num_evaluations >= 400},
        {"callbacks": lambda progress: progress.num_evaluations >= 400},
    ],
)
def test_what_may_end_before_all_subsets_goes_the_best_way_first(end: dict[str, Any]) -> None:
    subsets = np.array(list(combinations(range(20), 4)))
    found = 0
    for seed in range(10):
        square = np.random.default_rng(seed).standard_normal((20, 20))
        result = minimize(lambda one, m=square: m[np.ix_(one, one)].sum(), 20, 4, random_state=seed, **end)
        assert result.num_evaluations < 1000 < len(subsets)
        found += result.value == pytest.approx(square[subsets[:, :, None], subsets[:, None]].sum((1, 2)).min())
    assert found >= 7  # in random order one


def test_a_conversation_of_unknown_length_goes_the_best_way_first() -> None:
    square = np.random.default_rng(0).standard_normal((40, 40))
    search = Search(40, 4, random_state=0)
    for _ in range(1000):
        (subset,) = search.ask()
        search.tell([subset], [square[np.ix_(subset, subset)].sum()])
    subsets = np.array(list(combinations(range(40), 4)))  # 91,390
    assert search.result().value == pytest.approx(square[subsets[:, :, None], subsets[:, None]].sum((1, 2)).min())


@pytest.mark.parametrize("constraints", [[], [AtMost(2, range(30))]], ids=["all", "constrained"])
def test_a_search_begins_at_once_however_many_evaluations_it_may_have(constraints: list[Any]) -> None:
    tracemalloc.start()
    result = minimize(
        rough, 60, 6, constraints=constraints, max_evaluations=10**9, max_seconds=60, callbacks=lambda progress: True
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.num_evaluations == 1
    assert most < 1e9  # of 50 million subsets, and of 17 million


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


@dataclass
class Calls:
    """What a noisy function has returned, and what came of it."""

    values: list[float]
    result: SearchResult


def noisy_calls(n: int, k: int, seed: int, failures: float = 0.0, **asked: Any) -> Calls:
    """The least sum of k of n with noise, some values NaN."""
    rng, values = np.random.default_rng(seed), []

    def function(subset: Any) -> float:
        values.append(np.nan if rng.random() < failures else float(subset.sum() + rng.normal()))
        return values[-1]

    return Calls(values, minimize(function, n, k, noisy=True, random_state=seed, **asked))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "k", "evaluations"), [(10, 3, 300), (10, 3, 1000), (6, 2, 40), (3, 1, 100), (4, 4, 50)])
def test_noise_on_few_subsets_uses_all_evaluations(n: int, k: int, evaluations: int, seed: int) -> None:
    calls = noisy_calls(n, k, seed, max_evaluations=evaluations)
    assert calls.result.num_evaluations == len(calls.values) == evaluations
    # The last tenth is of the finalists alone; where these are two, each has a half.
    assert calls.result.confirmed_value is not None
    fresh = calls.values[-(evaluations // 10) :]
    assert min(fresh) <= calls.result.confirmed_value <= max(fresh)


def test_noise_on_few_subsets_until_patience_or_time_ends() -> None:
    calls = noisy_calls(6, 2, 0, max_evaluations=None, patience=500)
    assert len(calls.values) > 500
    assert calls.result.confirmed_value is not None
    with milliseconds():
        calls = noisy_calls(6, 2, 0, max_evaluations=None, max_seconds=0.3)
    assert 30 < len(calls.values) <= 300
    assert calls.result.confirmed_value is not None


@pytest.mark.parametrize(
    ("n", "evaluations", "seed"), [(3, 10, 18), (3, 13, 70), (8, 12, 22), *((5, 14, seed) for seed in range(20))]
)
def test_noise_on_few_subsets_and_few_evaluations(n: int, evaluations: int, seed: int) -> None:
    assert len(noisy_calls(n, 1, seed, max_evaluations=evaluations).values) == evaluations
    rng = np.random.default_rng(seed)
    search = Search(n, 1, noisy=True, max_evaluations=evaluations, random_state=seed)
    while len(subsets := search.ask()):
        search.tell(subsets, subsets.sum(1) + rng.normal(size=1))
    assert search.num_evaluations == evaluations


@pytest.mark.parametrize("seed", range(6))
def test_noise_with_failures(seed: int) -> None:
    calls = noisy_calls(8, 2, seed, failures=0.3, max_evaluations=200)
    assert calls.result.num_evaluations == 200
    assert calls.result.confirmed_value == calls.result.value
    assert calls.result.standard_error > 0
    assert abs(calls.result.value - calls.result.subset.sum()) < 5 * calls.result.standard_error
    with pytest.raises(ValueError, match="f: expected finite values, got none in 40"):
        noisy_calls(8, 2, seed, failures=1.0, max_evaluations=40)


def test_noise_with_failures_before_anything_is_confirmed() -> None:
    search = Search(3, 3, noisy=True)
    for value in (np.nan, 4.0, np.inf, 2.0):
        search.tell(search.ask(), [value])
    result = search.result()
    assert (result.value, result.confirmed_value, result.num_evaluations) == (3, None, 4)
    assert result.standard_error == pytest.approx(1)


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


@pytest.mark.parametrize(("n", "k", "left"), [(12, 5, 2), (40, 2, 1), (30, 28, 5), (24, 3, 4)])
def test_nearly_all_subsets_are_found(n: int, k: int, left: int) -> None:
    seen = set()

    def f(z: Any) -> float:
        seen.add(tuple(z))
        return float(np.cos(z).sum())

    budget = math.comb(n, k) - left
    result = minimize(f, n, k, max_evaluations=budget, random_state=0)
    assert result.num_evaluations == len(seen) == budget
    assert not result.optimal


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_items_at_exactly_the_distance_are_far_enough(shift: float) -> None:
    """0.7 and 0.4 are 0.29999999999999993 apart."""
    places = np.arange(11) / 10 + shift
    between = np.abs(places[:, None] - places)
    for apart in (Apart(0.3, coordinates=places), Apart(0.3, distances=np.round(between, 15))):
        assert [tuple(pair) for pair in sorted(apart.pairs.tolist())] == [
            (first, second) for first, second in combinations(range(11), 2) if second - first < 3
        ]


def test_distances_may_have_the_rounding_of_their_coordinates() -> None:
    places = 3e5 + np.arange(11) / 10
    between = np.abs(places[:, None] - places)
    assert between[0, 3] < 0.3
    assert [0, 3] not in Apart(0.3, distances=between).pairs.tolist()
    assert [0, 2] in Apart(0.3, distances=between).pairs.tolist()


def test_subsets_told_together_are_taken_together() -> None:
    search = Search(5, 2)
    with pytest.raises(ValueError, match="subsets"):
        search.tell([[0, 1], [0, 9]], [1.0, 2.0])
    assert search.num_evaluations == 0


def test_what_is_asked_for_ends_with_the_budget() -> None:
    search = Search(40, 5, max_evaluations=100, random_state=0)
    told = []
    while len(subsets := search.ask(8)):
        search.tell(subsets, subsets.sum(1))
        told.append(len(subsets))
    assert told == [8] * 12 + [4]


def test_initial_subsets_come_in_their_order() -> None:
    initial = [[0, 1], [2, 3], [4, 5]]
    assert Search(9, 2, initial=initial).ask(3).tolist() == initial
    seen: list[list[int]] = []
    minimize(lambda subset: float(len(seen.append(subset.tolist()) or seen)), 9, 2, initial=initial, max_evaluations=3)
    assert seen == initial


@pytest.mark.parametrize("noisy", [False, True])
def test_what_is_asked_for_before_values_are_told_counts(noisy: bool) -> None:
    search = Search(40, 5, max_evaluations=10, noisy=noisy, random_state=0)
    first, second = search.ask(6), search.ask(6)
    assert (len(first), len(second), len(search.ask())) == (6, 4, 0)
    search.tell(second, second.sum(1))
    assert len(search.ask()) == 0
    search.tell(first, first.sum(1))
    assert search.num_evaluations == 10
    assert len(search.ask()) == 0


def test_repeats_that_are_asked_for_count_too() -> None:
    search = Search(12, 4, noisy=True, max_evaluations=200, random_state=0)
    rng = np.random.default_rng(0)
    while search.num_evaluations < 150:
        subsets = search.ask()
        search.tell(subsets, subsets.sum(1) + rng.normal(size=1))
    asked = 0
    while asked < 100 and len(search.ask()):
        asked += 1
    assert 0 < asked <= 50
