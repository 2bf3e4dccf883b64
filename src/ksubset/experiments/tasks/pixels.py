"""The paper's tasks: one subset of the pixels for all images, and the layer through which a network sees them."""

import abc
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ksubset.experiments import datasets, methods
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks.base import Add, Part, Task
from ksubset.nn import ConcreteSelector, FeatureGate
from ksubset.training import Batch, JointTraining

__all__ = ["PixelNetwork", "PixelTask", "SelectLinear", "mixed_precision"]

_EXAMPLE_IMAGES = 3
_EVALUATION_CHUNK = 1024
_GROUP = 32
"""Images that share their subsets where these are drawn per 'group'."""


def mixed_precision(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; elsewhere mixed precision would only be slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class SelectLinear(nn.Linear):
    r"""A linear layer on the selected input, :math:`W (z \odot x) + b`.

    Subsets that are shared by a batch never touch the images: where they are hard and need no gradient, only the k
    selected columns are computed, k/n of the work; otherwise they scale the columns of W, and no gradient has to pass
    through a product as large as the batch.

    Shapes:
        images `(B, n)`, mask `(S, 1, n)` if shared by the batch, else `(S, R, n)`, of which each is for the next
        ceil(B / R) images -> `(S, B, out_features)`.
    """

    def select(self, images: Tensor, mask: Tensor, k: int | None) -> Tensor:
        """Apply the layer.

        Arguments:
            images: pixels.
            mask: subsets, relaxed or hard.
            k: number of ones in each row, where the mask is hard, shared by the batch and needs no gradient; else None.
        """
        if mask.shape[-2] > 1:
            each = -(-len(images) // mask.shape[-2])
            return self.forward(mask.repeat_interleave(each, -2)[..., : len(images), :] * images)
        if k is None:
            return torch.matmul(images, (self.weight * mask).mT) + self.bias
        columns = mask.squeeze(-2).topk(k).indices  # (S, k)
        pixels = images.T[columns].mT  # (S, B, k)
        weight = self.weight.T[columns]  # (S, k, out_features)
        return torch.baddbmm(self.bias, pixels, weight)


class PixelNetwork(nn.Module, abc.ABC):
    """A downstream network, whose first layer is a :class:`SelectLinear`."""

    @abc.abstractmethod
    def forward(self, images: Tensor, mask: Tensor, k: int | None = None) -> Tensor:
        """Output `(S, B, ...)`; the arguments are those of :meth:`SelectLinear.select`."""


class PixelTask(Task):
    """What a network does with the selected pixels of square images.

    The selector starts from inclusion probabilities of k/n, where the method has none of its own.
    """

    sets = datasets.SETS
    protocols: ClassVar[tuple[str, ...]] = ("paper", "best")

    def __init__(self, config: RunConfig, data: DataSplit, device: torch.device) -> None:
        super().__init__(config, data, device)
        self.side, self.num_classes = data.side, data.num_classes
        self.mixed = config.precision == "mixed" and mixed_precision(device)
        self.train = (data.train_images.to(device), data.train_labels.to(device))
        self.held_out: dict[Part, tuple[Tensor, Tensor]] = {
            "validation": (data.validation_images.to(device), data.validation_labels.to(device)),
            "test": (data.test_images.to(device), data.test_labels.to(device)),
        }
        self.num_examples = len(data.train_images)
        make = methods.find(config.method).selector or _gate
        self.selector = make(data.n, self.k).to(device)
        self.network = self.build().to(device)

    @classmethod
    def data_set(cls, name: str) -> datasets.Source:
        return datasets.find(name)

    @classmethod
    def load(cls, name: str) -> DataSplit:
        return datasets.load(name)

    @abc.abstractmethod
    def build(self) -> PixelNetwork:
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

    def images(self, output: Tensor) -> Tensor | None:
        """The images `(S, B, n)` in [0, 1] that an output stands for; None where the task makes none."""
        return None

    def batch(self, rows: Tensor, joint: JointTraining, add: Add) -> Batch:
        rows = rows.to(self.device)
        x, y = (part[rows] for part in self.train)
        shared, size = self.config.subsets_per == "batch", joint.size_at(joint.round)
        each = _GROUP if self.config.subsets_per == "group" else 1
        groups = -(-len(x) // each)

        def losses(z: Tensor) -> Tensor:
            """Loss `(S,)` of subsets `(S, n)` shared by the batch, or `(S, R)` of subsets `(S, R, n)`."""
            # Hard subsets that need no gradient let the first layer skip the columns that are not selected.
            z = self._items(z)
            output = self._output(x, z.unsqueeze(-2) if shared else z, None if z.requires_grad else size)
            loss = self.loss(output, x, y)
            with torch.no_grad():
                add(self.statistics(output.detach(), x, y, training=True))
                add({"loss": loss.sum(), "losses": torch.tensor(loss.numel())})
            if shared:
                return loss.mean(-1)
            # Of the groups' losses the mean is that of the images, though the last group may be smaller.
            padded = functional.pad(loss, (0, groups * each - len(x)))
            by_group: Tensor = padded.unflatten(-1, (groups, each)).sum(-1)
            return by_group * (groups / len(x))

        return Batch(losses, rows=None if shared else groups)

    def _items(self, chosen: Tensor) -> Tensor:
        return self.selector.items(chosen) if isinstance(self.selector, ConcreteSelector) else chosen

    def _output(self, x: Tensor, mask: Tensor, k: int | None) -> Tensor:
        if isinstance(self.selector, ConcreteSelector):
            k = None  # units that agree leave fewer
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            output: Tensor = self.network(x, mask, k)
        return output.float()

    @torch.no_grad()
    def mode(self) -> Tensor:
        """The mask of evaluation `(1, 1, n)`, one for all: the k pixels with the largest logits."""
        return self._items(self.selector().mode)[None, None]

    @torch.no_grad()
    def inclusion(self) -> Tensor:
        """Inclusion probability of each pixel `(n,)`."""
        return self._items(self.selector().mean)

    @torch.no_grad()
    def evaluate(self, part: Part) -> dict[str, float]:
        """Metrics under the mode."""
        self.network.eval()
        mask = self.mode()
        sums: dict[str, Tensor] = {}
        chunks = zip(*(values.split(_EVALUATION_CHUNK) for values in self.held_out[part]), strict=True)
        for x, y in chunks:
            for name, value in self.statistics(self._output(x, mask, self.k), x, y, training=False).items():
                sums[name] = sums.get(name, 0) + value
        return self.metrics(sums)

    def outcome(self) -> dict[str, Any]:
        examples = self.examples()
        return {
            "side": self.side,
            "selected": self.mode().flatten().nonzero().flatten().tolist(),
            "inclusion": [round(value, 6) for value in self.inclusion().tolist()],
            "originals": [] if examples is None else _grey(examples[0]),
            "reconstructions": [] if examples is None else _grey(examples[1]),
        }

    def pictures(self) -> dict[str, Tensor]:
        square = (self.side, self.side)
        shown = {"inclusion": self.inclusion().reshape(square), "mask": self.mode().reshape(square)}
        if (examples := self.examples()) is not None:
            # Originals in the upper row, what the network makes of them below.
            rows = [torch.cat([*images.reshape(-1, *square)], dim=1) for images in examples]
            shown["reconstructions"] = torch.cat(rows)
        return shown

    @torch.no_grad()
    def examples(self) -> tuple[Tensor, Tensor] | None:
        """The first test images and what the network makes of them, both `(images, n)`; None if the task makes none."""
        self.network.eval()
        originals = self.held_out["test"][0][:_EXAMPLE_IMAGES]
        made = self.images(self._output(originals, self.mode(), self.k))
        return None if made is None else (originals, made[0])


def _gate(n: int, k: int) -> FeatureGate:
    gate = FeatureGate(n, k, validate_args=False)
    with torch.no_grad():
        gate.logits.fill_(k / n).logit_()
    return gate


def _grey(images: Tensor) -> list[list[int]]:
    levels: list[list[int]] = (images * 255).round().to(torch.uint8).tolist()
    return levels
