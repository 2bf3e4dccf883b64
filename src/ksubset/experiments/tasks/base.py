"""What a task is, and the layer through which every network sees its pixels."""

import abc
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

__all__ = ["SelectLinear", "Task"]


class SelectLinear(nn.Linear):
    r"""A linear layer on the selected input, :math:`W (z \odot x) + b`.

    Subsets that are shared by a batch never touch the images: where they are hard and need no gradient, only the k
    selected columns are computed, k/n of the work; otherwise they scale the columns of W, and no gradient has to pass
    through a product as large as the batch.

    Shapes:
        images `(B, n)`, mask `(S, 1, n)` if shared by the batch, else `(S, B, n)` -> `(S, B, out_features)`.
    """

    def select(self, images: Tensor, mask: Tensor, k: int | None) -> Tensor:
        """Apply the layer.

        Arguments:
            images: pixels.
            mask: subsets, relaxed or hard.
            k: number of ones in each row, where the mask is hard, shared by the batch and needs no gradient; else None.
        """
        if mask.shape[-2] > 1:
            return self.forward(mask * images)
        if k is None:
            return torch.matmul(images, (self.weight * mask).mT) + self.bias
        columns = mask.squeeze(-2).topk(k).indices  # (S, k)
        pixels = images.T[columns].mT  # (S, B, k)
        weight = self.weight.T[columns]  # (S, k, out_features)
        return torch.baddbmm(self.bias, pixels, weight)


class Network(nn.Module, abc.ABC):
    """A downstream network, whose first layer is a :class:`SelectLinear`."""

    @abc.abstractmethod
    def forward(self, images: Tensor, mask: Tensor, k: int | None = None) -> Tensor:
        """Output `(S, B, ...)`; the arguments are those of :meth:`SelectLinear.select`."""


class Task(abc.ABC):
    """What a network does with the selected pixels of square images, and how that is judged."""

    name: ClassVar[str]
    label: ClassVar[str]

    def __init__(self, side: int, num_classes: int) -> None:
        self.side, self.num_classes = side, num_classes

    @abc.abstractmethod
    def network(self) -> Network:
        """A new network with PyTorch's default initialization (the paper's appendix on initialization)."""

    @abc.abstractmethod
    def loss(self, output: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Loss of every example.

        Shapes:
            output `(S, B, ...)`, images `(B, n)`, labels `(B,)` -> `(S, B)`.
        """

    @abc.abstractmethod
    def statistics(self, output: Tensor, images: Tensor, labels: Tensor, training: bool) -> dict[str, Tensor]:
        """Sums over the examples, from which :meth:`metrics` follow: adding them up over batches is exact.

        Arguments:
            output: the network's output `(S, B, ...)`.
            images: pixels `(B, n)`.
            labels: classes `(B,)`.
            training: leave out what is too slow to be measured at every step.

        Returns:
            Scalar tensors on the device of the output: reading them would stall a GPU at every step.
        """

    @abc.abstractmethod
    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics of all the examples that went into the statistics."""

    def images(self, output: Tensor) -> Tensor | None:
        """The images `(S, B, n)` in [0, 1] that an output stands for; None where the task makes none."""
        return None
