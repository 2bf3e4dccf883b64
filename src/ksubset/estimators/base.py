"""The interface of all gradient estimators, and the one door to them."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ksubset.distribution import KSubset

__all__ = ["Estimator", "expectation"]


class Estimator:
    """A rule that sends gradients through a k-subset sample; the base of all estimators.

    A subclass overrides the hook in which its idea lives: `sample` if gradients flow through the sample, `surrogate`
    if they flow through the loss. Instances are immutable and hold no tensors.
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
    sample = estimator.sample(dist, num_samples)
    result = f(sample)
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
    if estimator.pathwise and sample.requires_grad and not loss.requires_grad:
        raise ValueError(
            f"{name} sends the gradient through f, but the losses that f returned have none; "
            "LeaveOneOut needs no gradient of f"
        )
    return estimator.surrogate(loss, sample, dist).mean(0)
