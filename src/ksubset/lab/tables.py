"""Results of the laboratory as tables in Markdown."""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from ksubset._support import markdown
from ksubset.lab.measurements import ESTIMATORS
from ksubset.lab.results import QUALITIES, Mean, Result, by_estimator

__all__ = ["tables"]

# Numbers of samples, evaluations and seconds for which tables have columns.
_SAMPLES, _EVALUATIONS, _SECONDS = (1, 8, 32, 128), (8, 32, 128), (0.001, 0.003, 0.01, 0.03, 0.1)
_BASE = "LeaveOneOut"
# Of no estimator, so that one without variance has a ratio, too.
_LEAST_VARIANCE = 1e-30


def tables(results: Mapping[str, Result]) -> str:
    """The report in Markdown; a ValueError if there are no results."""
    if not results:
        raise ValueError("results: expected at least one, got none")
    parts = [_LEGEND, *_ratios(results)]
    for name, result in results.items():
        means = by_estimator(result)
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
k, and StochasticGates fractions, whose logits have a scale of their own. IMLE has the step that suits the toy,
everywhere. "log theta" perturbs log theta in place of the logits, as published code does for which the toy's bias was
reported."""


def _ratios(results: Mapping[str, Result]) -> list[str]:
    """Of the problems that were measured with two samples or more, as fewer make no estimate here."""
    hybrids = [name for name in ESTIMATORS if name.startswith("Hybrid")]
    rows: dict[str, list[str]] = {name: [] for name in hybrids}
    head = [""]
    for problem, result in results.items():
        variance = {(one.estimator, one.samples, one.seed): one.variance for one in result.measurements}
        for number in _shown(samples for name, samples, _ in variance if name == _BASE):
            head.append(f"{problem}, S = {number}")
            for name in hybrids:
                ratios = [
                    max(variance[_BASE, number, seed], _LEAST_VARIANCE) / max(value, _LEAST_VARIANCE)
                    for (estimator, samples, seed), value in variance.items()
                    if (estimator, samples) == (name, number)
                ]
                found = (statistics.geometric_mean(ratios), min(ratios)) if ratios else None
                rows[name].append("{} ({})".format(*map(_number, found)) if found else "–")
    title = f"Variance of {_BASE} over that of the hybrids, geometric mean (least) of the instances:"
    table = markdown.table(head, [[name, *cells] for name, cells in rows.items()])
    return [f"{title}\n\n{table}"] if head[1:] else []


def _shown(samples: Iterable[int]) -> list[int]:
    """Of numbers of samples those that have columns: all, where none of the usual ones is among them."""
    present = sorted(set(samples))
    return [number for number in _SAMPLES if number in present] or present


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


def _by_samples(means: Mapping[str, Mapping[int, Mean]]) -> list[str]:
    shown = _shown(number for by_samples in means.values() for number in by_samples)

    def block(key: str) -> str:
        rows = (
            [name, *(_number(getattr(ones[number], key)) if number in ones else "–" for number in shown)]
            for name, ones in means.items()
        )
        return markdown.table([key.replace("_", " "), *(f"S = {number}" for number in shown)], rows)

    return [block("mse"), block("error_cos")]


def _everything(means: Mapping[str, Mapping[int, Mean]]) -> str:
    present = sorted({number for by_samples in means.values() for number in by_samples})
    number = 8 if 8 in present else present[-1]
    rows = []
    for name, by_samples in means.items():
        if number in by_samples:
            one = by_samples[number]
            numbers = [_number(getattr(one, key)) for key in QUALITIES[2:]]
            bias = f"{_number(one.bias)} ± {_number(one.bias_noise)}"
            cost = f"{one.evaluations} + {one.gradients}"
            rows.append([name, bias, *numbers, cost, _number(1000 * one.seconds)])
    return markdown.table(
        [f"S = {number}", "bias", "bias cos", "var cos", "error cos", "variance", "mse", "f + grad f", "ms"], rows
    )


def _at_equal_cost(means: Mapping[str, Mapping[int, Mean]]) -> str:
    evaluations = [f"{number} evaluations" for number in _EVALUATIONS]
    rows = []
    for name, by_samples in means.items():
        points = list(by_samples.values())
        values = [_interpolated([(one.cost, one.mse) for one in points], cost) for cost in _EVALUATIONS]
        values += [min((one.mse for one in points if one.seconds <= limit), default=None) for limit in _SECONDS]
        rows.append([name, *["–" if value is None else _number(value) for value in values]])
    table = markdown.table(
        ["mse at equal cost", *evaluations, *[f"{1000 * seconds:g} ms" for seconds in _SECONDS]], rows
    )
    note = (
        "An evaluation of the gradient of f counts as one more evaluation; between measured numbers the mse is "
        "interpolated on logarithmic scales. In a given time: the least mse of all numbers of samples that take no "
        "longer."
    )
    return f"{table}\n\n{note}"


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """Value at a place between points with ascending places, on logarithmic scales; None outside of them."""
    # A single point is between itself and itself.
    for (left, low), (right, high) in itertools.pairwise(points if len(points) > 1 else 2 * [*points]):
        if left <= at <= right:
            share = math.log(at / left) / math.log(right / left) if right > left else 0.0
            # An error can be 0, and where a noise was taken out even below.
            tiny = 1e-30
            return math.exp((1 - share) * math.log(max(low, tiny)) + share * math.log(max(high, tiny)))
    return None


def _number(value: float) -> str:
    if abs(value) < 1e-6:
        return "0"
    return f"{value:.2e}" if value >= 1e6 else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
