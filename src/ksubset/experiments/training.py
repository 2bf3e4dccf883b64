"""The state of a run, and an epoch of it."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ksubset.experiments import methods
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks.base import Network, Task
from ksubset.nn import FeatureGate
from ksubset.schedules import ExponentialSchedule
from ksubset.training import Batch, JointTraining, Plan

__all__ = ["Training", "mixed_precision"]

_EXAMPLE_IMAGES = 3
_EVALUATION_CHUNK = 1024


def mixed_precision(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; elsewhere mixed precision would only be slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class Training:
    """Selector and network of a run, whose ``k`` is resolved, and their training, with the data on the device."""

    def __init__(self, config: RunConfig, data: DataSplit, task: Task, device: torch.device) -> None:
        assert config.k is not None
        self.config, self.task, self.device, self.k = config, task, device, config.k
        self.mixed = config.precision == "mixed" and mixed_precision(device)
        self.train = (data.train_images.to(device), data.train_labels.to(device))
        self.validation = (data.validation_images.to(device), data.validation_labels.to(device))
        self.test = (data.test_images.to(device), data.test_labels.to(device))
        self.gate = FeatureGate(data.side**2, self.k, validate_args=False)
        with torch.no_grad():
            self.gate.logits.fill_(self.k / data.side**2).logit_()
        self.network: Network = task.network().to(device)
        plan = Plan(
            config.epochs, selector={"lr": config.selector_lr, "betas": (config.selector_beta1, 0.999)},
            network={"lr": config.network_lr, "weight_decay": config.weight_decay}, num_samples=config.samples,
            steps_per_round=-(-len(data.train_images) // config.batch_size),
            selecting=max(config.epochs - round(config.tuning * config.epochs), 1),
            size=ExponentialSchedule(config.k_start or self.k, self.k, config.k_until),
            cosine=config.lr_schedule == "cosine", seed=config.seed,
        )  # fmt: skip
        estimator = methods.find(config.method).prepare(config)
        self.joint = JointTraining(self.gate.to(device), self.network, estimator, plan)

    def epoch(self, interrupted: Callable[[], bool]) -> dict[str, Any] | None:
        """Train for the next epoch and validate: the entry of the history, or None if interrupted before its end.

        Raises:
            FloatingPointError: the training diverges.
        """
        start = time.perf_counter()
        config, number, tuning = self.config, self.joint.round + 1, self.joint.is_tuning
        sums: dict[str, Tensor] = {}
        for batch in self._batches(sums):
            if interrupted():
                return None
            self.joint.step(batch)
        try:
            self.joint.mean_loss()  # once an epoch, as reading a number off a GPU waits for it
        except FloatingPointError as error:
            raise FloatingPointError(
                f"{config.name()} diverged in epoch {number} ({error}); try a smaller selector_lr "
                f"({config.selector_lr}) or network_lr ({config.network_lr})"
            ) from error
        return {
            "epoch": number,
            "loss": float(sums["loss"]) / float(sums["losses"]),
            "train": self.task.metrics(sums),
            "validation": self.evaluate(*self.validation),
            "evaluations": len(self.train[0]) * (1 if tuning else config.samples),
            "seconds": time.perf_counter() - start,
        }

    def _batches(self, sums: dict[str, Tensor]) -> Iterator[Batch]:
        """Those of an epoch, whose statistics are added to the sums."""
        images, labels = self.train
        order = torch.randperm(len(images), generator=self.joint.generator).to(images.device)
        for index in order.split(self.config.batch_size):
            yield self._batch(images[index], labels[index], sums)

    def _batch(self, x: Tensor, y: Tensor, sums: dict[str, Tensor]) -> Batch:
        shared = self.config.subsets_per == "batch"

        def losses(z: Tensor) -> Tensor:
            """Loss `(S,)` of subsets `(S, n)` shared by the batch, or `(S, B)` of subsets `(S, B, n)`."""
            # Hard subsets that need no gradient let the first layer skip the columns that are not selected.
            k = None if z.requires_grad else self.joint.size_at(self.joint.round)
            output = self._output(x, z.unsqueeze(-2) if shared else z, k)
            loss = self.task.loss(output, x, y)
            with torch.no_grad():
                _add(sums, self.task.statistics(output.detach(), x, y, training=True))
                _add(sums, {"loss": loss.sum(), "losses": torch.tensor(loss.numel())})
            return loss.mean(-1) if shared else loss

        return Batch(losses, rows=None if shared else len(x))

    def _output(self, x: Tensor, mask: Tensor, k: int | None) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            output: Tensor = self.network(x, mask, k)
        return output.float()

    @torch.no_grad()
    def mode(self) -> Tensor:
        """The mask of evaluation `(1, 1, n)`, one for all: the k pixels with the largest logits."""
        mask: Tensor = self.gate().mode
        return mask[None, None]

    @torch.no_grad()
    def inclusion(self) -> Tensor:
        """Inclusion probability of each pixel `(n,)`."""
        mean: Tensor = self.gate().mean
        return mean

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


def _add(total: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value
