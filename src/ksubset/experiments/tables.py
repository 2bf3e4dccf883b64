"""Records to the paper's two tables in Markdown, the published values beside ours."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ksubset._support import markdown
from ksubset._support.markdown import quantity
from ksubset.experiments import published, tasks
from ksubset.experiments.protocols import PROTOCOLS, name
from ksubset.experiments.records import FINISHED, Record, describe, group, latest

__all__ = ["results", "runtime"]


def results(records: Iterable[Record]) -> str:
    """Table 1: metrics on the test set, mean and two standard deviations over the seeds.

    A block for each protocol has our values beside the paper's. Where the protocols that have a name, or numbers of
    epochs, make several such blocks, a table of all of them comes first: a row for each, and the paper's below them.

    Every other task has a table of its own after it, with what others have published below ours.

    The standard deviation is that of a sample (divisor: seeds - 1). Interrupted runs are left out and named below.

    Raises:
        ValueError: there is no finished run.
    """
    finished, left_out = _finished(latest(records))
    sections = []
    if printed := [record for record in finished if _is_printed(record)]:
        notes: list[str] = []
        named = [record for record in printed if name(record.config)]
        sections.append(
            "Table 1: test set, mean ± two standard deviations over the seeds; best mean bold, second underlined. "
            "Protocol paper has every setting as printed, the epochs apart; protocol best has the settings of each "
            "task and method that were chosen on validation data. The paper's rows: "
            f"{published.protocol()}."
        )
        alike = group(named, lambda record: (record.config.k, record.config.images))
        sections += [_comparison(members, notes) for members in alike.values()]
        sections += [_block(members, notes) for members in _by_protocol(printed).values()]
        sections += [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    others = [record for record in finished if not _is_printed(record)]
    for task, members in group(others, lambda record: record.config.task).items():
        sections.append(
            f"{members[0].labels['task']}: test set, mean ± two standard deviations over the seeds; best mean bold, "
            "second underlined."
        )
        sections += [_block(runs, []) for runs in _by_protocol(members).values()]
        sections.append(_elsewhere(task))
    return "\n\n".join([*filter(None, sections), *left_out]) + "\n"


def _is_printed(record: Record) -> bool:
    """Whether the task is one of the paper's."""
    return record.config.task in tasks.PRINTED


def _elsewhere(task: str) -> str:
    """What others have published on a task; nothing where there is nothing."""
    entries = published.load("published").get(task, [])
    rows = [[entry[key] for key in ("dataset", "metric", "method", "value", "source")] for entry in entries]
    return "Published:\n\n" + markdown.table(["Dataset", "Metric", "Method", "Value", "Source"], rows) if rows else ""


def _comparison(records: Sequence[Record], notes: list[str]) -> str:
    """Ours of several protocols and numbers of epochs under each other; nothing where there is only one of them."""
    blocks = _by_protocol(records)
    if len(blocks) < 2:
        return ""
    columns = _columns(records)
    rows = []
    for metric, title, dataset, runs in _cells(records):
        label = [title, dataset]
        for members in _by_protocol(runs).values():
            config = members[0].config
            values = _values(members, metric)
            counts = {len(cell) for cell in values.values()}
            # A number that holds for the whole row is said once.
            seeds = str(*counts) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
            texts = {method: _spread(cell, seeds=len(counts) > 1) for method, cell in values.items()}
            source = [f"ours, protocol {name(config)}", str(config.epochs), seeds]
            rows.append([*label, *source, *_ranked(columns, texts, _means(values), best=_best(metric))])
            label = ["", ""]
        if cells := _published(columns, metric, dataset, records[0].config.k):
            paper = published.load()
            source = [_source(metric, dataset, notes), str(paper["epochs"]), str(paper["seeds"])]
            rows.append([*label, *source, *cells])
    table = markdown.table(["Metric", "Dataset", "Source", "Epochs", "Seeds", *columns], rows)
    images = f", images {records[0].config.images}" if records[0].config.images else ""
    return f"**Protocols beside each other, k = {records[0].config.k}{images}**\n\n{table}"


