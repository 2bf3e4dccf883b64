"""The training of a network together with the distribution of the columns that it sees."""

import functools
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ksubset.distributions import KSubset
from ksubset.estimators import SIMPLE, Estimator, LeaveOneOut
from ksubset.nn import FeatureGate
from ksubset.schedules import ExponentialSchedule
from ksubset.search.arguments import check_integer, check_positive
from ksubset.selection.groups import SubsetSpace
from ksubset.selection.neural.batches import Batches, DenseRows, Scaling, SparseRows
from ksubset.selection.neural.targets import Target
from ksubset.training import Batch, JointTraining, Plan

__all__ = ["Recipe", "Training", "TrainingProgress", "clipped"]

# Fraction of the steps in which the columns are chosen; in the others the network is trained alone, on those chosen.
_SELECTING = 0.6
# The size of the subsets falls to k from at most so many units, and at most from half of them, over the first half of
# the selection: large subsets show each column to the network often.
_LARGEST, _UNTIL = 100, 0.5
# As of a prior: with N rows that differ the weights decay, while the network is trained alone, by this over N times the
# learning rate in a step; at most by this share, at the highest rate.
_WEIGHT_DECAY, _MOST_DECAY = 3_000.0, 0.02
_CLIP = 5.0
_REPORTS = 50
# SIMPLE has a fraction of the noise, and finds columns sooner; what only curves or interacts its bias may miss, and by
# the time that the size is k, noise is small enough to do without.
_FIRST, _THEN = SIMPLE(), LeaveOneOut()


