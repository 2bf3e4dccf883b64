import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ksubset import cli
from ksubset._support import files
from ksubset.lab import measurements, results, tables
from ksubset.lab.measurements import Measurement

pytestmark = pytest.mark.usefixtures("one_thread")


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(cli.app, ["lab", *[str(argument) for argument in arguments]])


def test_smoke_and_nothing_is_measured_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--smoke", "--samples", "16", "--repeats", "2", "--out", tmp_path)
    result = invoke("--problem", "threshold", *arguments)
    assert result.exit_code == 0, result.output
    assert "threshold: measurement 4/4, Hybrid(ReplayedSlope), S = 16, mse" in result.output
    before = results.load(tmp_path / "measurements.json")
    # Of the decoder, which takes its time, as much as needs no warming up.
    everything = measurements.cells
    two = ["LeaveOneOut", "SIMPLE"]
    monkeypatch.setattr(
        measurements, "cells", lambda smooth, s: [(x, *s) for x in two] if smooth else everything(False, s)
    )
    result = invoke("--problem", "threshold", "--problem", "decoder", *arguments)
    assert result.exit_code == 0, result.output
    assert "threshold: already in" in result.output
    assert "decoder: reference gradient: estimate 10/10" in result.output
    after = results.load(tmp_path / "measurements.json")
    assert after["threshold"] == before["threshold"]
    assert [(one.estimator, one.samples) for one in after["decoder"].measurements] == [
        ("LeaveOneOut", 16),
        ("SIMPLE", 16),
    ]
    assert after["decoder"].reference_error > 0
    assert (tmp_path / "tables.md").read_text(encoding="utf-8") == tables.tables(after)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_what_is_missing_is_measured_alone(tmp_path: Path) -> None:
    arguments = ("--problem", "threshold", "--smoke", "--samples", "2", "--repeats", "2", "--out", tmp_path)
    assert invoke(*arguments).exit_code == 0
    path = tmp_path / "measurements.json"
    (result,) = results.load(path).values()
    rest = [one for one in result.measurements if one.estimator != "LeaveOneOut"]
    results.save({"threshold": dataclasses.replace(result, measurements=rest)}, path)
    assert "threshold: measurement 1/1, LeaveOneOut, S = 2" in invoke(*arguments).output
    again = results.load(path)["threshold"].measurements
    assert again[:-1] == rest
    assert again[-1].mse == next(one.mse for one in result.measurements if one.estimator == "LeaveOneOut")


def test_the_smoke_test_makes_as_many_estimates_as_are_asked_for(tmp_path: Path) -> None:
    arguments = ("--problem", "threshold", "--smoke", "--samples", "2", "--out", tmp_path)
    assert invoke(*arguments, "--repeats", "30").exit_code == 0
    assert {one.repeats for one in results.load(tmp_path / "measurements.json")["threshold"].measurements} == {30}


def test_other_numbers_of_samples_are_measured_besides(tmp_path: Path) -> None:
    arguments = ("--problem", "threshold", "--smoke", "--out", tmp_path)
    assert invoke(*arguments, "--samples", "2", "--repeats", "2").exit_code == 0
    before = results.load(tmp_path / "measurements.json")["threshold"].measurements
    output = invoke(*arguments, "--samples", "4", "--samples", "2", "--repeats", "2").output
    assert f"threshold: measurement {len(before)}/{len(before)}" in output
    both = results.load(tmp_path / "measurements.json")["threshold"].measurements
    assert both[: len(before)] == before
    assert {one.samples for one in both[len(before) :]} == {4}
    # What was measured with other repeats is not kept beside, and this is said.
    result = invoke(*arguments, "--samples", "4", "--repeats", "3")
    assert result.exit_code == 0
    assert f"threshold: measured again, as {tmp_path / 'measurements.json'} has it with repeats 2\n" in result.output
    assert {one.samples for one in results.load(tmp_path / "measurements.json")["threshold"].measurements} == {4}


def test_ctrl_c_loses_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_one, measured = measurements.measure, list[Measurement]()

    def interrupted(*arguments: Any) -> Measurement:
        if len(measured) == 6:
            raise KeyboardInterrupt
        measured.append(measure_one(*arguments))
        return measured[-1]

    monkeypatch.setattr(measurements, "measure", interrupted)
    names = ("--problem", "threshold", "--problem", "quadratic")
    assert invoke(*names, "--smoke", "--samples", "2", "--repeats", "5", "--out", tmp_path).exit_code == 130
    kept = results.load(tmp_path / "measurements.json")
    labels = [one.estimator for name in kept for one in kept[name].measurements]
    assert [label.partition("(")[0] for label in labels] == [one.estimator for one in measured]
    assert [len(kept[name].measurements) for name in ("threshold", "quadratic")] == [4, 2]


def test_one_process_for_a_folder(tmp_path: Path) -> None:
    with files.exclusive(tmp_path / ".lock", "busy"):
        result = invoke("--problem", "threshold", "--smoke", "--samples", "2", "--repeats", "2", "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip().endswith("another process is measuring into it; let it finish, or give another folder "
                                          "with --out")  # fmt: skip
    assert not (tmp_path / "measurements.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--problem", "magic"],
            "error: problem: expected one of toy, quadratic, network, threshold, decoder, got 'magic'",
        ),
        (["--samples", "0"], "error: samples: expected integers from 1 to 1048576, got [0]"),
        (["--samples", "1000000000000"], "error: samples: expected integers from 1 to 1048576, got [1000000000000]"),
        (["--repeats", "1"], "error: repeats: expected an integer of 2 or more, got 1"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = invoke(*arguments, "--out", tmp_path / "lab")
    assert result.exit_code == 2
    assert result.stderr.strip() == message
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("arguments", [("toy", "2"), ("threshold", "1"), ("quadratic", "3", "5")], ids=" ".join)
def test_any_number_of_samples_has_its_tables(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    problem, *samples = arguments
    options = [option for number in samples for option in ("--samples", number)]
    result = invoke("--problem", problem, *options, "--repeats", "2", "--out", tmp_path, "--smoke")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "|  |\n" not in text
    assert all(f"| S = {number} |" in text or f"| mse | S = {number} " in text for number in samples[:1])
