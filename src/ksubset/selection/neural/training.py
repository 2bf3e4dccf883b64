"""The training of a network together with the distribution of the columns that it sees."""

import io
import math
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ksubset._support.files import write
from ksubset.distributions import KSubset
from ksubset.estimators import Estimator, expectation
from ksubset.numerics import top_k
from ksubset.schedules import ExponentialSchedule
from ksubset.selection.groups import SubsetSpace
from ksubset.selection.neural.batches import Batches, Rows
from ksubset.selection.neural.targets import Target

__all__ = ["Recipe", "Training", "TrainingProgress", "clipped", "load", "save", "seeded"]

# Share of the steps in which the columns are chosen; in the others the network is trained alone, on those chosen.
_SELECTING = 0.6
# The size of the subsets falls to k from at most so many units, and at most from half of them, over the first half of
# the selection: large subsets show each column to the network often.
_LARGEST, _UNTIL = 100, 0.5
# As of a prior: with N rows that differ the weights decay, while the network is trained alone, by this over N times the
# learning rate in a step; at most by this share, at the highest rate.
_WEIGHT_DECAY, _MOST_DECAY = 3_000.0, 0.02
_CLIP = 5.0
_REPORTS = 50


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training stands, as callbacks are told.

    Arguments:
        step: Steps made.
        steps: Steps to make.
        subset_size: Size of the subsets in the last of them, which falls to k; units that are always kept count.
        loss: Mean loss since the last time.
        support: The columns that are likeliest at present, `(n)`, boolean.
    """

    step: int
    steps: int
    subset_size: int
    loss: float
    support: NDArray[np.bool_]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Arguments:
        steps: Steps of the optimizer.
        learning_rate, logits_learning_rate: Of the network and of the logits, at first.
        estimator: Of the gradient for the logits.
        num_samples: Subsets of each example in a step.
    """

    steps: int
    learning_rate: float
    logits_learning_rate: float
    estimator: Estimator
    num_samples: int


def clipped(rows: Tensor) -> Tensor:
    """Standardised values as the network sees them: a column that is hardly ever not 0 has huge ones."""
    return rows.clamp(-_CLIP, _CLIP)


