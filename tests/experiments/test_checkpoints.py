"""What is killed, interrupted or cut short goes on as if nothing had happened."""

import dataclasses
import io
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ksubset._support import provenance
from ksubset.experiments import checkpoints, datasets, records, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.methods import METHODS
from ksubset.experiments.records import Record
from ksubset.experiments.tasks import PRINTED
from ksubset.experiments.training import Training
from ksubset.training import Checkpoint, joint
from ksubset.training import load as load_file
from ksubset.training import save as save_file

QUICK = RunConfig(dataset="digits", epochs=4, batch_size=256, selector_lr=5e-2, network_lr=1e-3)
TINY = dataclasses.replace(QUICK, epochs=3, samples=2, batch_size=700)

# Forks a process for each run that it is told of, as imports take longer than these runs. They say which epochs are
# done, and wait at one of them, or with half of a file written: what is to be killed must not end before the test gets
# its turn on a busy machine.
NURSERY = """
import json, os, sys, time
import torch
from ksubset._support import provenance
from ksubset.experiments import datasets, runner
from ksubset.experiments.config import RunConfig

torch.set_num_threads(1)
provenance.commit = lambda: None
datasets.load("digits")
torch.optim.Adam([torch.zeros(1)])  # imports a lot, too

def say(text):
    # In one write, as a process may be killed between two.
    os.write(1, f"{text}\\n".encode())

for line in sys.stdin:
    config, out, epochs, files = json.loads(line)
    done, written = 0, 0

    def progress(entry):
        global done
        say(entry["epoch"])
        done += 1
        if done == epochs:
            time.sleep(600)

    def fsync(file):
        global written
        written += 1
        if written == files:
            os.ftruncate(file, os.fstat(file).st_size // 2)
            say("half")
            time.sleep(600)

    if child := os.fork():
        say(f"end {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    else:
        say(f"start {os.getpid()}")
        os.fsync = fsync
        runner.run(RunConfig(**config), out, progress, checkpoint_every=1)
        os._exit(0)
"""


KILLED = f"end {-signal.SIGKILL}"
_PATIENCE = 60.0  # seconds


class Killed(BaseException):
    """The end of the process, as far as a test can stage it: no handler of errors sees it."""


@pytest.fixture(autouse=True)
def _one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are compared, and somebody may commit between the runs."""
    monkeypatch.setattr(provenance, "commit", lambda: None)


def numbers(record: Record) -> dict[str, Any]:
    """Everything in a record but the times."""
    fields = dataclasses.asdict(record)
    for name in ("seconds_total", "seconds_per_epoch", "timestamp"):
        del fields[name]
    for entry in fields["history"]:
        del entry["seconds"]
    return fields


def folder_of(config: RunConfig, out: Path) -> Path:
    return out / "checkpoints" / runner.resolve(config).name()


def load(folder: Path) -> Checkpoint | None:
    """The checkpoint on disk."""
    return load_file(folder / "checkpoint.pt")


def epochs(folder: Path) -> int:
    """Epochs in the checkpoint on disk."""
    checkpoint = load(folder)
    return 0 if checkpoint is None else len(checkpoint.state["history"])


def run_until(config: RunConfig, out: Path, epoch: int, checkpoint_every: int = 1) -> Path:
    """Run, and be killed after the checkpoint of an epoch; gives its folder."""

    def progress(entry: dict[str, Any]) -> None:
        if entry["epoch"] == epoch + 1:
            raise Killed

    with pytest.raises(Killed):
        runner.run(config, out, progress, checkpoint_every=checkpoint_every)
    return folder_of(config, out)


class Nursery:
    """Runs in processes of their own, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._child = 0
        self._lines: queue.Queue[str] = queue.Queue()
        # In a thread of its own, so that a run that hangs fails its test and does not hang it, too.
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def _next(self) -> str:
        line = self._lines.get(timeout=_PATIENCE)
        if line.startswith("end"):
            self._child = 0
        return line

    def line(self) -> str:
        """Waits for the next epoch, and gives its number, or that half of the last file is written."""
        line = self._next()
        assert self._child, f"the run is over: {line}"
        return line

    def start(self, config: RunConfig, out: Path, *, epochs: int = 0, files: int = 0) -> None:
        """Begins a run, which waits after so many epochs, or within so many files, to be killed; 0 for never."""
        order = json.dumps([dataclasses.asdict(config), str(out), epochs, files])
        print(order, file=self._process.stdin, flush=True)
        said, child = self._next().split()
        assert said == "start"
        self._child = int(child)

    def rest(self) -> list[str]:
        """Waits for the end, and gives all that is said until then."""
        lines = [self._next()]
        while self._child:
            lines.append(self._next())
        return lines

    def kill(self) -> str:
        """Gives the end, which is another one if the run was faster."""
        assert self._child
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        return self.rest()[-1]

    def clear(self) -> None:
        """What a failed test leaves behind must not fail the next one."""
        if self._child:
            self.kill()


