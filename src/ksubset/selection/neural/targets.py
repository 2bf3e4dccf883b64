"""What a network predicts: targets as tensors, the loss, and its outputs as predictions."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor
from torch.nn import functional

from ksubset.selection.arguments import are_classes
from ksubset.selection.neural.batches import Scaling

__all__ = ["Data", "Target", "target_of", "task_of"]

_TASKS = ("classification", "regression", "reconstruction")


class Target(abc.ABC):
    """What the outputs of a network stand for."""

    num_outputs: int
    encoded: Tensor | None
    """The targets of all rows, `(N, ...)`; None where they are the data."""

    @abc.abstractmethod
    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """Losses of examples.

        Shapes:
            outputs `(S, B, num_outputs)`, truth, encoded, `(B, ...)` -> `(S, B)`.
        """

    @abc.abstractmethod
    def predict(self, outputs: NDArray[np.float32]) -> NDArray[Any]:
        """Outputs `(N, num_outputs)` as predictions, in the form and the units that the targets had."""


class Numbers(Target):
    """Targets of a regression, standardised; the loss is 1 less the coefficient of determination, R².

    Arguments:
        target: `(N)` or `(N, m)`.
        weights: `(N)`.
    """

    def __init__(self, target: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        columns = target.reshape(len(target), -1)
        self._flat, self._scaling, self.num_outputs = target.ndim == 1, Scaling.of(columns, weights), columns.shape[1]
        self.encoded = torch.from_numpy(self._scaling.apply(columns))

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        return (outputs - truth).square().mean(-1)

    def predict(self, outputs: NDArray[np.float32]) -> NDArray[Any]:
        values = self._scaling.undo(outputs)
        return values[:, 0] if self._flat else values


class Data(Target):
    """The data themselves, in units that all columns share; the loss is 1 less R², variance-weighted.

    Arguments:
        scaling: Of the data.
        constant: Which columns have one value in all rows, `(n)`.
    """

    encoded = None

    def __init__(self, scaling: Scaling, constant: NDArray[np.bool_]) -> None:
        varying = np.where(constant, 0.0, scaling.scale)
        # In units of the largest first: squares of tiny or huge numbers leave the range.
        largest = varying.max() or 1.0
        unit = largest * (np.sqrt(np.mean((varying / largest) ** 2)) or 1.0)
        self._unit, self._mean, self.num_outputs = unit, scaling.mean, len(varying)
        self._scales = torch.from_numpy((varying / unit).astype(np.float32))

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        return (outputs - truth * self._scales.to(truth.device)).square().mean(-1)

    def predict(self, outputs: NDArray[np.float32]) -> NDArray[Any]:
        return outputs * self._unit + self._mean


class Labels(Target):
    """Any number of m labels at once; the loss is the sum of their cross-entropies.

    Arguments:
        target: `(N, m)`, 0 or 1.
    """

    def __init__(self, target: NDArray[Any]) -> None:
        self.num_outputs = target.shape[1]
        self.classes = np.arange(self.num_outputs)
        self.encoded = torch.from_numpy(target.astype(np.float32))

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        losses = functional.binary_cross_entropy_with_logits(outputs, truth.expand_as(outputs), reduction="none")
        return losses.sum(-1)

    def predict(self, outputs: NDArray[np.float32]) -> NDArray[Any]:
        return (outputs > 0).astype(np.int64)

    def predict_proba(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Outputs as probabilities of the labels, both `(N, m)`."""
        # torch's sigmoid rounds equal numbers otherwise at the end of an array, which would break ties.
        return np.exp(-np.logaddexp(0.0, -outputs.astype(np.float64)))

    def decision_function(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Outputs as log-odds of the labels, both `(N, m)`."""
        return outputs


class Classes(Target):
    """One of several classes, or of several sets of classes; the loss is the sum of the cross-entropies.

    Arguments:
        target: `(N)` or `(N, m)`.
    """

    def __init__(self, target: NDArray[Any]) -> None:
        self._flat = target.ndim == 1
        columns = target[:, None] if self._flat else target
        found = [np.unique(columns[:, place], return_inverse=True) for place in range(columns.shape[1])]
        self._classes = [classes for classes, _ in found]
        self._sizes = [len(classes) for classes in self._classes]
        self.classes = self._classes[0] if self._flat else self._classes
        self.num_outputs = sum(self._sizes)
        self.encoded = torch.from_numpy(np.stack([inverse.ravel() for _, inverse in found], 1))

    def loss(self, outputs: Tensor, truth: Tensor) -> Tensor:
        losses = [
            functional.cross_entropy(part.flatten(0, 1), own.expand(part.shape[:2]).flatten(), reduction="none")
            for part, own in zip(outputs.split(self._sizes, -1), truth.unbind(-1), strict=True)
        ]
        return torch.stack(losses).sum(0).view(outputs.shape[:2])

    def predict(self, outputs: NDArray[np.float32]) -> NDArray[Any]:
        found = [c[part.argmax(1)] for c, part in zip(self._classes, self._parts(outputs), strict=True)]
        return found[0] if self._flat else np.stack(found, 1)

    def predict_proba(self, outputs: NDArray[np.float32]) -> Any:
        """Outputs as probabilities of the classes `(N, C)`; of several targets a list, one for each."""
        found = [torch.from_numpy(part).double().softmax(-1).numpy() for part in self._parts(outputs)]
        return found[0] if self._flat else found

    def decision_function(self, outputs: NDArray[np.float32]) -> Any:
        """Log-odds of the second of two classes `(N)`, else outputs `(N, C)`; of several targets a list."""
        found = [part[:, 1] - part[:, 0] if part.shape[1] == 2 else part for part in self._parts(outputs)]
        return found[0] if self._flat else found

    def _parts(self, outputs: NDArray[np.float32]) -> Sequence[NDArray[np.float32]]:
        return np.split(outputs, np.cumsum(self._sizes)[:-1], axis=1)


def task_of(task: Any, target: Any) -> str:
    """The task, inferred from the target if it is None; a ValueError if it is unknown."""
    if task is not None and task not in _TASKS:
        raise ValueError(f"task: expected None or one of {', '.join(_TASKS)}, got {task!r}")
    if task is not None:
        return str(task)
    if target is None:
        return "reconstruction"
    return "classification" if are_classes(target, 'task="regression" predicts numbers') else "regression"


def target_of(task: str, target: NDArray[Any], weights: NDArray[np.float64]) -> Target:
    """The target `(N)` or `(N, m)` of a classification or regression; a ValueError if it is none."""
    if task == "regression":
        try:
            return Numbers(target.astype(np.float64), weights)
        except (ValueError, TypeError) as error:
            raise ValueError(f"y: expected numbers for a regression, got {target.dtype} ({error})") from error
    check_classification_targets(target)
    kind = type_of_target(target, input_name="y")
    # To scikit-learn two columns of any two numbers are labels.
    if kind == "multilabel-indicator" and np.isin(target, (0, 1)).all():
        return Labels(target)
    return Classes(target if target.ndim > 1 and target.shape[1] > 1 else column_or_1d(target, warn=True))
