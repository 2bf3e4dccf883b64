"""Records to the paper's two tables in Markdown, the published values beside ours."""

import statistics
import tomllib
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any

from ksubset.experiments.records import FINISHED, Record, describe, group, latest

__all__ = ["results", "runtime"]

_METRICS = {"psnr": "PSNR (dB) ↑", "ssim": "SSIM ↑", "accuracy": "Accuracy ↑"}


def results(records: Iterable[Record]) -> str:
    """Table 1: metrics on the test set, mean and two standard deviations over the seeds, a block for each protocol.

    The standard deviation is that of a sample (divisor: seeds - 1). Interrupted runs are left out and named below.

    Raises:
        ValueError: there is no finished run.
    """
    finished, left_out = _finished(records)
    paper = _paper()
    published = paper["results"]
    blocks, notes = [], []
    for protocol, members in group(finished, lambda record: describe(record.config)).items():
        columns = _columns(members, paper["methods"])
        lines = _head(["Metric", "Dataset", "Source", *columns])
        for metric, title in _METRICS.items():
            measured = [record for record in members if metric in record.test]
            for dataset, runs in group(measured, lambda record: record.labels["dataset"]).items():
                values = group(runs, lambda record: record.labels["method"])
                ours = {method: [run.test[metric] for run in cell] for method, cell in values.items()}
                means = {method: statistics.fmean(cell) for method, cell in ours.items()}
                texts = {method: _spread(cell) for method, cell in ours.items()}
                lines.append(_row([title, dataset, "ours", *_ranked(columns, texts, means, best=max)]))
                if dataset in published[metric]:
                    theirs = dict(zip(paper["methods"], published[metric][dataset], strict=True))
                    means = {method: mean for method, (mean, _) in theirs.items()}
                    texts = {method: f"{mean:.3f} ± {spread:.3f}" for method, (mean, spread) in theirs.items()}
                    source = "paper"
                    for note in published["notes"]:
                        if (note["metric"], note["dataset"]) == (metric, dataset):
                            notes += [note["note"]] if note["note"] not in notes else []
                            source += f" [{notes.index(note['note']) + 1}]"
                    lines.append(_row(["", "", source, *_ranked(columns, texts, means, best=max)]))
        blocks.append(f"**{protocol}**\n\n" + "\n".join(lines))
    caption = (
        "Table 1: test set, mean ± two standard deviations over the seeds; best mean bold, second underlined. "
        f"The paper's rows: {paper['protocol']}."
    )
    footnotes = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    return "\n\n".join([caption, *blocks, *footnotes, *left_out]) + "\n"


def runtime(records: Iterable[Record]) -> str:
    """Table 2: mean wall-clock time of a run and of an epoch, by task and over all runs, a block for each protocol.

    Runs on different devices are in different rows. Interrupted runs are left out and named below.

    Raises:
        ValueError: there is no finished run.
    """
    finished, left_out = _finished(records)
    paper = _paper()
    published = paper["runtime"]
    blocks = []
    for protocol, members in group(finished, lambda record: describe(record.config)).items():
        columns = _columns(members, paper["methods"])
        lines = _head(["Metric", "Task", "Source", *columns])
        by_device = group(members, lambda record: record.device)
        for title, seconds in (
            ("Total time ↓", lambda record: record.seconds_total),
            ("Time per epoch ↓", lambda record: record.seconds_per_epoch),
        ):
            for device, runs in by_device.items():
                by_task = group(runs, lambda record: record.labels["task"])
                for task, cell in (by_task | {"all": runs} if len(by_task) > 1 else by_task).items():
                    times = {
                        method: [seconds(run) for run in those]
                        for method, those in group(cell, lambda record: record.labels["method"]).items()
                    }
                    means = {method: statistics.fmean(values) for method, values in times.items()}
                    texts = {method: f"{_time(means[method])} ({_runs(len(times[method]))})" for method in times}
                    lines.append(_row([title, task, f"ours, {device}", *_ranked(columns, texts, means, best=min)]))
            total = title.startswith("Total")
            values = [60 * minutes for minutes in published["total_minutes"]] if total else published["epoch_seconds"]
            means = dict(zip(paper["methods"], values, strict=True))
            texts = {method: _time(value) for method, value in means.items()}
            lines.append(_row(["", "all", f"paper, {published['device']}", *_ranked(columns, texts, means, best=min)]))
        blocks.append(f"**{protocol}**\n\n" + "\n".join(lines))
    caption = (
        "Table 2: mean wall-clock time; shortest bold, second underlined. The total holds loading, validation and the "
        f"test; an epoch holds its validation. The paper's rows: {paper['protocol']}, both tasks and three data sets."
    )
    return "\n\n".join([caption, *blocks, *left_out]) + "\n"


def _finished(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """The finished records in the order of the tables, and a line that names the others."""
    newest = latest(records)
    order = {label: place for place, label in enumerate(_paper()["results"]["psnr"])}
    finished = [record for record in newest if record.status == FINISHED]
    if not finished:
        raise ValueError(f"records: expected at least one finished run, got {len(newest)} interrupted ones")
    finished.sort(
        key=lambda record: (
            record.config.subsets_per,
            describe(record.config),
            order.get(record.labels["dataset"], len(order)),
            record.labels["dataset"],
            record.config.task,
            record.config.seed,
        )
    )
    names = [record.config.name() for record in newest if record.status != FINISHED]
    return finished, [f"Left out, as they were interrupted: {', '.join(names)}."] if names else []


def _paper() -> dict[str, Any]:
    return tomllib.loads(resources.files("ksubset.experiments").joinpath("paper.toml").read_text(encoding="utf-8"))


def _columns(records: Iterable[Record], published: Sequence[str]) -> list[str]:
    others = sorted({record.labels["method"] for record in records} - set(published))
    return [*published, *others]


def _spread(values: Sequence[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.3f} (1 seed)"
    return f"{mean:.3f} ± {2 * statistics.stdev(values):.3f} ({len(values)} seeds)"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:#.3g} s"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _ranked(
    columns: Sequence[str], texts: dict[str, str], means: dict[str, float], best: Callable[..., Any]
) -> list[str]:
    """Cells in the order of the columns, the best mean bold and the second underlined where there is a choice."""
    # The sort is stable and the columns are in the paper's order, so a tie goes as it does in print.
    ranking = sorted((column for column in columns if column in means), key=means.__getitem__, reverse=best is max)
    cells = {column: texts.get(column, "–") for column in columns}
    if len(ranking) > 1:
        first, second = ranking[:2]
        cells[first] = f"**{cells[first]}**"
        cells[second] = f"<u>{cells[second]}</u>"
    return [cells[column] for column in columns]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(cells: Sequence[str]) -> list[str]:
    return [_row(cells), _row(["---"] * len(cells))]
