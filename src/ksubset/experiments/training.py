"""An epoch of a run."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ksubset.experiments import methods, tasks
from ksubset.experiments.config import RunConfig
from ksubset.schedules import ExponentialSchedule
from ksubset.training import JointTraining, Plan

__all__ = ["Training"]


class Training:
    """The task of a run, whose ``k`` is resolved, on loaded data, and its training by the method of the run."""

    def __init__(self, config: RunConfig, data: Any, device: torch.device) -> None:
        self.config = config
        self.task = task = tasks.find(config.task)(config, data, device)
        plan = Plan(
            config.epochs, selector={"lr": config.selector_lr, "betas": (config.selector_beta1, 0.999)},
            network={"lr": config.network_lr, "weight_decay": config.weight_decay}, num_samples=config.samples,
            steps_per_round=-(-task.num_examples // config.batch_size),
            selecting=max(config.epochs - round(config.tuning * config.epochs), 1),
            size=ExponentialSchedule(config.k_start or task.k, task.k, config.k_until),
            cosine=config.lr_schedule == "cosine", seed=config.seed,
        )  # fmt: skip
        estimator = methods.find(config.method).prepare(config)
        self.joint = JointTraining(task.selector, task.network, estimator, plan)

    def epoch(self, interrupted: Callable[[], bool]) -> dict[str, Any] | None:
        """Train for the next epoch and validate: the entry of the history, or None if interrupted before its end.

        Raises:
            FloatingPointError: the training diverges.
        """
        start = time.perf_counter()
        config, number, tuning = self.config, self.joint.round + 1, self.joint.is_tuning
        sums: dict[str, Tensor] = {}

        def add(more: Mapping[str, Tensor]) -> None:
            for name, value in more.items():
                sums[name] = sums[name] + value if name in sums else value

        order = torch.randperm(self.task.num_examples, generator=self.joint.generator)
        for rows in order.split(config.batch_size):
            if interrupted():
                return None
            self.joint.step(self.task.batch(rows, self.joint, add))
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
            "validation": self.task.evaluate("validation"),
            "evaluations": self.task.num_examples * (1 if tuning else config.samples),
            "seconds": time.perf_counter() - start,
        }
