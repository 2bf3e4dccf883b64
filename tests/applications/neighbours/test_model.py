"""The distribution of the neighbours and its losses, against enumeration."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ksubset import SIMPLE, Hybrid, KSubset, LeaveOneOut, ScoreFunction, UnorderedSet, expectation
from ksubset.applications.neighbours import (
    AtMean,
    NeighborSelector,
    class_shares,
    log_share,
    vote_error,
    wrong_share,
)

K, CLASSES = 3, 3
QUERY_LABELS = torch.tensor([0, 1])
MEMBERS = one_hot(torch.tensor([0, 1, 2, 0, 1, 0, 2]), CLASSES).double()


@pytest.fixture
def logits() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 7, dtype=torch.float64, generator=generator).requires_grad_()


def losses(loss: Any) -> Any:
    return lambda z: loss(class_shares(z, MEMBERS, K), QUERY_LABELS)


def by_enumeration(loss: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The expected loss of each query, and the gradient of their sum."""
    dist = KSubset(K, logits)
    subsets = dist.enumerate_support()
    scores = (subsets * logits).sum(-1)
    expected = (scores.softmax(0) * losses(loss)(subsets)).sum(0)
    (gradient,) = torch.autograd.grad(expected.sum(), logits)
    return expected.detach(), gradient


def test_the_loss_at_the_mean_is_the_expected_share(logits: Tensor) -> None:
    expected, gradient = by_enumeration(wrong_share, logits)
    value = expectation(losses(wrong_share), KSubset(K, logits), AtMean())
    torch.testing.assert_close(value, expected)
    value.sum().backward()
    torch.testing.assert_close(logits.grad, gradient)


def test_simple_has_the_exact_gradient_whatever_it_samples(logits: Tensor) -> None:
    _, gradient = by_enumeration(wrong_share, logits)
    values = set()
    for _ in range(5):
        value = expectation(losses(wrong_share), KSubset(K, logits), SIMPLE()).sum()
        values.add(value.item())
        (estimate,) = torch.autograd.grad(value, logits)
        torch.testing.assert_close(estimate, gradient)
    assert len(values) > 1


def test_the_expected_share_is_that_of_samples(logits: Tensor) -> None:
    """Each of two queries errs with a probability of 6e-7."""
    shares = losses(wrong_share)(KSubset(K, logits.detach()).sample((20_000,)))
    exact = expectation(losses(wrong_share), KSubset(K, logits.detach()), AtMean())
    assert ((shares.mean(0) - exact).abs() < 5 * shares.std(0) / math.sqrt(len(shares))).all()


@pytest.mark.parametrize("loss", [wrong_share, log_share, vote_error])
@pytest.mark.parametrize("estimator", [LeaveOneOut(), ScoreFunction(), Hybrid(), UnorderedSet()], ids=repr)
def test_unbiased_estimators_have_the_gradient_of_every_loss(logits: Tensor, loss: Any, estimator: Any) -> None:
    """Each of 14 logits errs with a probability of 6e-7."""
    _, gradient = by_enumeration(loss, logits)
    number = 4000
    copies = logits.detach().expand(number, 2, 7).clone().requires_grad_()
    expectation(losses(loss), KSubset(K, copies), estimator, 4).sum().backward()
    assert copies.grad is not None
    deviation = (copies.grad.mean(0) - gradient).abs()
    assert (deviation < 5 * copies.grad.std(0) / math.sqrt(number) + 1e-12).all()


def test_the_logarithm_at_the_mean_is_below_its_expectation(logits: Tensor) -> None:
    expected, _ = by_enumeration(log_share, logits)
    assert (expectation(losses(log_share), KSubset(K, logits), AtMean()) < expected).all()


