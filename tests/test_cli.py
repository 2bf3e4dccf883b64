import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from pages import DOCS
from typer.testing import CliRunner

import ksubset
from ksubset import cli
from ksubset.experiments import protocols, records
from ksubset.experiments.config import RunConfig, descriptions
from ksubset.experiments.tasks import Classification
from ksubset.training import load

COMMANDS: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
RESULTS = Path(__file__).parents[1] / "results"
QUICK = ["--epochs", "1", "--batch-size", "600"]


pytestmark = pytest.mark.usefixtures("one_thread")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_every_knob_is_an_option(command: str) -> None:
    result = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    chosen = {field.name for field in dataclasses.fields(RunConfig)} - {"images"}  # what a run fills in
    for name in chosen:
        assert f"--{name.replace('_', '-')}" in result.output
    assert "--images" not in result.output


def test_one_run(tmp_path: Path) -> None:
    run = ["run", *QUICK, "--seed", "3", "--out", tmp_path / "records", "--tensorboard", tmp_path / "events"]
    result = invoke(*run)
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "records").iterdir()
    assert "classification digits sfess-v seed 3: test accuracy" in result.output
    assert str(path) in result.output
    before = path.read_bytes()
    result = invoke(*run)
    assert result.exit_code == 0
    assert result.output.strip().endswith(f"already in {path}; delete it to train again")
    assert path.read_bytes() == before
    (folder,) = (tmp_path / "events").iterdir()
    assert folder.name == path.stem
    assert len(list(folder.iterdir())) == 1


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
            "error: dataset: expected one of digits, mnist, fashion-mnist, kmnist, or the name of a file NAME.npz in "
            "the folder that KSUBSET_DATA names, of letters, digits, '.', '_' and '-', got 'cifar'",
        ),
        (
            ["--method", "magic"],
            "error: method: expected one of gs, stgs, sfess, sfess-v, simple, imle, ncpss, hybrid, "
            "reinmax, dps, stg, concrete, hybrid-pathwise, got 'magic'",
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
    assert result.stderr.startswith("error: out: expected a folder to write into")
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
    command = f"{sys.executable} -c 'from ksubset.cli import main; main()' table {tmp_path / 'records'} | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")  # whoever reads may stop
    result = invoke("plot", tmp_path / "records", "--out", tmp_path / "figures")
    assert result.exit_code == 0
    assert result.output.split() == [str(path) for path in map(Path, result.output.split()) if path.is_file()]
    assert len(result.output.split()) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--out", ""),
        ("sweep", "--out", ""),
        ("sweep", "--tensorboard", ""),
        ("lab", "--out", ""),
        ("reproduce", "--figures", ""),
        ("plot", "records", "--out", ""),
        ("select", "data.csv", "--target", "y", "--k", "2", "--checkpoint", ""),
    ],
)
def test_an_empty_path_is_no_folder(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    kind = "file" if arguments[0] == "select" else "folder"
    assert result.exit_code == 2
    assert result.stderr.strip() == f"error: {arguments[-2]}: expected the name of a {kind}, got an empty one"


def test_an_empty_argument_is_no_folder() -> None:
    for arguments in (("table", ""), ("plot", "records", "")):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert result.stderr.strip() == "error: folders: expected the name of a folder, got an empty one"


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", *QUICK, "--tensorboard"),
        ("run", *QUICK, "--tensorboard"),
        ("reproduce", "--smoke", "--figures"),
        ("lab", "--smoke", "--out"),
    ],
)
def test_what_cannot_be_written_ends_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = invoke(*arguments, tmp_path / "file")
    assert result.exit_code == 2
    name = arguments[-1].removeprefix("--")
    assert result.stderr.startswith(f"error: {name}: expected a folder to write into, got {tmp_path / 'file'}")
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("jobs", ["-5", "-2", "0"])
def test_selections_with_no_number_of_jobs(tmp_path: Path, jobs: str) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a,b,y\n" + "".join(f"{i},{i * i % 7},{i % 2}\n" for i in range(60)))
    result = invoke("select", data, "--target", "y", "--k", "1", "--jobs", jobs)
    assert result.exit_code == 2
    message = f"error: jobs: expected 1 or more, or -1 for as many as there are cores, got {jobs}"
    assert result.stderr.splitlines()[-1] == message


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_seed_beyond_those_of_generators(tmp_path: Path, command: str) -> None:
    result = invoke(command, "--seed", str(10**30), "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == f"error: seed: expected an integer from 0 to 4294967295, got {10**30}"


def test_several_at_a_time_say_how_far_they_are(tmp_path: Path) -> None:
    options = ["--epochs", "20", "--batch-size", "600", "--seed", "0", "--seed", "1", "--jobs", "2"]
    result = invoke("sweep", *options, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if "seed 0: epoch " in line]
    said = [line.split("epoch ")[1].split(",")[0] for line in lines]
    # What a worker says last may come after its result, and so never.
    assert len(said) >= 7
    assert said == [f"{epoch}/20" for epoch in range(2, 20, 2)][: len(said)]
    assert all("validation accuracy" in line for line in lines)


def test_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    sizes = {"train": 40, "validation": 10, "test": 10}
    arrays = {f"{part}_images": generator.random((size, 6, 6)) for part, size in sizes.items()}
    arrays |= {f"{part}_labels": np.arange(size) % 2 for part, size in sizes.items()}
    np.savez(tmp_path / "mine.npz", **arrays)
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    for task in ("classification", "reconstruction"):
        result = invoke("run", "--dataset", "mine", "--task", task, "--epochs", "1", "--out", tmp_path / "records")
        assert result.exit_code == 0, result.output
    assert {record.labels["dataset"] for record in records.read(tmp_path / "records")} == {"mine"}
    for part in ("train", "validation", "test"):
        arrays[f"{part}_images"] = np.flip(arrays[f"{part}_images"], 0)
    np.savez(tmp_path / "mine.npz", **arrays)
    result = invoke("run", "--dataset", "mine", "--epochs", "1", "--out", tmp_path / "records")
    assert "already in" not in result.output, "other images under the same name are another run"
    assert len(list(records.read(tmp_path / "records"))) == 3
    table = invoke("table", tmp_path / "records").output
    assert len(set(re.findall(r"images [0-9a-f]{8}", table))) == 2
    (tmp_path / "mine.npz").rename(tmp_path / "moved.npz")
    assert invoke("table", tmp_path / "records").output == table
    assert invoke("plot", tmp_path / "records", "--out", tmp_path / "figures").exit_code == 0
    np.savez(tmp_path / "bytes.npz", **arrays | {"train_images": 255 * arrays["train_images"]})
    result = invoke("run", "--dataset", "bytes", "--out", tmp_path / "records")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: bytes: train_images: expected grey levels from 0 to 1, got ")


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
    assert len({(record.config.task, record.config.method) for record in done}) == len(done) == 26
    assert "Table 1" in result.output
    assert "Table 2" in result.output
    assert (tmp_path / "figures" / "scores.png").is_file()
    (tmp_path / "records" / "another.json").touch()  # whatever else is in the folder plays no part
    (tmp_path / "records" / f"{done[0].config.name()}.json").unlink()
    again = invoke("reproduce", "--smoke", "--out", tmp_path / "records", "--figures", tmp_path / "figures")
    assert again.exit_code == 0, again.output
    assert again.output.count("already in") == 25
    assert again.output.count("seed 0: test ") == 1
    assert "Table 2" in again.output


def test_help_lists_what_there_is() -> None:
    from ksubset.experiments import datasets, methods, tasks

    config = descriptions()
    for name, known in (("task", tasks.TASKS), ("dataset", datasets.SETS), ("method", methods.METHODS)):
        assert all(entry in config[name] for entry in known)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_has_an_example_of_the_command_with_options_that_it_takes(name: str) -> None:
    (example,) = re.findall(rf"Example: ksubset {name}(.*)", COMMANDS[name].help)
    with COMMANDS[name].make_context(name, shlex.split(example)) as context:
        assert context.params


def test_the_page_has_all_commands() -> None:
    assert set(re.findall(r"^\| `ksubset (\w+)", (DOCS / "commands.md").read_text(), re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("ksubset s", {"select", "sweep"}), ("ksubset plot --f", {"--format"}), ("ksubset x", set())],
)
def test_the_shell_completes_commands_and_options(words: str, expected: set[str]) -> None:
    variables = {"_KSUBSET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = CliRunner().invoke(cli.app, [], env=variables, prog_name="ksubset")
    assert set(result.output.split()) == expected


def test_version() -> None:
    assert invoke("--version").output == f"ksubset {ksubset.__version__}\n"


def test_ctrl_c_while_the_commands_are_loaded() -> None:
    code = (
        "import builtins, sys; from ksubset.cli import main; load = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = interrupted; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("arguments", [("--help",), ("table", str(RESULTS))], ids=["help", "table"])
def test_few_commands_wait_for_libraries_of_seconds(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys; from ksubset.cli import main\n"
        "try: main()\n"
        "finally: print({'matplotlib', 'pandas', 'scipy', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_missing_extra_is_one_line() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; from ksubset.cli import main\n"
        "sys.argv[1:] = ['--version']; main(); sys.argv[1:] = ['--help']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == f"ksubset {ksubset.__version__}\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: typer is not installed; ")
    assert "pip install 'ksubset[experiments]'" in line
