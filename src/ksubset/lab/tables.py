"""Measurements to a JSON file, and from there to tables in Markdown and a figure."""

import dataclasses
import itertools
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ksubset._support import files
from ksubset._support.extras import require
from ksubset.lab.measure import ESTIMATORS, Measurement, Quality
from ksubset.lab.problems import CHUNK, SEEDS

__all__ = ["Result", "Settings", "environment", "figure", "load", "save", "tables"]

# Numbers of samples, evaluations and seconds for which tables have columns.
_SAMPLES, _EVALUATIONS, _SECONDS = (1, 8, 32, 128), (8, 32, 128), (0.001, 0.003, 0.01, 0.03, 0.1)
# Errors below this are not told apart in the figure; on the toy some are zero.
_FLOOR = 1e-3
_BASE = "LeaveOneOut"
_LINES = {
    "ScoreFunction": ("#999999", "-"),
    "LeaveOneOut": ("#000000", "-"),
    "GumbelTopK(0.5)": ("#E69F00", "-"),
    "GumbelTopK(2)": ("#E69F00", "--"),
    "GumbelTopK(0.5, log theta)": ("#E69F00", ":"),
    "GumbelTopK(0.5, straight-through)": ("#7F7F00", "-"),
    "GumbelTopK(2, straight-through)": ("#7F7F00", "--"),
    "IMLE(2.5)": ("#CC79A7", "-"),
    "SIMPLE": ("#D55E00", "-"),
    "NCPSS": ("#009E73", "-"),
    "UnorderedSet": ("#56B4E9", "-"),
    "Hybrid(SlopeAtMean)": ("#0072B2", ":"),
    "Hybrid(SlopeAtSamples)": ("#0072B2", "--"),
    "Hybrid(ReplayedSlope)": ("#0072B2", "-"),
}


@dataclass(frozen=True)
class Settings:
    """What is measured at every problem.

    Arguments:
        samples: Numbers of samples of one estimate, ascending.
        repeats: Estimates, at most; a problem's budget may allow fewer.
        seeds: Instances of the small problems; of the decoder there is the first one only.
        reference: Evaluations of f for the decoder's reference gradient.

    Raises:
        ValueError: A number is too small.
    """

    samples: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    repeats: int = 10_000
    seeds: tuple[int, ...] = SEEDS
    reference: int = 2_000_000

    def __post_init__(self) -> None:
        if not self.samples or min(self.samples) < 1:
            raise ValueError(f"samples: expected integers of 1 or more, got {list(self.samples)}")
        if self.repeats < 2:
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


def environment() -> dict[str, str]:
    """Versions, device and threads, to be told beside every number."""
    import ksubset  # noqa: PLC0415 - for its version only

    threads = torch.get_num_threads()
    return {
        "ksubset": ksubset.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"CPU ({platform.machine()}), {threads} thread{'s' if threads > 1 else ''}",
    }


def save(results: Mapping[str, Result], path: str | os.PathLike[str]) -> None:
    """Write results, by the name of their problem, to six digits; the file is whole at any time.

    Raises:
        OSError: The file cannot be written.
    """
    files.write(Path(path), json.dumps({name: _fields(result) for name, result in results.items()}).encode())


def load(path: str | os.PathLike[str]) -> dict[str, Result]:
    """Read what `save` wrote.

    Raises:
        ValueError: The file is of another kind.
        OSError: The file cannot be read.
    """
    try:
        return {name: _result(**fields) for name, fields in json.loads(Path(path).read_text()).items()}
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
class _Mean(Quality):
    """A measurement, mean over the instances; median for the seconds, which other processes disturb."""

    seconds: float
    evaluations: int
    gradients: int

    @property
    def cost(self) -> int:
        """Evaluations, one of the gradient being one more."""
        return self.evaluations + self.gradients


_QUALITIES = tuple(field.name for field in dataclasses.fields(Quality))


def _means(result: Result) -> dict[str, dict[int, _Mean]]:
    """By estimator and number of samples, in the order of the laboratory."""
    groups: dict[str, dict[int, list[Measurement]]] = {name: {} for name in ESTIMATORS}
    for one in result.measurements:
        groups[one.estimator].setdefault(one.samples, []).append(one)
    return {
        name: {
            samples: _Mean(
                **{key: statistics.fmean(getattr(one, key) for one in ones) for key in _QUALITIES},
                seconds=statistics.median(one.seconds for one in ones),
                evaluations=ones[0].evaluations,
                gradients=ones[0].gradients,
            )
            for samples, ones in sorted(by_samples.items())
        }
        for name, by_samples in groups.items()
        if by_samples
    }


