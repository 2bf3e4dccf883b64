"""The training of a selector together with a network, then of the network alone."""

import dataclasses
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ksubset._support.identity import digests
from ksubset.distributions import SubsetDistribution
from ksubset.estimators import Estimator, expectation
from ksubset.training.plan import Batch, Plan
from ksubset.training.rng import get_random_state, set_random_state

__all__ = ["JointTraining"]


class JointTraining:
    """A selector, a network, and the estimator of the gradient between them, trained together by an optimizer.

    Everything is trained where it lies: move modules to their device before. Random numbers are torch's own, except
    those that an application draws from `generator`: whoever trains seeds them, best within `seeded`. In 'eval' mode
    modules are put into 'train' mode by a step, the selector in the first phase only.

    Arguments:
        selector: A module that returns a distribution, such as `ksubset.nn.FeatureGate` and `ksubset.nn.SubsetHead`;
            where the plan has sizes, its attribute `k` is set to them, and is the last one.
        network: A module that the losses of the batches use.
        estimator: Of the gradient of the selector; or a function that gives it for the progress of the selection in
            [0, 1], always the same one if it has a state or parameters.
        plan: How to train.

    Raises:
        TypeError: `selector` or `network` is no module, `estimator` is neither, or `plan` is none.
        ValueError: The selector has no parameters, or a `k` that the sizes of the plan do not end with.

    Attributes:
        steps: Number of steps made.
        generator: On the CPU, for what the application draws, such as the order of its batches; a part of the state.
        optimizer: Its first group of parameters is that of the selector, its second that of the network.

    Example:
        >>> from ksubset import LeaveOneOut
        >>> from ksubset.nn import FeatureGate
        >>> from ksubset.training import seeded
        >>> x = torch.randn(256, 8)
        >>> with seeded(0):
        ...     gate, network = FeatureGate(8, k=1), nn.Linear(8, 1)
        ...     plan = Plan(300, selector={"lr": 0.05}, network={"lr": 0.05}, num_samples=4, selecting=200)
        ...     training = JointTraining(gate, network, LeaveOneOut(), plan)
        ...     batch = Batch(lambda z: (network(z * x).squeeze(-1) - x[:, 3]).square(), rows=len(x))
        ...     for _ in training.run(lambda: batch):
        ...         pass
        >>> gate().mode
        tensor([0., 0., 0., 1., 0., 0., 0., 0.])
    """

    def __init__(
        self, selector: nn.Module, network: nn.Module, estimator: Estimator | Callable[[float], Estimator], plan: Plan
    ) -> None:
        for name, module in (("selector", selector), ("network", network)):
            if not isinstance(module, nn.Module):
                raise TypeError(f"{name} must be a module, got {module!r}")
        if not isinstance(plan, Plan):
            raise TypeError(f"plan must be a Plan, got {plan!r}")
        self.selector: Any = selector
        self.network, self.plan = network, plan
        if isinstance(estimator, type) or not callable(estimator):
            raise TypeError(
                "estimator must be an instance of Estimator, such as LeaveOneOut(), or a function that gives one, got "
                f"{estimator!r}"
            )
        if plan.size is not None and plan.size.rounded(1.0) != self.selector.k:
            raise ValueError(
                f"plan.size must end with the k of the selector, {self.selector.k}, got {plan.size.rounded(1.0)}"
            )
        self._estimator = estimator
        self._selector_parameters = [*selector.parameters(), *self._estimator_at(0.0).parameters()]
        if not self._selector_parameters:
            raise ValueError(f"selector must have parameters, got {selector!r}")
        self._parameters = [*self._selector_parameters, *network.parameters()]
        self._device = self._selector_parameters[0].device
        self.selecting = plan.rounds if plan.selecting is None else plan.selecting
        """Rounds of the first phase."""
        faster: dict[str, Any] = {"fused": True} if "fused" in inspect.signature(plan.optimizer).parameters else {}
        self.optimizer: Optimizer = plan.optimizer(
            [
                {"params": self._selector_parameters, **plan.selector},
                {"params": list(network.parameters()), **plan.network},
            ],
            **faster,
        )
        for name in ("selector", "network", "tuning"):
            # torch keeps a setting that no optimizer has, and goes on with the defaults.
            if unknown := sorted(set(getattr(plan, name)) - set(self.optimizer.defaults)):
                raise ValueError(
                    f"plan.{name}: expected settings of {type(self.optimizer).__name__}, "
                    f"{', '.join(self.optimizer.defaults)}, got {', '.join(unknown)}"
                )
            # Nor does it look at what a group has in place of its defaults.
            try:
                plan.optimizer([torch.empty(0)], **getattr(plan, name))
            except (TypeError, ValueError) as error:
                raise type(error)(f"plan.{name}: {error}") from error
        self._settings = [dict(group) for group in self.optimizer.param_groups]
        self.generator = torch.Generator().manual_seed(operator.index(plan.seed))
        self.steps = 0
        self._reported = 0
        self._loss, self._broken = torch.zeros(2, device=self._device)

    @property
    def round(self) -> int:
        """The round, from 0, that the next step belongs to."""
        return self.steps // self.plan.steps_per_round

    @property
    def num_steps(self) -> int:
        """Number of steps of the whole training."""
        return self.plan.rounds * self.plan.steps_per_round

    @property
    def is_tuning(self) -> bool:
        """Whether the next step is of the second phase."""
        return self.round >= self.selecting

    def size_at(self, round: int) -> Any:
        """Size of the subsets in a round."""
        if self.plan.size is None or round >= self.selecting:
            return self.selector.k
        return self.plan.size.rounded(self._progress(round))

    def run(self, draw: Callable[[], Batch]) -> Iterator[int]:
        """Make the steps that are left; gives their number after each, and is whole whenever it does.

        Arguments:
            draw: Gives the next batch.

        Raises:
            FloatingPointError: The training has diverged, which is looked at ten times, and after the last step.
            TypeError: `draw` gives something else.
            ValueError: `draw` is `next` of an iterator that has come to its end.
        """
        every = max(1, self.num_steps // 10)
        while self.round < self.plan.rounds:
            try:
                batch = draw()
            except StopIteration as error:
                raise ValueError(
                    f"draw: expected a batch for each of {self.num_steps} steps, got none after {self.steps}"
                ) from error
            if not isinstance(batch, Batch):
                raise TypeError(f"draw: expected a function that gives a Batch, got {type(batch).__name__} from it")
            self.step(batch)
            if self.steps % every == 0 or self.steps == self.num_steps:
                self._checked_loss()
            yield self.steps

    def reports(self, draw: Callable[[], Batch], number: int) -> Iterator[tuple[int, float]]:
        """As `run`, but gives some steps alone, the last among them, each with the mean loss since the one before.

        Arguments:
            draw: Gives the next batch.
            number: How many, about.

        Raises:
            ValueError: `number` is below 1.
            FloatingPointError: The training diverges.
        """
        if number < 1:
            raise ValueError(f"number must be 1 or more, got {number}")
        every = max(1, self.num_steps // number)
        try:
            for step in self.run(draw):
                if step % every == 0 or step == self.num_steps:
                    yield step, self.mean_loss()
        except FloatingPointError as error:
            rates = (settings["lr"] for settings in (self.plan.selector, self.plan.network) if "lr" in settings)
            raise FloatingPointError(f"{error}; try a smaller learning_rate than {max(rates, default=None)}") from error

    def step(self, batch: Batch) -> None:
        """Make a step."""
        selecting = not self.is_tuning
        for module, mode in ((self.network, True), (self.selector, selecting)):
            if module.training != mode:
                module.train(mode)
        self._set_rates()
        if selecting:
            dist = self._distribution(batch.inputs)
            if batch.rows is not None:
                dist = dist.expand((batch.rows,))
            estimator = self._estimator_at(self._progress(self.round))
            loss = expectation(batch.losses, dist, estimator, self.plan.num_samples).mean()
            if batch.penalty is not None:
                loss = loss + batch.penalty(dist).mean()
        else:
            with torch.no_grad():
                mode_of = self._distribution(batch.inputs).mode
            loss = batch.losses(mode_of[None] if batch.rows is None else mode_of[None, None]).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self._selector_parameters:
            if parameter.grad is not None:
                self._broken += (~parameter.grad.isfinite()).sum()
                # Counted, so not hidden: NaN logits would make the next draw fail on some index, far from the cause.
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        self.optimizer.step()
        self._loss += loss.detach()
        self.steps += 1

    def mean_loss(self) -> float:
        """The mean loss of the steps since the last call; waits for a GPU, so call it seldom.

        Raises:
            FloatingPointError: The training diverges: a loss, gradient or parameter is not finite.
        """
        loss = self._checked_loss()
        self._loss.zero_()
        self._reported = self.steps
        return loss

    def _checked_loss(self) -> float:
        loss = float(self._loss) / max(self.steps - self._reported, 1)
        if not (math.isfinite(loss) and self._broken == 0 and all(bool(p.isfinite().all()) for p in self._parameters)):
            raise FloatingPointError(
                f"the training diverged before step {self.steps}: expected finite losses, gradients and parameters, "
                f"got a mean loss of {loss}"
            )
        return loss

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of everything that the next step depends on, the state of torch's generators included, by name."""
        state = {"steps": torch.tensor(self.steps), "reported": torch.tensor(self._reported)}
        state |= {"loss": self._loss, "broken": self._broken, "generator": self.generator.get_state()}
        parts = {name: module.state_dict() for name, module in self._modules().items()}
        parts["random"] = get_random_state(self._device)
        parts |= {f"optimizer.{key}": moments for key, moments in self.optimizer.state_dict()["state"].items()}
        state |= {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        return {name: value.clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was called.

        Raises:
            LookupError, RuntimeError: The state is that of another training.
        """
        for name, module in self._modules().items():
            module.load_state_dict(_part(state, name))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _part(state, "optimizer").items():
            number, _, moment = name.partition(".")
            # The optimizer walks through memory, so moments must lie in it as their parameter does.
            like = self._parameters[int(number)] if value.ndim else value
            moments.setdefault(int(number), {})[moment] = torch.empty_like(like).copy_(value)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        self.generator.set_state(state["generator"])
        set_random_state(_part(state, "random"), self._device)
        self._loss.copy_(state["loss"])
        self._broken.copy_(state["broken"])
        self.steps, self._reported = int(state["steps"]), int(state["reported"])

    def identity(self, **values: Any) -> dict[str, str]:
        """What the training depends on, as named digests: call it before the first step.

        Arguments:
            values: What else it depends on, such as data, by name.

        Raises:
            TypeError: A value or an attribute of a module cannot be pickled.
            ImportError: joblib is missing.
        """
        for attribute in dataclasses.fields(self.plan):
            values[f"plan.{attribute.name}"] = getattr(self.plan, attribute.name)
        # Of a function, whatever it changes over the rounds.
        at = {f"estimator at {progress}": self._estimator_at(progress) for progress in (0.25, 0.5, 0.75, 1.0)}
        modules = self._modules()
        if at["estimator at 1.0"] is not modules["estimator"]:
            modules |= at
        for name, module in modules.items():
            values |= _contents(name, module)
        return digests(values)

    def _modules(self) -> dict[str, nn.Module]:
        return {"selector": self.selector, "network": self.network, "estimator": self._estimator_at(0.0)}

    def _estimator_at(self, progress: float) -> Estimator:
        return self._estimator if isinstance(self._estimator, Estimator) else self._estimator(progress)

    def _progress(self, round: int) -> float:
        annealing = self.selecting - 1 if self.plan.annealing is None else self.plan.annealing
        return min(round / annealing, 1.0) if annealing > 0 else 1.0

    def _distribution(self, inputs: tuple[Any, ...]) -> SubsetDistribution:
        """What the selector returns, of subsets of the present size."""
        if self.plan.size is None:
            return self.selector(*inputs)  # type: ignore[no-any-return]
        last = self.selector.k
        self.selector.k = self.size_at(self.round)
        try:
            return self.selector(*inputs)  # type: ignore[no-any-return]
        finally:
            self.selector.k = last

    def _set_rates(self) -> None:
        plan, (selector, network) = self.plan, self.optimizer.param_groups
        for group, settings in zip((selector, network), self._settings, strict=True):
            group.update(settings)
        if self.is_tuning:
            network.update(plan.tuning)
        if plan.cosine:
            # Not in place: a rate that is a tensor is the caller's.
            selector["lr"] = selector["lr"] * _cosine(self.round / max(self.selecting, 1))
            network["lr"] = network["lr"] * _cosine(self.round / plan.rounds)


def _contents(name: str, module: nn.Module) -> dict[str, Any]:
    """Of a module and all in it: the class, public attributes, parameters and buffers of each, by dotted name."""
    values: dict[str, Any] = {}
    for path, part in module.named_modules(prefix=name):
        values[path] = f"{type(part).__module__}.{type(part).__qualname__}"
        # Whether it trains is up to whoever trains it.
        own = {key: value for key, value in vars(part).items() if not key.startswith("_") and key != "training"}
        values |= {f"{path}.{key}": value for key, value in own.items()}
    return values | {f"{name}.{key}": value for key, value in module.state_dict().items()}


def _part(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def _cosine(share: float) -> float:
    return (1 + math.cos(math.pi * min(share, 1.0))) / 2
