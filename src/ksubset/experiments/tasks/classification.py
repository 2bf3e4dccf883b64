"""Classification from k pixels."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ksubset.experiments.tasks.base import Network, SelectLinear, Task

__all__ = ["Classification", "ClassificationNetwork"]


class _Dropout(nn.Dropout):
    """Dropout whose mask comes from uniform numbers on a CPU, where torch's Bernoulli generator is far slower."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu":
            return super().forward(input)
        kept = torch.rand_like(input) >= self.p
        return input * (kept * (1 / (1 - self.p)))


class ClassificationNetwork(Network):
    """The paper's fully connected classifier, n-256-256-256-10 (appendix, table "Classification network").

    The softmax of the last layer is left to the loss, which takes it in log space.

    Shapes:
        -> logits of the classes `(S, B, num_classes)`.
    """

    def __init__(self, n: int, num_classes: int, width: int = 256, dropout: float = 0.2) -> None:
        super().__init__()
        self.first = SelectLinear(n, width)
        self.rest = nn.Sequential(
            nn.ReLU(),
            _Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            _Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            _Dropout(dropout),
            nn.Linear(width, num_classes),
        )

    def forward(self, images: Tensor, mask: Tensor, k: int | None = None) -> Tensor:
        logits: Tensor = self.rest(self.first.select(images, mask, k))
        return logits


class Classification(Task):
    """Cross-entropy; accuracy in [0, 1]."""

    name: ClassVar[str] = "classification"
    label: ClassVar[str] = "Classification"

    def network(self) -> ClassificationNetwork:
        return ClassificationNetwork(self.side**2, self.num_classes)

    def loss(self, output: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        targets = labels.expand(output.shape[:-1])
        return functional.cross_entropy(output.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)

    def statistics(self, output: Tensor, images: Tensor, labels: Tensor, training: bool) -> dict[str, Tensor]:
        hits = output.argmax(-1) == labels
        return {"hits": hits.sum(), "examples": torch.tensor(hits.numel())}

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        return {"accuracy": float(statistics["hits"]) / float(statistics["examples"])}