def _biased_then_unbiased(progress: float) -> Estimator:
    return _FIRST if progress < _UNTIL else _THEN


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training stands, as callbacks are told.

    Arguments:
        step: Steps made.
        steps: Steps to make.
        subset_size: Size of the subsets in the last of them, which falls to k; units that are always kept count.
        loss: Mean loss since the last time.
        support: The columns that are likeliest at present, `(n)`, boolean.

    Example:
        >>> from ksubset.selection import NeuralSubsetSelector
        >>> def enough(progress: TrainingProgress) -> bool:  # ends the training early
        ...     return progress.step >= 20
        >>> X = np.random.default_rng(0).standard_normal((200, 5))
        >>> selector = NeuralSubsetSelector(2, steps=50, device="cpu", callbacks=enough, random_state=0)
        >>> selector.fit(X, X[:, 0] + X[:, 1]).n_steps_
        20
    """

    step: int
    steps: int
    subset_size: int
    loss: float
    support: NDArray[np.bool_]


@dataclass
class Recipe:
    """How to train, in the selector's arguments of these names, whether it makes the network, and the seed of batches.

    Raises:
        TypeError, ValueError: An argument is of a wrong kind, or out of range; the message names it.
    """

    steps: int
    batch_size: int
    learning_rate: float
    logits_learning_rate: float
    gradient_estimator: Estimator | None
    num_samples: int
    makes_network: bool
    seed: int

    def __post_init__(self) -> None:
        given = self.gradient_estimator
        if not isinstance(given, Estimator | None):
            raise TypeError(f"gradient_estimator: expected an estimator of ksubset.estimators or None, got {given!r}")
        # A copy, because some remember what they have seen.
        self._estimator = LeaveOneOut() if given is None else deepcopy(given)
        for name in ("num_samples", "batch_size", "steps"):
            setattr(self, name, check_integer(name, getattr(self, name), 1))
        for name in ("learning_rate", "logits_learning_rate"):
            setattr(self, name, check_positive(name, getattr(self, name)))
        if self.num_samples < (least := self._estimator.min_samples):
            raise ValueError(
                f"num_samples: expected {least} or more, as {type(self._estimator).__name__} needs, "
                f"got {self.num_samples}"
            )

    def estimator(self, device: torch.device) -> Estimator | Callable[[float], Estimator]:
        """What is given; by default one after the other, or, of a network that may have no gradients, the second."""
        if self.gradient_estimator is None and self.makes_network:
            return _biased_then_unbiased
        return self._estimator.to(device)


def clipped(rows: Tensor) -> Tensor:
    """Standardised values as the network sees them: a column that is hardly ever not 0 has huge ones."""
    return rows.clamp(-_CLIP, _CLIP)


class Training:
    """A network and the logits of the units, trained together, then the network alone on the chosen columns.

    Random numbers are torch's own, except those of the batches: whoever runs it seeds them.

    Arguments:
        recipe: How to train.
        space: What subsets are made of.
        network: Maps `(N, n)` to `(N, outputs)`; it is trained in place.
        logits: Of the free units, `(u)`, at first.
        target: What the network predicts.
        data: `(N, n)`, dense or sparse.
        weights: Of the rows, `(N)`, above 0.
        scaling: Of the columns.
        device: Where the training runs.
    """

    def __init__(
        self,
        recipe: Recipe,
        space: SubsetSpace,
        network: nn.Module,
        logits: Tensor,
        target: Target,
        data: Any,
        weights: NDArray[np.float64],
        scaling: Scaling,
        device: torch.device,
    ) -> None:
        self.recipe, self.space, self.target, self.device = recipe, space, target, device
        self._rows = (SparseRows if hasattr(data, "tocsr") else DenseRows)(data, scaling, device)
        self._truth = None if target.encoded is None else target.encoded.to(device)
        self._batches = Batches(data, target.encoded, scaling, weights, recipe.batch_size)
        free, size = len(space.free), space.size
        # All or none of the groups is no choice.
        self.selecting = round(_SELECTING * recipe.steps) if 0 < size < free else 0
        """Steps after which the network is trained alone."""
        largest = max(size, min(_LARGEST, free // 2))
        # Masks regularise enough, and decaying weights would not learn what columns say only together.
        decay = min(_WEIGHT_DECAY / self._batches.num_distinct, _MOST_DECAY / recipe.learning_rate)
        plan = Plan(
            recipe.steps, selector={"lr": recipe.logits_learning_rate, "weight_decay": 0.0},
            network={"lr": recipe.learning_rate, "weight_decay": 0.0}, tuning={"weight_decay": decay},
            num_samples=recipe.num_samples, selecting=self.selecting, annealing=self.selecting or None,
            size=ExponentialSchedule(largest, size, _UNTIL) if self.selecting else None,
            cosine=True, optimizer=torch.optim.AdamW, seed=recipe.seed,
        )  # fmt: skip
        # A gate has at least one item, but there may be none to choose from.
        self._gate = FeatureGate(max(free, 1), size, validate_args=False)
        with torch.no_grad():
            self._gate.logits[:free] = logits
        self.joint = JointTraining(self._gate.to(device), network.to(device), recipe.estimator(device), plan)
        group_index = torch.from_numpy(space.group_index())
        self._group_index = None if torch.equal(group_index, torch.arange(free)) else group_index.to(device)
        self._fixed = torch.tensor([1.0, 0.0], device=device)
        self.history: dict[str, list[float]] = {"step": [], "loss": [], "subset_size": []}

    def run(self) -> Iterator[TrainingProgress]:
        """Train from the present step to the last; tells now and then where it stands, and is whole whenever it does.

        Raises:
            FloatingPointError: The training diverges.
        """
        for step, loss in self.joint.reports(self._batch, _REPORTS):
            size = self.joint.size_at(step - 1) + len(self.space.always)
            for name, value in {"step": step, "loss": loss, "subset_size": size}.items():
                self.history[name].append(value)
            yield TrainingProgress(step, self.recipe.steps, size, loss, self.support())

    def _batch(self) -> Batch:
        rows = self._batches.draw(self.joint.generator)
        x = self._rows[rows]
        truth = x if self._truth is None else self._truth[rows.to(self.device)]
        return Batch(functools.partial(self._losses, clipped(x), truth), rows=len(x))

    def _losses(self, x: Tensor, truth: Tensor, subsets: Tensor) -> Tensor:
        """Subsets of units `(S, B, u)`, or `(1, 1, u)` -> `(S, B)`."""
        inputs = (self._columns(subsets) * x).flatten(0, 1)
        return self.target.loss(self.joint.network(inputs).unflatten(0, (-1, len(x))), truth)

    def _columns(self, subsets: Tensor) -> Tensor:
        """Subsets of the free units `(..., u)` as columns `(..., n)`."""
        if self._group_index is None:
            return subsets
        return torch.cat(
            [subsets[..., : len(self.space.free)], self._fixed.expand(*subsets.shape[:-1], 2)], -1
        ).index_select(-1, self._group_index)

    def inclusion(self) -> NDArray[np.float64]:
        """Inclusion probabilities of the free units, in the distribution that has been learned, `(u)`."""
        logits = self.logits.double()
        return KSubset(self.space.size, logits, validate_args=False).mean.cpu().numpy() if len(logits) else np.empty(0)

    @property
    def logits(self) -> Tensor:
        """Of the free units, `(u)`."""
        logits: Tensor = self._gate.logits.detach()
        return logits[: len(self.space.free)]

    @torch.no_grad()
    def support(self) -> NDArray[np.bool_]:
        """The columns of the likeliest subset, `(n)`."""
        return self.space.support(self._gate().mode.nonzero().flatten().cpu().numpy())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step and the history depend on."""
        return {"joint": self.joint.state_dict(), "history": self.history}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; a LookupError or RuntimeError if it was another training."""
        self.joint.load_state_dict(state["joint"])
        self.history = state["history"]
