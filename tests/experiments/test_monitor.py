import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ksubset.experiments import runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.monitor import TensorBoard

QUICK = RunConfig(dataset="digits", k=10, epochs=3, batch_size=600)


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    return events


@pytest.mark.parametrize("task", ["classification", "reconstruction"])
def test_curves_and_pictures(tmp_path: Path, task: str) -> None:
    config = dataclasses.replace(QUICK, task=task)
    with TensorBoard(tmp_path / "tensorboard", config.name()) as monitor:
        record = runner.run(config, tmp_path, monitor=monitor)
    (folder,) = (tmp_path / "tensorboard").iterdir()
    assert folder.name == config.name()
    events = read(folder)
    metrics = {"classification": {"accuracy"}, "reconstruction": {"psnr", "ssim"}}[task]
    curves = {f"train/{name}" for name in metrics - {"ssim"}} | {f"validation/{name}" for name in metrics}
    assert set(events.Tags()["scalars"]) == curves | {"loss", "seconds", "evaluations"}
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx([e["loss"] for e in record.history])
    validation = events.Scalars(f"validation/{min(metrics)}")
    assert [event.value for event in validation] == pytest.approx(
        [entry["validation"][min(metrics)] for entry in record.history]
    )
    sizes = {name: {(e.width, e.height) for e in events.Images(name)} for name in events.Tags()["images"]}
    expected = {"inclusion": {(8, 8)}, "mask": {(8, 8)}}
    assert sizes == (expected if task == "classification" else expected | {"reconstructions": {(24, 16)}})


def test_pictures_are_few(tmp_path: Path) -> None:
    config = dataclasses.replace(QUICK, epochs=65)
    with TensorBoard(tmp_path / "tensorboard", config.name()) as monitor:
        runner.run(config, tmp_path, monitor=monitor)
    events = read(tmp_path / "tensorboard" / config.name())
    assert [event.step for event in events.Images("mask")] == [1, *range(3, 64, 3), 65]
    assert len(events.Scalars("loss")) == 65


def test_no_epoch_is_shown_twice_after_a_crash(tmp_path: Path) -> None:
    def crash(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 5:
            raise RuntimeError("crash")

    config = dataclasses.replace(QUICK, epochs=6)
    with (
        pytest.raises(RuntimeError, match="crash"),
        TensorBoard(tmp_path / "tensorboard", config.name()) as monitor,
    ):
        runner.run(config, tmp_path, crash, checkpoint_every=3, monitor=monitor)
    folder = tmp_path / "tensorboard" / config.name()
    assert [event.step for event in read(folder).Scalars("loss")] == [1, 2, 3, 4]
    with TensorBoard(tmp_path / "tensorboard", config.name()) as monitor:
        record = runner.run(config, tmp_path, monitor=monitor)
    events = read(folder).Scalars("loss")
    assert [event.step for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event.value for event in events] == pytest.approx([entry["loss"] for entry in record.history])


def test_watching_changes_no_number(tmp_path: Path) -> None:
    config = dataclasses.replace(QUICK, task="reconstruction")
    with TensorBoard(tmp_path / "tensorboard", config.name()) as monitor:
        watched = runner.run(config, tmp_path / "a", monitor=monitor)
    alone = runner.run(config, tmp_path / "b")
    assert watched.test == alone.test
    assert watched.inclusion == alone.inclusion


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"tensorboard is not installed; .*ksubset\[tensorboard\]"):
        TensorBoard(tmp_path, "run")
