"""What one knob does: runs that differ in nothing else, seeds apart."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ksubset.experiments.config import RunConfig
from ksubset.experiments.plots.convergence import band
from ksubset.experiments.plots.style import (
    MARKERS,
    METHODS,
    METRICS,
    colour,
    counted,
    logarithmic,
    marker,
    ordered,
    spread,
)
from ksubset.experiments.records import FINISHED, Record, describe, group, slug

__all__ = ["draw", "members"]

_ANNEALING = ("k_start", "k_until")
_SAMPLES = ("samples",)


def draw(records: Iterable[Record]) -> dict[str, Figure]:
    """The studies for which there are finished runs, a figure for each metric, data set and rest of the knobs.

    - Annealing of k, for each method: the validation metric over the epochs for each size of the first subsets and
      share of the epochs after which it is k; beside it the final test metric. No annealing counts as one.
    - The number of subsets M: the final test metric of each method against M and against the network evaluations of
      the training.

    Means are those over the seeds, bands and bars two standard deviations.
    """
    records = list(records)
    figures = {}
    for metric, runs in _studies(records, _ANNEALING, _annealing):
        config = runs[0].config
        name = f"annealing-{metric}-{runs[0].labels['dataset'].lower()}-{config.method}-{slug(config, _ANNEALING)}"
        figures[name] = _annealing_figure(runs, metric)
    by_name: dict[tuple[str, str], list[Record]] = {}
    for metric, runs in _studies(records, _SAMPLES, attrgetter("samples")):
        name = f"samples-{metric}-{runs[0].labels['dataset'].lower()}-{slug(runs[0].config, _SAMPLES)}"
        by_name.setdefault((name, metric), []).extend(runs)
    return figures | {name: _samples_figure(runs, metric) for (name, metric), runs in by_name.items()}


def members(records: Iterable[Record]) -> set[RunConfig]:
    """The runs that are in some study."""
    records = list(records)
    studies = [*_studies(records, _ANNEALING, _annealing), *_studies(records, _SAMPLES, attrgetter("samples"))]
    return {run.config for _, runs in studies for run in runs}


def _studies(
    records: Iterable[Record], varied: Sequence[str], cell: Callable[[RunConfig], Any]
) -> Iterator[tuple[str, list[Record]]]:
    """Metric and runs of each method on a data set, alike in all but the varied settings, that make several cells."""

    def alike(run: Record) -> tuple[str, ...]:
        return run.labels["dataset"], run.labels["method"], describe(run.config, varied)

    finished = [record for record in records if record.status == FINISHED]
    for metric in METRICS:
        measured = [record for record in finished if metric in record.test]
        for runs in group(measured, alike).values():
            if len({cell(run.config) for run in runs}) > 1:
                yield metric, runs


def _annealing(config: RunConfig) -> tuple[int, float]:
    """The first size of the subsets, and the share of the epochs after which it is k: 0 without annealing."""
    assert config.k is not None
    return (config.k, 0.0) if config.k_start in (None, config.k) else (config.k_start, config.k_until)


def _annealing_figure(records: Sequence[Record], metric: str) -> Figure:
    cells = group(sorted(records, key=lambda run: _annealing(run.config)), lambda run: _annealing(run.config))
    shares = {share for _, share in cells if share}
    labels = [f"{start}, {share:.0%}" if share and len(shares) > 1 else f"{start}" for start, share in cells]
    meaning = "size of the subsets in the first epoch" + (", share of the epochs until k" if len(shares) > 1 else "")
    # Sizes have an order, and so have these colours, however many there are.
    shades = [to_hex(colormaps["viridis"](0.9 * place / (len(cells) - 1))) for place in range(len(cells))]
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for place, (runs, label, shade) in enumerate(zip(cells.values(), labels, shades, strict=True)):
        mark = MARKERS[place % len(MARKERS)]
        band(left, runs, "validation", metric, label=label, colour=shade, marker=mark, place=place)
        _points(right, [place], [runs], metric, color=shade, marker=mark)
    left.set_xlabel("epoch")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylabel(f"validation {METRICS[metric]}")
    right.set_xticks(range(len(labels)), labels, fontsize="small", rotation=45 if len(shares) > 1 else 0)
    right.set_xlim(-0.5, len(labels) - 0.5)
    right.set_xlabel("size in the first epoch" + (", share until k" if len(shares) > 1 else ""))
    right.set_ylabel(f"test {METRICS[metric]}")
    for panel in (left, right):
        panel.grid(alpha=0.3)
    lines, names = left.get_legend_handles_labels()
    columns = math.ceil(len(labels) / math.ceil(len(labels) / 8))
    figure.legend(lines, names, title=meaning, loc="outside lower center", ncols=columns, fontsize="small")
    labelled = records[0].labels
    until = f", k reached after {shares.pop():.0%} of the epochs" if len(shares) == 1 else ""
    title = f"{labelled['dataset']}, {labelled['method']}; {describe(records[0].config, _ANNEALING)}{until}"
    figure.suptitle(f"{title}\n{_seeds(cells.values(), 'bands and bars')}", fontsize="small", wrap=True)
    return figure


def _samples_figure(records: Sequence[Record], metric: str) -> Figure:
    # Records of earlier versions do not count evaluations.
    counts = all("evaluations" in entry for record in records for entry in record.history)
    figure = Figure(figsize=(10 if counts else 6, 4.4), layout="constrained")
    panels = figure.subplots(1, 2 if counts else 1, sharey=True, squeeze=False)[0]
    methods = group(records, lambda record: record.labels["method"])
    for method in ordered(methods, METHODS):
        cells = group(sorted(methods[method], key=lambda run: run.config.samples), lambda run: run.config.samples)
        style = {"color": colour(method, methods), "label": method, "marker": marker(method, methods)}
        _points(panels[0], list(cells), list(cells.values()), metric, **style)
        if counts:
            evaluations = [statistics.fmean(map(_evaluations, runs)) for runs in cells.values()]
            _points(panels[1], evaluations, list(cells.values()), metric, **style)
            logarithmic(panels[1], "network evaluations in training")
    samples = sorted({record.config.samples for record in records})
    panels[0].set_xscale("log", base=2)
    panels[0].set_xticks(samples, [str(number) for number in samples], fontsize="small")
    panels[0].set_xlabel("subsets M")
    panels[0].set_ylabel(f"test {METRICS[metric]}")
    for panel in panels:
        panel.grid(alpha=0.3)
    lines, names = panels[0].get_legend_handles_labels()
    columns = min(len(names), 8 if counts else 4)
    figure.legend(lines, names, loc="outside lower center", ncols=columns, fontsize="small")
    seeds = group(records, lambda record: (record.labels["method"], record.config.samples)).values()
    settings = describe(records[0].config, _SAMPLES)
    figure.suptitle(f"{records[0].labels['dataset']}; {settings}\n{_seeds(seeds, 'bars')}", fontsize="small", wrap=True)
    return figure


def _points(panel: Axes, x: Sequence[float], cells: Sequence[Sequence[Record]], metric: str, **style: Any) -> None:
    values = [[run.test[metric] for run in runs] for runs in cells]
    means = [statistics.fmean(cell) for cell in values]
    # The spread of a single seed is unknown, which is not a spread of nothing.
    spreads = [spread(cell) if len(cell) > 1 else float("nan") for cell in values]
    panel.errorbar(x, means, yerr=spreads, markersize=4, linewidth=1.3, capsize=3, **style)


def _evaluations(record: Record) -> int:
    return sum(entry["evaluations"] for entry in record.history)


def _seeds(cells: Iterable[Sequence[Record]], marks: str) -> str:
    counts = [len(runs) for runs in cells]
    spreads = f"; {marks}: two standard deviations" if max(counts) > 1 else ""
    return f"means over {counted(counts, 'seed')}{spreads}"
