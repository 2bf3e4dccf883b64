import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ksubset.experiments import records
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record

Factory = Callable[..., Record]


def test_round_trip(make_record: Factory, tmp_path: Path) -> None:
    record = make_record(task="reconstruction", test={"psnr": 17.5, "ssim": 0.75})
    path = records.write(record, tmp_path / "new" / "folder")
    assert path.name == record.filename
    assert records.load(path) == record
    assert list(records.read(path.parent)) == [record]
    assert [file.name for file in path.parent.iterdir()] == [record.filename]


def test_a_failed_write_leaves_nothing(make_record: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_record()
    records.write(old, tmp_path)

    def dump(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", dump)
    with pytest.raises(OSError, match="disk full"):
        records.write(dataclasses.replace(old, seconds_total=1.0), tmp_path)
    assert list(records.read(tmp_path)) == [old]
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_run_does_not_replace_a_finished_one(make_record: Factory, tmp_path: Path) -> None:
    finished = make_record()
    interrupted = make_record(status="interrupted", history=[])
    records.write(interrupted, tmp_path)
    records.write(finished, tmp_path)
    records.write(interrupted, tmp_path)
    assert list(records.read(tmp_path)) == [finished]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"config": {"colour": 1}}', '{"config": {"epochs": 0}}'])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"broken\.json: expected a record"):
        list(records.read(tmp_path))


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path.name}: expected a folder with records"):
        list(records.read(tmp_path))


def test_a_file_is_no_folder_for_records(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(OSError, match=r"out: expected a folder to write records into, got .*file"):
        records.prepare(path)


def test_a_read_only_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=r"out: expected a folder .*read-only"):
        records.prepare(tmp_path)


def test_description_of_a_protocol() -> None:
    assert records.describe(RunConfig(k=30)) == "500 epochs, M = 5 subsets per batch, k = 30"
    other = RunConfig(
        k=10, epochs=2, subsets_per="example", network_lr=1e-3, seed=3, method="gs", task="reconstruction"
    )
    assert records.describe(other) == "2 epochs, M = 5 subsets per example, k = 10, network_lr = 0.001"


def test_the_latest_of_a_configuration_counts(make_record: Factory) -> None:
    old, new = make_record(), make_record(timestamp="2026-02-01T00:00:00+00:00")
    assert records.latest([new, old]) == [new]
    cut = make_record(timestamp="2026-03-01T00:00:00+00:00", status=records.INTERRUPTED)
    assert records.latest([new, cut, old]) == [new]
