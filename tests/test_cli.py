import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ksubset
from ksubset import cli
from ksubset.experiments import protocols, records
from ksubset.experiments.config import RunConfig
from ksubset.experiments.tasks import Classification
from ksubset.training import load

QUICK = ["--epochs", "1", "--batch-size", "600"]


pytestmark = pytest.mark.usefixtures("one_thread")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_every_knob_is_an_option(command: str) -> None:
    result = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    for field in dataclasses.fields(RunConfig):
        assert f"--{field.name.replace('_', '-')}" in result.output


def test_one_run(tmp_path: Path) -> None:
    for _ in range(2):  # a second time it is trained again
        result = invoke(
            "run", *QUICK, "--seed", "3", "--out", tmp_path / "records", "--tensorboard", tmp_path / "events"
        )
        assert result.exit_code == 0, result.output
        (path,) = (tmp_path / "records").iterdir()
        assert "classification digits sfess-v seed 3: test accuracy" in result.output
        assert str(path) in result.output
    (folder,) = (tmp_path / "events").iterdir()
    assert folder.name == path.stem
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--method", "gs", "--method", "stgs"],
            "--method: expected one value, got 2; a grid is a matter of 'ksubset sweep'",
        ),
        (
            ["--selector-lr", "1", "--selector-lr", "1"],
            "--selector-lr: expected one value, got 2; a grid is a matter of 'ksubset sweep'",
        ),
        (
            ["--protocol", "paper", "--protocol", "best"],
            "--protocol: expected one value, got 2; a grid is a matter of 'ksubset sweep'",
        ),
        (["--checkpoint-every", "1", "--checkpoint-every", "2"], "--checkpoint-every: expected one value, got 2"),
    ],
)
def test_a_run_takes_an_option_once(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = invoke("run", *arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == f"error: {message}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments", [("sweep", "--jobs", "1", "--jobs", "2"), ("lab", "--repeats", "2", "--repeats", "2")]
)
def test_every_command_takes_an_option_once(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == f"error: {arguments[1]}: expected one value, got 2"
    assert not list(tmp_path.iterdir())


def test_a_sweep_runs_all_combinations_once(tmp_path: Path) -> None:
    grid = [*QUICK, "--method", "gs", "--method", "sfess-v", "--seed", "0", "--seed", "1", "--out", tmp_path]
    result = invoke("sweep", *grid)
    assert result.exit_code == 0, result.output
    configs = [record.config for record in records.read(tmp_path)]
    assert {(config.method, config.seed) for config in configs} == {(m, s) for m in ("gs", "sfess-v") for s in (0, 1)}
    assert all((config.epochs, config.batch_size, config.samples) == (1, 600, 5) for config in configs)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(str(path) in result.output for path in before)
    assert result.output.count("test accuracy") == 4
    result = invoke("sweep", *grid)
    assert result.exit_code == 0
    assert all(f"already in {path}" in result.output for path in before)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_failures_are_listed_at_the_end(tmp_path: Path) -> None:
    result = invoke("sweep", *QUICK, "--network-lr", "1e30", "--network-lr", "1e-4", "--out", tmp_path)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: classification-digits-sfess-v-seed0-")
    assert "FloatingPointError" in line
    (record,) = records.read(tmp_path)
    assert record.config.network_lr == 1e-4


def test_a_protocol_gives_what_the_command_line_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"network_lr": 1e-3, "selector_lr": 0.05, "epochs": 7}
    monkeypatch.setattr(protocols, "_best", lambda: {"classification": {"gs": settings}})
    options = ["--method", "gs", *QUICK, "--network-lr", "2e-3"]
    assert invoke("run", *options, "--protocol", "best", "--out", tmp_path / "run").exit_code == 0
    (record,) = records.read(tmp_path / "run")
    config = record.config
    assert (config.network_lr, config.selector_lr, config.epochs, config.weight_decay) == (2e-3, 0.05, 1, 1e-4)
    both = ["--protocol", "paper", "--protocol", "best", "--protocol", "best"]
    assert invoke("sweep", *options, *both, "--out", tmp_path / "sweep").exit_code == 0
    assert {record.config.selector_lr for record in records.read(tmp_path / "sweep")} == {1e-2, 0.05}
    assert len(list((tmp_path / "sweep").iterdir())) == 2
    result = invoke("sweep", "--method", "gs", "--method", "stgs", "--protocol", "best", "--out", tmp_path / "none")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: protocol: 'best' has settings for the methods gs of classification")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--dataset", "cifar"],
            "error: dataset: expected one of digits, mnist, fashion-mnist, kmnist for classification, got 'cifar'",
        ),
        (
            ["--method", "magic"],
            "error: method: expected one of gs, stgs, sfess, sfess-v, simple, imle, ncpss, hybrid, got 'magic'",
        ),
        (["--backend", "cloud"], "error: backend: expected one of local, ray, got 'cloud'"),
        (["--epochs", "0"], "error: epochs: expected an integer >= 1, got 0"),
        (
            ["--method", "gs", "--method", "sfess-v", "--samples", "1"],
            "error: samples: sfess-v needs at least 2, got 1",
        ),
    ],
)
def test_errors_are_one_line_and_come_before_any_run(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = invoke("sweep", *arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == message
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    result = invoke("run", *QUICK, "--out", path)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: out: expected a folder to write records into")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Classification.evaluate

    def interrupted(self: Any, *data: Any) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(Classification, "evaluate", evaluate)
        return evaluate(self, *data)

    monkeypatch.setattr(Classification, "evaluate", interrupted)
    options = ["sweep", "--epochs", "3", "--batch-size", "600", "--seed", "0", "--seed", "1", "--out", tmp_path]
    assert invoke(*options).exit_code == 130
    (record,) = records.read(tmp_path)
    assert (record.status, len(record.history), record.config.seed) == ("interrupted", 1, 0)
    result = invoke(*options)
    assert result.exit_code == 0
    assert "already in" not in result.output
    assert [(record.status, len(record.history)) for record in records.read(tmp_path)] == [("finished", 3)] * 2


@contextmanager
def sweeping(out: Path, backend: str) -> Iterator["subprocess.Popen[str]"]:
    """A sweep in processes of its own that never ends, with two runs under way and a third one waiting."""
    # A test suite in the background ignores Ctrl-C, and so would its children.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from ksubset.cli import main; main()"
    )
    options = ["--epochs", "100000", "--batch-size", "600", "--checkpoint-every", "1", "--jobs", "2"]
    seeds = ["--seed", "0", "--seed", "1", "--seed", "2"]
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(
        [sys.executable, "-c", code, "sweep", *options, *seeds, "--backend", backend, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=variables | {"RAY_USAGE_STATS_ENABLED": "0"},
    ) as process:
        try:
            while len(list(out.glob("checkpoints/*/checkpoint.pt"))) < 2:
                assert process.poll() is None
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def check_interrupted(out: Path) -> None:
    found = list(records.read(out))
    assert [record.status for record in found] == ["interrupted"] * 2
    for record in found:
        checkpoint = load(out / "checkpoints" / record.config.name() / "checkpoint.pt")
        assert checkpoint is not None
        assert len(checkpoint.state["history"]) == len(record.history) > 0


@pytest.mark.parametrize(
    ("backend", "kill"), [("local", os.kill), ("local", os.killpg), ("ray", os.killpg)], ids=["parent", "group", "ray"]
)
def test_ctrl_c_ends_all_processes(tmp_path: Path, backend: str, kill: Callable[[int, int], None]) -> None:
    with sweeping(tmp_path, backend) as process:
        kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("interrupted: ")
    assert "Traceback" not in errors
    check_interrupted(tmp_path)


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    with sweeping(tmp_path, "local") as process:
        process.kill()
        process.communicate(timeout=60)  # until nobody is left who could write into the pipes
    check_interrupted(tmp_path)


def test_tables_and_figures_need_records_only(tmp_path: Path) -> None:
    assert invoke("run", *QUICK, "--out", tmp_path / "records").exit_code == 0
    result = invoke("table", tmp_path / "records")
    assert result.exit_code == 0
    assert "| Accuracy ↑ | Digits | ours |" in result.output
    assert "| Total time ↓ | Classification |" in result.output
    result = invoke("plot", tmp_path / "records", "--out", tmp_path / "figures")
    assert result.exit_code == 0
    assert result.output.split() == [str(path) for path in map(Path, result.output.split()) if path.is_file()]
    assert len(result.output.split()) == 3


def test_broken_records_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"config": {}}))
    for command in ("table", "plot"):
        result = invoke(command, tmp_path)
        assert result.exit_code == 2
        assert "a.json: expected a record" in result.stderr


