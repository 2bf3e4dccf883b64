"""What all backends share: how one run is attempted, and how the user hears of it."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ksubset.experiments import records, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.monitor import TensorBoard
from ksubset.experiments.records import Record

__all__ = ["Failure", "Plan", "Report", "Result", "finished", "progress", "summary", "title"]


@dataclass(frozen=True)
class Failure:
    """A run that raised an exception.

    Arguments:
        config: the run's settings, ``k`` resolved.
        reason: kind and message of the exception, in one line.
    """

    config: RunConfig
    reason: str

    @classmethod
    def of(cls, config: RunConfig, error: Exception) -> Self:
        return cls(config, f"{type(error).__name__}: {' '.join(str(error).split())}")


Result = Record | Failure


@dataclass(frozen=True)
class Plan:
    """What runs share, as of :func:`ksubset.experiments.sweep.sweep`."""

    out: Path
    checkpoint_every: int
    tensorboard: Path | None

    def train(self, config: RunConfig, progress: runner.Progress | None = None) -> Record:
        """:func:`ksubset.experiments.runner.run`, watched by TensorBoard if there is a folder for its files."""
        config = runner.resolve(config)
        with nullcontext() if self.tensorboard is None else TensorBoard(self.tensorboard, config.name()) as monitor:
            return runner.run(config, self.out, progress, checkpoint_every=self.checkpoint_every, monitor=monitor)

    def attempt(self, config: RunConfig, progress: runner.Progress | None = None) -> Result:
        """Train, and give the exception as a result if there is one; nothing, if meanwhile it was trained elsewhere."""
        try:
            return finished(config, self.out) or self.train(config, progress)
        # Whatever is wrong with a run, the others may be right; and not every exception could travel between processes.
        except Exception as error:
            return Failure.of(config, error)


class Report:
    """Keeps the results of a sweep's runs, whose records are in the folder ``out``, and says a line of each."""

    def __init__(self, configs: Sequence[RunConfig], out: Path, say: Callable[[str], None]) -> None:
        self.titles = {config: f"[{number}/{len(configs)}] {title(config)}" for number, config in enumerate(configs, 1)}
        self.results: dict[RunConfig, Result] = {}
        self.say = say
        self._out = out

    def start(self, config: RunConfig) -> None:
        self.say(f"{self.titles[config]}: started")

    def epoch(self, config: RunConfig, entry: dict[str, Any]) -> None:
        """A line every tenth of a run, from its entries of the history."""
        done, total = entry["epoch"], config.epochs
        if 10 * done // total > 10 * (done - 1) // total and done < total:
            self.say(f"{self.titles[config]}: epoch {done}/{total}, {progress(entry)}")

    def end(self, config: RunConfig, result: Result) -> None:
        text = f"failed, {result.reason}" if isinstance(result, Failure) else summary(result, self._out)
        self._keep(config, result, text)

    def skip(self, record: Record) -> None:
        self._keep(record.config, record, f"already in {self._out / record.filename}")

    def _keep(self, config: RunConfig, result: Result, text: str) -> None:
        self.results[config] = result
        self.say(f"{self.titles[config]}: {text}")


def finished(config: RunConfig, out: Path) -> Record | None:
    """The finished record of a run in a folder; None if there is none, a ValueError if its file is no record of it."""
    path = out / f"{config.name()}.json"
    record = records.load(path) if path.exists() else None
    if record is not None and record.config != config:
        raise ValueError(f"{path}: expected the record of {config.name()}, got that of {record.config.name()}")
    return record if record is not None and record.status == records.FINISHED else None


def title(config: RunConfig) -> str:
    """What tells a run from others for a reader: ``classification digits sfess-v seed 0``."""
    return f"{config.task} {config.dataset} {config.method} seed {config.seed}"


def summary(record: Record, out: Path) -> str:
    """What came out of a run and where it is, in one line."""
    return f"test {metrics(record.test)}, {record.seconds_total:.1f} s, {out / record.filename}"


def progress(entry: dict[str, Any]) -> str:
    """An epoch in words, from its entry of the history."""
    return f"loss {entry['loss']:.4f}, validation {metrics(entry['validation'])}"


def metrics(values: dict[str, float]) -> str:
    """Metrics in words: ``psnr 17.123, ssim 0.812``."""
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())
