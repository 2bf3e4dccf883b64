"""Training: a configuration goes in, a record comes out."""

import dataclasses
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

import ksubset
from ksubset._support import files, provenance
from ksubset._support.interrupts import Interrupt
from ksubset.experiments import checkpoints, methods, records, tasks
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import Source
from ksubset.experiments.records import Record
from ksubset.experiments.tasks.pixels import PixelTask
from ksubset.experiments.training import Training
from ksubset.training import seeded

__all__ = ["Monitor", "Progress", "resolve", "run"]

Progress = Callable[[dict[str, Any]], None]
Monitor = Callable[[Training, dict[str, Any]], None]


def resolve(config: RunConfig) -> RunConfig:
    """The same configuration with its names checked, and ``k`` and ``images`` filled in.

    Raises:
        ValueError: a name is unknown, ``k`` or ``images`` does not fit the data set, or the method does not fit the
            task, ``k_start`` or ``samples``.
    """
    source = tasks.find(config.task).data_set(config.dataset)
    method = methods.find(config.method)
    k, items = source.k if config.k is None else config.k, f"the {source.n} {source.items} of {config.dataset}"
    if k >= source.n:
        raise ValueError(f"k: expected less than {items}, got {k}")
    if config.k_start is not None and config.k_start > source.n:
        raise ValueError(f"k_start: expected at most {items}, got {config.k_start}")
    if method.selector is not None and not issubclass(tasks.find(config.task), PixelTask):
        raise ValueError(
            f"method: {config.method} has one subset for all examples, where {config.task} needs one of each; expected "
            "another"
        )
    if method.selector is not None and config.k_start not in (None, k):
        raise ValueError(f"k_start: expected None, as {config.method} has as many units as items, got {config.k_start}")
    least = method.prepare(config)(0.0).min_samples
    if config.samples < least:
        raise ValueError(f"samples: {config.method} needs at least {least}, got {config.samples}")
    images = source.images if isinstance(source, Source) else None
    if config.images not in (None, images):
        raise ValueError(f"images: expected {images}, those that {config.dataset} holds now, got {config.images}")
    return dataclasses.replace(config, k=k, images=images)


def run(
    config: RunConfig,
    out: str | Path,
    progress: Progress | None = None,
    *,
    checkpoint_every: int = 10,
    monitor: Monitor | None = None,
) -> Record:
    """Train, evaluate on the test set, and write the record into the folder ``out``.

    A run that was killed goes on after its last checkpoint, and ends with the record that it would have had: bit for
    bit on a CPU, times apart. An interrupt (Ctrl-C) ends the training after the current step, writes a checkpoint of
    the finished epochs and the record of what is there, and then goes on its way; a second one is not waited for.

    Arguments:
        config: the run's settings.
        out: folder for the record; checkpoints lie in its sub-folder ``checkpoints`` until the run is finished.
        progress: called after each epoch with its entry of the history.
        checkpoint_every: epochs from one checkpoint to the next.
        monitor: called after each epoch with the training and the entry.

    Raises:
        ValueError: an argument, a data file or a checkpoint is wrong.
        ImportError: an optional dependency is missing.
        OSError: ``out`` is not writable, another process is at the same run, or a download fails.
        FloatingPointError: the training diverges.
        KeyboardInterrupt: the run was interrupted; its record is written.

    Example:
        >>> import tempfile
        >>> epochs = []
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     record = run(RunConfig(epochs=2), folder, lambda entry: epochs.append(entry["epoch"]))
        ...     path = Path(folder, record.filename)
        ...     path.exists()
        True
        >>> epochs, record.config.k
        ([1, 2], 10)
    """
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every: expected an integer >= 1, got {checkpoint_every}")
    start = time.perf_counter()
    commit = provenance.commit()  # before the training, as the tree may change during it
    config = resolve(config)
    out = files.prepare(out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = tasks.find(config.task)
    data, label = kind.load(config.dataset), kind.data_set(config.dataset).label
    with checkpoints.exclusive(out, config) as folder, Interrupt() as interrupt, seeded(config.seed, device):
        training = Training(config, data, device)
        task = training.task
        history, seconds = checkpoints.resume(training.joint, config, folder)
        start -= seconds
        while len(history) < config.epochs:
            # An epoch that is cut short leaves the training behind, somewhere between two epochs.
            last = training.joint.state_dict()
            entry = training.epoch(lambda: interrupt.requested)
            if entry is None:
                checkpoints.save(folder, config, last, history, time.perf_counter() - start)
                break
            history.append(entry)
            # Before the checkpoint, after which nobody would hear of this epoch again.
            if progress is not None:
                progress(entry)
            if monitor is not None:
                monitor(training, entry)
            if len(history) % checkpoint_every == 0 and len(history) < config.epochs:
                checkpoints.save(folder, config, training.joint.state_dict(), history, time.perf_counter() - start)
        finished = len(history) == config.epochs
        record = Record(
            config=config,
            labels={
                "task": kind.label,
                "dataset": label,
                "method": methods.find(config.method).label,
            },
            status=records.FINISHED if finished else records.INTERRUPTED,
            history=history,
            test=task.evaluate("test"),
            seconds_total=time.perf_counter() - start,
            seconds_per_epoch=sum(entry["seconds"] for entry in history) / len(history) if history else None,
            versions=provenance.versions(torch, numpy, ksubset),
            device=f"{provenance.device_name(device)}{', bfloat16' if task.mixed else ''}",
            commit=commit,
            timestamp=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            format=records.FORMAT,
            **task.outcome(),
        )
        records.write(record, out)
        if finished:
            checkpoints.remove(folder)
    if interrupt.requested:
        raise KeyboardInterrupt
    return record