@pytest.fixture(scope="module")
def _nursery() -> Iterator[Nursery]:
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork, and a new interpreter for every kill would take minutes")
    source = str(Path(runner.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    ) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def nursery(_nursery: Nursery) -> Iterator[Nursery]:
    yield _nursery
    _nursery.clear()


@pytest.mark.parametrize(
    ("config", "kills"),
    [
        (
            dataclasses.replace(TINY, epochs=50),
            "start epochs write anywhere epochs write anywhere epochs write epochs",
        ),
        (dataclasses.replace(TINY, epochs=25, method="hybrid"), "epochs write anywhere epochs"),
        (dataclasses.replace(TINY, epochs=25, task="reconstruction"), "epochs write anywhere epochs"),
    ],
    ids=["ten times", "hybrid", "reconstruction"],
)
def test_a_run_that_is_killed_again_and_again(tmp_path: Path, nursery: Nursery, config: RunConfig, kills: str) -> None:
    generator = random.Random(0)
    out = tmp_path / "killed"
    folder = folder_of(config, out)
    pace, resumed = 0.0, 0
    for kill in kills.split():
        before, drafts = epochs(folder), set(folder.glob("*.tmp"))
        # None ends, as ten times the four epochs of which there may be checkpoints are fewer than all.
        nursery.start(config, out, epochs=5, files=generator.randrange(1, 5) if kill == "write" else 0)
        if kill == "start":
            time.sleep(generator.uniform(0, 0.02))
        elif kill == "anywhere":
            # While it loads, in an epoch, at a checkpoint.
            time.sleep(generator.uniform(0, 0.05 + 3 * pace))
        elif kill == "epochs":
            # After a few epochs, so that it gets on.
            start = time.perf_counter()
            said = [nursery.line() for _ in range(generator.randrange(2, 5))]
            pace = (time.perf_counter() - start) / len(said)
            assert said == [str(before + epoch) for epoch in range(1, len(said) + 1)]
            time.sleep(generator.uniform(0, pace))
        else:
            while nursery.line() != "half":
                pass
            assert set(folder.glob("*.tmp")) > drafts
        assert nursery.kill() == KILLED
        assert epochs(folder) >= before
        resumed += 0 < before < epochs(folder)
    assert resumed >= kills.count("epochs") - 1
    assert not list(out.glob("*.json"))
    before = epochs(folder)
    nursery.start(config, out)
    assert nursery.rest() == [*map(str, range(before + 1, config.epochs + 1)), "end 0"]
    (record,) = records.read(out)
    assert numbers(record) == numbers(runner.run(config, tmp_path / "whole"))
    assert [path.name for path in out.iterdir()] == [record.filename]


OPTIONS: dict[str, dict[str, Any]] = {
    "example": {"subsets_per": "example"},
    "annealed": {"k_start": 30},
    "cosine": {"lr_schedule": "cosine"},
    "tuning": {"tuning": 0.5},
    "float32": {"precision": "float32"},
}
ALL = {name: value for options in OPTIONS.values() for name, value in options.items()}
FIXED = {name: value for name, value in ALL.items() if name != "k_start"}


@pytest.mark.parametrize(
    "config",
    [
        *(
            pytest.param(
                dataclasses.replace(TINY, task=task, method=method, **(ALL if entry.selector is None else FIXED)),
                id=f"{task}-{method}",
            )
            for task in PRINTED
            for method, entry in METHODS.items()
        ),
        TINY,
        *(pytest.param(dataclasses.replace(TINY, method="hybrid", **OPTIONS[name]), id=name) for name in OPTIONS),
    ],
)
def test_a_new_process_for_every_epoch_changes_nothing(tmp_path: Path, config: RunConfig) -> None:
    config = runner.resolve(config)

    def start() -> Training:
        torch.manual_seed(config.seed)
        return Training(config, datasets.load("digits"), torch.device("cpu"))

    def epoch(state: Training, number: int) -> dict[str, Any]:
        entry = state.epoch(lambda: False)
        assert entry is not None
        assert entry["epoch"] == number
        return {name: value for name, value in entry.items() if name != "seconds"}

    whole = start()
    expected = [epoch(whole, number) for number in (1, 2, 3)]
    last = {name: value.clone() for name, value in whole.joint.state_dict().items()}

    history: list[dict[str, Any]] = []
    checkpoints.save(tmp_path, config, start().joint.state_dict(), history, 0.0)
    for number in (1, 2, 3):
        state = start()
        torch.rand(number)
        assert checkpoints.resume(state.joint, config, tmp_path) == (history, 2.0 * len(history))
        history.append(epoch(state, number))
        checkpoints.save(tmp_path, config, state.joint.state_dict(), history, 2.0 * number)
    assert history == expected
    assert last.keys() == state.joint.state_dict().keys()
    assert [name for name, value in state.joint.state_dict().items() if not torch.equal(value, last[name])] == []
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_goes_when_the_record_is_there(tmp_path: Path) -> None:
    other = run_until(TINY, tmp_path, 1)
    config = dataclasses.replace(TINY, seed=1)
    folder = run_until(config, tmp_path, 2)
    assert epochs(folder) == 2
    runner.run(config, tmp_path)
    assert not folder.exists()
    assert epochs(other) == 1
    runner.run(TINY, tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json"]


def test_a_finished_run_starts_anew(tmp_path: Path) -> None:
    first = runner.run(TINY, tmp_path)
    seen: list[dict[str, Any]] = []
    assert numbers(runner.run(TINY, tmp_path, seen.append)) == numbers(first)
    assert len(seen) == 3


def test_the_last_run_of_two_that_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_until(TINY, tmp_path, 1)
    original = shutil.rmtree

    def removed_by_both(path: Path, **options: Any) -> None:
        original(path, **options)
        path.parent.rmdir()

    monkeypatch.setattr(shutil, "rmtree", removed_by_both)
    checkpoints.remove(folder)
    assert not folder.parent.exists()


@pytest.mark.parametrize("checkpoint_every", [1, 2, 100])
def test_checkpoints_come_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_every: int
) -> None:
    saved = []
    monkeypatch.setattr(checkpoints, "save", lambda *given: saved.append(len(given[3])))
    runner.run(dataclasses.replace(TINY, epochs=6), tmp_path, checkpoint_every=checkpoint_every)
    # None at the end, where the record is.
    assert saved == {1: [1, 2, 3, 4, 5], 2: [2, 4], 100: []}[checkpoint_every]


def test_the_time_before_a_kill_counts(tmp_path: Path) -> None:
    folder = run_until(TINY, tmp_path, 2)
    checkpoint = load(folder)
    assert checkpoint is not None
    seconds = checkpoint.state["seconds"]
    assert seconds >= sum(entry["seconds"] for entry in checkpoint.state["history"])
    record = runner.run(TINY, tmp_path)
    assert record.seconds_total > seconds
    assert record.seconds_total >= sum(entry["seconds"] for entry in record.history)


def truncated(content: bytes) -> bytes:
    return content[:-100]


def changed(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def of(value: Any) -> Callable[[bytes], bytes]:
    def write(_: bytes) -> bytes:
        file = io.BytesIO()
        torch.save(value, file)
        return file.getvalue()

    return write


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncated, "BadZipFile"),
        (changed, r"the checksum of .* is another one"),
        (lambda _: b"", "BadZipFile"),
        (lambda _: b'"\x80"', "BadZipFile"),
        (of([]), "AttributeError"),
        (of(None), "AttributeError"),
        (of({}), "it has other entries"),
        (of({"identity": {}}), "it has other entries"),
        (of(truncated), "UnpicklingError"),
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    other = runner.run(dataclasses.replace(TINY, epochs=1), tmp_path)
    content = (tmp_path / other.filename).read_bytes()
    file = run_until(TINY, tmp_path, 2) / "checkpoint.pt"
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    with pytest.raises(ValueError, match=reason) as caught:
        runner.run(TINY, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"checkpoint: expected a file of a training, got {file} (")
    assert message.endswith("; delete it, or give another path")
    # Nothing that the user may want to look at was touched, and there is no record of what never ran.
    assert file.read_bytes() == damaged
    assert (tmp_path / other.filename).read_bytes() == content
    assert list(records.read(tmp_path)) == [other]
    file.unlink()
    assert runner.run(TINY, tmp_path).status == records.FINISHED


def test_a_checkpoint_of_another_configuration_is_named(tmp_path: Path) -> None:
    file = run_until(TINY, tmp_path, 2) / "checkpoint.pt"
    shutil.copy(run_until(dataclasses.replace(TINY, network_lr=2e-3), tmp_path, 2) / "checkpoint.pt", file)
    with pytest.raises(ValueError, match=r"got .*checkpoint\.pt, which differs in network_lr; delete it") as caught:
        runner.run(TINY, tmp_path)
    assert str(file) in str(caught.value)
    file.unlink()
    assert runner.run(TINY, tmp_path).status == records.FINISHED


def test_a_setting_of_a_later_version_refuses_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_until(TINY, tmp_path, 2)
    later = dataclasses.make_dataclass("Later", [("novelty", int, 3)], bases=(RunConfig,), frozen=True)
    seen: list[dict[str, Any]] = []
    runner.run(later(**dataclasses.asdict(TINY)), tmp_path, seen.append)
    assert [entry["epoch"] for entry in seen] == [3]


def without_logits(state: dict[str, Tensor]) -> None:
    del state["selector.logits"]


def with_more_layers(state: dict[str, Tensor]) -> None:
    state["network.last.bias"] = torch.zeros(3)


def with_wider_layers(state: dict[str, Tensor]) -> None:
    state["network.first.weight"] = torch.zeros(3, 64)


def with_more_parameters(state: dict[str, Tensor]) -> None:
    state["optimizer.99.exp_avg"] = torch.zeros(3)


def with_another_estimator(state: dict[str, Tensor]) -> None:
    state["estimator.slope.memory"] = torch.zeros(3)


@pytest.mark.parametrize(
    "change", [without_logits, with_more_layers, with_wider_layers, with_more_parameters, with_another_estimator]
)
def test_a_checkpoint_of_another_version_is_named(tmp_path: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    folder = run_until(TINY, tmp_path, 2)
    checkpoint = load(folder)
    assert checkpoint is not None
    change(checkpoint.state["training"])
    save_file(checkpoint.path, checkpoint.state, checkpoint.identity)
    with pytest.raises(ValueError, match=r"of this version of ksubset, got .*; delete it to start anew") as caught:
        runner.run(TINY, tmp_path)
    assert str(checkpoint.path) in str(caught.value)
    assert epochs(folder) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history[:-1],
        lambda history: [*history, history[-1]],
        lambda history: history[::-1],
        lambda history: [],
        lambda history: None,
    ],
    ids=["cut", "longer", "reversed", "empty", "none"],
)
def test_another_history_is_named(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    config = dataclasses.replace(TINY, epochs=4)
    folder = run_until(config, tmp_path, 3)
    checkpoint = load(folder)
    assert checkpoint is not None
    state = checkpoint.state | {"history": change(checkpoint.state["history"])}
    save_file(checkpoint.path, state, checkpoint.identity)
    with pytest.raises(ValueError, match=r"checkpoint: expected .* delete it to start anew"):
        runner.run(config, tmp_path)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let every write beyond a size of the file fail, as on a full disk."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    folder = run_until(TINY, tmp_path / "full", 1)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with full_disk(10_000), pytest.raises(OSError, match=r"checkpoint\.pt: cannot be written, what was there"):
        runner.run(TINY, tmp_path / "full", checkpoint_every=1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    record = runner.run(TINY, tmp_path / "full")
    assert numbers(record) == numbers(runner.run(TINY, tmp_path / "whole"))


def test_a_full_disk_at_the_end_leaves_the_checkpoint(tmp_path: Path) -> None:
    folder = run_until(TINY, tmp_path, 2)
    with full_disk(100), pytest.raises(OSError, match=r"seed0-.*\.json: cannot be written"):
        runner.run(TINY, tmp_path, checkpoint_every=2)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
    assert epochs(folder) == 2
    seen: list[dict[str, Any]] = []
    runner.run(TINY, tmp_path, seen.append)
    assert [entry["epoch"] for entry in seen] == [3]


def test_one_process_for_a_run(tmp_path: Path, nursery: Nursery) -> None:
    config = dataclasses.replace(TINY, seed=1)
    nursery.start(config, tmp_path, epochs=2)
    assert [nursery.line(), nursery.line()] == ["1", "2"]
    with pytest.raises(OSError, match=rf"another process is training {runner.resolve(config).name()}; .*--out"):
        runner.run(config, tmp_path)
    # Another run in the same folder is welcome, and so is this one in another.
    other = runner.run(TINY, tmp_path)
    elsewhere = runner.run(config, tmp_path / "elsewhere")
    assert list(records.read(tmp_path)) == [other]
    assert nursery.kill() == KILLED
    assert epochs(folder_of(config, tmp_path)) == 1
    assert numbers(runner.run(config, tmp_path)) == numbers(elsewhere)
    assert not (tmp_path / "checkpoints").exists()


def test_one_thread_for_a_run(tmp_path: Path) -> None:
    config = runner.resolve(TINY)
    with checkpoints.exclusive(tmp_path, config):
        for _ in range(2):
            with pytest.raises(OSError, match="another process"), checkpoints.exclusive(tmp_path, config):
                raise AssertionError("entered twice")
    with checkpoints.exclusive(tmp_path, config) as folder:
        assert folder == folder_of(config, tmp_path)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_loses_no_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, interrupts = 0, (2, 9, 16)
    original = joint.expectation

    def expectation(*arguments: Any) -> Tensor:
        nonlocal steps
        steps += 1
        if steps in interrupts:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    # In the middle of the first epoch, of the second and of the third; five steps each, and those cut short go anew.
    monkeypatch.setattr(joint, "expectation", expectation)
    out = tmp_path / "interrupted"
    for finished in (0, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            runner.run(QUICK, out, checkpoint_every=100)
        assert epochs(folder_of(QUICK, out)) == finished
        (record,) = records.read(out)
        assert (record.status, len(record.history)) == (records.INTERRUPTED, finished)
    steps = 100
    record = runner.run(QUICK, out)
    assert numbers(record) == numbers(runner.run(QUICK, tmp_path / "whole"))
    assert list(records.read(out)) == [record]


@pytest.mark.parametrize("config", [TINY, dataclasses.replace(TINY, method="hybrid")], ids=lambda config: config.method)
def test_killed_at_the_file_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: RunConfig) -> None:
    folder = run_until(config, tmp_path / "killed", 1)

    def write(path: Path, content: bytes) -> None:
        path.with_name(f"{path.name}.1.tmp").write_bytes(content[:100])
        raise Killed

    monkeypatch.setattr(checkpoints.training.checkpoints, "write", write)
    with pytest.raises(Killed):
        runner.run(config, tmp_path / "killed", checkpoint_every=1)
    monkeypatch.undo()
    monkeypatch.setattr(provenance, "commit", lambda: None)
    assert epochs(folder) == 1
    run_until(config, tmp_path / "killed", 2)
    assert epochs(folder) == 2
    record = runner.run(config, tmp_path / "killed")
    assert numbers(record) == numbers(runner.run(config, tmp_path / "whole"))
    assert [path.name for path in (tmp_path / "killed").iterdir()] == [record.filename]
