"""The interface of all gradient estimators, and the one entry point to them."""

import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from ksubset.distributions import SubsetDistribution
from ksubset.numerics.checks import inside_transform

__all__ = ["Estimator", "differentiate", "expectation", "positive"]

_CUT = "the losses that f returned do not depend on the subsets through differentiable operations"


class Estimator(nn.Module):
    """A rule that sends gradients through a sampled subset; the base of all estimators.

    A subclass overrides the hook in which its idea lives: `sample` if gradients flow through the sample, `surrogate`
    if they flow through the loss; and `estimate`, which calls both, if it needs more of f than its losses. What it
    remembers between calls lies in buffers and what can be trained in parameters, so that `state_dict`, `to` and
    `deepcopy` know of them.

    A gradient is that of the result of `expectation`, whatever the caller makes of it: constants of an estimator, such
    as the `beta` of `IMLE`, belong to the loss of a single subset, and no mean over a batch changes their meaning.

    Example:
        >>> from ksubset import KSubset
        >>> class StraightThrough(Estimator):
        ...     needs_gradient = reparameterized = True
        ...     def sample(self, dist, num_samples, generator=None):
        ...         return super().sample(dist, num_samples, generator) + dist.logits - dist.logits.detach()
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> expectation(lambda z: 3 * z[..., 0], KSubset(2, logits), StraightThrough()).backward()
        >>> logits.grad
        tensor([3., 0., 0., 0.])
    """

    unbiased: ClassVar[bool] = False
    """Whether the mean of the estimates is the gradient of the expectation."""
    needs_gradient: bool = False
    """Whether f must be differentiable."""
    reparameterized: bool = False
    """Whether the gradient flows through the sample, so that `sample` alone can stand in a network."""
    min_samples: ClassVar[int] = 1

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        """Draw subsets, or what stands for them.

        Shapes:
            -> `(S, *B, n)`.
        """
        return dist.sample((num_samples,), generator=generator)

    def surrogate(self, loss: Tensor, sample: Tensor, dist: SubsetDistribution) -> Tensor:
        """Turn losses into values whose backward pass gives the estimate.

        Shapes:
            loss `(S, *B)`, sample `(S, *B, n)` -> `(S, *B)`.
        """
        return loss

    def estimate(
        self,
        f: Callable[[Tensor], Tensor],
        dist: SubsetDistribution,
        num_samples: int,
        generator: Generator | None = None,
    ) -> Tensor:
        """Evaluate f and average; `expectation` has checked the arguments, and checks the losses that f returns.

        Shapes:
            f: `(S, *B, n)` -> `(S, *B)`; result `(*B)`.
        """
        sample = self.sample(dist, num_samples, generator)
        self._check("sample", sample, (num_samples, *dist.batch_shape, *dist.event_shape))
        loss = f(sample)
        if self.needs_gradient and sample.requires_grad:
            self.require_gradient(loss)
            if not (torch.compiler.is_compiling() or inside_transform() or _comes_from(loss, sample)):
                raise ValueError(_CUT)
        values = self.surrogate(loss, sample, dist)
        self._check("surrogate", values, loss.shape)
        return values.mean(0)

    def _check(self, method: str, result: Any, shape: tuple[int, ...]) -> None:
        """Of another shape, a mean over samples would be one over something else, and scale the gradient."""
        if not isinstance(result, Tensor):
            raise TypeError(f"{type(self).__name__}.{method} must return a tensor, got {type(result).__name__}")
        if result.shape != shape:
            raise ValueError(
                f"{type(self).__name__}.{method} must return shape {tuple(shape)}, got {tuple(result.shape)}"
            )

    def require_gradient(self, loss: Tensor) -> None:
        """Check that losses have a gradient, for estimators that send theirs through f.

        Raises:
            ValueError: They have none.
        """
        if not loss.requires_grad:
            raise ValueError(
                f"{type(self).__name__} sends the gradient through f, but the losses that f returned have none; "
                "LeaveOneOut needs no gradient of f"
            )