class Training:
    """A network and the logits of the units, trained together, then the network alone on the chosen columns.

    Random numbers are torch's own, except those of the batches: whoever runs it seeds them.

    Arguments:
        recipe: How to train.
        choice: What subsets are made of.
        network: Maps `(N, n)` to `(N, outputs)`; it is trained in place.
        logits: Of the free units, `(u)`, at first.
        target: What the network predicts.
        rows: The data on the device.
        truth: The encoded target `(N, ...)` on the device; None where it is the data.
        batches: Which rows a step takes.
        device: Where the training runs.
    """

    def __init__(
        self,
        recipe: Recipe,
        choice: SubsetSpace,
        network: nn.Module,
        logits: Tensor,
        target: Target,
        rows: Rows,
        truth: Tensor | None,
        batches: Batches,
        device: torch.device,
    ) -> None:
        self.recipe, self.choice, self.target, self.device = recipe, choice, target, device
        self._rows, self._truth, self._batches = rows, truth, batches
        self.network = network.to(device)
        self.logits = logits.clone().to(device).requires_grad_()
        self._decay = min(_WEIGHT_DECAY / batches.num_distinct, _MOST_DECAY / recipe.learning_rate)
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [self.logits], "lr": recipe.logits_learning_rate, "weight_decay": 0.0},
                {"params": list(network.parameters()), "lr": recipe.learning_rate, "weight_decay": 0.0},
            ],
            fused=True,
        )
        free = len(choice.free)
        # All or none of the units is no choice.
        self.selecting = round(_SELECTING * recipe.steps) if 0 < choice.size < free else 0
        """Steps after which the network is trained alone."""
        largest = max(choice.size, min(_LARGEST, free // 2))
        self._size = ExponentialSchedule(largest, choice.size, _UNTIL) if self.selecting else None
        owners = torch.from_numpy(choice.group_index())
        self._owners = None if torch.equal(owners, torch.arange(free)) else owners.to(device)
        self._fixed = torch.tensor([1.0, 0.0], device=device)
        self.step = 0
        self.history: dict[str, list[float]] = {"step": [], "loss": [], "subset_size": []}

    def run(self) -> Iterator[TrainingProgress]:
        """Train from the present step to the last; tells now and then where it stands, and is whole whenever it does.

        Raises:
            FloatingPointError: The training diverges.
        """
        steps = self.recipe.steps
        every = max(1, steps // _REPORTS)
        total, count = torch.zeros((), device=self.device), 0
        self.network.train()
        while self.step < steps:
            total += self._step()
            count += 1
            if self.step % every == 0 or self.step == steps:
                loss = float(total) / count  # seldom, as reading a number off a GPU waits for it
                if not math.isfinite(loss):
                    raise FloatingPointError(
                        f"the training diverged before step {self.step}: expected finite losses, got {loss}; try a "
                        f"smaller learning_rate than {self.recipe.learning_rate}"
                    )
                size = self._subset_size(self.step - 1) + len(self.choice.always)
                for name, value in {"step": self.step, "loss": loss, "subset_size": size}.items():
                    self.history[name].append(value)
                total, count = torch.zeros((), device=self.device), 0
                yield TrainingProgress(self.step, steps, size, loss, self.support())

    def _step(self) -> Tensor:
        """One step of the optimizer; returns the mean loss."""
        selecting = self.step < self.selecting
        of_logits, of_network = self._optimizer.param_groups
        of_logits["lr"] = self.recipe.logits_learning_rate * _cosine(self.step / max(self.selecting, 1))
        of_network["lr"] = self.recipe.learning_rate * _cosine(self.step / self.recipe.steps)
        # Masks regularise enough, and decaying weights would not learn what columns say only together.
        of_network["weight_decay"] = 0.0 if selecting else self._decay
        rows = self._batches.draw()
        x = self._rows[rows]
        truth = x if self._truth is None else self._truth[rows.to(self.device)]
        x = clipped(x)

        def losses(subsets: Tensor) -> Tensor:
            """Subsets of units `(S, B, u)` -> `(S, B)`."""
            inputs = (self._columns(subsets) * x).flatten(0, 1)
            return self.target.loss(self.network(inputs).unflatten(0, (-1, len(x))), truth)

        if selecting:
            dist = KSubset(self._subset_size(self.step), self.logits, validate_args=False).expand((len(x),))
            loss = expectation(losses, dist, self.recipe.estimator, self.recipe.num_samples)
        else:
            loss = losses(self.mode()[None, None])[0]
        self._optimizer.zero_grad()
        # Not the mean: some estimators have a constant that belongs to the loss of a single subset.
        loss.sum().backward()
        if self.logits.grad is not None:
            # NaN is reported with the loss; NaN logits would make the next draw fail on some index, far from the cause.
            self.logits.grad.nan_to_num_(0.0, 0.0, 0.0)
        self._optimizer.step()
        self.step += 1
        return loss.detach().mean()

    def _subset_size(self, step: int) -> int:
        """Free units in the subsets of a step."""
        if self._size is None:
            return self.choice.size
        return self._size.rounded(min(step / self.selecting, 1.0))

    def _columns(self, subsets: Tensor) -> Tensor:
        """Subsets of the free units `(..., u)` as columns `(..., n)`."""
        if self._owners is None:
            return subsets
        return torch.cat([subsets, self._fixed.expand(*subsets.shape[:-1], 2)], -1).index_select(-1, self._owners)

    def inclusion(self) -> NDArray[np.float64]:
        """Inclusion probabilities of the free units, in the distribution that has been learned, `(u)`."""
        if not len(self.logits):
            return np.empty(0)
        return KSubset(self.choice.size, self.logits.detach().double(), validate_args=False).mean.cpu().numpy()

    def mode(self) -> Tensor:
        """The likeliest subset of the free units, `(u)`."""
        return top_k(self.logits.detach(), self.choice.size)

    def support(self) -> NDArray[np.bool_]:
        """Its columns, `(n)`."""
        return self.choice.support(self.mode().nonzero().flatten().cpu().numpy())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, the state of torch's generators included."""
        state = {
            "step": self.step,
            "history": self.history,
            "logits": self.logits.detach(),
            "network": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "estimator": self.recipe.estimator.state_dict(),
            "batches": self._batches.generator.get_state(),
            "random": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            KeyError, RuntimeError: The state is that of another training.
        """
        with torch.no_grad():
            self.logits.copy_(state["logits"])
        self.network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.recipe.estimator.load_state_dict(state["estimator"])
        self._batches.generator.set_state(state["batches"])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.step, self.history = state["step"], state["history"]


def load(path: Path) -> dict[str, Any]:
    """What `save` has written.

    Raises:
        ValueError: The file is of another kind.
    """
    try:
        # What torch warns of is a file of another kind, and so an error.
        with warnings.catch_warnings(action="ignore"):
            saved = torch.load(path, map_location="cpu", weights_only=True)
        if saved.keys() != {"fingerprint", "seed", "state"}:
            raise ValueError("it has other entries")
    # A file of another kind fails in one of these ways: no archive, none of tensors alone, not a mapping.
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, ValueError) as error:
        raise ValueError(f"checkpoint: expected a file of a NeuralSubsetSelector, got {path} ({error!r})") from error
    return dict(saved)


def save(path: Path, training: Training, fingerprint: str, seed: int) -> None:
    """Write the state of a training, and whose it is.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    content = io.BytesIO()
    torch.save({"fingerprint": fingerprint, "seed": seed, "state": training.state_dict()}, content)
    write(path, content.getvalue())


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's generators, and leave them afterwards as they were."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if cuda else []):
        # torch.manual_seed would also seed the devices that are not put back.
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _cosine(share: float) -> float:
    return (1 + math.cos(math.pi * min(share, 1.0))) / 2
