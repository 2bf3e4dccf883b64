import dataclasses
import functools
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ksubset.experiments import checkpoints, records, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record
from ksubset.experiments.sweep import sweep

QUICK = RunConfig(dataset="digits", k=10, epochs=2, batch_size=600)
# So many epochs after the first checkpoint that whoever is to kill one gets a turn on a busy machine.
SEEDS = [dataclasses.replace(QUICK, seed=seed, epochs=20) for seed in range(3)]


def numbers(record: Record) -> list[Any]:
    losses = [(entry["loss"], entry["train"], entry["validation"]) for entry in record.history]
    return [record.status, record.test, losses, record.selected, record.inclusion]


@functools.cache
def undisturbed() -> list[Record]:
    """What the runs of all seeds find if nobody kills them."""
    with tempfile.TemporaryDirectory() as folder:
        return [runner.run(config, folder) for config in SEEDS]


class Killer(threading.Thread):
    """Kills the process of the first run that has a checkpoint, and remembers the run's name."""

    def __init__(self, out: Path, tensorboard: Path) -> None:
        super().__init__(daemon=True)
        self.out, self.tensorboard, self.name_of_run = out, tensorboard, ""

    def run(self) -> None:
        while not (found := list(self.out.glob("checkpoints/*/checkpoint.pt"))):
            time.sleep(0.01)
        self.name_of_run = found[0].parent.name
        (events,) = (self.tensorboard / self.name_of_run).iterdir()
        pid = int(events.name.split(".")[-2])  # TensorBoard's files are named after host, process and writer
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)


def check_nothing_was_lost(killer: Killer, found: list[Record], out: Path) -> None:
    """Every run has its record, with the numbers of an undisturbed run, and the killed one went on after its
    checkpoint.
    """
    killer.join()
    assert [record.config for record in found] == SEEDS
    assert [numbers(record) for record in found] == [numbers(record) for record in undisturbed()]
    assert {path.name for path in out.iterdir()} == {record.filename for record in undisturbed()}
    assert sorted(map(numbers, records.read(out)), key=str) == sorted(map(numbers, undisturbed()), key=str)
    first, second = sorted((killer.tensorboard / killer.name_of_run).iterdir())
    for path, starts in ((first, [1]), (second, range(6, SEEDS[0].epochs + 1))):
        events = EventAccumulator(str(path))
        events.Reload()
        assert events.Scalars("loss")[0].step in starts


