"""The selector of items for each row, and what is trained: a surrogate on random subsets, then the selector."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ksubset.applications.explain.answers import Model, distance
from ksubset.applications.explain.inputs import Inputs
from ksubset.distributions import KSubset
from ksubset.estimators import Estimator, LeaveOneOut
from ksubset.nn import FeatureGate, SubsetHead
from ksubset.training import Batch, JointTraining, Plan

__all__ = ["Answer", "Examples", "Recipe", "RowHead", "Training", "random_subsets", "spread"]


# Of the weight of the squared logits, what is left at the end.
_LEFT = 0.01
# Decay of the weights: simple selectors generalise, and the surrogate sees each row under ever other subsets.
_SELECTOR_DECAY, _SURROGATE_DECAY = 0.1, 1e-3
_REPORTS = 20


class RowHead(SubsetHead):
    """A `SubsetHead` of rows that may have fewer items than k: those of fewer keep all they have.

    Shapes:
        rows `(B, ...)`, available `(B, n)`, boolean -> `KSubset` with logits `(B, n)`.
    """

    def forward(self, *inputs: Tensor) -> KSubset:
        rows, available = inputs
        logits = self.score(rows)
        if logits.shape != available.shape:
            raise ValueError(
                f"selector: expected logits {tuple(available.shape)}, one for each item, got {tuple(logits.shape)}"
            )
        return self.distribution(logits, available, self.k, self.validate_args)

    @staticmethod
    def distribution(logits: Tensor, available: Tensor, k: int | Tensor, validate_args: bool | None) -> KSubset:
        """Of subsets of k available items, of all where there are fewer; k an integer or `(B)`."""
        sizes = available.sum(-1).clamp(max=k)
        # One size for all rows is faster.
        same = isinstance(k, int) and bool((sizes == k).all())
        logits = torch.where(available, logits, -math.inf)
        return KSubset(k if same else sizes, logits, validate_args=validate_args)


def spread(dist: Any) -> Tensor:
    """Sum of squares of the logits less their mean, over the items that a row has: logits `(B, n)` -> `(B)`."""
    available = dist.logits.isfinite()
    logits = torch.where(available, dist.logits, 0.0)
    mean = logits.sum(-1, keepdim=True) / available.sum(-1, keepdim=True).clamp(min=1)
    squares: Tensor = torch.where(available, logits - mean, 0.0).square().sum(-1)
    return squares


@dataclass(frozen=True)
class Recipe:
    """How to train, in the arguments of `SubsetExplainer` of these names, checked."""

    steps: int
    batch_size: int
    num_samples: int
    learning_rate: float
    regularization: float
    surrogate_steps: int
    surrogate_learning_rate: float
    seed: int


@dataclass(frozen=True)
class Examples:
    """What both trainings go through, on the device.

    Arguments:
        rows: As the model takes them, `(N, *shape)`.
        seen: As our networks take them, `(N, ...)`.
        available: Items that each row has, `(N, n)`, boolean.
        wanted: Answers to be preserved, `(N, C)`.
    """

    rows: Tensor
    seen: Tensor
    available: Tensor
    wanted: Tensor

    def __getitem__(self, index: Tensor) -> "Examples":
        """Some of them; index `(B)`."""
        index = index.to(self.rows.device)
        return Examples(self.rows[index], self.seen[index], self.available[index], self.wanted[index])

    def __len__(self) -> int:
        return len(self.rows)


class Answer:
    """Answers on subsets `(S, B, items)` of examples: log-probabilities or values `(S, B, C)`."""

    def __init__(self, inputs: Inputs, source: Any, *, values: bool) -> None:
        self._inputs, self._source, self.values = inputs, source, values

    def __call__(self, subsets: Tensor, some: Examples) -> Tensor:
        if isinstance(self._source, Model):
            answers = self._source(self._inputs.filled(some.rows, subsets))
        else:
            answers = self._source(*self._inputs.shown(some.seen, subsets))
            answers = answers if self.values else answers.log_softmax(-1)
        result: Tensor = answers.unflatten(0, subsets.shape[:2])
        return result


def random_subsets(available: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Subsets of k items or more, of sizes with a uniform logarithm, that depend on nothing but what rows have.

    Shapes:
        available `(B, n)`, boolean -> `(B, n)`.
    """
    keys = torch.rand(available.shape, generator=generator).to(available.device)
    share = torch.rand(len(available), generator=generator).to(available.device)
    most = available.sum(-1)
    least = most.clamp(max=max(k, 1))
    # The logarithm of sizes from `least` to one below `most + 1`, so that each of few sizes is as likely.
    size = (least * ((most + 1) / least) ** share).floor()
    ranks = torch.where(available, keys, 2.0).argsort(-1).argsort(-1)
    return ((ranks < size[:, None]) & available).float()


