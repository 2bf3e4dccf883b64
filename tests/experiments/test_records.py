import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ksubset.experiments import protocols, records
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

    def replace(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", replace)
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


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"config": {"colour": 1}}', '{"config": {"epochs": 0}}', "[" * 100_000],
    ids=["empty", "cut", "list", "mapping", "setting", "value", "deep"],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"broken\.json: expected a record"):
        list(records.read(tmp_path))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("test", "accuracy"), None, "test: expected numbers by name"),
        (("test", "accuracy"), "0.9", "test: expected numbers by name"),
        (("test", "accuracy"), float("nan"), "a number is NaN"),
        (("test", "accuracy"), 1e999, "a number is Infinity"),
        (("test",), {}, "test: expected the metrics of validation"),
        (("seconds_total",), None, "seconds_total: expected a number"),
        (("seconds_per_epoch",), "2", "seconds_per_epoch: expected a number"),
        (("labels",), {}, "labels: expected names of task, dataset and method"),
        (("history", 1, "validation"), {}, "history: expected the same metrics for validation in each epoch"),
        (("history", 1, "epoch"), 3, "history: expected the epochs from 1 in their order"),
        (("history", 0), None, "history: expected the epochs from 1 in their order"),
        (("history", 2, "loss"), None, "history: expected loss and seconds of each epoch"),
        (("history",), None, "history: expected a list"),
        (("history",), [], "history: expected the epochs of a finished run"),
        (("config", "k"), None, "k: expected a number"),
        (("config", "task"), "mine", ".json: expected a record written by 'ksubset run', got ValueError(\"task: "),
        pytest.param(("config", "k_until"), 10**400, "k_until: expected a number in (0, 1]", id="no float"),
        pytest.param(("seconds_total",), 10**400, "seconds_total: expected a number", id="no float either"),
        (("side",), 8.0, "side: expected a whole number"),
        (("status",), "done", "status: expected finished or interrupted"),
        (("format",), 3, "format: expected 1 to 2"),
        (("timestamp",), 7, "timestamp: expected text"),
        (("originals",), [[1, 2]], "originals: expected images of side x side grey levels"),
        (("side",), None, "side: expected a number where there are images"),
    ],
)
def test_fields_of_another_kind_are_named(
    make_record: Factory, tmp_path: Path, path: tuple[Any, ...], value: object, message: str
) -> None:
    file = records.write(make_record(), tmp_path)
    fields = json.loads(file.read_text()) | {"originals": [[0] * 64], "reconstructions": [[0] * 64]}
    file.write_text(json.dumps(fields))
    records.load(file)
    parent = fields
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    file.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=re.escape(message)):
        records.load(file)


def test_no_record_is_invalid_json(make_record: Factory, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        records.write(make_record(test={"accuracy": math.inf}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path.name}: expected a folder with records"):
        list(records.read(tmp_path))


def test_description_of_the_papers_protocol() -> None:
    assert records.describe(RunConfig(k=30)) == "protocol paper: 500 epochs, M = 5 subsets per batch, k = 30"
    other = RunConfig(k=10, epochs=2, seed=3, method="gs", task="reconstruction")
    assert records.describe(other) == "protocol paper: 2 epochs, M = 5 subsets per batch, k = 10"


def test_one_description_for_the_best_of_all_methods(best: dict[str, dict[str, object]]) -> None:
    configs = [RunConfig(k=30, epochs=50, method=method, **knobs) for method, knobs in best.items()]
    assert {records.describe(config) for config in configs} == {"protocol best: 50 epochs, k = 30"}
    assert {records.slug(config) for config in configs} == {"best-50-epochs-k-30"}


def test_settings_that_differ_have_descriptions_that_differ() -> None:
    near = {records.describe(RunConfig(k=3, network_lr=rate)) for rate in (0.001234561, 0.001234562)}
    assert len(near) == 2
    assert all("network_lr = 0.00123456" in text for text in near)
    # Of one's own images the protocol's start may be any smaller number.
    own: dict[str, Any] = {
        "task": "reconstruction",
        "dataset": "mine",
        "images": "0a1b2c3d",
        "k": 3,
        "k_start": 10,
        "epochs": 3,
    }
    mine = RunConfig(**protocols.find("best", "reconstruction", "mnist", "sfess-v") | own)
    assert records.describe(mine) == "protocol best: 3 epochs, k = 3, images 0a1b2c3d, k_start = 10"
    assert records.slug(mine) != records.slug(dataclasses.replace(mine, k_start=4))


def test_description_of_no_protocol() -> None:
    config = RunConfig(k=10, epochs=2, network_lr=1e-3, lr_schedule="cosine", k_start=20, seed=3)
    assert records.describe(config) == (
        "2 epochs, M = 5 subsets per batch, k = 10, k_start = 20, network_lr = 0.001, lr_schedule = cosine"
    )


def test_description_without_what_a_study_varies() -> None:
    config = RunConfig(k=30, k_start=200, k_until=0.8)
    assert records.describe(config, ("k_start", "k_until")) == records.describe(RunConfig(k=30))
    varied = ("samples",)
    assert records.describe(RunConfig(k=30, samples=2), varied) == (
        "protocol paper: 500 epochs, M subsets per batch, k = 30"
    )
    assert records.describe(RunConfig(k=30, samples=2, subsets_per="example"), varied) == (
        "500 epochs, M subsets per example, k = 30"
    )


def test_description_of_one() -> None:
    config = RunConfig(k=30, epochs=1, samples=1)
    assert records.describe(config) == "1 epoch, M = 1 subset per batch, k = 30"
    assert records.slug(config) == "1-epoch-m-1-subset-per-batch-k-30"


def test_file_names_tell_settings_apart() -> None:
    assert records.slug(RunConfig(k=30)) == "paper-500-epochs-k-30"
    assert records.slug(RunConfig(k=30, subsets_per="example")) == "500-epochs-m-5-subsets-per-example-k-30"
    settings = ({"k_start": 60}, {"k_start": 200}, {"k_start": 60, "k_until": 1.0}, {"lr_schedule": "cosine"})
    slugs = {records.slug(RunConfig(k=30, **knobs)) for knobs in settings}
    assert len(slugs) == 4
    assert all(re.fullmatch("500-epochs-m-5-subsets-per-batch-k-30-[0-9a-f]{6}", slug) for slug in slugs)


def test_the_latest_of_a_configuration_counts(make_record: Factory) -> None:
    old, new = make_record(), make_record(timestamp="2026-02-01T00:00:00+00:00")
    assert records.latest([new, old]) == [new]
    cut = make_record(timestamp="2026-03-01T00:00:00+00:00", status=records.INTERRUPTED)
    assert records.latest([new, cut, old]) == [new]


def test_the_latest_on_each_device(make_record: Factory) -> None:
    one, other = make_record(), make_record(device="Other machine", timestamp="2026-02-01T00:00:00+00:00")
    assert records.latest([one, other]) == [other]
    assert records.latest([one, other], by_device=True) == [one, other]
