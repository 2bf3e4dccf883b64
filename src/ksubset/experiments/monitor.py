"""A run as TensorBoard shows it."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ksubset._support import files
from ksubset._support.extras import require
from ksubset.experiments.training import Training

__all__ = ["TensorBoard"]

_PICTURES = 20


class TensorBoard(AbstractContextManager["TensorBoard"]):
    """Curves and pictures of one run, in a folder of its own; a monitor of :func:`ksubset.experiments.runner.run`.

    Curves have a point for each epoch; the pictures of the task, such as a mask, are drawn some twenty times. Where a
    run goes on after a checkpoint, TensorBoard hides what was written after it the first time.

    Arguments:
        folder: what ``tensorboard --logdir`` is given, the same for many runs.
        name: the run's name, that of its sub-folder.

    Raises:
        ImportError: tensorboard is missing.
        OSError: the folder is not writable.
    """

    def __init__(self, folder: str | Path, name: str) -> None:
        writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter
        files.prepare(folder, "tensorboard")
        self._open: Callable[..., Any] = functools.partial(writer, str(Path(folder) / name))
        self._writer: Any = None

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, training: Training, entry: dict[str, Any]) -> None:
        epoch, epochs = entry["epoch"], training.config.epochs
        if self._writer is None:
            # Only the first epoch that is trained here tells where the run goes on.
            self._writer = self._open(purge_step=epoch)
        for name, value in entry.items():
            if isinstance(value, dict):
                for metric, number in value.items():
                    self._writer.add_scalar(f"{name}/{metric}", number, epoch)
            elif name != "epoch":
                self._writer.add_scalar(name, value, epoch)
        if epoch in (1, epochs) or epoch % max(epochs // _PICTURES, 1) == 0:
            self._draw(training, epoch)
        # What a killed process had not written would be missing, if it was from before the checkpoint.
        self._writer.flush()

    def _draw(self, training: Training, epoch: int) -> None:
        for name, picture in training.task.pictures().items():
            self._writer.add_image(name, picture, epoch, dataformats="HW")
