import dataclasses
import math
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from ksubset._support import provenance
from ksubset.experiments import records, runner
from ksubset.experiments.config import SUBSETS_PER, RunConfig
from ksubset.experiments.methods import METHODS
from ksubset.experiments.tasks import PRINTED
from ksubset.experiments.training import Training
from ksubset.training import seeded

QUICK = RunConfig(dataset="digits", epochs=2, batch_size=256, selector_lr=5e-2, network_lr=1e-3)


@pytest.mark.parametrize("subsets_per", SUBSETS_PER)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", PRINTED)
def test_every_task_with_every_method(tmp_path: Path, task: str, method: str, subsets_per: str) -> None:
    config = dataclasses.replace(QUICK, task=task, method=method, subsets_per=subsets_per, samples=2)
    record = runner.run(config, tmp_path)
    assert list(records.read(tmp_path)) == [record]
    assert record.config == dataclasses.replace(config, k=10)
    assert record.status == "finished"
    assert [entry["epoch"] for entry in record.history] == [1, 2]
    names = {"classification": {"accuracy"}, "reconstruction": {"psnr", "ssim"}}[task]
    assert set(record.test) == set(record.history[0]["validation"]) == names
    assert set(record.history[0]["train"]) == names - {"ssim"}
    assert all(math.isfinite(entry["loss"]) for entry in record.history)
    assert len(record.selected) == len(set(record.selected))
    if method == "concrete":  # units may agree
        assert len(record.selected) <= 10
        assert 5 < sum(record.inclusion) < 10
    else:
        assert len(record.selected) == 10
        assert sum(record.inclusion) == pytest.approx(10, abs=1e-3)
    images = 3 if task == "reconstruction" else 0
    assert len(record.originals) == len(record.reconstructions) == images
    assert all(0 <= level <= 255 for image in record.reconstructions for level in image)
    assert record.seconds_total >= sum(entry["seconds"] for entry in record.history)
    assert {"python", "torch", "ksubset", "numpy"} == set(record.versions)
    assert record.device


@pytest.mark.parametrize("task", PRINTED)
def test_training_learns(tmp_path: Path, task: str) -> None:
    config = dataclasses.replace(QUICK, task=task, subsets_per="example", epochs=15, batch_size=64)
    record = runner.run(config, tmp_path)
    losses = [entry["loss"] for entry in record.history]
    assert losses[-1] < 0.8 * losses[0]
    if task == "classification":
        assert record.test["accuracy"] > 0.7
    else:
        assert record.test["psnr"] > record.history[0]["validation"]["psnr"] + 2


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path) -> None:
    first, again = (runner.run(QUICK, tmp_path / name) for name in "ab")
    other = runner.run(dataclasses.replace(QUICK, seed=1), tmp_path / "c")

    def numbers(record: records.Record) -> list[Any]:
        losses = [(entry["loss"], entry["train"], entry["validation"]) for entry in record.history]
        return [record.test, losses, record.selected, record.inclusion]

    assert numbers(first) == numbers(again)
    assert numbers(first) != numbers(other)


def test_the_callers_random_state_is_left_alone(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    runner.run(QUICK, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_start_size_beyond_the_pixels() -> None:
    with pytest.raises(ValueError, match="k_start: expected at most the 64 pixels of digits, got 65"):
        runner.resolve(RunConfig(dataset="digits", k_start=65))


def test_progress_and_monitor_see_every_epoch(tmp_path: Path) -> None:
    entries, monitored = [], []

    def monitor(state: Training, entry: dict[str, Any]) -> None:
        assert state.task.mode().sum() == 10
        monitored.append(entry)

    record = runner.run(QUICK, tmp_path, entries.append, monitor=monitor)
    assert entries == monitored == record.history


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_a_usable_record(tmp_path: Path) -> None:
    def interrupt(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        runner.run(dataclasses.replace(QUICK, epochs=50), tmp_path, interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    (record,) = records.read(tmp_path)
    assert record.status == "interrupted"
    assert [entry["epoch"] for entry in record.history] == [1, 2]
    assert set(record.test) == {"accuracy"}


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_before_the_first_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> AbstractContextManager[None]:
        signal.raise_signal(signal.SIGINT)
        return seeded(*arguments)

    monkeypatch.setattr(runner, "seeded", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run(QUICK, tmp_path)
    (record,) = records.read(tmp_path)
    assert (record.status, record.history, record.seconds_per_epoch) == ("interrupted", [], None)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_after_the_last_epoch_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = provenance.device_name

    def interrupted_name(device: torch.device) -> str:
        signal.raise_signal(signal.SIGINT)
        return name(device)

    monkeypatch.setattr(provenance, "device_name", interrupted_name)
    with pytest.raises(KeyboardInterrupt):
        runner.run(QUICK, tmp_path)
    (record,) = records.read(tmp_path)
    assert record.status == "finished"


def test_a_folder_that_is_none_fails_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr(runner, "Training", None)
    with pytest.raises(OSError, match="out: expected a folder"):
        runner.run(QUICK, path)


def test_divergence_says_where(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"diverged in epoch 1 .*selector_lr"):
        runner.run(dataclasses.replace(QUICK, network_lr=1e30), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "cifar"}, "dataset: expected one of digits"),
        ({"method": "magic"}, "method: expected one of gs"),
        ({"task": "sorting"}, "task: expected one of classification"),
        ({"k": 64}, "k: expected less than the 64 pixels of digits, got 64"),
        ({"samples": 1}, "samples: sfess-v needs at least 2, got 1"),
    ],
)
def test_a_configuration_that_cannot_run(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.resolve(dataclasses.replace(QUICK, **change))


def test_the_default_k_is_the_data_sets() -> None:
    assert runner.resolve(RunConfig(dataset="digits")).k == 10
    assert runner.resolve(RunConfig(dataset="kmnist")).k == 30
    assert runner.resolve(RunConfig(dataset="kmnist", k=5)).k == 5
