"""The comparison of two folders of records, which proves that a change of the code changed no number."""

import dataclasses
import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from ksubset.experiments import records
from ksubset.experiments.records import Record

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "same_records.py"


def test_differences_are_printed(
    tmp_path: Path, make_record: Callable[..., Record], capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    folders = str(tmp_path / "a"), str(tmp_path / "b")
    for folder in folders:
        records.write(make_record(seconds_total=float(len(folder)), commit=folder), folder)
    assert main(*folders) == 0
    record = make_record()
    path = records.write(dataclasses.replace(record, selected=[7, *record.selected[1:]]), folders[1])
    fields = json.loads(path.read_text())
    fields["history"][2]["loss"] *= 1 + 2**-50
    fields["extra"] = 1
    path.write_text(json.dumps(fields))
    records.write(make_record(seed=1), folders[0])
    capsys.readouterr()
    assert main(*folders) == 1
    only, *lines, last = capsys.readouterr().out.splitlines()
    assert only.endswith(": only in one folder")
    assert [line.removeprefix(f"{path.name}: ").split(":")[0] for line in lines] == [
        "extra", "history[2].loss", "selected[0]",
    ]  # fmt: skip
    assert last == "1 records compared, 4 differences"
    assert main(str(tmp_path), str(tmp_path)) == 1