def _block(records: Sequence[Record], notes: list[str]) -> str:
    """Ours of one protocol, the paper's below each row."""
    columns = _columns(records)
    rows = []
    for metric, title, dataset, runs in _cells(records):
        values = _values(runs, metric)
        texts = {method: _spread(cell) for method, cell in values.items()}
        rows.append([title, dataset, "ours", *_ranked(columns, texts, _means(values), best=_best(metric))])
        if cells := _published(columns, metric, dataset, records[0].config.k):
            rows.append(["", "", _source(metric, dataset, notes), *cells])
    table = markdown.table(["Metric", "Dataset", "Source", *columns], rows)
    return f"**{describe(records[0].config)}**\n\n{table}"


def _cells(records: Iterable[Record]) -> Iterator[tuple[str, str, str, list[Record]]]:
    """Metric, its title, data set and the runs that have both, in the order of the rows."""
    for metric, measure in tasks.MEASURES.items():
        title = f"{measure.label[0].upper()}{measure.label[1:]} {'↑' if measure.higher_is_better else '↓'}"
        measured = [record for record in records if metric in record.test]
        # SSIM had another definition in records of format 1, and values of the two do not compare.
        former = [record for record in measured if metric == "ssim" and record.format == 1]
        others = [record for record in measured if record not in former]
        for runs, name_of in ((former, f"{title} (with the border)"), (others, title)):
            for dataset, those in group(runs, lambda record: record.labels["dataset"]).items():
                yield metric, name_of, dataset, those


def _values(records: Iterable[Record], metric: str) -> dict[str, list[float]]:
    """What the seeds of each method reached."""
    methods = group(records, lambda record: record.labels["method"])
    return {method: [run.test[metric] for run in runs] for method, runs in methods.items()}


def _best(metric: str) -> Callable[..., Any]:
    return max if tasks.MEASURES[metric].higher_is_better else min


def _means(values: dict[str, list[float]]) -> dict[str, float]:
    return {method: statistics.fmean(cell) for method, cell in values.items()}


def _published(columns: Sequence[str], metric: str, dataset: str, k: int | None) -> list[str]:
    """The paper's cells; none where it has none."""
    values = published.results(metric, dataset, k)
    texts = {method: f"{mean:.3f} ± {spread:.3f}" for method, (mean, spread) in values.items()}
    means = {method: mean for method, (mean, _) in values.items()}
    return _ranked(columns, texts, means, best=max) if values else []


def _source(metric: str, dataset: str, notes: list[str]) -> str:
    """The paper as a source, with the numbers of its footnotes, which are collected in ``notes``."""
    source = "paper"
    for entry in published.load()["results"]["notes"]:
        if (entry["metric"], entry["dataset"]) == (metric, dataset):
            notes += [entry["note"]] if entry["note"] not in notes else []
            source += f" [{notes.index(entry['note']) + 1}]"
    return source


