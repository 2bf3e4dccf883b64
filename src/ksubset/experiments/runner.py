"""Training: a configuration goes in, a record comes out."""

import dataclasses
import datetime
import math
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy
import torch
from torch import Tensor

import ksubset
from ksubset import KSubset
from ksubset.estimators import expectation
from ksubset.experiments import datasets, methods, records, tasks
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record
from ksubset.experiments.tasks.base import Network, Task
from ksubset.schedules import ExponentialSchedule

__all__ = ["Progress", "resolve", "run"]

Progress = Callable[[dict[str, Any]], None]

_EXAMPLE_IMAGES = 3
_EVALUATION_CHUNK = 1024


def resolve(config: RunConfig) -> RunConfig:
    """The same configuration with its names checked and ``k`` filled in; loads no data.

    Raises:
        ValueError: a name is unknown, ``k`` does not fit the data set, or ``samples`` does not suffice for the method.
    """
    tasks.find(config.task)
    source = datasets.find(config.dataset)
    method = methods.find(config.method)
    k = source.k if config.k is None else config.k
    if k >= source.side**2:
        raise ValueError(f"k: expected less than the {source.side**2} pixels of {config.dataset}, got {k}")
    if config.k_start is not None and config.k_start > source.side**2:
        raise ValueError(
            f"k_start: expected at most the {source.side**2} pixels of {config.dataset}, got {config.k_start}"
        )
    least = method.prepare(config)(0.0).min_samples
    if config.samples < least:
        raise ValueError(f"samples: {config.method} needs at least {least}, got {config.samples}")
    return dataclasses.replace(config, k=k)