def test_each_configuration_is_trained_once(tmp_path: Path) -> None:
    said: list[str] = []
    same = dataclasses.replace(QUICK, k=None)
    outcome = sweep([QUICK, same], tmp_path, say=said.append)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    assert outcome.records == [records.load(path)]
    assert outcome.failures == []
    assert len(said) == 1
    assert sweep([QUICK], tmp_path, say=said.append) == outcome
    assert path.read_bytes() == before
    assert said[1] == f"[1/1] classification digits sfess-v seed 0: already in {path}"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    def interrupt(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            signal.raise_signal(signal.SIGINT)

    config = dataclasses.replace(QUICK, epochs=4)
    with pytest.raises(KeyboardInterrupt):
        runner.run(config, tmp_path / "a", interrupt)
    seen: list[int] = []
    outcome = sweep([config], tmp_path / "a", say=str, bar=lambda name, epochs: Bar(seen))
    assert seen == [3, 4]
    assert numbers(outcome.records[0]) == numbers(runner.run(config, tmp_path / "b"))


class Bar:
    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        return lambda entry: self.seen.append(entry["epoch"])

    def __exit__(self, *exception: object) -> None:
        pass


def test_what_another_sweep_has_finished_meanwhile_is_not_trained_again(tmp_path: Path) -> None:
    first, second = QUICK, dataclasses.replace(QUICK, seed=1)
    elsewhere: list[Record] = []

    def say(line: str) -> None:
        if not elsewhere:
            elsewhere.append(runner.run(second, tmp_path))

    assert sweep([first, second], tmp_path, say=say).records[1] == elsewhere[0]


def test_the_record_of_another_run_is_named(tmp_path: Path) -> None:
    other = runner.run(dataclasses.replace(QUICK, seed=1), tmp_path)
    (tmp_path / other.filename).rename(tmp_path / f"{QUICK.name()}.json")
    (failure,) = sweep([QUICK], tmp_path, say=lambda _: None).failures
    assert f"expected the record of {QUICK.name()}, got that of {other.config.name()}" in failure.reason


@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_leave_the_others_alone(tmp_path: Path, jobs: int) -> None:
    diverging = dataclasses.replace(QUICK, network_lr=1e30)
    damaged, taken, broken, fine = (dataclasses.replace(QUICK, seed=seed) for seed in range(1, 5))
    with checkpoints.exclusive(tmp_path, damaged) as folder:
        (folder / "checkpoint.pt").write_text("{}")
    (tmp_path / f"{broken.name()}.json").write_text("{}")
    said: list[str] = []
    configs = [diverging, damaged, taken, broken, fine]
    with checkpoints.exclusive(tmp_path, taken):
        outcome = sweep(configs, tmp_path, jobs=jobs, say=said.append)
    assert [record.config for record in outcome.records] == [fine]
    assert [failure.config for failure in outcome.failures] == [diverging, damaged, taken, broken]
    for failure, reason in zip(
        outcome.failures,
        [
            "FloatingPointError: .* diverged in epoch 1",
            "ValueError: checkpoint: expected a file of a training, got .*checkpoint.pt ",
            "OSError: .*: another process is training",
            "ValueError: .*: expected a record",
        ],
        strict=True,
    ):
        with pytest.raises(RuntimeError, match=reason):
            raise RuntimeError(failure.reason)
        assert "\n" not in failure.reason
    assert sum("failed, " in line for line in said) == 4
    assert sum("test accuracy" in line for line in said) == 1


def test_a_killed_process_loses_no_run(tmp_path: Path) -> None:
    out, tensorboard = tmp_path / "out", tmp_path / "tensorboard"
    said: list[str] = []
    killer = Killer(out, tensorboard)
    killer.start()
    outcome = sweep(SEEDS, out, jobs=2, checkpoint_every=5, tensorboard=tensorboard, say=said.append)
    assert outcome.failures == []
    assert sum("a worker process was killed" in line for line in said) == 1
    check_nothing_was_lost(killer, outcome.records, out)


# A thread of Python's process pool may trip over processes that are started while others die.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_processes_that_are_always_killed(tmp_path: Path) -> None:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.01):
            for process in multiprocessing.active_children():
                process.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        with pytest.raises(ChildProcessError, match="killed 3 times, and no run ended in between; perhaps 2 at a time"):
            # So long that none ends before it is killed.
            sweep([dataclasses.replace(config, epochs=10_000) for config in SEEDS], tmp_path, jobs=2, say=str)
    finally:
        over.set()
        killer.join()


def test_ray_loses_no_run_with_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    out, tensorboard = tmp_path / "out", tmp_path / "tensorboard"
    killer = Killer(out, tensorboard)
    killer.start()
    outcome = sweep(SEEDS, out, backend="ray", jobs=2, checkpoint_every=5, tensorboard=tensorboard, say=str)
    assert outcome.failures == []
    check_nothing_was_lost(killer, outcome.records, out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "cloud"}, "backend: expected one of local, ray, got 'cloud'"),
        ({"jobs": 0}, "jobs: expected an integer >= 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every: expected an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sweep([QUICK], tmp_path, say=str, **options)


def test_a_missing_ray_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"ray is not installed; .*ksubset\[ray\]"):
        sweep([QUICK], tmp_path, backend="ray", say=str)
    assert not list(tmp_path.iterdir())