def runtime(records: Iterable[Record]) -> str:
    """Table 2: mean wall-clock time of a run and of an epoch, by task and over all runs, a block for each protocol.

    Runs on different devices are in different rows. Interrupted runs are left out and named below.

    Raises:
        ValueError: there is no finished run.
    """
    finished, left_out = _finished(latest(records, by_device=True))
    paper = published.load()
    printed = paper["runtime"]
    blocks = []
    for protocol, members in _by_protocol(finished).items():
        columns = _columns(members)
        rows = []
        by_device = group(members, lambda record: record.device)
        for title, seconds, theirs in (
            (
                "Total time ↓",
                lambda record: record.seconds_total - record.seconds_held_up,
                [60 * value for value in printed["total_minutes"]],
            ),
            (
                "Time per epoch ↓",
                lambda record: record.seconds_per_epoch - record.seconds_held_up / len(record.history),
                printed["epoch_seconds"],
            ),
        ):
            for device, runs in by_device.items():
                by_task = group(runs, lambda record: record.labels["task"])
                for task, cell in (by_task | {"all": runs} if len(by_task) > 1 else by_task).items():
                    methods = group(cell, lambda record: record.labels["method"])
                    means = _means({method: list(map(seconds, those)) for method, those in methods.items()})
                    texts = {name: f"{_time(means[name])} ({quantity(len(methods[name]), 'run')})" for name in methods}
                    # A device has commas of its own.
                    rows.append([title, task, f"ours: {device}", *_ranked(columns, texts, means, best=min)])
            if any(map(_is_printed, members)):
                means = dict(zip(paper["methods"], theirs, strict=True))
                texts = {method: _time(value) for method, value in means.items()}
                rows.append(["", "all", f"paper: {printed['device']}", *_ranked(columns, texts, means, best=min)])
        table = markdown.table(["Metric", "Task", "Source", *columns], rows)
        blocks.append(f"**{protocol}**\n\n{table}")
    caption = (
        "Table 2: mean wall-clock time; shortest bold, second underlined. The total holds loading, validation and the "
        "test; an epoch holds its validation, and counts as the median one of its run if it took more than three times "
        f"as long. The paper's rows: {published.protocol()}, both tasks and three data sets."
    )
    return "\n\n".join([caption, *blocks, *left_out]) + "\n"


def _finished(records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """The finished records in the order of the tables, and a line that names the others."""
    printed = list(published.load()["results"]["psnr"])
    finished = [record for record in records if record.status == FINISHED]
    if not finished:
        raise ValueError(
            f"records: expected at least one finished run, got {len(records)} interrupted and none finished"
        )

    def place(record: Record) -> tuple[Any, ...]:
        config, dataset = record.config, record.labels["dataset"]
        protocol = name(config)
        if protocol:
            block: tuple[Any, ...] = (PROTOCOLS.index(protocol), config.epochs)
        else:
            block = (len(PROTOCOLS), config.subsets_per, config.epochs, config.samples, config.k_start or 0)
        order = printed.index(dataset) if dataset in printed else len(printed)
        known = list(tasks.find(config.task).sets)
        return (
            *block,
            describe(config),
            order,
            known.index(config.dataset) if config.dataset in known else len(known),
            config.task,
            config.seed,
        )

    finished.sort(key=place)
    names = [record.config.name() for record in records if record.status != FINISHED]
    return finished, [f"Left out, as they were interrupted: {', '.join(names)}."] if names else []


def _by_protocol(records: Iterable[Record]) -> dict[str, list[Record]]:
    return group(records, lambda record: describe(record.config))


def _columns(records: Iterable[Record]) -> list[str]:
    records = list(records)
    present = {record.labels["method"] for record in records}
    paper: list[str] = published.load()["methods"]
    shown = paper if any(map(_is_printed, records)) else [method for method in paper if method in present]
    return [*shown, *sorted(present - set(paper))]


def _spread(values: Sequence[float], *, seeds: bool = True) -> str:
    mean = f"{statistics.fmean(values):.3f}"
    spread = f" ± {2 * statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return mean + spread + (f" ({quantity(len(values), 'seed')})" if seeds else "")


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:#.3g} s"


def _ranked(
    columns: Sequence[str], texts: dict[str, str], means: dict[str, float], best: Callable[..., Any]
) -> list[str]:
    """Cells in the order of the columns, the best mean bold and the second underlined where there is a choice."""
    # The sort is stable and the columns are in the paper's order, so a tie goes as it does in print.
    ranking = sorted((column for column in columns if column in means), key=means.__getitem__, reverse=best is max)
    cells = {column: texts.get(column, "–") for column in columns}
    if len(ranking) > 1:
        first, second = ranking[:2]
        cells |= {first: f"**{cells[first]}**", second: f"<u>{cells[second]}</u>"}
    return [cells[column] for column in columns]
