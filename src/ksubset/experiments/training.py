"""The state of a run, and an epoch of it."""

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ksubset import KSubset
from ksubset.estimators import Estimator, expectation
from ksubset.experiments import methods
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks.base import Network, Task
from ksubset.schedules import ExponentialSchedule

__all__ = ["Training", "mixed_precision"]

_EXAMPLE_IMAGES = 3
_EVALUATION_CHUNK = 1024


def mixed_precision(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; elsewhere mixed precision would only be slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class Training:
    """Selector, network and optimizer of a run, with the data on the device.

    Arguments:
        config: the run's knobs, with ``k`` resolved.
        data: the data set.
        task: what the network does.
        device: where to train.
    """

    def __init__(self, config: RunConfig, data: DataSplit, task: Task, device: torch.device) -> None:
        assert config.k is not None
        self.config, self.task, self.device, self.k = config, task, device, config.k
        self.mixed = config.precision == "mixed" and mixed_precision(device)
        self.estimator = methods.find(config.method).prepare(config)
        self.size = ExponentialSchedule(config.k_start or self.k, self.k, config.k_until)
        self.train = (data.train_images.to(device), data.train_labels.to(device))
        self.validation = (data.validation_images.to(device), data.validation_labels.to(device))
        self.test = (data.test_images.to(device), data.test_labels.to(device))
        share = torch.full((data.side**2,), self.k / data.side**2)
        self.logits = share.logit().to(device).requires_grad_()
        self.network: Network = task.network().to(device)
        self.optimizer = torch.optim.Adam(
            [
                {"params": [self.logits], "lr": config.selector_lr, "betas": (config.selector_beta1, 0.999)},
                {
                    "params": list(self.network.parameters()),
                    "lr": config.network_lr,
                    "betas": (0.9, 0.999),
                    "weight_decay": config.weight_decay,
                },
            ],
            fused=True,
        )
        self.order = torch.Generator(device).manual_seed(config.seed)

    def epoch(self, number: int, interrupted: Callable[[], bool]) -> dict[str, Any] | None:
        """Train for an epoch and validate: the entry of the history, or None if interrupted before its end.

        Raises:
            FloatingPointError: the training diverges.
        """
        start = time.perf_counter()
        config = self.config
        images, labels = self.train
        selecting = max(config.epochs - round(config.tuning * config.epochs), 1)
        done = min((number - 1) / max(selecting - 1, 1), 1.0)
        self._set_learning_rates(number, selecting)
        tuning = number > selecting
        if tuning:
            loss_of_batch = functools.partial(self._tuning_loss, self.mode())
        else:
            loss_of_batch = functools.partial(self._selection_loss, self.estimator(done), self.size.rounded(done))
        sums: dict[str, Tensor] = {}
        self.network.train()
        for index in torch.randperm(len(images), generator=self.order, device=images.device).split(config.batch_size):
            if interrupted():
                return None
            loss = loss_of_batch(images[index], labels[index], sums)
            self.optimizer.zero_grad()
            loss.backward()
            if self.logits.grad is not None:
                _add(sums, {"broken": (~self.logits.grad.isfinite()).sum()})
                # Counted, so not hidden: NaN logits would make the next draw fail on some index, far from the cause.
                self.logits.grad.nan_to_num_(0.0, 0.0, 0.0)
            self.optimizer.step()
        mean_loss = float(sums["loss"]) / float(sums["losses"])
        # Once an epoch, as reading a number off a GPU waits for it.
        if not math.isfinite(mean_loss) or sums.get("broken", 0) > 0:
            raise FloatingPointError(
                f"{config.name()}: the training diverged in epoch {number} (mean loss {mean_loss}); expected finite "
                f"losses and gradients: try a smaller selector_lr ({config.selector_lr}) or network_lr "
                f"({config.network_lr})"
            )
        return {
            "epoch": number,
            "loss": mean_loss,
            "train": self.task.metrics(sums),
            "validation": self.evaluate(*self.validation),
            "evaluations": len(images) * (1 if tuning else config.samples),
            "seconds": time.perf_counter() - start,
        }

    def _set_learning_rates(self, number: int, selecting: int) -> None:
        selector, network = self.optimizer.param_groups
        if self.config.lr_schedule == "cosine":
            selector["lr"] = self.config.selector_lr * _cosine((number - 1) / selecting)
            network["lr"] = self.config.network_lr * _cosine((number - 1) / self.config.epochs)

    def _selection_loss(self, estimator: Estimator, size: int, x: Tensor, y: Tensor, sums: dict[str, Tensor]) -> Tensor:
        """The mean loss of a batch, whose backward pass trains the selector and the network."""
        shared = self.config.subsets_per == "batch"
        # Hard subsets that need no gradient let the first layer skip the columns that are not selected.
        k = size if shared and not estimator.needs_gradient else None

        def loss_of(z: Tensor) -> Tensor:
            """Loss `(S,)` of subsets `(S, n)` shared by the batch, or `(S, B)` of subsets `(S, B, n)`."""
            loss = self._losses(x, y, z.unsqueeze(-2) if shared else z, k, sums)
            return loss.mean(-1) if shared else loss

        dist = KSubset(size, logits=self.logits, validate_args=False)
        if not shared:
            dist = dist.expand((len(x),))
        return expectation(loss_of, dist, estimator, self.config.samples).mean()

    def _tuning_loss(self, mask: Tensor, x: Tensor, y: Tensor, sums: dict[str, Tensor]) -> Tensor:
        """The mean loss of a batch under a mask `(1, 1, n)`, whose backward pass trains the network alone."""
        return self._losses(x, y, mask, self.k, sums).mean()

    def _losses(self, x: Tensor, y: Tensor, mask: Tensor, k: int | None, sums: dict[str, Tensor]) -> Tensor:
        """Losses `(S, B)` of a batch, whose statistics are added to the sums."""
        output = self._output(x, mask, k)
        loss = self.task.loss(output, x, y)
        with torch.no_grad():
            _add(sums, self.task.statistics(output.detach(), x, y, training=True))
            _add(sums, {"loss": loss.sum(), "losses": torch.tensor(loss.numel())})
        return loss

    def _output(self, x: Tensor, mask: Tensor, k: int | None) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            output: Tensor = self.network(x, mask, k)
        return output.float()

    def mode(self) -> Tensor:
        """The mask of evaluation `(1, 1, n)`, one for all: the k pixels with the largest logits."""
        return KSubset(self.k, logits=self.logits.detach(), validate_args=False).mode[None, None]

    def inclusion(self) -> Tensor:
        """Inclusion probability of each pixel `(n,)`."""
        return KSubset(self.k, logits=self.logits.detach(), validate_args=False).mean

    @torch.no_grad()
    def evaluate(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        """Metrics under the mode."""
        self.network.eval()
        mask = self.mode()
        sums: dict[str, Tensor] = {}
        for x, y in zip(images.split(_EVALUATION_CHUNK), labels.split(_EVALUATION_CHUNK), strict=True):
            _add(sums, self.task.statistics(self._output(x, mask, self.k), x, y, training=False))
        return self.task.metrics(sums)

    @torch.no_grad()
    def pictures(self) -> tuple[Tensor, Tensor] | None:
        """The first test images and what the network makes of them, both `(images, n)`; None if the task makes none."""
        self.network.eval()
        originals = self.test[0][:_EXAMPLE_IMAGES]
        pictures = self.task.images(self._output(originals, self.mode(), self.k))
        return None if pictures is None else (originals, pictures[0])

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next epoch depends on, the state of torch's generators included."""
        state = {"logits": self.logits.detach(), "order": self.order.get_state(), "random": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        state |= {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{number}.{name}": value for name, value in moments.items()}
        state |= {f"estimator.{name}": value for name, value in self.estimator(0.0).state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where :meth:`state_dict` was taken.

        Raises:
            KeyError, RuntimeError: the state is that of another run.
        """
        with torch.no_grad():
            self.logits.copy_(state["logits"])
        self.network.load_state_dict(_part(state, "network."))
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        optimizer = self.optimizer.state_dict()
        for name, value in _part(state, "optimizer.").items():
            number, _, moment = name.partition(".")
            # The optimizer walks through memory, so moments must lie in it as their parameter does.
            like = parameters[int(number)] if value.ndim else value
            optimizer["state"].setdefault(int(number), {})[moment] = torch.empty_like(like).copy_(value)
        self.optimizer.load_state_dict(optimizer)
        self.estimator(0.0).load_state_dict(_part(state, "estimator."))
        self.order.set_state(state["order"])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"], self.device)


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _cosine(share: float) -> float:
    return (1 + math.cos(math.pi * min(share, 1.0))) / 2


def _add(total: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value
