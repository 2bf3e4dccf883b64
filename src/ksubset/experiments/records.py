"""One JSON file for one run: everything that tables and figures need."""

import dataclasses
import hashlib
import json
import math
import os
import re
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ksubset._support import files
from ksubset._support.markdown import quantity
from ksubset.experiments import protocols, tasks
from ksubset.experiments.config import RunConfig

__all__ = [
    "FINISHED",
    "FORMAT",
    "INTERRUPTED",
    "Record",
    "describe",
    "group",
    "latest",
    "load",
    "read",
    "slug",
    "write",
]

FINISHED, INTERRUPTED = "finished", "interrupted"
FORMAT = 2

# What tells the cells of one table apart; everything else must agree, or the cells do not compare.
_CELL = ("task", "dataset", "method", "seed")
_HEADLINE = ("epochs", "samples", "subsets_per", "k", "images")


# Of an epoch's time, in medians. Within a run epochs differ by less, the first one aside, which may load or compile.
_HELD_UP = 3.0


@dataclass(frozen=True)
class Record:
    """What came out of a run.

    Arguments:
        config: the run's settings, ``k`` resolved.
        labels: the names of ``task``, ``dataset`` and ``method`` for tables and figures.
        status: ``"finished"`` or ``"interrupted"``.
        history: for each finished epoch ``epoch`` (from 1), ``loss``, ``train`` and ``validation`` (metrics by name),
            ``evaluations`` (of the network in training, one for each example and subset) and ``seconds``. Training
            metrics are those under the sampled subsets, during the epoch.
        test: metrics by name on the test set, under the mode.
        seconds_total: wall-clock time of the whole run, loading and evaluation included.
        seconds_per_epoch: mean over the finished epochs, validation included; None without any.
        versions: of Python and the packages.
        device: the GPU, or the CPU and its number of threads; then ``bfloat16``, if matrix products were in it.
        commit: commit of the source tree, ``-dirty`` appended if it was changed; None outside of one.
        timestamp: end of the run, ISO 8601, UTC.
        format: of the record, :data:`FORMAT` for those that are written today. Records of format 1 say none; their SSIM
            also counts the pixels near the border.
        side: pixels along an edge of the images; None for a task without any.
        selected: indices of the selected pixels, the mode of the learned distribution, where one is shared by all.
        inclusion: inclusion probability of each of the n pixels, where all share them.
        originals, reconstructions: the first test images and what the network makes of them, `(images, n)`, grey
            levels 0 to 255; empty for a task without images.

    Example:
        >>> import tempfile
        >>> from ksubset.experiments import run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     record = run(RunConfig(epochs=2, seed=3), folder)
        >>> record.status, [entry["epoch"] for entry in record.history], list(record.test), len(record.selected)
        ('finished', [1, 2], ['accuracy'], 10)
        >>> record.filename
        'classification-digits-sfess-v-seed3-9cfea9bc.json'
    """

    config: RunConfig
    labels: dict[str, str]
    status: str
    history: list[dict[str, Any]]
    test: dict[str, float]
    seconds_total: float
    seconds_per_epoch: float | None
    versions: dict[str, str]
    device: str
    commit: str | None
    timestamp: str
    format: int = 1
    side: int | None = None
    selected: list[int] = field(default_factory=list)
    inclusion: list[float] = field(default_factory=list)
    originals: list[list[int]] = field(default_factory=list)
    reconstructions: list[list[int]] = field(default_factory=list)

    @property
    def filename(self) -> str:
        """Name of the file, the same for every run of this configuration."""
        return f"{self.config.name()}.json"

    @property
    def epoch_seconds(self) -> list[float]:
        """Seconds of each epoch. One of more than three times the median was held up, as by a machine that slept or did
        something else, and counts as the median.
        """
        seconds = [float(entry["seconds"]) for entry in self.history]
        median = statistics.median(seconds) if seconds else 0.0
        return [median if each > _HELD_UP * median else each for each in seconds]

    @property
    def seconds_held_up(self) -> float:
        """What `epoch_seconds` leave out of the run's time."""
        return math.fsum(entry["seconds"] for entry in self.history) - math.fsum(self.epoch_seconds)


