"""The experiments' task: neighbours among all training rows, whatever method trains the embedding."""

from pathlib import Path

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from ksubset.experiments import datasets, protocols, runner, tables
from ksubset.experiments.methods import METHODS
from ksubset.experiments.tasks import TASKS
from ksubset.experiments.training import Training

# The others have settings for pixels alone.
SETTLED = [name for name in METHODS if name not in ("reinmax", "dps", "stg", "concrete", "hybrid-pathwise")]


def test_it_trains_and_is_tabulated(tmp_path: Path) -> None:
    (config,) = protocols.grid([], {"task": ["neighbours"], "method": ["sfess-v"], "epochs": [4]})
    record = runner.run(config, tmp_path)
    assert protocols.name(record.config) == "best"
    assert record.history[-1]["train"]["vote_accuracy"] > record.history[0]["train"]["vote_accuracy"]
    assert record.test["vote_accuracy"] > 0.93
    assert "| Accuracy of the neighbours' vote ↑ | Digits | ours |" in tables.results([record])


def test_its_accuracy_is_that_of_the_nearest_rows() -> None:
    (config,) = protocols.grid([], {"task": ["neighbours"], "method": ["simple"], "epochs": [1]})
    config, data = runner.resolve(config), datasets.load("digits")
    task = Training(config, data, torch.device("cpu")).task
    assert TASKS["neighbours"].data_set("digits").n == len(data.train_images)
    assert (config.k, task.num_examples) == (5, len(data.train_images) // config.batch_size * config.batch_size)
    with torch.no_grad():
        points, others = (task.selector.embedding(x).numpy() for x in (data.train_images, data.test_images))
    peer = KNeighborsClassifier(5).fit(points, data.train_labels.numpy())
    expected = peer.score(others, data.test_labels.numpy())
    assert task.evaluate("test")["vote_accuracy"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("method", SETTLED)
def test_each_method_has_settings(method: str) -> None:
    (config,) = protocols.grid([], {"task": ["neighbours"], "method": [method], "dataset": ["mnist"]})
    assert runner.resolve(config).batch_size > 5
