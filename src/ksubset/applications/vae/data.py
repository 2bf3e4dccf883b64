"""Images of zeros and ones."""

import operator

import torch
from torch import Tensor

__all__ = ["binarize", "check_images"]


def binarize(images: Tensor, seed: int = 0) -> Tensor:
    """Each pixel once drawn as a Bernoulli variable with its grey level as the mean.

    References:
        Salakhutdinov and Murray (2008), On the Quantitative Analysis of Deep Belief Networks,
        https://doi.org/10.1145/1390156.1390266, who binarise MNIST in this way; the draws are others.

    Arguments:
        images: Grey levels in [0, 1].
        seed: Of the draws: the same images and seed give the same result.

    Raises:
        TypeError: `images` is no floating-point tensor, or `seed` no integer.
        ValueError: A level is outside of [0, 1].

    Shapes:
        images `(..., pixels)` -> `(..., pixels)`.

    Example:
        >>> grey = torch.tensor([[0.0, 0.3, 0.7, 1.0]])
        >>> binarize(grey)[:, [0, 3]], binarize(grey).equal(binarize(grey, seed=0))
        (tensor([[0., 1.]]), True)
    """
    check_images(images)
    generator = torch.Generator(images.device).manual_seed(operator.index(seed))
    return torch.bernoulli(images, generator=generator)


def check_images(images: Tensor) -> None:
    """Make sure that images are tensors of numbers in [0, 1].

    Raises:
        TypeError, ValueError: They are not.
    """
    if not (isinstance(images, Tensor) and images.is_floating_point()):
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images must be a floating-point tensor, got {kind}")
    if not ((images >= 0) & (images <= 1)).all():
        raise ValueError(
            f"images must lie in [0, 1], got values from {float(images.min())} to {float(images.max())}: divide grey "
            "levels by the largest"
        )