def write(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write a record, whole or not at all, over an earlier one of the same configuration.

    An interrupted run leaves the record of a finished one as it is.

    Raises:
        OSError: the file cannot be written.
    """
    path = files.prepare(folder) / record.filename
    if record.status == INTERRUPTED and path.exists() and load(path).status == FINISHED:
        return path
    files.write(path, json.dumps(dataclasses.asdict(record), allow_nan=False).encode())
    return path


def load(path: str | os.PathLike[str]) -> Record:
    """Read one record.

    Raises:
        ValueError: the file is not a record; the message names it.
        OSError: the file cannot be read.
    """
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_number)
        record = Record(**fields | {"config": RunConfig(**fields["config"])})
        _check(record)
        return record
    # A file of another kind fails in one of these ways: no JSON, not a mapping, missing or unknown fields.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a record written by 'ksubset run', got {error!r}") from error


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"a number is {name}")


def _check(record: Record) -> None:
    """Make sure that tables and figures find what they take for granted.

    Raises:
        ValueError: a field is of another kind; the message names it.
    """

    def expect(name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise ValueError(f"{name}: expected {expected}")

    tasks.find(record.config.task)
    expect("k", record.config.k is not None, "a number")
    expect("format", record.format in range(1, FORMAT + 1), f"1 to {FORMAT}")
    expect("status", record.status in (FINISHED, INTERRUPTED), f"{FINISHED} or {INTERRUPTED}")
    expect("labels", _all_of(record.labels, str, {"task", "dataset", "method"}), "names of task, dataset and method")
    expect("versions", _all_of(record.versions, str), "names and versions")
    for name in ("device", "timestamp"):
        expect(name, isinstance(getattr(record, name), str), "text")
    expect("test", _all_of(record.test, _NUMBER), "numbers by name")
    expect("seconds_total", _is(record.seconds_total, _NUMBER), "a number")
    per_epoch = record.seconds_per_epoch
    expect("seconds_per_epoch", _is(per_epoch, _NUMBER) or (per_epoch is None and not record.history), "a number")
    expect("history", isinstance(record.history, list), "a list")
    expect("history", record.status == INTERRUPTED or len(record.history) > 0, "the epochs of a finished run")
    first = record.history[0] if record.history else {}
    for number, entry in enumerate(record.history, 1):
        expect("history", isinstance(entry, dict) and entry.get("epoch") == number, "the epochs from 1 in their order")
        rest = {name: value for name, value in entry.items() if name not in ("train", "validation")}
        expect("history", _all_of(rest, _NUMBER, {"epoch", "loss", "seconds"}), "loss and seconds of each epoch")
        for part in ("train", "validation"):
            expect("history", _all_of(entry.get(part), _NUMBER), f"numbers by name for {part} in each epoch")
            expect("history", entry[part].keys() == first[part].keys(), f"the same metrics for {part} in each epoch")
    expect("test", not first or record.test.keys() >= first["validation"].keys(), "the metrics of validation")
    expect("side", record.side is None or _is(record.side, int), "a whole number")
    pixels = None if record.side is None else record.side**2
    expect("side", pixels is not None or not record.originals, "a number where there are images")
    expect("selected, inclusion", _rows([record.selected], int) and _rows([record.inclusion], _NUMBER), "numbers")
    for name in ("originals", "reconstructions"):
        expect(name, _rows(getattr(record, name), int, pixels), "images of side x side grey levels")
    expect("reconstructions", len(record.reconstructions) in (0, len(record.originals)), "one of each original")


_NUMBER = (int, float)
_LARGEST = sys.float_info.max


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    """Whether a value is of a kind; of numbers, those that a float can be."""
    finite = not isinstance(value, (int, float)) or -_LARGEST <= value <= _LARGEST
    return isinstance(value, kind) and not isinstance(value, bool) and finite


def _all_of(values: object, kind: type | tuple[type, ...], names: Collection[str] = ()) -> bool:
    """Whether a mapping has these names, and values of a kind."""
    return isinstance(values, dict) and values.keys() >= set(names) and all(_is(v, kind) for v in values.values())


def _rows(rows: object, kind: type | tuple[type, ...], length: int | None = None) -> bool:
    """Whether this is a list of lists of a kind and a length."""

    def fits(row: object) -> bool:
        return isinstance(row, list) and length in (None, len(row)) and all(_is(value, kind) for value in row)

    return isinstance(rows, list) and all(map(fits, rows))


def read(*folders: str | os.PathLike[str]) -> Iterator[Record]:
    """All records of some folders, in the order of their file names.

    Arguments:
        folders: paths of folders that :func:`ksubset.experiments.run` or the command has written to.

    Raises:
        ValueError: a file is broken, or a folder holds no records; the message names it.

    Example:
        >>> import tempfile
        >>> from ksubset.experiments import run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for method in ("gs", "sfess-v"):
        ...         _ = run(RunConfig(method=method, epochs=1), folder)
        ...     [record.labels["method"] for record in read(folder)]
        ['GS', 'SFESS-V']
    """
    for folder in folders:
        paths = sorted(Path(folder).glob("*.json"))
        if not paths:
            raise ValueError(f"{folder}: expected a folder with records of 'ksubset run' (*.json), found none")
        for path in paths:
            yield load(path)


def describe(config: RunConfig, varied: Collection[str] = ()) -> str:
    """The settings of a run in words, the same for all runs that compare.

    ``protocol paper: 500 epochs, M = 5 subsets per batch, k = 30``, and ``protocol best: 500 epochs, k = 30``, whose
    other settings are each method's own. A run of neither has no such prefix, and whatever differs from the paper's
    values is appended.

    Arguments:
        config: the run's settings, ``k`` resolved.
        varied: settings to leave out, as a study varies them.
    """
    protocol, headline, differences = _words(config, varied)
    if protocol == "best":
        del headline[1]
    prefix = f"protocol {protocol}: " if protocol else ""
    return prefix + ", ".join(headline + differences)


def slug(config: RunConfig, varied: Collection[str] = ()) -> str:
    """What :func:`describe` says, as a part of a file name: ``paper-500-epochs-k-30``. Settings in which a run of no
    protocol differs from the paper are a digest of six digits.
    """
    protocol, headline, differences = _words(config, varied)
    if protocol:
        headline[1] = ""
    digest = hashlib.sha256(", ".join(differences).encode()).hexdigest()[:6] if differences else ""
    words = " ".join([protocol or "", *headline, digest]).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _words(config: RunConfig, varied: Collection[str]) -> tuple[str | None, list[str], list[str]]:
    """The protocol; epochs, subsets and k; and whatever differs from the paper in a run of no protocol."""
    usual: dict[str, Any] = {name: getattr(RunConfig, name) for name in varied}
    config = dataclasses.replace(config, **usual)
    subsets = "M subsets" if "samples" in varied else f"M = {quantity(config.samples, 'subset')}"
    headline = [quantity(config.epochs, "epoch"), f"{subsets} per {config.subsets_per}", f"k = {config.k}"]
    if config.images is not None:
        headline.append(f"images {config.images}")
    protocol = protocols.name(config)
    if protocol:
        # Of one's own images the number of pixels, which the protocol's start is bounded by, may not be known any more.
        if config.k_start is not None and config.images is not None:
            headline.append(f"k_start = {config.k_start}")
        return protocol, headline, []
    values = {name: value for name, value in config.changed().items() if name not in _CELL + _HEADLINE}
    return None, headline, [f"{name} = {v if isinstance(v, str) else _exact(v)}" for name, v in values.items()]


def _exact(value: float) -> str:
    """The shortest text that no other number has."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def group(records: Iterable[Record], key: Callable[[Record], Any]) -> dict[Any, list[Record]]:
    """Records by a key, groups and members in the order in which they come."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def latest(records: Iterable[Record], *, by_device: bool = False) -> list[Record]:
    """One record for each configuration, so that no seed counts twice: the newest, but finished before interrupted.

    Where times matter, ``by_device`` keeps one for each device.
    """
    newest: dict[tuple[RunConfig, str], Record] = {}
    for record in sorted(records, key=lambda record: (record.status == FINISHED, record.timestamp)):
        newest[record.config, record.device if by_device else ""] = record
    return list(newest.values())
