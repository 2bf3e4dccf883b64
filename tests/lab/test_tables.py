import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ksubset import cli
from ksubset.lab import measure, report
from ksubset.lab.measure import Measurement

pytestmark = pytest.mark.usefixtures("one_thread")


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(cli.app, ["lab", *[str(argument) for argument in arguments]])


def measurement(estimator: str, samples: int, seed: int, mse: float, gradients: int = 0) -> Measurement:
    return Measurement(
        bias=0.5,
        bias_noise=0.25,
        bias_cos=0.125,
        var_cos=0.1,
        error_cos=0.2,
        variance=mse,
        mse=mse,
        problem="toy",
        seed=seed,
        estimator=estimator,
        samples=samples,
        repeats=100,
        seconds=0.002 * samples,
        evaluations=samples,
        gradients=gradients,
    )


RESULT = report.Result(
    report.Settings(samples=(2, 8), repeats=100, seeds=(1, 2)),
    {"torch": "9.9", "device": "CPU"},
    0.0,
    [
        measurement("LeaveOneOut", 2, 1, 6.0),
        measurement("LeaveOneOut", 8, 1, 1.0),
        measurement("LeaveOneOut", 2, 2, 10.0),
        measurement("LeaveOneOut", 8, 2, 3.0),
        measurement("SIMPLE", 8, 1, 0.5, gradients=8),
        measurement("Hybrid(ReplayedSlope)", 8, 1, 0.5),
        measurement("Hybrid(ReplayedSlope)", 8, 2, 3 / 8),
    ],
)


def test_files_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "measurements.json"
    report.save({"toy": RESULT}, path)
    assert report.load(path) == {"toy": RESULT}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"toy": {"settings": {}}}', '{"toy": 3}'])
def test_other_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "measurements.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"measurements\.json: expected measurements written by 'ksubset lab'"):
        report.load(path)


def test_tables() -> None:
    text = report.tables({"toy": RESULT})
    assert "| Hybrid(ReplayedSlope) | 4 (2) |" in text  # the geometric mean of 2 and 8, and the least
    assert "| LeaveOneOut | 2 |" in text  # the mean mse at S = 8; S = 1, 32, 128 were not measured
    assert "| LeaveOneOut | 0.5 ± 0.25 | 0.125 | 0.1 | 0.2 | 2 | 2 | 8 + 0 | 16 |" in text
    # At 8 evaluations what was measured, at 32 nothing; within 3 ms nothing, within 10 ms two samples, then eight.
    assert "| LeaveOneOut | 2 | – | – | – | – | 8 | 2 | 2 |" in text
    assert "torch 9.9" in text
    assert "Instances: 2 (seeds 1, 2). Estimates: 100 at S = 2, 100 at S = 8." in text


def test_a_noisy_reference_is_told() -> None:
    text = report.tables({"toy": dataclasses.replace(RESULT, reference_error=0.031)})
    assert "relative standard error 0.031" in text


def test_values_between_measured_ones() -> None:
    points = [(2, 16.0), (8, 4.0), (32, 0.25)]
    assert report._interpolated(points, 4) == pytest.approx(8.0)
    assert report._interpolated(points, 16) == pytest.approx(1.0)
    assert report._interpolated(points, 33) is None
    assert report._interpolated(points, 1) is None


def test_every_estimator_has_a_line() -> None:
    assert list(report._LINES) == list(measure.ESTIMATORS)
    assert len(set(report._LINES.values())) == len(report._LINES)


def test_the_figure_has_a_column_for_each_problem() -> None:
    figure = report.figure({"toy": RESULT, "again": RESULT})
    assert len(figure.axes) == 4
    left = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert list(left["LeaveOneOut"].get_xdata()) == [2, 8]
    assert list(left["LeaveOneOut"].get_ydata()) == [8.0, 2.0]
    assert list(left["SIMPLE"].get_xdata()) == [16]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "LeaveOneOut",
        "SIMPLE",
        "Hybrid(ReplayedSlope)",
    ]


def test_smoke_and_nothing_is_measured_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--smoke", "--samples", "16", "--repeats", "2", "--out", tmp_path)
    result = invoke("--problem", "threshold", *arguments)
    assert result.exit_code == 0, result.output
    assert "threshold: measurement 4/4, Hybrid(ReplayedSlope), S = 16, mse" in result.output
    before = report.load(tmp_path / "measurements.json")
    # Of the decoder, which takes its time, as much as needs no warming up.
    monkeypatch.setattr(measure, "cells", lambda problem, samples: [("LeaveOneOut", *samples), ("SIMPLE", *samples)])
    result = invoke("--problem", "threshold", "--problem", "decoder", *arguments)
    assert result.exit_code == 0, result.output
    assert "threshold: already in" in result.output
    assert "decoder: reference gradient: estimate 10/10" in result.output
    after = report.load(tmp_path / "measurements.json")
    assert after["threshold"] == before["threshold"]
    assert [(one.estimator, one.samples) for one in after["decoder"].measurements] == [
        ("LeaveOneOut", 16),
        ("SIMPLE", 16),
    ]
    assert after["decoder"].reference_error > 0
    assert (tmp_path / "tables.md").read_text(encoding="utf-8") == report.tables(after)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_ctrl_c_keeps_finished_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = cli.lab._measure

    def interrupted(console: Any, name: str, settings: report.Settings) -> report.Result:
        if name == "quadratic":
            raise KeyboardInterrupt
        return finished(console, name, settings)

    monkeypatch.setattr(cli.lab, "_measure", interrupted)
    names = ("--problem", "threshold", "--problem", "quadratic")
    result = invoke(*names, "--smoke", "--samples", "2", "--repeats", "5", "--out", tmp_path)
    assert result.exit_code == 130
    assert list(report.load(tmp_path / "measurements.json")) == ["threshold"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--problem", "magic"],
            "error: problem: expected one of toy, quadratic, network, threshold, decoder, got 'magic'",
        ),
        (["--samples", "0"], "error: samples: expected integers of 1 or more, got [0]"),
        (["--repeats", "1"], "error: repeats: expected an integer of 2 or more, got 1"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = invoke(*arguments, "--out", tmp_path / "lab")
    assert result.exit_code == 2
    assert result.stderr.strip() == message
    assert not (tmp_path / "lab").exists()


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"reference: expected an integer of 1000 or more, got 1"):
        report.Settings(reference=1)