def positive(name: str, value: float) -> float:
    """The value of an argument that must be a number above 0.

    Raises:
        TypeError: It is no number.
        ValueError: It is not positive or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive, finite number, got {value}")
    return float(value)


def differentiate(f: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """F and its gradient, itself without a gradient; the losses keep theirs for what f closes over.

    Raises:
        ValueError: The losses have no gradient, or none with respect to the subsets.

    Shapes:
        f: `(S, *B, n)` -> `(S, *B)`, at `(S, *B, n)` -> `(S, *B)`, `(S, *B, n)`.
    """
    try:
        at = at.detach().requires_grad_()
    except RuntimeError:  # inside of torch.func, whose own transform is the only one that works there
        pulled: tuple[Tensor, Any] = torch.func.vjp(f, at.detach())  # type: ignore[assignment]
        loss, pullback = pulled
        return loss, pullback(torch.ones_like(loss))[0].detach()
    with torch.enable_grad():
        loss = f(at)
    if not loss.requires_grad:
        raise ValueError(
            "f must be differentiable here, but the losses that it returned have no gradient; LeaveOneOut needs none"
        )
    (gradient,) = torch.autograd.grad(loss.sum(), at, retain_graph=True, allow_unused=True)
    if gradient is None:
        raise ValueError(_CUT)
    return loss, gradient


def _comes_from(result: Tensor, start: Tensor) -> bool:
    """Whether a graph leads from a result back to where it started."""
    end = torch.autograd.graph.get_gradient_edge(start).node
    seen, waiting = {result.grad_fn}, [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node == end:
            return True
        for before, _ in () if node is None else node.next_functions:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return False


def expectation(
    f: Callable[[Tensor], Any],
    dist: SubsetDistribution,
    estimator: Estimator,
    num_samples: int = 1,
    generator: Generator | None = None,
) -> Tensor:
    r"""Estimate :math:`E_{z \sim \text{dist}}[f(z)]`; its backward pass is the estimator's gradient.

    The gradient reaches the distribution's parameters and whatever f closes over. It is a first derivative: derivatives
    of it are not estimates of second derivatives, and may be 0 without an error. f gets a copy of the subsets, with
    which it may do as it likes.

    Arguments:
        f: Maps subsets to losses. For estimators with `needs_gradient = False` it may be any function, without
            gradients and returning anything `torch.as_tensor` takes. Losses keep their floating-point type; integers,
            booleans and Python's numbers count in float64.
        dist: The distribution of the subsets.
        estimator: The rule for the gradient with respect to the distribution's parameters.
        num_samples: Subsets S per element of the batch.
        generator: Of all random numbers; by default torch's own. The same seed with another S draws other subsets.

    Raises:
        TypeError: An argument is of another kind than said, the losses are complex, or a method of the estimator
            returns no tensor.
        ValueError: Too few samples for the estimator, losses of a wrong shape, a tensor of a wrong shape from a method
            of the estimator, or losses without a gradient where the estimator needs one.

    Shapes:
        f: `(S, *B, n)` -> `(S, *B)`; result `(*B)`.

    Example:
        >>> from ksubset import KSubset, LeaveOneOut
        >>> logits = torch.zeros(5, requires_grad=True)
        >>> loss = expectation(lambda z: z[..., 0], KSubset(2, logits), LeaveOneOut(), num_samples=4)
        >>> loss.backward()
        >>> logits.grad.shape
        torch.Size([5])
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator must be an instance of Estimator, such as LeaveOneOut(), got {estimator!r}")
    if not isinstance(dist, SubsetDistribution):
        raise TypeError(f"dist must be a SubsetDistribution, such as a KSubset, got {type(dist).__name__}")
    if isinstance(num_samples, bool) or not isinstance(num_samples, numbers.Integral):
        raise TypeError(f"num_samples must be an integer, got {num_samples!r}")
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    name = type(estimator).__name__
    if num_samples < estimator.min_samples:
        raise ValueError(f"{name} needs num_samples >= {estimator.min_samples}, got {num_samples}")
    # A copy, because f may be anybody's: also one that writes into its argument, or into a numpy view of it.
    return estimator.estimate(lambda sample: _losses(f(sample.clone()), sample), dist, int(num_samples), generator)


def _losses(result: Any, sample: Tensor) -> Tensor:
    """What f returned, as losses of the sample's device and of a floating-point type."""
    try:
        if isinstance(result, list | tuple) and any(isinstance(item, Tensor) for item in result):
            result = torch.stack([torch.as_tensor(item, device=sample.device) for item in result])
        # Python's numbers are doubles, and torch would make single precision of them.
        dtype = None if hasattr(result, "dtype") else torch.float64
        loss = torch.as_tensor(result, dtype=dtype, device=sample.device)
    except (TypeError, ValueError, RuntimeError) as error:
        what = type(result).__name__
        raise TypeError(f"f must return losses, as a tensor, an array or numbers, got {what} ({error})") from error
    if loss.is_complex():
        raise TypeError(f"f must return real losses, got {loss.dtype}")
    if not loss.is_floating_point():
        loss = loss.double()
    if loss.shape != sample.shape[:-1]:
        raise ValueError(
            f"f must map subsets of shape {tuple(sample.shape)} to losses of shape {tuple(sample.shape[:-1])}, "
            f"got {tuple(loss.shape)}"
        )
    return loss
