"""What a training of a selector and a network is told: how to train, and what a step is about."""

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ksubset.distributions import SubsetDistribution
from ksubset.schedules import Schedule

__all__ = ["Batch", "Plan"]


@dataclass(frozen=True)
class Plan:
    """How to train. Learning rates, sizes and the progress of the estimator change from round to round.

    Arguments:
        rounds: Rounds R of the training.
        selector, network: Settings of the optimizer for the parameters of the selector (and of the estimator, if it has
            any), and for those of the network, such as `{"lr": 1e-2}`.
        num_samples: Subsets S in a step, of each row where rows have their own.
        steps_per_round: Steps of the optimizer in a round.
        selecting: Rounds of the first phase, which trains both; after it the network alone is trained, on the likeliest
            subsets. By default all.
        tuning: Settings of the optimizer that replace the network's in that second phase.
        size: Of the subsets, over the progress of the selection, to the `k` of the selector, its default throughout.
        annealing: Rounds until the progress is 1, where schedules end; by default it is so in the last round of the
            selection.
        cosine: Whether learning rates fall to 0 along a cosine, the selector's over the selection, the network's over
            all rounds; else they stay.
        optimizer: Class of the optimizer, which is `fused` if the class takes that; it does not suit complex parameters
            and settings such as `differentiable`, which want `"fused": False` beside them.
        seed: Of the generator of the batches.

    Raises:
        TypeError: A number is none, or no integer, settings are no mapping, or `size`, `cosine` or `optimizer` is of
            another type.
        ValueError: A number is out of range.

    Example:
        >>> from ksubset import ExponentialSchedule
        >>> shrinking = ExponentialSchedule(784, 30, until=0.5)  # from all pixels to 30 of them
        >>> plan = Plan(100, selector={"lr": 1e-2}, network={"lr": 1e-3}, num_samples=4, selecting=80, size=shrinking)
        >>> [plan.size.rounded(share) for share in (0.0, 0.25, 0.5, 1.0)]
        [784, 153, 30, 30]
    """

    rounds: int
    selector: Mapping[str, Any]
    network: Mapping[str, Any]
    num_samples: int = 1
    steps_per_round: int = 1
    selecting: int | None = None
    tuning: Mapping[str, Any] = field(default_factory=dict)
    size: Schedule | None = None
    annealing: float | None = None
    cosine: bool = False
    optimizer: type[Optimizer] = torch.optim.Adam
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"rounds": 1, "num_samples": 1, "steps_per_round": 1} | (
            {} if self.selecting is None else {"selecting": 0}
        )
        for name, lowest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < lowest:
                raise ValueError(f"{name} must be {lowest} or more, got {value}")
        for name in ("selector", "network", "tuning"):
            if not isinstance(settings := getattr(self, name), Mapping):
                raise TypeError(f'{name} must be settings of the optimizer, such as {{"lr": 0.01}}, got {settings!r}')
        if isinstance(self.seed, bool) or not isinstance(self.seed, numbers.Integral):
            raise TypeError(f"seed must be an integer, got {self.seed!r}")
        if not isinstance(self.cosine, bool):
            raise TypeError(f"cosine must be True or False, got {self.cosine!r}")
        if not callable(self.optimizer):
            raise TypeError(f"optimizer must be a class, such as torch.optim.Adam, got {self.optimizer!r}")
        if self.selecting is not None and self.selecting > self.rounds:
            raise ValueError(f"selecting must be at most rounds, {self.rounds}, got {self.selecting}")
        if not (self.size is None or isinstance(self.size, Schedule)):
            raise TypeError(f"size must be a schedule, such as LinearSchedule, or None, got {self.size!r}")
        if not (self.annealing is None or isinstance(self.annealing, numbers.Real)):
            raise TypeError(f"annealing must be a number or None, got {self.annealing!r}")
        if self.annealing is not None and not self.annealing > 0:
            raise ValueError(f"annealing must be above 0, got {self.annealing}")


@dataclass(frozen=True)
class Batch:
    """What a step is about.

    Arguments:
        losses: Maps subsets to losses, as `ksubset.expectation` wants it. In the second phase it is given the likeliest
            subsets, `(1, *B, n)`, or `(1, 1, n)` if there are `rows`.
        inputs: What the selector is called with, nothing for a `FeatureGate`.
        rows: Rows of the batch that have subsets of their own, where the selector returns one distribution for all;
            None if they share the subsets, or the selector returns one for each.
        penalty: Maps the distribution to what is added to the losses and does not depend on the subsets, such as a
            Kullback-Leibler divergence; first phase only. Its gradient is its own: no estimator has a part in it, and
            none pays for it in variance.

    Raises:
        TypeError: `inputs` is no tuple, or `rows` no integer.

    Example:
        >>> x, y = torch.randn(32, 8), torch.randn(32, 1)
        >>> network = torch.nn.Linear(8, 1)
        >>> def losses(z: Tensor) -> Tensor:  # of the rows with what is not chosen masked, `(S, 32)`
        ...     return (network(z * x) - y).square().squeeze(-1)
        >>> batch = Batch(losses, rows=len(x))
        >>> batch.losses(torch.ones(4, 32, 8)).shape
        torch.Size([4, 32])
    """

    losses: Callable[[Tensor], Any]
    inputs: tuple[Any, ...] = ()
    rows: int | None = None
    penalty: Callable[[SubsetDistribution], Tensor] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple):
            raise TypeError(f"inputs must be a tuple, such as (x,), got {type(self.inputs).__name__}")
        if isinstance(self.rows, bool) or not isinstance(self.rows, numbers.Integral | None):
            raise TypeError(f"rows must be an integer or None, got {self.rows!r}")