def test_losses_of_known_neighbours() -> None:
    shares = torch.tensor([[[1.0, 0.0, 0.0], [0.4, 0.4, 0.2]], [[0.2, 0.6, 0.2], [0.0, 1.0, 0.0]]])
    torch.testing.assert_close(wrong_share(shares, QUERY_LABELS), torch.tensor([[0.0, 0.6], [0.8, 0.0]]))
    assert log_share(shares, QUERY_LABELS)[0, 0] == 0
    torch.testing.assert_close(log_share(shares, QUERY_LABELS)[1, 0].item(), -math.log(0.2 * 0.999 + 0.001))
    torch.testing.assert_close(vote_error(shares, QUERY_LABELS), torch.tensor([[0.0, 0.5], [1.0, 0.0]]))
    none = torch.tensor([[[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]])
    torch.testing.assert_close(log_share(none, QUERY_LABELS), torch.full((1, 2), -math.log(1e-3)))


def test_a_vote_is_not_decided_by_rounding() -> None:
    for k in range(1, 40, 2):
        subsets = torch.ones(1, 2, k + 1)
        subsets[..., -1] = 0
        members = one_hot(torch.arange(k + 1) % 2, 2).float()
        error = vote_error(class_shares(subsets, members, k), QUERY_LABELS)
        assert error.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_logits_are_squared_distances(offset: float) -> None:
    queries, candidates = torch.randn(4, 3) + offset, torch.randn(9, 3) + offset
    exact = -torch.cdist(queries.double(), candidates.double()).square() / 0.5
    dist = NeighborSelector(2, nn.Identity(), temperature=0.5)(queries, candidates)
    torch.testing.assert_close(dist.logits.double(), exact, rtol=1e-5, atol=1e-5)


def test_near_points_are_told_apart_however_far_the_others_are() -> None:
    candidates = torch.tensor([[0.0], [1.0], [2000.0], [2000.25]])
    dist = NeighborSelector(1, nn.Identity(), temperature=0.125)(torch.tensor([[2000.0625]]), candidates)
    squares = torch.tensor([0.0625, 0.1875]).square() / 0.125
    torch.testing.assert_close(dist.logits[0, 2:], -squares, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(dist.mean[0], torch.cat([torch.zeros(2), torch.softmax(-squares, 0)]))


def test_one_neighbour_is_that_of_a_softmax() -> None:
    rows = torch.randn(6, 2)
    distances = -torch.cdist(rows, rows).square()
    distances.fill_diagonal_(-math.inf)
    torch.testing.assert_close(NeighborSelector(1, nn.Identity())(rows).mean, distances.softmax(-1))


@pytest.mark.parametrize("rows", [torch.randn(8, 2), torch.ones(8, 2)], ids=["different", "equal"])
def test_a_query_is_never_its_own_neighbour(rows: Tensor) -> None:
    dist = NeighborSelector(7, nn.Identity())(rows)
    others = 1 - torch.eye(8)
    assert torch.equal(dist.mode, others)
    dist = NeighborSelector(3, nn.Identity())(rows)
    for subsets in (dist.mean[None], dist.mode[None], dist.sample((100,))):
        assert (subsets.diagonal(dim1=-2, dim2=-1) == 0).all()
        torch.testing.assert_close(subsets.sum(-1), torch.full(subsets.shape[:-1], 3.0))


def test_gradients_are_finite_where_points_coincide() -> None:
    embedding = nn.Linear(2, 2)
    rows = torch.ones(8, 2)
    dist = NeighborSelector(3, embedding)(rows)
    shares = class_shares(dist.mean, one_hot(torch.arange(8) % 2).float(), 3)
    wrong_share(shares[None], torch.arange(8) % 2).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.isfinite().all()


def test_bad_arguments_are_named() -> None:
    for temperature in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match="temperature must be above 0, got"):
            NeighborSelector(2, nn.Identity(), temperature)
    with pytest.raises(ValueError, match="expected 8 candidates or more besides the query, got 7"):
        NeighborSelector(8, nn.Identity())(torch.randn(8, 2))
    with pytest.raises(ValueError, match="expected 3 candidates or more besides the query, got 2"):
        NeighborSelector(3, nn.Identity())(torch.randn(8, 2), torch.randn(2, 2))
    with pytest.raises(ValueError, match=r"embedding: expected points of shape \(8, d\) for 8 rows, got \(8, 2, 1\)"):
        NeighborSelector(3, nn.Unflatten(1, (2, 1)))(torch.randn(8, 2))
    with pytest.raises(ValueError, match="for 8 rows, got tuple"):
        NeighborSelector(3, nn.LSTM(2, 2))(torch.randn(8, 2))
    with pytest.raises(TypeError, match="k must be an integer"):
        NeighborSelector(1.5, nn.Identity())(torch.randn(8, 2))  # type: ignore[arg-type]


def test_it_says_what_it_is() -> None:
    assert "k=3, temperature=0.5" in repr(NeighborSelector(3, nn.Identity(), 0.5))


@pytest.mark.parametrize("loss", [wrong_share, log_share, vote_error])
def test_each_query_has_a_label(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"labels must be one for each of 4 queries, got shape \(1,\)"):
        loss(torch.full((2, 4, 3), 1 / 3), torch.tensor([0]))
