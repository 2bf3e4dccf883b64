"""The laboratory at work: problems are measured one after the other, and what is measured is kept."""

import dataclasses
import itertools
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch

import ksubset
from ksubset._support import files, provenance
from ksubset._support.markdown import quantity
from ksubset.lab import measurements, problems
from ksubset.lab.figure import figure
from ksubset.lab.measurements import Measurement
from ksubset.lab.results import Result, Settings, comparable, load, save
from ksubset.lab.tables import tables

__all__ = ["Bar", "environment", "run"]

_SECONDS_BETWEEN_SAVES = 10.0

Bar = Callable[[str, int, str], AbstractContextManager[Callable[[str, int], None]]]


def run(names: Sequence[str], settings: Settings, folder: Path, *, say: Callable[[str], None], bar: Bar) -> list[Path]:
    """Measure what is not in the folder yet, and write `measurements.json`, `tables.md` and `figure.png`.

    The first of them is written every ten seconds, and whatever ends the work; another call goes on from there.

    Arguments:
        names: Of the problems; the tables and the figure have those too that the folder holds already.
        settings: How to measure. What was measured in another way, or elsewhere, is measured again; else what is
            missing alone, such as a new estimator, another number of samples or another instance.
        folder: Where to write.
        say: Called with a line for each problem that needs no measurement.
        bar: Called with a title, a number of steps and the name of a step; gives the function that takes a text and the
            number of finished steps.

    Returns:
        The paths of the files.

    Raises:
        ValueError: A name is unknown, or `measurements.json` is another file.
        ImportError: numpy, scikit-learn or matplotlib is missing.
        OSError: The folder is not writable, or another process is measuring into it.
    """
    for name in names:
        if name not in problems.PROBLEMS:
            raise ValueError(f"problem: expected one of {', '.join(problems.PROBLEMS)}, got {name!r}")
    paths = [files.prepare(folder) / name for name in ("measurements.json", "tables.md", "figure.png")]
    busy = f"{folder}: another process is measuring into it; let it finish, or give another folder with --out"
    with files.exclusive(Path(folder, ".lock"), busy):
        results = load(paths[0]) if paths[0].exists() else {}
        for name in names:
            known = results.get(name)
            differences = _differences(name, known, settings) if known else []
            if differences:
                say(f"{name}: measured again, as {paths[0]} has it with {', '.join(differences)}")
            kept = known.measurements if known and not differences else []
            missing = _missing(name, settings, kept)
            if not missing:
                say(f"{name}: already in {paths[0]}")
                continue
            saved = time.monotonic()
            try:
                for result in _measure(name, settings, kept, missing, bar):
                    results[name] = result
                    if time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                        save(results, paths[0])
                        saved = time.monotonic()
            finally:
                save(results, paths[0])
        results = {name: comparable(results[name]) for name in problems.PROBLEMS if name in results}
        files.write(paths[1], tables(results).encode())
        figure(results).savefig(paths[2], dpi=150)
    return paths


def environment() -> dict[str, str]:
    """Versions, device and threads, to be told beside every number."""
    device = f"CPU ({platform.machine()}), {quantity(torch.get_num_threads(), 'thread')}"
    return provenance.versions(ksubset, torch) | {"device": device}


def _differences(name: str, known: Result, settings: Settings) -> list[str]:
    """What of the way and the place in which it was measured would be otherwise now, and so each estimate."""
    wanted = dataclasses.replace(settings, samples=known.settings.samples)
    if name in problems.SMALL or settings.seeds[0] == known.settings.seeds[0]:
        wanted = dataclasses.replace(wanted, seeds=known.settings.seeds)
    before, now = vars(known.settings) | known.environment, vars(wanted) | environment()
    return [f"{key} {before.get(key)}" for key in before | now if before.get(key) != now.get(key)]


def _missing(name: str, settings: Settings, kept: Sequence[Measurement]) -> list[tuple[int, str, int]]:
    """What is not measured yet: the seed of the instance, the estimator and the number of samples."""
    small = problems.SMALL.get(name)
    cells = measurements.cells(small is None or small(settings.seeds[0]).differentiable, settings.samples)
    measured = {(one.seed, one.estimator, one.samples) for one in kept}
    wanted = itertools.product(settings.seeds if small else settings.seeds[:1], cells)
    return [(seed, *cell) for seed, cell in wanted if (seed, *cell) not in measured]


def _measure(
    name: str, settings: Settings, kept: Sequence[Measurement], missing: Sequence[tuple[int, str, int]], bar: Bar
) -> Iterator[Result]:
    """Measure what is missing at one kind of problem; gives all that there is after each measurement."""
    if name in problems.SMALL:
        instances = {seed: problems.SMALL[name](seed) for seed in settings.seeds}
    else:
        chunks, count, seed = settings.reference // problems.CHUNK, itertools.count(1), settings.seeds[0]
        with bar(f"{name}: reference gradient", chunks, "estimate") as advance:
            instances = {seed: problems.decoder(seed, settings.reference, lambda: advance("", next(count)))}
    error = max(instance.noise**0.5 / float(instance.gradient.norm()) for instance in instances.values())
    result = Result(settings, environment(), error, list(kept))
    with bar(name, len(missing), "measurement") as advance:
        for number, (seed, label, samples) in enumerate(missing, 1):
            estimator = measurements.ESTIMATORS[label]()
            found = measurements.measure(instances[seed], estimator, samples, settings.repeats)
            result.measurements.append(dataclasses.replace(found, estimator=label))
            advance(f"{label}, S = {samples}, mse {result.measurements[-1].mse:.3g}", number)
            yield result
