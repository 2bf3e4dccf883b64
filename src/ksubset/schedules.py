"""Values that change over a training: a temperature that falls, a subset size that shrinks to its target."""

import abc
import math
import numbers
from dataclasses import dataclass

__all__ = ["ExponentialSchedule", "LinearSchedule", "Schedule"]


@dataclass(frozen=True)
class Schedule(abc.ABC):
    """A value for every fraction of the training in [0, 1]: from `start` to `end`, which it keeps from `until` on.

    Arguments:
        start: Value at the start.
        end: Value at the fraction `until` and after it.
        until: Fraction of the training in (0, 1] after which the value stays.

    Raises:
        TypeError: An argument is no number.
        ValueError: An argument is out of its range.

    Example:
        >>> temperature = ExponentialSchedule(1.0, 0.01)
        >>> [round(temperature(share), 3) for share in (0.0, 0.5, 1.0)]
        [1.0, 0.1, 0.01]
        >>> size = ExponentialSchedule(784, 30, until=0.5)
        >>> [size.rounded(share) for share in (0.0, 0.25, 0.5, 1.0)]
        [784, 153, 30, 30]
    """

    start: float
    end: float
    until: float = 1.0

    def __post_init__(self) -> None:
        for name in ("start", "end", "until"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")
        if not 0 < self.until <= 1:
            raise ValueError(f"until must be in (0, 1], got {self.until}")

    def __call__(self, progress: float) -> float:
        """The value after a fraction of the training.

        Raises:
            ValueError: `progress` is outside of [0, 1].
        """
        if not 0 <= progress <= 1:
            raise ValueError(f"progress must be a fraction of the training in [0, 1], got {progress}")
        return self._between(min(progress / self.until, 1.0))

    def rounded(self, progress: float) -> int:
        """The nearest integer to the value: the subset size, where the schedule is one of sizes."""
        return round(self(progress))

    @abc.abstractmethod
    def _between(self, share: float) -> float:
        """The value after a fraction of the way."""


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """Equal steps from `start` to `end`.

    Arguments:
        start, end, until: As of `Schedule`.

    Raises:
        TypeError, ValueError: As of `Schedule`.

    Example:
        >>> schedule = LinearSchedule(0.0, 1.0, until=0.5)
        >>> [schedule(share) for share in (0.0, 0.25, 0.5, 1.0)]
        [0.0, 0.5, 1.0, 1.0]
    """

    def _between(self, share: float) -> float:
        return (1 - share) * self.start + share * self.end


@dataclass(frozen=True)
class ExponentialSchedule(Schedule):
    """Equal ratios from `start` to `end`, both above 0.

    The paper's schedule of the temperature of GS and STGS, from 1 to 0.01 (appendix on hyperparameters).

    References:
        Wijk, Vinuesa and Azizpour (2024), appendix on hyperparameters, https://arxiv.org/abs/2407.16058.

    Arguments:
        start, end, until: As of `Schedule`.

    Raises:
        TypeError, ValueError: As of `Schedule`; or `start` or `end` is not above 0.

    Example:
        >>> temperature = ExponentialSchedule(1.0, 0.01)
        >>> [round(temperature(share), 3) for share in (0.0, 0.25, 0.5, 1.0)]
        [1.0, 0.316, 0.1, 0.01]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start <= 0 or self.end <= 0:
            raise ValueError(f"start and end must be above 0, got {self.start} and {self.end}")

    def _between(self, share: float) -> float:
        return float(self.start ** (1 - share) * self.end**share)
