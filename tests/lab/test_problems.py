import pytest
import torch
from oracle import gradient, subsets

from ksubset import KSubset, LeaveOneOut
from ksubset.lab import measure, problems

SMALL = [make(problems.SEEDS[0]) for make in problems.SMALL.values()]


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_gradients_are_exact(problem: problems.Problem) -> None:
    torch.testing.assert_close(problem.gradient, gradient(problem.f, problem.logits, problem.k), rtol=1e-10, atol=1e-12)
    assert problem.noise == 0


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_the_seed_is_the_problem(problem: problems.Problem) -> None:
    make = problems.SMALL[problem.name]
    same, other = make(problem.seed), make(problem.seed + 1)
    z = subsets(10, 5)
    assert torch.equal(problem.f(z), same.f(z))
    assert torch.equal(problem.logits, same.logits)
    assert not torch.equal(problem.f(z), other.f(z))


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_f_varies_and_is_linear_in_the_toy_alone(problem: problems.Problem) -> None:
    z = subsets(10, 5)
    values = problem.f(z)
    assert values.std() > 0.1
    residual = values - z @ torch.linalg.lstsq(z, values).solution
    assert (float(residual.std() / values.std()) < 1e-10) == (problem.name == "toy")


def test_the_toy_to_the_letter() -> None:
    toy = problems.toy(1234)
    # numpy's RandomState(1234): ten logits, then b.
    expected = torch.tensor([0.4714351637, -1.1909756947, 1.4327069684], dtype=torch.float64)
    torch.testing.assert_close(toy.logits[:3], expected)
    b = torch.tensor([1.1500357167, 0.9919460223, 0.9533241281], dtype=torch.float64)
    f = toy.f(torch.eye(10, dtype=torch.float64)[:3]) - toy.f(torch.zeros(10, dtype=torch.float64))
    torch.testing.assert_close(f, 1 - 2 * b)


def test_a_problem_of_ones_own_has_its_exact_gradient() -> None:
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    f = lambda z: (z[..., 0] - z[..., 1] * z[..., 2]) ** 3  # noqa: E731
    problem = problems.enumerated("own", 2, logits, f, differentiable=False)
    torch.testing.assert_close(problem.gradient, gradient(f, logits.detach(), 2), rtol=1e-10, atol=1e-12)
    assert not problem.logits.requires_grad
    assert problem.logits.data_ptr() != logits.data_ptr()
    found = measure(problem, LeaveOneOut(), 4, 4000)
    assert found.bias < 3 * found.bias_noise < 0.2
    assert problems.enumerated("own", 2, logits.detach().float(), f).gradient.dtype == torch.float64


def test_what_is_no_problem_is_named() -> None:
    logits = torch.zeros(4)
    with pytest.raises(ValueError, match=r"logits: expected a vector, got shape \(1, 4\)"):
        problems.enumerated("own", 2, logits[None], lambda z: z.sum(-1))
    with pytest.raises(ValueError, match=r"f: expected losses of shape \(6,\), got \(6, 4\)"):
        problems.enumerated("own", 2, logits, lambda z: z)


def test_the_decoder() -> None:
    advanced = []
    problem, other = problems.decoder(0, 2500, lambda: advanced.append(1)), problems.decoder(0, 5000)
    assert len(advanced) == 5
    n = len(problem.logits)
    assert (n, problem.k, problem.logits.dtype) == (784, 30, torch.float32)
    # The decoder learned to use what it sees.
    z = KSubset(problem.k, problem.logits).sample((100,))
    assert problem.f(z).mean() < 0.95 * problem.f(torch.zeros(n))
    # The same problem; the second mean holds the five estimates of the first and five more.
    assert torch.equal(problem.f(z), other.f(z))
    distance = float((problem.gradient - other.gradient).square().sum())
    assert 0.2 < distance / (problem.noise - other.noise) < 5


def test_a_reference_needs_two_estimates() -> None:
    with pytest.raises(ValueError, match=r"evaluations must be 1000 or more, got 999"):
        problems.decoder(0, 999)