def tables(results: Mapping[str, Result]) -> str:
    """The report in Markdown.

    Raises:
        ValueError: There are no results.
    """
    if not results:
        raise ValueError("results: expected at least one, got none")
    parts = [_LEGEND, _ratios(results)]
    for name, result in results.items():
        means = _means(result)
        parts += [f"## {name}", _conditions(result), *_by_samples(means), _everything(means), _at_equal_cost(means)]
    return "\n\n".join(parts) + "\n"


_LEGEND = """# Gradient estimators

Errors are relative to the exact gradient e; g is one estimate.

| quantity | meaning |
| --- | --- |
| bias | norm of (mean g - e) / norm of e, ± its standard error: an unbiased estimator has about that |
| bias cos, var cos, error cos | 1 - cos(mean g, e); variance of cos(g, mean g); mean of 1 - cos(g, e) |
| variance | total variance of g / norm of e, squared |
| mse | mean squared norm of (g - e) / norm of e, squared |
| f + grad f | evaluations of f and of its gradient for one estimate |
| ms | processor time of one estimate in a call of its own, mean over calls, median over the instances |

Everything else is a mean over the instances. The hybrids remember: each is measured in the state in which eight earlier
calls left it, whose evaluations are not counted. Many estimates are made in one call, and the hybrids' scale is that of
the other estimates there; it would be slightly worse early in a training.

The toy's f is linear on binary vectors: a slope that is fitted to values of f (ReplayedSlope) leaves no variance, so
the toy separates biased from unbiased estimators and nothing else. NCPSS draws subsets that may have another size than
k. IMLE has the step that suits the toy, everywhere. "log theta" perturbs log theta in place of the logits, as published
code does for which the toy's bias was reported."""


def _ratios(results: Mapping[str, Result]) -> str:
    hybrids = [name for name in ESTIMATORS if name.startswith("Hybrid")]
    shown = [number for number in _SAMPLES if any(number in result.settings.samples for result in results.values())]
    lines = _head(["", *[f"{problem}, S = {number}" for problem in results for number in shown if number > 1]])
    for name in hybrids:
        cells = []
        for result in results.values():
            variance = {(one.estimator, one.samples, one.seed): one.variance for one in result.measurements}
            for number in shown:
                ratios = [
                    variance[_BASE, number, seed] / max(value, 1e-30)
                    for (estimator, samples, seed), value in variance.items()
                    if (estimator, samples) == (name, number)
                ]
                if number > 1:
                    cells.append(f"{_number(_geometric(ratios))} ({_number(min(ratios))})" if ratios else "–")
        lines.append(_row([name, *cells]))
    return f"Variance of {_BASE} over that of the hybrids, geometric mean (least) of the instances:\n\n" + "\n".join(
        lines
    )


