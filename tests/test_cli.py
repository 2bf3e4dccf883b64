import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ksubset import cli
from ksubset.experiments import records, runner
from ksubset.experiments.config import RunConfig

QUICK = ["run", "--epochs", "1", "--batch-size", "600"]


pytestmark = pytest.mark.usefixtures("one_thread")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_every_knob_is_an_option() -> None:
    result = CliRunner().invoke(cli.app, ["run", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    for field in dataclasses.fields(RunConfig):
        assert f"--{field.name.replace('_', '-')}" in result.output


def test_a_grid_runs_all_combinations(tmp_path: Path) -> None:
    result = invoke(*QUICK, "--method", "gs", "--method", "sfess-v", "--seed", "0", "--seed", "1", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    configs = [record.config for record in records.read(tmp_path)]
    assert {(config.method, config.seed) for config in configs} == {(m, s) for m in ("gs", "sfess-v") for s in (0, 1)}
    assert all((config.epochs, config.batch_size, config.samples) == (1, 600, 5) for config in configs)
    for path in tmp_path.iterdir():
        assert str(path) in result.output
    assert "test accuracy" in result.output


def test_finished_runs_can_be_skipped(tmp_path: Path) -> None:
    assert invoke(*QUICK, "--out", tmp_path).exit_code == 0
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    result = invoke(*QUICK, "--out", tmp_path, "--skip-finished")
    assert result.exit_code == 0
    assert f"already in {path}" in result.output
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "cifar"], "error: dataset: expected one of digits, mnist, fashion-mnist, kmnist, got 'cifar'"),
        (
            ["--method", "magic"],
            "error: method: expected one of gs, stgs, sfess, sfess-v, simple, imle, ncpss, hybrid, got 'magic'",
        ),
        (["--epochs", "0"], "error: epochs: expected an integer >= 1, got 0"),
        (
            ["--method", "gs", "--method", "sfess-v", "--samples", "1"],
            "error: samples: sfess-v needs at least 2, got 1",
        ),
    ],
)
def test_errors_are_one_line_and_come_before_any_run(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = invoke("run", *arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == message
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    result = invoke(*QUICK, "--out", path)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: out: expected a folder to write records into")
    assert len(result.stderr.splitlines()) == 1


def test_ctrl_c_ends_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = runner._Training.evaluate

    def interrupted(self: Any, *data: Any) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(runner._Training, "evaluate", evaluate)
        return evaluate(self, *data)

    monkeypatch.setattr(runner._Training, "evaluate", interrupted)
    result = invoke("run", "--epochs", "30", "--batch-size", "600", "--seed", "0", "--seed", "1", "--out", tmp_path)
    assert result.exit_code == 130
    (record,) = records.read(tmp_path)
    assert (record.status, len(record.history), record.config.seed) == ("interrupted", 1, 0)


def test_tables_and_figures_need_records_only(tmp_path: Path) -> None:
    assert invoke(*QUICK, "--out", tmp_path / "records").exit_code == 0
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


def test_help_lists_what_there_is() -> None:
    from ksubset.experiments import datasets, methods, tasks

    config = {field.name: field.metadata["help"] for field in dataclasses.fields(RunConfig)}
    for name, known in (("task", tasks.TASKS), ("dataset", datasets.SETS), ("method", methods.METHODS)):
        assert all(entry in config[name] for entry in known)
