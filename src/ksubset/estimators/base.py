"""The interface of all gradient estimators, and the one door to them."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ksubset.distributions.ksubset import KSubset

__all__ = ["Estimator", "expectation"]


class Estimator:
    """A rule that sends gradients through a k-subset sample; the base of all estimators.

    A subclass overrides the hook in which its idea lives: `sample` if gradients flow through the sample, `surrogate`
    if they flow through the loss; and `estimate`, which calls both, if it needs more of f than its losses.
    """

    unbiased: ClassVar[bool] = False
    """Whether the mean of the estimates is the gradient of the expectation."""
    pathwise: ClassVar[bool] = True
    """Whether the gradient flows through the sample, so that f must be differentiable."""
    min_samples: ClassVar[int] = 1

    def sample(self, dist: KSubset, num_samples: int) -> Tensor:
        """Draw subsets, or what stands for them.

        Shapes:
            -> `(S, *B, n)`.
        """
        return dist.sample((num_samples,))

    def surrogate(self, loss: Tensor, sample: Tensor, dist: KSubset) -> Tensor:
        """Turn losses into values whose backward pass gives the estimate.

        Shapes:
            loss `(S, *B)`, sample `(S, *B, n)` -> `(S, *B)`.
        """
        return loss

    def estimate(self, f: Callable[[Tensor], Tensor], dist: KSubset, num_samples: int) -> Tensor:
        """Evaluate f and average; `expectation` has checked the arguments, and checks the losses that f returns.

        Shapes:
            f: `(S, *B, n)` -> `(S, *B)`; result `(*B)`.
        """
        sample = self.sample(dist, num_samples)
        loss = f(sample)
        if self.pathwise and sample.requires_grad:
            self.require_gradient(loss)
        return self.surrogate(loss, sample, dist).mean(0)

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers of earlier calls; empty for most."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what another instance of the same kind remembered."""

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


def expectation(f: Callable[[Tensor], Any], dist: KSubset, estimator: Estimator, num_samples: int = 1) -> Tensor:
    r"""Estimate :math:`E_{z \sim \text{dist}}[f(z)]`; its backward pass is the estimator's gradient.

    The gradient reaches the distribution's parameters and whatever f closes over.

    Arguments:
        f: Maps subsets to losses. For estimators with `pathwise = False` it may be any function, without gradients
            and returning anything `torch.as_tensor` takes.
        dist: The distribution of the subsets.
        estimator: The rule for the gradient with respect to the distribution's parameters.
        num_samples: Subsets S per element of the batch.

    Raises:
        TypeError: An argument is of another kind than said.
        ValueError: Too few samples for the estimator, losses of a wrong shape, or losses without a gradient where the
            estimator needs one.

    Shapes:
        f: `(S, *B, n)` -> `(S, *B)`; result `(*B)`.

    Example:
        >>> from ksubset import LeaveOneOut
        >>> logits = torch.zeros(5, requires_grad=True)
        >>> loss = expectation(lambda z: z[..., 0], KSubset(2, logits), LeaveOneOut(), num_samples=4)
        >>> loss.backward()
        >>> logits.grad.shape
        torch.Size([5])
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator must be an instance of Estimator, such as LeaveOneOut(), got {estimator!r}")
    if not isinstance(dist, KSubset):
        raise TypeError(f"dist must be a KSubset, got {type(dist).__name__}")
    if isinstance(num_samples, bool) or not isinstance(num_samples, int):
        raise TypeError(f"num_samples must be an integer, got {num_samples!r}")
    name = type(estimator).__name__
    if num_samples < estimator.min_samples:
        raise ValueError(f"{name} needs num_samples >= {estimator.min_samples}, got {num_samples}")
    return estimator.estimate(lambda sample: _losses(f(sample), sample), dist, num_samples)


def _losses(result: Any, sample: Tensor) -> Tensor:
    """What f returned, as losses of the sample's device and of a floating-point type."""
    if isinstance(result, list | tuple) and any(isinstance(item, Tensor) for item in result):
        result = torch.stack([torch.as_tensor(item, device=sample.device) for item in result])
    if isinstance(result, Tensor) and result.is_floating_point():
        loss = result.to(sample.device)
    else:
        loss = torch.as_tensor(result, dtype=sample.dtype, device=sample.device)
    if loss.shape != sample.shape[:-1]:
        raise ValueError(
            f"f must map subsets of shape {tuple(sample.shape)} to losses of shape {tuple(sample.shape[:-1])}, "
            f"got {tuple(loss.shape)}"
        )
    return loss