def _geometric(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _conditions(result: Result) -> str:
    seeds = sorted({one.seed for one in result.measurements})
    repeats = {one.samples: one.repeats for one in result.measurements}
    text = ", ".join(f"{count:,} at S = {number}" for number, count in sorted(repeats.items()))
    reference = "Exact gradient, by enumeration."
    if result.reference_error:
        reference = (
            f"Reference gradient from {result.settings.reference:,} evaluations, relative standard error "
            f"{result.reference_error:.2g}: it is in every bias, and in the cosines; the mse is rid of it."
        )
    where = ", ".join(f"{key} {value}" for key, value in result.environment.items())
    return f"{reference} Instances: {len(seeds)} (seeds {', '.join(map(str, seeds))}). Estimates: {text}. {where}."


def _by_samples(means: Mapping[str, Mapping[int, _Mean]]) -> list[str]:
    present = sorted({number for by_samples in means.values() for number in by_samples})
    shown = [number for number in _SAMPLES if number in present] or present
    blocks = []
    for key in ("mse", "error_cos"):
        lines = _head([key.replace("_", " "), *[f"S = {number}" for number in shown]])
        for name, by_samples in means.items():
            cells = [_number(getattr(by_samples[number], key)) if number in by_samples else "–" for number in shown]
            lines.append(_row([name, *cells]))
        blocks.append("\n".join(lines))
    return blocks


def _everything(means: Mapping[str, Mapping[int, _Mean]]) -> str:
    present = sorted({number for by_samples in means.values() for number in by_samples})
    number = 8 if 8 in present else present[-1]
    lines = _head(
        [f"S = {number}", "bias", "bias cos", "var cos", "error cos", "variance", "mse", "f + grad f", "ms"],
    )
    for name, by_samples in means.items():
        if number in by_samples:
            one = by_samples[number]
            numbers = [_number(getattr(one, key)) for key in _QUALITIES[2:]]
            bias = f"{_number(one.bias)} ± {_number(one.bias_noise)}"
            cost = f"{one.evaluations} + {one.gradients}"
            lines.append(_row([name, bias, *numbers, cost, _number(1000 * one.seconds)]))
    return "\n".join(lines)


def _at_equal_cost(means: Mapping[str, Mapping[int, _Mean]]) -> str:
    evaluations = [f"{number} evaluations" for number in _EVALUATIONS]
    lines = _head(["mse at equal cost", *evaluations, *[f"{1000 * seconds:g} ms" for seconds in _SECONDS]])
    for name, by_samples in means.items():
        points = list(by_samples.values())
        values = [_interpolated([(one.cost, one.mse) for one in points], cost) for cost in _EVALUATIONS]
        values += [min((one.mse for one in points if one.seconds <= limit), default=None) for limit in _SECONDS]
        lines.append(_row([name, *["–" if value is None else _number(value) for value in values]]))
    note = (
        "An evaluation of the gradient of f counts as one more evaluation; between measured numbers the mse is "
        "interpolated on logarithmic scales. In a given time: the least mse of all numbers of samples that take no "
        "longer."
    )
    return "\n".join([*lines, "", note])


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """Value at a place between points with ascending places, on logarithmic scales; None outside of them."""
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= at <= right:
            share = math.log(at / left) / math.log(right / left)
            # An error can be 0, and where a noise was taken out even below.
            tiny = 1e-30
            return math.exp((1 - share) * math.log(max(low, tiny)) + share * math.log(max(high, tiny)))
    return None


def _number(value: float) -> str:
    if abs(value) < 1e-6:
        return "0"
    return f"{value:.2e}" if value >= 1e6 else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(cells: Sequence[str]) -> list[str]:
    return [_row(cells), _row(["---"] * len(cells))]


def figure(results: Mapping[str, Result]) -> Any:
    """Mean squared error against evaluations (above) and against time, a column for each problem.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: There are no results.
    """
    if not results:
        raise ValueError("results: expected at least one, got none")
    axes_of: dict[str, Callable[[_Mean], float]] = {
        "evaluations of f and of its gradient": lambda one: one.cost,
        "milliseconds of processor time": lambda one: 1000 * one.seconds,
    }
    unlabelled = require("matplotlib.ticker").NullFormatter()
    drawn = require("matplotlib.figure").Figure(figsize=(1 + 3.4 * len(results), 7.5), layout="constrained")
    panels = drawn.subplots(2, len(results), squeeze=False)
    for column, (problem, result) in enumerate(results.items()):
        means = _means(result)
        panels[0, column].set_title(problem)
        for panel, (label, place) in zip(panels[:, column], axes_of.items(), strict=True):
            for name, by_samples in means.items():
                colour, style = _LINES[name]
                places = [place(one) for one in by_samples.values()]
                errors = [max(one.mse, _FLOOR) for one in by_samples.values()]
                panel.plot(places, errors, style, color=colour, label=name, marker=".", markersize=4)
            panel.set(xscale="log", yscale="log", xlabel=label)
            panel.xaxis.set_minor_formatter(unlabelled)
            panel.grid(alpha=0.3)
        for panel in panels[:, 0]:
            panel.set_ylabel("relative mean squared error")
    lines = {line.get_label(): line for panel in panels.flat for line in panel.get_lines()}
    shown = [name for name in ESTIMATORS if name in lines]
    drawn.legend([lines[name] for name in shown], shown, loc="outside lower center", ncols=4, fontsize="small")
    drawn.suptitle(f"Error of one estimate; errors below {_FLOOR:g} are drawn there", fontsize="small")
    return drawn
