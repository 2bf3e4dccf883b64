"""Designs against enumeration, twins of `numpy.linalg`, and bad input."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ksubset.design import optimal_design
from ksubset.search import Apart, AtMost, Budget, Exactly

N, P, K = 14, 3, 6
ROWS = np.random.default_rng(3).normal(size=(N, P))
CRITERIA = ["D", "A", "E", "I"]


def twin(criterion: str, subset: Any, prior: float = 0.0) -> float:
    """The value as its definition has it."""
    information = prior * np.eye(P) + sum(np.outer(ROWS[i], ROWS[i]) for i in subset)
    if criterion == "D":
        return float(np.linalg.det(information) ** (1 / P))
    if criterion == "E":
        return float(np.linalg.eigvalsh(information)[0])
    inverse = np.linalg.inv(information)
    return float(np.trace(inverse) if criterion == "A" else np.mean([x @ inverse @ x for x in ROWS]))


def best(criterion: str, feasible: Any = lambda subset: True, prior: float = 0.0) -> float:
    values = [twin(criterion, subset, prior) for subset in combinations(range(N), K) if feasible(set(subset))]
    return max(values) if criterion in "DE" else min(values)


@pytest.mark.parametrize("prior", [0.0, 0.5])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_best_of_all_is_found(criterion: str, prior: float) -> None:
    right = best(criterion, prior=prior)
    for method in ("auto", "enumeration", "exchange", "rounding"):
        found = optimal_design(ROWS, K, criterion, prior=prior, method=method, random_state=0)
        assert found.value == pytest.approx(right, rel=1e-9)
        assert found.value == pytest.approx(twin(criterion, found.subset, prior), rel=1e-9)
        assert found.optimal  # by the bound, as so few designs are left
        better = found.bound - found.value if criterion in "DE" else found.value - found.bound
        assert better >= -1e-9
        assert found.efficiency == pytest.approx(
            found.value / found.bound if criterion in "DE" else found.bound / found.value
        )
        assert found.weights.sum() == pytest.approx(K)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("method", ["auto", "rounding", "search"])
def test_the_best_that_fulfils_constraints(criterion: str, method: str) -> None:
    costs, line = np.arange(N) % 5 + 1.0, np.arange(N) / 2
    constraints = [Exactly(2, range(5)), AtMost(1, [6, 9, 12]), Budget(costs, 17), Apart(0.9, coordinates=line)]

    def feasible(subset: set[int]) -> bool:
        return (
            2 in subset
            and 7 not in subset
            and len(subset & set(range(5))) == 2
            and len(subset & {6, 9, 12}) <= 1
            and costs[list(subset)].sum() <= 17
            and all(i + 1 not in subset for i in subset)
        )

    found = optimal_design(
        ROWS, K, criterion, always=[2], exclude=[7], constraints=constraints, method=method, random_state=0
    )
    assert feasible(set(found.subset.tolist()))
    assert found.value == pytest.approx(best(criterion, feasible), rel=1e-9)
    assert found.weights[2] == 1
    assert found.weights[7] == 0


def test_an_augmentation_knows_what_is_there() -> None:
    found = optimal_design(ROWS, 3, always=[0, 1, 2], random_state=0)
    assert found.subset.tolist() == [0, 1, 2]
    assert found.optimal
    assert found.efficiency == 1
    # With two runs made, one more is enough for three coefficients.
    assert set(optimal_design(ROWS, 3, always=[0, 1], random_state=0).subset) > {0, 1}


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_proofs_do_not_depend_on_the_scale_of_the_candidates(criterion: str, scale: float) -> None:
    for seed in range(2):
        rows = np.random.default_rng(seed).normal(size=(18, 5))
        right = optimal_design(rows, 6, criterion, method="enumeration")
        found = optimal_design(rows * scale, 6, criterion, method="exchange", num_starts=1, random_state=0)
        assert not found.optimal or found.subset.tolist() == right.subset.tolist()
        power = {"D": 2, "E": 2, "A": -2, "I": 0}[criterion]
        assert found.efficiency <= 1
        assert found.bound == pytest.approx(right.bound * scale**power, rel=1e-3)


@pytest.mark.parametrize("method", ["exchange", "rounding", "search"])
def test_the_only_design_is_optimal(method: str) -> None:
    for arguments in ({"k": N}, {"k": K, "always": range(K)}, {"k": K, "exclude": range(K, N)}):
        assert optimal_design(ROWS, **arguments, method=method, random_state=0).optimal  # type: ignore[arg-type]


def test_a_prior_of_small_scale_has_to_be_symmetric() -> None:
    with pytest.raises(ValueError, match="prior: expected a number or a finite symmetric matrix"):
        optimal_design(ROWS, K, prior=1e-9 * (np.eye(P) + np.eye(P, k=1)))


def test_all_candidates() -> None:
    found = optimal_design(ROWS, N, "A")
    assert found.subset.tolist() == list(range(N))
    assert found.bound == found.value == pytest.approx(twin("A", range(N)))


def test_designs_that_are_singular_at_first() -> None:
    # Nearly all candidates are alike, so that random designs are singular.
    rows = np.vstack([np.tile([1.0, 0, 0], (400, 1)), np.eye(3)[1:], -np.eye(3)[1:]])
    for criterion, value in (("D", 4 ** (1 / 3)), ("A", 2.0), ("E", 1.0)):
        found = optimal_design(rows, 5, criterion, method="exchange", num_starts=2, random_state=0)
        assert found.value == pytest.approx(value)


def test_with_a_prior_fewer_runs_than_coefficients() -> None:
    found = optimal_design(ROWS, 2, prior=1.0)
    assert found.optimal
    assert found.information.shape == (P, P)


def test_constraints_are_read_once() -> None:
    rules = [AtMost(1, [0, N - 1]), AtMost(1, [0, 1])]
    settings: dict[str, object] = {"method": "search", "random_state": 0}
    expected = optimal_design(ROWS, K, constraints=rules, **settings)
    found = optimal_design(ROWS, K, constraints=iter(rules), **settings)
    np.testing.assert_array_equal(found.subset, expected.subset)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 2}, "k: expected at least 3 for 3 coefficients, got 2; or give a prior"),
        ({"k": 2, "prior": np.diag([1.0, 0, 0]), "always": [0]}, None),
        ({"candidates": ROWS[:, [0, 0, 1]]}, "candidates: expected all 3 columns to be independent .* rank 2"),
        ({"criterion": "G"}, "criterion: expected one of D, A, E, I, got 'G'"),
        ({"method": "best"}, "method: expected one of"),
        ({"prior": np.eye(2)}, r"prior: expected a number or a finite symmetric matrix \(3, 3\)"),
        ({"prior": -1.0}, "prior: expected no negative eigenvalues, got -1"),
        ({"k": 15}, "k: expected at most"),
        ({"always": [1], "exclude": [1]}, "always, exclude"),
        ({"constraints": [AtMost(1, range(N))]}, "constraints: no subset of size 6 fulfils"),
        ({"candidates": np.full((5, 3), np.nan)}, "candidates"),
        ({"candidates": np.tile(ROWS, (9, 1)), "k": 9, "method": "enumeration"}, "expected another one"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], message: str | None) -> None:
    arguments = {"candidates": ROWS, "k": K} | arguments
    if message is None:
        with pytest.raises(ValueError, match=r"k: expected at least 2 .* always and prior give 2 of them"):
            optimal_design(**arguments | {"k": 1})
        return
    with pytest.raises(ValueError, match=message):
        optimal_design(**arguments)
    with pytest.raises(TypeError, match="k: expected an integer"):
        optimal_design(ROWS, 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("criterion", ["D", "A", "E", "I"])
def test_rounding_is_no_worse_than_exchange_alone(criterion: str) -> None:
    rows = np.random.default_rng(3).normal(size=(40, 4))
    sign = 1 if criterion in "DE" else -1
    for seed in range(2):
        values = [
            sign * optimal_design(rows, 8, criterion, method=method, num_starts=3, random_state=seed).value
            for method in ("exchange", "rounding", "search")
        ]
        assert values[0] <= values[1] * (1 + sign * 1e-12)
        assert values[1] <= values[2] * (1 + sign * 1e-12)