class Training:
    """A surrogate trained on random subsets, if there is one, then a head against what answers on its subsets.

    Random subsets say nothing of the row, so that a surrogate cannot read the answer from what was chosen, as one that
    is trained together with the selector can (Jethani et al. 2021). The squares of the logits are a part of the
    selector's loss, the less the later: that keeps several subsets likely as long as there is little to choose between
    them, and finds a way out of sets that are the same for all rows.

    Arguments:
        head: It is trained in place.
        surrogate: Likewise, with the parameters that `answer` uses; None if it uses none.
        answer: Subsets `(S, B, n)` and the examples that they are of -> answers `(S, B, C)`.
        estimator: Of the gradient, as `JointTraining` takes it.
        examples: What is explained.
        scale: Of values, as `distance` takes it.
        recipe: How to train.
    """

    def __init__(
        self,
        head: RowHead,
        surrogate: nn.Module | None,
        answer: Callable[[Tensor, Examples], Tensor],
        estimator: Estimator | Callable[[float], Estimator],
        examples: Examples,
        scale: Tensor | None,
        recipe: Recipe,
    ) -> None:
        self._head, self._surrogate, self._answer = head, surrogate, answer
        self._examples, self._scale, self._recipe = examples, scale, recipe
        self.stages: dict[str, JointTraining] = {}
        """Surrogate and selector."""
        common: dict[str, Any] = {"cosine": True, "optimizer": torch.optim.AdamW, "seed": recipe.seed}
        if surrogate is not None and recipe.surrogate_steps:
            rates = {"lr": recipe.surrogate_learning_rate, "weight_decay": _SURROGATE_DECAY}
            plan = Plan(recipe.surrogate_steps, selector={}, network=rates, selecting=0, **common)
            # Nothing is selected yet.
            gate = FeatureGate(1, 1).to(examples.rows.device)
            self.stages["surrogate"] = JointTraining(gate, surrogate, LeaveOneOut(), plan)
        rates = {"lr": recipe.learning_rate, "weight_decay": _SELECTOR_DECAY}
        plan = Plan(recipe.steps, selector=rates, network={}, num_samples=recipe.num_samples, **common)
        self.stages["selector"] = JointTraining(head, nn.Module(), estimator, plan)
        self.history: dict[str, list[float]] = {"step": [], "loss": []}

    def run(self) -> Iterator[str]:
        """Train from the present step to the last; says now and then where it stands, and is whole whenever it does.

        Raises:
            FloatingPointError: A training diverges.
        """
        for name, joint in self.stages.items():
            if name == "selector" and self._surrogate is not None:
                self._surrogate.eval().requires_grad_(requires_grad=False)
            draw = self._surrogate_batch if name == "surrogate" else self._selector_batch
            for step, loss in joint.reports(draw, _REPORTS):
                if name == "selector":
                    self.history["step"].append(step)
                    self.history["loss"].append(loss)
                yield f"{name}: step {step} of {joint.num_steps}, loss {loss:.4g}"

    def _some(self, joint: JointTraining) -> Examples:
        return self._examples[torch.randint(len(self._examples), (self._recipe.batch_size,), generator=joint.generator)]

    def _surrogate_batch(self) -> Batch:
        joint = self.stages["surrogate"]
        some = self._some(joint)
        subsets = random_subsets(some.available, self._head.k, joint.generator)[None]
        return Batch(lambda _: distance(self._answer(subsets, some), some.wanted, self._scale))

    def _selector_batch(self) -> Batch:
        joint = self.stages["selector"]
        some = self._some(joint)
        weight = self._recipe.regularization * _LEFT ** (joint.steps / joint.num_steps)

        def losses(subsets: Tensor) -> Tensor:
            # Where the gradient does not flow through the subsets, the answers need no graph.
            with torch.set_grad_enabled(subsets.requires_grad):
                return distance(self._answer(subsets, some), some.wanted, self._scale)

        return Batch(losses, inputs=(some.seen, some.available), penalty=lambda dist: weight * spread(dist))

    def identity(self, **values: Any) -> dict[str, str]:
        """What the trainings depend on, as named digests: call it before the first step."""
        if "surrogate" not in self.stages:
            # What answers is no part of them: it is told by its answers on some subsets.
            few, generator = self._examples[torch.arange(min(32, len(self._examples)))], torch.Generator()
            if self._surrogate is not None:
                self._surrogate.eval()
            with torch.no_grad():
                subsets = random_subsets(few.available, self._head.k, generator.manual_seed(0))[None]
                values["answers on subsets"] = self._answer(subsets, few)
        stages = [joint.identity(**(values if not place else {})) for place, joint in enumerate(self.stages.values())]
        return {f"{name}.{key}": digest for name, stage in zip(self.stages, stages, strict=True)
                for key, digest in stage.items()}  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step and the history depend on."""
        return {"history": self.history, **{name: joint.state_dict() for name, joint in self.stages.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        for name, joint in self.stages.items():
            joint.load_state_dict(state[name])
        self.history = state["history"]
