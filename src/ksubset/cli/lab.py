"""The laboratory of the estimators."""

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.console import Console

from ksubset.cli.console import app, bar, clear_errors, one_thread, say

if TYPE_CHECKING:
    from ksubset.lab.report import Result, Settings

__all__: list[str] = []


@app.command()
@clear_errors
def lab(
    problem: Annotated[
        Optional[list[str]], typer.Option(help="toy, quadratic, network, threshold or decoder (default: all)")  # noqa: UP045
    ] = None,
    samples: Annotated[
        Optional[list[int]], typer.Option(help="samples of one estimate (default: 1, 2, 4, ..., 128)")  # noqa: UP045
    ] = None,
    repeats: Annotated[int, typer.Option(help="estimates of one gradient, at most")] = 10_000,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="folder for measurements.json, tables.md, figure.png (default: results/lab)"),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="one instance, two numbers of samples, few estimates: seconds")
    ] = False,
) -> None:
    """Measure bias, variance, error and cost of the gradient estimators (a quarter of an hour).

    Problems that are in the folder already, measured in the same way, are not measured again.

    Example: ksubset lab --problem toy --problem quadratic
    """
    from ksubset._support import files
    from ksubset.lab import problems, report

    settings = report.Settings(repeats=repeats)
    if smoke:
        settings = report.Settings(samples=(2, 8), repeats=min(repeats, 20), seeds=problems.SEEDS[:1], reference=5000)
    if samples:
        settings = dataclasses.replace(settings, samples=tuple(sorted(set(samples))))
    for name in problem or ():
        if name not in problems.PROBLEMS:
            raise ValueError(f"problem: expected one of {', '.join(problems.PROBLEMS)}, got {name!r}")
    folder = files.prepare(out or Path("results/lab-smoke" if smoke else "results/lab"))
    path = folder / "measurements.json"
    results = report.load(path) if path.exists() else {}
    console = Console()
    with one_thread():
        for name in problem or problems.PROBLEMS:
            known = results.get(name)
            if known and (known.settings, known.environment) == (settings, report.environment()):
                say(console, f"{name}: already in {path}")
                continue
            results[name] = _measure(console, name, settings)
            report.save(results, path)
    results = {name: results[name] for name in problems.PROBLEMS if name in results}
    (folder / "tables.md").write_text(report.tables(results), encoding="utf-8")
    report.figure(results).savefig(folder / "figure.png", dpi=150)
    for file in ("measurements.json", "tables.md", "figure.png"):
        typer.echo(folder / file)


def _measure(console: Console, name: str, settings: "Settings") -> "Result":
    """Measure all estimators at one kind of problem."""
    from ksubset.lab import measure, problems, report

    if name in problems.SMALL:
        instances = [problems.SMALL[name](seed) for seed in settings.seeds]
    else:
        chunks, count = settings.reference // problems.CHUNK, itertools.count(1)
        with bar(console, f"{name}: reference gradient", chunks, "estimate") as advance:
            instances = [problems.decoder(settings.seeds[0], settings.reference, lambda: advance("", next(count)))]
    cells = [(instance, *cell) for instance in instances for cell in measure.cells(instance, settings.samples)]
    measurements = []
    with bar(console, name, len(cells), "measurement") as advance:
        for number, (instance, estimator, samples) in enumerate(cells, 1):
            measurements.append(measure.measure(instance, estimator, samples, settings.repeats))
            advance(f"{estimator}, S = {samples}, mse {measurements[-1].mse:.3g}", number)
    error = max(instance.noise**0.5 / float(instance.gradient.norm()) for instance in instances)
    return report.Result(settings, report.environment(), error, measurements)
