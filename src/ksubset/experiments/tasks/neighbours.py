"""Classification by the k nearest neighbours in a learned embedding."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ksubset._support.extras import require
from ksubset.experiments import datasets
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks.base import Add, Metric, Part, Task
from ksubset.training import Batch, JointTraining

__all__ = ["Neighbours"]

# So that a run takes a minute or two on a core.
_MOST_ROWS = 10_000
_WIDTH, _POINT, _TEMPERATURE = 256, 32, 1.0
_EVALUATION_CHUNK = 1000


@dataclass(frozen=True)
class _Rows:
    label: str
    n: int
    items: str = "training rows"
    k: int = 5


class Neighbours(Task):
    """The share of wrong labels among k neighbours, whose expectation is linear in the subset; accuracy of their vote.

    Each row of a batch looks for its neighbours among the other ones. In validation and test they are the k nearest of
    all training rows, the first 10,000 of the data set, and the vote is for the class of most of them.

    Raises:
        ImportError: scikit-learn is missing.
        ValueError: a batch has more rows than there are.
    """

    name: ClassVar[str] = "neighbours"
    label: ClassVar[str] = "Nearest neighbours"
    measures: ClassVar[Mapping[str, Metric]] = {"vote_accuracy": Metric("accuracy of the neighbours' vote")}
    sets: ClassVar[Mapping[str, _Rows]] = {
        name: _Rows(source.label, 1198 if name == "digits" else _MOST_ROWS) for name, source in datasets.SETS.items()
    }

    def __init__(self, config: RunConfig, data: DataSplit, device: torch.device) -> None:
        super().__init__(config, data, device)
        self._neighbours: Any = require("ksubset.applications.neighbours", "selection")
        self._rows = data.train_images[:_MOST_ROWS].to(device)
        self._labels = data.train_labels[:_MOST_ROWS].to(device)
        self._members = one_hot(self._labels, data.num_classes).to(self._rows.dtype)
        self._held_out: dict[Part, tuple[Tensor, Tensor]] = {
            "validation": (data.validation_images.to(device), data.validation_labels.to(device)),
            "test": (data.test_images.to(device), data.test_labels.to(device)),
        }
        if config.batch_size > len(self._rows):
            raise ValueError(f"batch_size: expected at most the {len(self._rows)} rows, got {config.batch_size}")
        # Whole batches, as a row of a small one has few candidates, and some estimators remember how many there are.
        self.num_examples = len(self._rows) // config.batch_size * config.batch_size
        self._embedding = nn.Sequential(nn.Linear(data.n, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _POINT))
        selector = self._neighbours.NeighborSelector(self.k, self._embedding, _TEMPERATURE, validate_args=False)
        self.selector = selector.to(device)
        self.network = nn.Identity()

    @classmethod
    def load(cls, name: str) -> DataSplit:
        return datasets.load(name)

    def batch(self, rows: Tensor, joint: JointTraining, add: Add) -> Batch:
        rows = rows.to(self.device)
        labels, members, size = self._labels[rows], self._members[rows], joint.size_at(joint.round)

        def losses(z: Tensor) -> Tensor:
            shares = self._neighbours.class_shares(z, members, size)
            loss: Tensor = self._neighbours.wrong_share(shares, labels)
            hits = (1 - self._neighbours.vote_error(shares, labels)).sum()
            examples = torch.tensor(loss.numel())
            add({"loss": loss.detach().sum(), "losses": examples, "hits": hits, "examples": examples})
            return loss

        return Batch(losses, inputs=(self._rows[rows],))

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        return {"vote_accuracy": float(statistics["hits"]) / float(statistics["examples"])}

    @torch.no_grad()
    def evaluate(self, part: Part) -> dict[str, float]:
        self.selector.eval()
        points = torch.cat([self._embedding(chunk) for chunk in self._rows.split(_EVALUATION_CHUNK)])
        hits, (images, labels) = 0, self._held_out[part]
        for rows, truth in zip(images.split(_EVALUATION_CHUNK), labels.split(_EVALUATION_CHUNK), strict=True):
            nearest = torch.cdist(self._embedding(rows), points).topk(self.k, largest=False).indices
            hits += int((self._members[nearest].sum(1).argmax(-1) == truth).sum())
        return {"vote_accuracy": hits / len(labels)}
