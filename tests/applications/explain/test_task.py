"""Learning to explain as a task of the experiments."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ksubset.applications.explain import SYNTHETIC, SubsetExplainer, synthetic
from ksubset.experiments import protocols, runner, tables
from ksubset.experiments.config import RunConfig
from ksubset.experiments.tasks import explain


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_ROWS", 1500)
    monkeypatch.setattr(explain, "_VALIDATION_ROWS", 300)
    fit = SubsetExplainer.fit

    def quick(self: Any, *data: Any) -> Any:
        return fit(self.set_params(surrogate_steps=300), *data)

    monkeypatch.setattr(SubsetExplainer, "fit", quick)


def config(**settings: Any) -> RunConfig:
    values = {"task": ["explain"], "dataset": ["syn2"], "epochs": [20]}
    (one,) = protocols.grid([], values | {name: [value] for name, value in settings.items()})
    return runner.resolve(one)


def test_the_columns_are_found(tmp_path: Path) -> None:
    record = runner.run(config(), tmp_path)
    assert record.config.k == 4
    assert record.test["true_positive"] > 0.8
    # With as many as there are, what is found wrongly is what is missed.
    assert record.test["false_discovery"] == pytest.approx(1 - record.test["true_positive"])
    assert record.test["median_rank"] < 3.5
    text = tables.results([record])
    assert "| True-positive rate ↑ | syn2 | ours |" in text
    assert "| False-discovery rate ↓ | syn2 | ours |" in text


def test_a_run_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    short = dataclasses.replace(config(method="hybrid"), epochs=4)
    whole = runner.run(short, tmp_path / "whole")

    def stop(entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        runner.run(short, tmp_path / "parts", stop, checkpoint_every=1)
    parts = runner.run(short, tmp_path / "parts")
    assert parts.test == whole.test
    assert [entry["validation"] for entry in parts.history] == [entry["validation"] for entry in whole.history]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_sizes(name: str) -> None:
    relevant = synthetic(name, 100, seed=0).relevant
    assert explain.Explain.sets[name].n == relevant.shape[1]
    assert runner.resolve(config(dataset=name)).k == relevant.sum(1).max()


def test_no_other_sets() -> None:
    assert list(explain.Explain.sets) == list(SYNTHETIC)
    with pytest.raises(ValueError, match=r"dataset: expected one of xor, .*, syn6 for explain, got 'digits'"):
        config(dataset="digits")
