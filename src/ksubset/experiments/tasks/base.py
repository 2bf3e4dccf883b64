"""What a task is: it brings its data, its selector and its network to the training, and says how they are judged."""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from ksubset.experiments.config import RunConfig
from ksubset.training import Batch, JointTraining

__all__ = ["Add", "DataSet", "Metric", "Part", "Task"]

Add = Callable[[Mapping[str, Tensor]], None]
Part = Literal["validation", "test"]


class DataSet(Protocol):
    """What is known of a data set before it is loaded.

    Attributes:
        label: name for tables and figures.
        n: number of items that subsets are chosen from.
        items: what these are, in the plural.
        k: size of the subsets unless a run says otherwise.
    """

    @property
    def label(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def items(self) -> str: ...
    @property
    def k(self) -> int: ...


@dataclass(frozen=True)
class Metric:
    """A number on validation and test data.

    Arguments:
        label: for the axes of figures, with its unit.
        higher_is_better: else lower is.
    """

    label: str
    higher_is_better: bool = True


class Task(abc.ABC):
    """A selector and a network to be trained on a data set, and how they are judged.

    A new task is a file beside this one and an entry of :data:`ksubset.experiments.tasks.TASKS`; its settings for each
    method stand in ``best.toml``, and published values to be set beside its own in ``published.toml``.

    Arguments:
        config: the run's settings, ``k`` resolved.
        data: as of :meth:`load`.
        device: where to train.

    Attributes:
        name, label: for options and for tables.
        measures: the metrics, by name; no two tasks share a name. Figures show the first.
        sets: the data sets, by name.
        protocols: those that have settings for the task, the default first.
        selector: returns a distribution; trained with `selector_lr`.
        network: trained with `network_lr`.
        num_examples: number of training examples.
        mixed: whether products of matrices are in bfloat16.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    measures: ClassVar[Mapping[str, Metric]]
    sets: ClassVar[Mapping[str, Any]]
    protocols: ClassVar[tuple[str, ...]] = ("best",)
    selector: nn.Module
    network: nn.Module
    num_examples: int
    mixed: bool = False

    def __init__(self, config: RunConfig, data: Any, device: torch.device) -> None:
        assert config.k is not None
        self.config, self.k, self.device = config, config.k, device

    @classmethod
    def data_set(cls, name: str) -> DataSet:
        """What is known of a data set; else a ValueError with the known names."""
        if name not in cls.sets:
            raise ValueError(f"dataset: expected one of {', '.join(cls.sets)} for {cls.name}, got {name!r}")
        known: DataSet = cls.sets[name]
        return known

    @classmethod
    @abc.abstractmethod
    def load(cls, name: str) -> Any:
        """A data set.

        Raises:
            ValueError: the name is unknown, or a file is damaged.
            ImportError: an optional dependency is missing.
            OSError: a download fails.
        """

    @abc.abstractmethod
    def batch(self, rows: Tensor, joint: JointTraining, add: Add) -> Batch:
        """A step's batch.

        Arguments:
            rows: indices of training examples `(B,)`, on the CPU.
            joint: the training, for the step that it is at and the present size of the subsets.
            add: to be called by the losses with sums over the examples, scalar tensors on the device, from which
                :meth:`metrics` follow; ``loss`` and ``losses``, the sum and the number of all losses, among them.
        """

    @abc.abstractmethod
    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics of all the examples that went into the statistics."""

    @abc.abstractmethod
    def evaluate(self, part: Part) -> dict[str, float]:
        """Metrics on validation or test data; puts the modules into 'eval' mode, and draws no random numbers but from
        generators of its own.
        """

    def outcome(self) -> dict[str, Any]:
        """What the record shows besides the metrics, by its field."""
        return {}

    def pictures(self) -> dict[str, Tensor]:
        """Grey images `(H, W)` in [0, 1] of the present state, by name, for whoever watches."""
        return {}
