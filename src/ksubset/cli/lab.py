"""The laboratory of the estimators."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ksubset.cli.console import Command, app, bar, one_thread, say

__all__: list[str] = []


@app.command(cls=Command)
def lab(
    problem: Annotated[
        list[str] | None, typer.Option(help="toy, quadratic, network, threshold or decoder (default: all)")
    ] = None,
    samples: Annotated[
        list[int] | None, typer.Option(help="samples of one estimate (default: 1, 2, 4, ..., 128)")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="estimates of one gradient, at most (default: 10000)")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="folder", help="folder for measurements.json, tables.md, figure.png (default: results/lab)"
        ),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="one instance, two numbers of samples, few estimates: seconds")
    ] = False,
) -> None:
    """Measure bias, variance, error and cost of the gradient estimators (a quarter of an hour).

    Problems that are in the folder already, measured in the same way, are not measured again.

    Example: ksubset lab --problem toy --problem quadratic
    """
    from ksubset.lab import problems
    from ksubset.lab.results import Settings
    from ksubset.lab.run import run

    settings = Settings()
    if smoke:
        settings = Settings(samples=(2, 8), repeats=20, seeds=problems.SEEDS[:1], reference=5000)
    if samples:
        settings = dataclasses.replace(settings, samples=tuple(sorted(set(samples))))
    if repeats is not None:
        settings = dataclasses.replace(settings, repeats=repeats)
    console = Console()
    with one_thread():
        out = out or Path("results/lab-smoke" if smoke else "results/lab")
        paths = run(problem or problems.PROBLEMS, settings, out, say=partial(say, console), bar=partial(bar, console))
    for path in paths:
        typer.echo(path)
