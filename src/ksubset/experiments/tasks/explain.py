"""Learning to explain: columns that the label of each row depends on, of synthetic data where these are known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ksubset.experiments.config import RunConfig
from ksubset.experiments.tasks.base import Add, Metric, Part, Task
from ksubset.training import Batch, JointTraining

__all__ = ["Explain"]

_ROWS, _VALIDATION_ROWS = 10_000, 2_000
# The weight of the squared logits, at first and at the end, as of `SubsetExplainer`.
_FIRST, _LAST = 1e-2, 1e-4
_SIZES = {
    "xor": 2, "orange-skin": 4, "additive": 4, "switch": 5,
    "syn1": 2, "syn2": 4, "syn3": 4, "syn4": 5, "syn5": 5, "syn6": 5,
}  # fmt: skip


@dataclass(frozen=True)
class ColumnSet:
    """What is known of a synthetic set: `DataSet`'s attributes."""

    label: str
    n: int
    k: int
    items: str = "columns"


class Explain(Task):
    """Columns of each row, against a surrogate that was trained on random subsets when the run began.

    The surrogate depends on the data and the seed alone, so that methods of one seed have the same, and a run that
    goes on has it again.
    """

    name: ClassVar[str] = "explain"
    label: ClassVar[str] = "Learning to explain"
    measures: ClassVar[Mapping[str, Metric]] = {
        "true_positive": Metric("true-positive rate"),
        "false_discovery": Metric("false-discovery rate", higher_is_better=False),
        "median_rank": Metric("median rank", higher_is_better=False),
    }
    sets: ClassVar[Mapping[str, Any]] = {
        name: ColumnSet(name, 11 if name.startswith("syn") else 10, k) for name, k in _SIZES.items()
    }

    def __init__(self, config: RunConfig, data: str, device: torch.device) -> None:
        super().__init__(config, data, device)
        # Every command knows all tasks, and few wait for scikit-learn.
        from ksubset.applications.explain import SubsetExplainer, Synthetic, synthetic  # noqa: PLC0415
        from ksubset.applications.explain.inputs import Inputs  # noqa: PLC0415
        from ksubset.applications.explain.networks import Scorer  # noqa: PLC0415
        from ksubset.applications.explain.training import RowHead, spread  # noqa: PLC0415

        self._spread = spread
        train = synthetic(data, _ROWS, 3 * config.seed)
        self.held_out: dict[Part, Synthetic] = {
            "validation": synthetic(data, _VALIDATION_ROWS, 3 * config.seed + 2),
            "test": synthetic(data, _ROWS, 3 * config.seed + 1),
        }
        fitted = SubsetExplainer(None, self.k, steps=1, device=device, random_state=config.seed).fit(train.x, train.y)
        assert fitted.surrogate_ is not None
        self._surrogate = fitted.surrogate_.to(device)
        self._inputs = Inputs(train.x, None, None, None, None)
        self._x = self._inputs.seen(train.x).to(device)
        self._y = torch.from_numpy(train.y).to(device)
        self.num_examples, n = train.x.shape
        self.selector = RowHead(self.k, Scorer(n, n), validate_args=False).to(device)
        self.network = nn.Module()

    @classmethod
    def load(cls, name: str) -> str:
        cls.data_set(name)
        return name

    def batch(self, rows: Tensor, joint: JointTraining, add: Add) -> Batch:
        rows = rows.to(self.device)
        x, y = self._x[rows], self._y[rows]

        def losses(z: Tensor) -> Tensor:
            answers = self._surrogate((z * x).flatten(0, 1), z.flatten(0, 1)).log_softmax(-1)
            found = nn.functional.nll_loss(answers, y.expand(z.shape[:2]).flatten(), reduction="none").view(z.shape[:2])
            with torch.no_grad():
                add({"loss": found.sum(), "losses": torch.tensor(found.numel())})
            return found

        weight = _FIRST * (_LAST / _FIRST) ** (joint.steps / joint.num_steps)
        return Batch(
            losses, inputs=(x, torch.ones_like(x, dtype=torch.bool)), penalty=lambda dist: weight * self._spread(dist)
        )

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        return {}

    @torch.no_grad()
    def evaluate(self, part: Part) -> dict[str, float]:
        from ksubset.applications.explain import false_discovery_rate, median_rank, true_positive_rate  # noqa: PLC0415

        self.selector.eval()
        data = self.held_out[part]
        x = self._inputs.seen(data.x).to(self.device)
        dist = self.selector(x, torch.ones_like(x, dtype=torch.bool))
        chosen, inclusion = dist.mode.cpu().numpy(), dist.mean.cpu().numpy()
        return {
            "true_positive": true_positive_rate(chosen, data.relevant),
            "false_discovery": false_discovery_rate(chosen, data.relevant),
            "median_rank": float(median_rank(inclusion, data.relevant).mean()),
        }
