"""Classification from k pixels."""

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ksubset.experiments.tasks.base import Metric
from ksubset.experiments.tasks.pixels import PixelNetwork, PixelTask, SelectLinear

__all__ = ["Classification", "ClassificationNetwork"]


class _ReluDropout(nn.Module):
    """ReLU, then dropout; the probability is rounded to a multiple of 2^-15."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu":
            return functional.dropout(functional.relu(input), self.p, self.training)
        output: Tensor = _CpuReluDropout.apply(input, self.p)
        return output


class _CpuReluDropout(torch.autograd.Function):
    """On a CPU, torch's dropout takes longer than the matrix products of a small network."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, p: float) -> Tensor:
        dropped = round(p * 2**15)
        ctx.scale = 1 / (1 - dropped / 2**15)
        # Four numbers of 16 bits out of each draw of 64; halved, so that the comparison by subtraction cannot overflow.
        bits = torch.empty(-(-input.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        bits = bits[: input.numel()].view(input.shape).bitwise_right_shift_(1)
        output = input.clamp_min(0)
        if input.dtype == torch.bfloat16:
            # -1, all bits set, to keep a value, and 0 to drop it.
            keep = bits.sub_(dropped - 2**14).bitwise_right_shift_(15).bitwise_not_()
            output.view(torch.int16).bitwise_and_(keep)
        else:
            output.mul_(bits >= dropped - 2**14)
        output.mul_(ctx.scale)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad * ctx.scale, output, 0), None


class ClassificationNetwork(PixelNetwork):
    """The paper's fully connected classifier, n-256-256-256-10 (appendix, table "Classification network").

    The softmax of the last layer is left to the loss, which takes it in log space.

    Shapes:
        -> logits of the classes `(S, B, num_classes)`.
    """

    def __init__(self, n: int, num_classes: int, width: int = 256, dropout: float = 0.2) -> None:
        super().__init__()
        self.first = SelectLinear(n, width)
        layers = ((_ReluDropout(dropout), nn.Linear(width, outputs)) for outputs in (width, width, num_classes))
        self.rest = nn.Sequential(*itertools.chain(*layers))

    def forward(self, images: Tensor, mask: Tensor, k: int | None = None) -> Tensor:
        logits: Tensor = self.rest(self.first.select(images, mask, k))
        return logits


class Classification(PixelTask):
    """Cross-entropy; accuracy in [0, 1]."""

    name: ClassVar[str] = "classification"
    label: ClassVar[str] = "Classification"
    measures: ClassVar[Mapping[str, Metric]] = {"accuracy": Metric("accuracy")}

    def build(self) -> ClassificationNetwork:
        return ClassificationNetwork(self.side**2, self.num_classes)

    def loss(self, output: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        targets = labels.expand(output.shape[:-1])
        return functional.cross_entropy(output.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)

    def statistics(self, output: Tensor, images: Tensor, labels: Tensor, training: bool) -> dict[str, Tensor]:
        hits = output.argmax(-1) == labels
        return {"hits": hits.sum(), "examples": torch.tensor(hits.numel())}

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        return {"accuracy": float(statistics["hits"]) / float(statistics["examples"])}