def test_smoke(tmp_path: Path) -> None:
    result = invoke("reproduce", "--smoke", "--out", tmp_path / "records", "--figures", tmp_path / "figures")
    assert result.exit_code == 0, result.output
    done = list(records.read(tmp_path / "records"))
    assert len({(record.config.task, record.config.method) for record in done}) == len(done) == 16
    assert "Table 1" in result.output
    assert "Table 2" in result.output
    assert (tmp_path / "figures" / "scores.png").is_file()
    (tmp_path / "records" / "another.json").touch()  # whatever else is in the folder plays no part
    (tmp_path / "records" / f"{done[0].config.name()}.json").unlink()
    again = invoke("reproduce", "--smoke", "--out", tmp_path / "records", "--figures", tmp_path / "figures")
    assert again.exit_code == 0, again.output
    assert again.output.count("already in") == 15
    assert again.output.count("seed 0: test ") == 1
    assert "Table 2" in again.output


def test_help_lists_what_there_is() -> None:
    from ksubset.experiments import datasets, methods, tasks

    config = {field.name: field.metadata["help"] for field in dataclasses.fields(RunConfig)}
    for name, known in (("task", tasks.TASKS), ("dataset", datasets.SETS), ("method", methods.METHODS)):
        assert all(entry in config[name] for entry in known)


def test_version() -> None:
    assert invoke("--version").output == f"ksubset {ksubset.__version__}\n"


def test_a_missing_extra_is_one_line() -> None:
    code = "import sys; sys.modules['typer'] = None; from ksubset.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: typer is not installed; ")
    assert "pip install 'ksubset[experiments]'" in line
