import dataclasses
from pathlib import Path

import pytest

from ksubset.experiments import protocols, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.tasks import PRINTED, TASKS

BEST = [(task, method) for task, methods in protocols._best().items() for method in methods]


@pytest.mark.parametrize(
    ("task", "method", "dataset"), [(task, method, name) for task, method in BEST for name in TASKS[task].sets]
)
def test_the_best_settings_fit_every_data_set(task: str, method: str, dataset: str) -> None:
    settings = protocols.find("best", task, dataset, method)
    config = runner.resolve(RunConfig(task=task, method=method, dataset=dataset, epochs=7, seed=3, **settings))
    assert protocols.name(config) == "best"
    assert protocols.name(dataclasses.replace(config, selector_lr=0.123)) is None


@pytest.mark.parametrize(("task", "method"), [cell for cell in BEST if cell[0] in PRINTED])
def test_the_best_settings_train(tmp_path: Path, task: str, method: str) -> None:
    config = RunConfig(task=task, method=method, epochs=2, **protocols.find("best", task, "digits", method))
    assert runner.run(config, tmp_path).status == "finished"


def test_the_defaults_are_the_papers() -> None:
    assert protocols.find("paper", "classification", "mnist", "stgs") == {}
    assert protocols.name(RunConfig(method="stgs", seed=5, epochs=3, k=8)) == "paper"
    assert protocols.name(RunConfig(samples=6)) is None


def test_a_protocol_that_is_none() -> None:
    with pytest.raises(ValueError, match="protocol: expected one of paper, best, got 'worst'"):
        protocols.find("worst", "classification", "mnist", "gs")
    with pytest.raises(ValueError, match=r"'best' has settings for the methods .*sfess-v.* got 'magic'"):
        protocols.find("best", "classification", "mnist", "magic")


def test_the_pixels_of_a_file_of_ones_own_need_not_be_known() -> None:
    settings = protocols.find("best", "reconstruction", "mnist", "sfess-v")
    assert settings["k_start"] > 36
    config = RunConfig(**settings | {"dataset": "mine", "task": "reconstruction", "images": "0a1b2c3d", "k": 2})
    assert protocols.name(dataclasses.replace(config, k_start=36)) == "best"
    assert protocols.name(dataclasses.replace(config, k_start=785)) is None
    assert protocols.name(dataclasses.replace(config, dataset="mnist", k_start=36)) is None
