"""Functions that are no losses, and what would train nothing and say nothing of it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from makers import MAKERS
from torch import Tensor, nn

from ksubset import Estimator, GumbelTopK, KSubset, LeaveOneOut, expectation

COSTS = torch.arange(5.0)


def through(cut: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    network = nn.Linear(5, 1)
    return lambda z: network(cut(z)).squeeze(-1).square()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("cut", [Tensor.detach, lambda z: (z > 0.5).float()], ids=["detached", "compared"])
def test_a_gradient_that_is_cut_before_the_network(name: str, cut: Callable[[Tensor], Tensor]) -> None:
    """The network has a gradient, and so have the losses, but none for the subsets."""
    estimator: Estimator = MAKERS[name]()
    logits = torch.zeros(5, requires_grad=True)
    if not estimator.needs_gradient:
        expectation(through(cut), KSubset(2, logits), estimator, 4).backward()
        assert logits.grad is not None
        return
    with pytest.raises(ValueError, match="do not depend on the subsets through differentiable operations"):
        expectation(through(cut), KSubset(2, logits), estimator, 4)
    expectation(through(lambda z: z), KSubset(2, logits), estimator, 4).backward()
    assert logits.grad is not None


@pytest.mark.parametrize("name", MAKERS)
def test_logits_that_are_no_numbers_show_where_nothing_is_checked(name: str) -> None:
    logits = torch.tensor([torch.nan, 1.0, 2.0, 3.0, 0.0], requires_grad=True)
    dist = KSubset(2, logits, validate_args=False)
    loss = expectation(lambda z: (z @ COSTS).square(), dist, MAKERS[name](), 4)
    assert loss.isnan()


@pytest.mark.parametrize(
    ("result", "named"),
    [
        (lambda z: None, "NoneType"),
        (lambda z: {"loss": z.sum(-1)}, "dict"),
        (lambda z: (z.sum(-1), 0.5), "tuple"),
        (lambda z: [None] * 4, "list"),
    ],
)
def test_what_is_no_loss(result: Callable[[Tensor], Any], named: str) -> None:
    with pytest.raises(TypeError, match=f"f must return losses, as a tensor, an array or numbers, got {named}"):
        expectation(result, KSubset(2, torch.zeros(5)), LeaveOneOut(), 4)


def test_a_flag_that_is_none() -> None:
    with pytest.raises(TypeError, match="straight_through must be a bool, got 'False'"):
        GumbelTopK(0.5, "False")  # type: ignore[arg-type]


class OfAnotherShape(Estimator):
    """It makes something else of its sample or its losses."""

    def __init__(self, **made: Any) -> None:
        super().__init__()
        self.made = made

    def sample(self, dist: Any, num_samples: int, generator: Any = None) -> Tensor:
        drawn = super().sample(dist, num_samples, generator)
        return self.made["sample"](drawn) if "sample" in self.made else drawn

    def surrogate(self, loss: Tensor, sample: Tensor, dist: Any) -> Tensor:
        values = (loss.detach() * dist.log_prob(sample)).to(loss.dtype)
        return self.made["surrogate"](values) if "surrogate" in self.made else values


@pytest.mark.parametrize(
    ("method", "made", "error", "message"),
    [
        ("surrogate", lambda v: v.mean(), ValueError, r"surrogate must return shape \(8, 3\), got \(\)"),
        ("surrogate", lambda v: v.mean(0), ValueError, r"surrogate must return shape \(8, 3\), got \(3,\)"),
        ("surrogate", lambda v: v[..., None], ValueError, r"surrogate must return shape \(8, 3\), got \(8, 3, 1\)"),
        ("surrogate", lambda v: None, TypeError, "surrogate must return a tensor, got NoneType"),
        ("sample", lambda z: z[0], ValueError, r"sample must return shape \(8, 3, 5\), got \(3, 5\)"),
        ("sample", lambda z: z.tolist(), TypeError, "sample must return a tensor, got list"),
    ],
)
def test_methods_of_ones_own_that_return_something_else(
    method: str, made: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    dist = KSubset(2, torch.zeros(3, 5, requires_grad=True))
    expectation(lambda z: z @ COSTS, dist, OfAnotherShape(), 8).sum().backward()
    with pytest.raises(error, match=rf"OfAnotherShape\.{message}"):
        expectation(lambda z: z @ COSTS, dist, OfAnotherShape(**{method: made}), 8)