def run(config: RunConfig, out: str | Path, progress: Progress | None = None) -> Record:
    """Train, evaluate on the test set, and write the record into the folder ``out``.

    An interrupt (Ctrl-C) ends the training after the current step, writes the record of what is there and then goes on
    its way; a second one is not waited for.

    Arguments:
        config: the run's knobs.
        out: folder for the record.
        progress: called after each epoch with its entry of the history.

    Raises:
        ValueError: the configuration or a data file is wrong.
        ImportError: an optional dependency is missing.
        OSError: ``out`` is not writable, or a download fails.
        FloatingPointError: the training diverges.
        KeyboardInterrupt: the run was interrupted; its record is written.
    """
    start = time.perf_counter()
    commit = _commit()  # before the training, as the tree may change during it
    config = resolve(config)
    out = records.prepare(out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = datasets.load(config.dataset)
    task = tasks.find(config.task)(data.side, data.num_classes)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), _Interrupt() as interrupt:
        torch.manual_seed(config.seed)
        training = _Training(config, data, task, device)
        history: list[dict[str, Any]] = []
        for epoch in range(1, config.epochs + 1):
            entry = training.epoch(epoch, interrupt)
            if entry is None:
                break
            history.append(entry)
            if progress is not None:
                progress(entry)
        record = Record(
            config=config,
            labels={"task": task.label, "dataset": data.label, "method": methods.find(config.method).label},
            status=records.FINISHED if len(history) == config.epochs else records.INTERRUPTED,
            history=history,
            **training.result(),
            seconds_total=time.perf_counter() - start,
            seconds_per_epoch=sum(entry["seconds"] for entry in history) / len(history) if history else None,
            side=data.side,
            versions={
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": numpy.__version__,
                "ksubset": ksubset.__version__,
            },
            device=_device_name(device),
            commit=commit,
            timestamp=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
        records.write(record, out)
    if interrupt.requested:
        raise KeyboardInterrupt
    return record


class _Training:
    """The state of a run: data on the device, selector, network, optimizer."""

    def __init__(self, config: RunConfig, data: datasets.DataSplit, task: Task, device: torch.device) -> None:
        self.config, self.task = config, task
        self.k = data.k if config.k is None else config.k
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
            ]
        )
        self.order = torch.Generator(device).manual_seed(config.seed)

    def epoch(self, number: int, interrupt: "_Interrupt") -> dict[str, Any] | None:
        """Train for an epoch and validate: the entry of the history, or None if interrupted before its end."""
        start = time.perf_counter()
        config = self.config
        images, labels = self.train
        done = (number - 1) / max(config.epochs - 1, 1)
        estimator, size = self.estimator(done), self.size.rounded(done)
        shared = config.subsets_per == "batch"
        # Hard subsets that need no gradient let the first layer skip the columns that are not selected.
        k = size if shared and not estimator.pathwise else None
        sums: dict[str, Tensor] = {}
        self.network.train()
        for index in torch.randperm(len(images), generator=self.order, device=images.device).split(config.batch_size):
            if interrupt.requested:
                return None
            x, y = images[index], labels[index]

            def loss_of(z: Tensor, x: Tensor = x, y: Tensor = y) -> Tensor:
                """Loss `(S,)` of subsets `(S, n)` shared by the batch, or `(S, B)` of subsets `(S, B, n)`."""
                output = self.network(x, z.unsqueeze(-2) if shared else z, k)
                loss = self.task.loss(output, x, y)
                with torch.no_grad():
                    _add(sums, self.task.statistics(output.detach(), x, y, training=True))
                    _add(sums, {"loss": loss.sum(), "losses": torch.tensor(loss.numel())})
                return loss.mean(-1) if shared else loss

            dist = KSubset(size, logits=self.logits, validate_args=False)
            if not shared:
                dist = dist.expand((len(x),))
            loss = expectation(loss_of, dist, estimator, config.samples).mean()
            self.optimizer.zero_grad()
            loss.backward()
            gradient = self.logits.grad if self.logits.grad is not None else torch.zeros_like(self.logits)
            _add(sums, {"broken": (~gradient.isfinite()).sum()})
            # Counted, so not hidden: NaN logits would make the next draw fail on some index, far from the cause.
            gradient.nan_to_num_(0.0, 0.0, 0.0)
            self.optimizer.step()
        mean_loss = float(sums["loss"]) / float(sums["losses"])
        # Once an epoch, as reading a number off a GPU waits for it.
        if not math.isfinite(mean_loss) or sums["broken"] > 0:
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
            "seconds": time.perf_counter() - start,
        }

    def mode(self) -> Tensor:
        """The mask of evaluation `(1, 1, n)`, one for all: the k pixels with the largest logits."""
        return KSubset(self.k, logits=self.logits.detach(), validate_args=False).mode[None, None]

    @torch.no_grad()
    def evaluate(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        """Metrics under the mode."""
        self.network.eval()
        mask = self.mode()
        sums: dict[str, Tensor] = {}
        for x, y in zip(images.split(_EVALUATION_CHUNK), labels.split(_EVALUATION_CHUNK), strict=True):
            _add(sums, self.task.statistics(self.network(x, mask, self.k), x, y, training=False))
        return self.task.metrics(sums)

    @torch.no_grad()
    def result(self) -> dict[str, Any]:
        """The fields of a record that tell what was learned."""
        test = self.evaluate(*self.test)
        mask = self.mode()
        originals = self.test[0][:_EXAMPLE_IMAGES]
        pictures = self.task.images(self.network(originals, mask, self.k))
        inclusion = KSubset(self.k, logits=self.logits.detach(), validate_args=False).mean
        return {
            "test": test,
            "selected": mask.flatten().nonzero().flatten().tolist(),
            "inclusion": [round(value, 6) for value in inclusion.tolist()],
            "originals": [] if pictures is None else _grey(originals),
            "reconstructions": [] if pictures is None else _grey(pictures[0]),
        }


class _Interrupt:
    """Turns the first Ctrl-C within the context into a request, so that it never cuts a step or a file in two."""

    requested = False

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread, and lets no other one install handlers.
        self._active = threading.current_thread() is threading.main_thread()
        if self._active:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _add(total: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _grey(images: Tensor) -> list[list[int]]:
    levels: list[list[int]] = (images * 255).round().to(torch.uint8).tolist()
    return levels


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_cpu_name()}, {threads} {'thread' if threads == 1 else 'threads'}"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():  # Linux, where platform.processor() knows the architecture at best
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown CPU"


def _commit() -> str | None:
    """The commit this file belongs to; None if it is not under version control, or git is missing."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installed copy may lie inside somebody else's repository.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
