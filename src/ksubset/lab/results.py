"""What the laboratory has measured, as a JSON file, and its means over the instances of a problem."""

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ksubset._support import files
from ksubset.lab.measurements import ESTIMATORS, Measurement, Quality
from ksubset.lab.problems import CHUNK, SEEDS

__all__ = ["QUALITIES", "Mean", "Result", "Settings", "by_estimator", "comparable", "load", "save"]

_MOST_SAMPLES = 2**20
QUALITIES = tuple(field.name for field in dataclasses.fields(Quality))
"""Names of what a measurement says of the estimates."""


@dataclass(frozen=True)
class Settings:
    """What is measured at every problem.

    Arguments:
        samples: Numbers of samples of one estimate.
        repeats: Estimates, at most; a problem's budget may allow fewer.
        seeds: Instances of the small problems; of the decoder there is the first one only.
        reference: Evaluations of f for the decoder's reference gradient.

    Raises:
        ValueError: A number is too small, no integer or there twice.
    """

    samples: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    repeats: int = 10_000
    seeds: tuple[int, ...] = SEEDS
    reference: int = 2_000_000

    def __post_init__(self) -> None:
        for name, values in (("samples", self.samples), ("seeds", self.seeds)):
            if not values or len(set(values)) < len(values) or not all(isinstance(value, int) for value in values):
                raise ValueError(f"{name}: expected different integers, got {list(values)}")
        if min(self.samples) < 1 or max(self.samples) > _MOST_SAMPLES:
            raise ValueError(f"samples: expected integers from 1 to {_MOST_SAMPLES}, got {list(self.samples)}")
        if not isinstance(self.repeats, int) or self.repeats < 2:
            raise ValueError(f"repeats: expected an integer of 2 or more, got {self.repeats}")
        if self.reference < 2 * CHUNK:
            raise ValueError(f"reference: expected an integer of {2 * CHUNK} or more, got {self.reference}")


@dataclass(frozen=True)
class Result:
    """All measurements at one kind of problem.

    Arguments:
        settings: What was asked for.
        environment: Versions, device and threads.
        reference_error: Standard error of the reference gradient over its norm; 0 if it is exact.
        measurements: One for each instance, estimator and number of samples.
    """

    settings: Settings
    environment: dict[str, str]
    reference_error: float
    measurements: list[Measurement]


def save(results: Mapping[str, Result], path: str | os.PathLike[str]) -> None:
    """Write results, by the name of their problem, to six digits; on an OSError what was there stays."""
    files.write(Path(path), json.dumps({name: _fields(result) for name, result in results.items()}).encode())


def load(path: str | os.PathLike[str]) -> dict[str, Result]:
    """Read what `save` wrote.

    Raises:
        ValueError: The file is of another kind.
        OSError: The file cannot be read.
    """
    try:
        results = {name: _result(**fields) for name, fields in json.loads(Path(path).read_text()).items()}
        for name, result in results.items():
            if not (result.measurements and isinstance(result.environment, dict)):
                raise ValueError(f"{name} without measurements or without their environment")
            for one in result.measurements:
                if one.estimator not in ESTIMATORS:
                    raise ValueError(f"the estimator {one.estimator!r}")
                for column in (*QUALITIES, "seconds"):
                    if not isinstance(value := getattr(one, column), int | float):
                        raise ValueError(f"{column} = {value!r}")
        return results
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: expected measurements written by 'ksubset lab', got {error!r}") from error


_COLUMNS = tuple(field.name for field in dataclasses.fields(Measurement))


def _fields(result: Result) -> dict[str, Any]:
    # Thousands of measurements: their names once, and no digits beyond their noise.
    rows = [[getattr(one, column) for column in _COLUMNS] for one in result.measurements]
    rounded = [[float(f"{value:.6g}") if isinstance(value, float) else value for value in row] for row in rows]
    return dataclasses.asdict(dataclasses.replace(result, measurements=[])) | {
        "columns": _COLUMNS,
        "measurements": rounded,
    }


def _result(settings: dict[str, Any], columns: list[str], measurements: list[list[Any]], **rest: Any) -> Result:
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return Result(
        Settings(**settings),
        measurements=[Measurement(**dict(zip(columns, row, strict=True))) for row in measurements],
        **rest,
    )


@dataclass(frozen=True)
class Mean(Quality):
    """A measurement, mean over the instances; median for the seconds, which other processes disturb."""

    seconds: float
    evaluations: int
    gradients: int

    @property
    def cost(self) -> int:
        """Evaluations, one of the gradient being one more."""
        return self.evaluations + self.gradients


def comparable(result: Result) -> Result:
    """Of each number of samples the instances that all its estimators were measured on, as means over others are not
    compared; all, where there is no such instance.
    """
    kept = []
    for samples in sorted({one.samples for one in result.measurements}):
        measured = [one for one in result.measurements if one.samples == samples]
        seeds_of: dict[str, set[int]] = {}
        for one in measured:
            seeds_of.setdefault(one.estimator, set()).add(one.seed)
        common = set.intersection(*seeds_of.values())
        kept += [one for one in measured if one.seed in common or not common]
    return dataclasses.replace(result, measurements=kept)


def by_estimator(result: Result) -> dict[str, dict[int, Mean]]:
    """Means of a result by estimator and number of samples, in the order of the laboratory."""
    groups: dict[str, dict[int, list[Measurement]]] = {name: {} for name in ESTIMATORS}
    for one in result.measurements:
        groups[one.estimator].setdefault(one.samples, []).append(one)
    return {
        name: {
            samples: Mean(
                **{key: statistics.fmean(getattr(one, key) for one in ones) for key in QUALITIES},
                seconds=statistics.median(one.seconds for one in ones),
                evaluations=ones[0].evaluations,
                gradients=ones[0].gradients,
            )
            for samples, ones in sorted(by_samples.items())
        }
        for name, by_samples in groups.items()
        if by_samples
    }
