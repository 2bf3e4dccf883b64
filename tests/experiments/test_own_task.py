"""A task that is not the paper's: a subset for each example, data, metric and published values of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from ksubset.experiments import plots, protocols, published, records, runner, tables, tasks
from ksubset.experiments.config import RunConfig
from ksubset.experiments.plots import style
from ksubset.experiments.tasks import Metric, Task
from ksubset.experiments.tasks.base import Add, Part
from ksubset.nn import SubsetHead
from ksubset.training import Batch, JointTraining

SETTINGS = {"epochs": 4, "batch_size": 64, "selector_lr": 0.05, "network_lr": 0.05}


@dataclass(frozen=True)
class Columns:
    label: str = "Columns"
    n: int = 6
    items: str = "columns"
    k: int = 1


class Pointer(Task):
    """The first column says by its sign whether the target is in the third or in the fifth."""

    name: ClassVar[str] = "pointer"
    label: ClassVar[str] = "Pointer"
    measures: ClassVar[Mapping[str, Metric]] = {"wrong": Metric("wrong columns", higher_is_better=False)}
    sets: ClassVar[Mapping[str, Columns]] = {"columns": Columns()}

    def __init__(self, config: RunConfig, data: Tensor, device: torch.device) -> None:
        super().__init__(config, data, device)
        self.x = data
        self.right = torch.where(data[:, 0] > 0, 2, 4)
        self.num_examples = 512
        self.selector = SubsetHead(self.k, nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6)))
        self.network = nn.Linear(6, 1)

    @classmethod
    def load(cls, name: str) -> Tensor:
        return torch.randn(1024, 6, generator=torch.Generator().manual_seed(0))

    def batch(self, rows: Tensor, joint: JointTraining, add: Add) -> Batch:
        x, right = self.x[rows], self.right[rows, None]
        y = x.gather(1, right).squeeze(1)

        def losses(z: Tensor) -> Tensor:
            loss = (self.network(z * x).squeeze(-1) - y).square()
            wrong = 1 - z.detach().gather(-1, right.expand(len(z), -1, -1))
            add({"loss": loss.detach().sum(), "losses": torch.tensor(loss.numel()), "wrong": wrong.sum()})
            return loss

        return Batch(losses, inputs=(x,))

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        return {"wrong": float(statistics["wrong"]) / float(statistics["losses"])}

    @torch.no_grad()
    def evaluate(self, part: Part) -> dict[str, float]:
        self.selector.eval()
        rows = slice(512, 768) if part == "validation" else slice(768, 1024)
        missed = self.selector(self.x[rows]).mode.argmax(-1) != self.right[rows]
        return {"wrong": float(missed.float().mean())}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "pointer", Pointer)
    monkeypatch.setitem(tasks.MEASURES, "wrong", Pointer.measures["wrong"])
    monkeypatch.setitem(style.METRICS, "wrong", Pointer.measures["wrong"].label)
    monkeypatch.setattr(protocols, "_best", lambda: {"pointer": {"sfess-v": SETTINGS, "simple": SETTINGS}})


def config(**settings: Any) -> RunConfig:
    (one,) = protocols.grid([], {"task": ["pointer"], "dataset": ["columns"]} | {k: [v] for k, v in settings.items()})
    return one


def test_it_trains_resumes_and_is_tabulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        runner.run(config(method=method, seed=seed), tmp_path) for method in ("sfess-v", "simple") for seed in (0, 1)
    ]
    assert list(records.read(tmp_path)) == made
    assert all(protocols.name(record.config) == "best" for record in made)
    assert (made[0].side, made[0].selected) == (None, [])
    assert made[0].test["wrong"] < made[0].history[0]["train"]["wrong"] / 2
    keys = ("dataset", "metric", "method", "value", "source")
    entry = dict(zip(keys, ("Columns", "Wrong columns", "Oracle", "0", "by definition"), strict=True))
    load, values = published.load, {"published": {"pointer": [entry]}}
    monkeypatch.setattr(published, "load", lambda name="paper": values.get(name) or load(name))
    text = tables.results(made)
    assert text.startswith("Pointer: test set")
    assert "| Metric | Dataset | Source | SFESS-V | SIMPLE |" in text
    assert "| Wrong columns ↓ | Columns | ours |" in text
    assert "| Columns | Wrong columns | Oracle | 0 | by definition |" in text
    assert "paper" not in text + tables.runtime(made).partition("The paper's rows")[0]
    cells = next(line for line in text.splitlines() if line.startswith("| Wrong")).split(" | ")[3:]
    means = [sum(run.test["wrong"] for run in made if run.labels["method"] == label) for label in ("SFESS-V", "SIMPLE")]
    assert cells[means.index(min(means))].startswith("**")
    names = {path.name for path in plots.plot(made, tmp_path / "figures")}
    assert "convergence-pointer-validation-best-4-epochs-k-1.png" in names


def test_its_names_are_checked() -> None:
    with pytest.raises(ValueError, match="dataset: expected one of columns for pointer, got 'digits'"):
        runner.resolve(RunConfig(task="pointer", dataset="digits"))
    with pytest.raises(ValueError, match="k: expected less than the 6 columns of columns, got 6"):
        runner.resolve(RunConfig(task="pointer", dataset="columns", k=6))
    with pytest.raises(ValueError, match="protocol: expected best for pointer, got 'paper'"):
        protocols.grid(["paper"], {"task": ["pointer"], "dataset": ["columns"]})
