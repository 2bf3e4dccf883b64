"""The training of an embedding on batches in which each row looks for its neighbours among the others."""

import functools
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ksubset.applications.neighbours.model import LOSSES, AtMean, NeighborSelector, class_shares
from ksubset.estimators import Estimator
from ksubset.search.arguments import check_integer, check_nonnegative, check_positive
from ksubset.training import Batch, JointTraining, Plan

__all__ = ["Recipe", "Training"]

_REPORTS = 50


@dataclass
class Recipe:
    """How to train, in the classifier's arguments of these names, and the seed of the batches.

    Raises:
        TypeError, ValueError: An argument is of a wrong kind, or out of range; the message names it.
    """

    n_neighbors: int
    loss: str
    gradient_estimator: Estimator | None
    num_samples: int
    temperature: float
    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int

    def __post_init__(self) -> None:
        for name in ("n_neighbors", "num_samples", "steps"):
            setattr(self, name, check_integer(name, getattr(self, name), 1))
        self.batch_size = check_integer("batch_size", self.batch_size, 2)
        for name in ("temperature", "learning_rate"):
            setattr(self, name, check_positive(name, getattr(self, name)))
        self.weight_decay = check_nonnegative("weight_decay", self.weight_decay)
        if not isinstance(self.loss, str) or self.loss not in LOSSES:
            raise ValueError(f"loss: expected one of {', '.join(LOSSES)}, got {self.loss!r}")
        given = self.gradient_estimator
        if not isinstance(given, Estimator | None):
            raise TypeError(f"gradient_estimator: expected an estimator of ksubset.estimators or None, got {given!r}")
        if given is None:
            self.estimator: Estimator = AtMean()
            self.num_samples = 1
        else:
            # A copy, because some remember what they have seen.
            self.estimator = deepcopy(given)
        if self.loss == "vote" and self.estimator.needs_gradient:
            raise ValueError(
                "gradient_estimator: the loss 'vote' has no gradient, and expects an estimator that needs none, such "
                f"as LeaveOneOut(), got {given!r}"
            )
        if self.num_samples < (least := self.estimator.min_samples):
            raise ValueError(
                f"num_samples: expected {least} or more, as {type(self.estimator).__name__} needs, "
                f"got {self.num_samples}"
            )


class Training:
    """An embedding that is trained so that the k nearest rows of a batch have the label of the query.

    Random numbers are torch's own, except those of the batches: whoever runs it seeds them.

    Arguments:
        recipe: How to train.
        embedding: Maps rows `(N, n)` to points `(N, d)`; it is trained in place.
        rows: `(N, n)`, float32.
        labels: `(N)`, integers from 0.
        device: Where the training runs.

    Raises:
        ValueError: The rows or those of a batch are too few for so many neighbours; the embedding has no parameters.
    """

    def __init__(
        self,
        recipe: Recipe,
        embedding: nn.Module,
        rows: NDArray[np.float32],
        labels: NDArray[Any],
        device: torch.device,
    ) -> None:
        number, k = len(rows), recipe.n_neighbors
        if k >= number:
            raise ValueError(f"n_neighbors: expected fewer than the rows, n_samples = {number}, got {k}")
        if k >= recipe.batch_size:
            raise ValueError(f"batch_size: expected more than n_neighbors, {k}, got {recipe.batch_size}")
        if not any(True for _ in embedding.parameters()):
            raise ValueError(f"embedding: expected a module with parameters, got {embedding!r}")
        self.recipe = recipe
        self._size = min(recipe.batch_size, number)
        self._rows = torch.from_numpy(rows).to(device)
        self._labels = torch.from_numpy(labels).to(device)
        self._num_classes = int(labels.max()) + 1
        plan = Plan(
            recipe.steps, selector={"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}, network={},
            num_samples=recipe.num_samples, cosine=True, optimizer=torch.optim.AdamW, seed=recipe.seed,
        )  # fmt: skip
        selector = NeighborSelector(k, embedding, recipe.temperature, validate_args=False)
        self.joint = JointTraining(selector.to(device), nn.Identity(), recipe.estimator.to(device), plan)
        self.history: dict[str, list[float]] = {"step": [], "loss": []}

    def run(self) -> Iterator[tuple[int, float]]:
        """Train from the present step to the last; tells the step and the loss now and then, and is whole when it does.

        Raises:
            FloatingPointError: The training diverges.
        """
        for step, loss in self.joint.reports(self._batch, _REPORTS):
            self.history["step"].append(step)
            self.history["loss"].append(loss)
            yield step, loss

    def _batch(self) -> Batch:
        chosen = torch.randperm(len(self._rows), generator=self.joint.generator)[: self._size].to(self._rows.device)
        labels = self._labels[chosen]
        members = nn.functional.one_hot(labels, self._num_classes).to(self._rows.dtype)
        return Batch(functools.partial(self._losses, members, labels), inputs=(self._rows[chosen],))

    def _losses(self, members: Tensor, labels: Tensor, subsets: Tensor) -> Tensor:
        """Neighbours `(S, B, B)` -> `(S, B)`."""
        return LOSSES[self.recipe.loss](class_shares(subsets, members, self.recipe.n_neighbors), labels)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step and the history depend on."""
        return {"joint": self.joint.state_dict(), "history": self.history}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; a LookupError or RuntimeError if it was another training."""
        self.joint.load_state_dict(state["joint"])
        self.history = state["history"]
