"""The command ``ksubset``: the paper's experiments, their tables and figures, and the laboratory of the estimators."""

import dataclasses
import functools
import inspect
import itertools
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

from ksubset.experiments.config import RunConfig

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
except ModuleNotFoundError as error:
    raise ImportError(
        f"{error.name} is not installed; the command needs: pip install 'ksubset[experiments]'"
    ) from error

if TYPE_CHECKING:
    from ksubset.experiments.records import Record
    from ksubset.lab.report import Result, Settings

__all__ = ["app", "main"]

app = typer.Typer(
    help="Learning with k-subsets: run the paper's experiments, tabulate and plot them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_Command = TypeVar("_Command", bound=Callable[..., None])


def main() -> None:
    """Entry point of ``ksubset``."""
    app()


def _clear_errors(command: _Command) -> _Command:
    """Turn the errors that a user can mend into one line and exit code 2, and Ctrl-C into exit code 130."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except (ValueError, ImportError, OSError, FloatingPointError) as error:
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as interrupt:
            typer.echo(
                "interrupted: finished epochs of a run, and finished problems of the laboratory, are kept; "
                "the rest was not started",
                err=True,
            )
            raise typer.Exit(130) from interrupt

    return typing.cast(_Command, wrapper)


def _options_of_config(command: _Command) -> _Command:
    """Give a command with the parameter ``grid`` one repeatable option for each field of :class:`RunConfig`."""
    signature = inspect.signature(command)
    types = typing.get_type_hints(RunConfig)
    options = []
    for field in dataclasses.fields(RunConfig):
        kind = next(iter(typing.get_args(types[field.name])), types[field.name])  # int, for an int that may be None
        option = typer.Option(
            f"--{field.name.replace('_', '-')}",
            help=field.metadata["help"] + ("" if field.default is None else f" (default: {field.default})"),
            show_default=False,
        )
        annotation = Annotated[Optional[list[kind]], option]  # type: ignore[valid-type]  # noqa: UP045
        options.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        )

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        grid = {field.name: values.pop(field.name) or [field.default] for field in dataclasses.fields(RunConfig)}
        command(grid=grid, **values)

    rest = [parameter for name, parameter in signature.parameters.items() if name != "grid"]
    rest = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    wrapper.__signature__ = signature.replace(parameters=[*options, *rest])  # type: ignore[attr-defined]
    return typing.cast(_Command, wrapper)


@app.command()
@_clear_errors
@_options_of_config
def run(
    grid: dict[str, list[Any]],
    out: Annotated[Path, typer.Option(help="folder for the records, one JSON file a run")] = Path("results"),
    skip_finished: Annotated[
        bool, typer.Option("--skip-finished", help="leave out runs whose finished record is already in the folder")
    ] = False,
) -> None:
    """Train, and write one record for each run.

    Every option of the configuration may be given several times: the runs are all combinations.

    Example: ksubset run --dataset fashion-mnist --method gs --method sfess-v --seed 0 --seed 1
    """
    configs = [RunConfig(**dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]
    _train(configs, out, skip_finished)


@app.command()
@_clear_errors
def table(folders: Annotated[list[Path], typer.Argument(help="folders with records")]) -> None:
    """Print the paper's two tables in Markdown, the published values beside those of the records."""
    from ksubset.experiments import records

    _print_tables(list(records.read(*folders)))


@app.command()
@_clear_errors
def plot(
    folders: Annotated[list[Path], typer.Argument(help="folders with records")],
    out: Annotated[Path, typer.Option(help="folder for the figures (PNG)")] = Path("figures"),
) -> None:
    """Draw convergence, reconstructions and scores; needs no training."""
    from ksubset.experiments import records

    _draw(list(records.read(*folders)), out)


@app.command()
@_clear_errors
def reproduce(
    out: Annotated[Path, typer.Option(help="folder for the records")] = Path("results/digits"),
    figures: Annotated[Path, typer.Option(help="folder for the figures (PNG)")] = Path("figures/digits"),
    smoke: Annotated[bool, typer.Option("--smoke", help="every task and method for two epochs: seconds")] = False,
) -> None:
    """Run both tasks with all methods on scikit-learn's digits (minutes on two cores), then print tables, draw figures.

    It needs no download. The paper's data sets are a matter of 'ksubset run'; see docs/reproduction.md.
    """
    from ksubset.experiments import presets

    with _one_thread():
        done = _train(presets.smoke() if smoke else presets.digits(), out)
    _print_tables(done)
    _draw(done, figures)


@app.command()
@_clear_errors
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
    from ksubset.experiments import records
    from ksubset.lab import problems, report

    settings = report.Settings(repeats=repeats)
    if smoke:
        settings = report.Settings(samples=(2, 8), repeats=min(repeats, 20), seeds=problems.SEEDS[:1], reference=5000)
    if samples:
        settings = dataclasses.replace(settings, samples=tuple(sorted(set(samples))))
    for name in problem or ():
        if name not in problems.PROBLEMS:
            raise ValueError(f"problem: expected one of {', '.join(problems.PROBLEMS)}, got {name!r}")
    folder = records.prepare(out or Path("results/lab-smoke" if smoke else "results/lab"))
    path = folder / "measurements.json"
    results = report.load(path) if path.exists() else {}
    console = Console()
    with _one_thread():
        for name in problem or problems.PROBLEMS:
            known = results.get(name)
            if known and (known.settings, known.environment) == (settings, report.environment()):
                console.print(f"{name}: already in {path}", markup=False, highlight=False, soft_wrap=True)
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
        chunks = settings.reference // problems.CHUNK
        with _bar(console, f"{name}: reference gradient", chunks, "estimate") as advance:
            instances = [problems.decoder(settings.seeds[0], settings.reference, lambda: advance(""))]
    cells = [(instance, *cell) for instance in instances for cell in measure.cells(instance, settings.samples)]
    measurements = []
    with _bar(console, name, len(cells), "measurement") as advance:
        for instance, estimator, samples in cells:
            measurements.append(measure.measure(instance, estimator, samples, settings.repeats))
            advance(f"{estimator}, S = {samples}, mse {measurements[-1].mse:.3g}")
    error = max(instance.noise**0.5 / float(instance.gradient.norm()) for instance in instances)
    return report.Result(settings, report.environment(), error, measurements)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Calls of a few milliseconds gain nothing from a second thread, and lose up to a factor of 50 waiting for one that
    another process keeps from its core.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _print_tables(records: list["Record"]) -> None:
    from ksubset.experiments import tables

    typer.echo(tables.results(records))
    typer.echo(tables.runtime(records))


def _draw(records: list["Record"], folder: Path) -> None:
    from ksubset.experiments import plots

    for path in plots.plot(records, folder):
        typer.echo(path)


def _train(configs: list[RunConfig], out: Path, skip_finished: bool = False) -> list["Record"]:
    """Run all configurations in turn and say what came out; all are checked before the first one starts."""
    from ksubset.experiments import records, runner

    configs = [runner.resolve(config) for config in configs]
    records.prepare(out)
    done = []
    console = Console()
    for number, config in enumerate(configs, 1):
        name = f"[{number}/{len(configs)}] {config.task} {config.dataset} {config.method} seed {config.seed}"
        path = out / f"{config.name()}.json"
        if skip_finished and path.exists() and records.load(path).status == records.FINISHED:
            console.print(f"{name}: already in {path}", markup=False, highlight=False, soft_wrap=True)
            continue
        with _bar(console, name, config.epochs, "epoch") as advance:
            record = runner.run(config, out, lambda entry: advance(_losses(entry)))
        summary = f"{name}: test {_metrics(record.test)}, {record.seconds_total:.1f} s, {path}"
        console.print(summary, markup=False, highlight=False, soft_wrap=True)
        done.append(record)
    return done


@contextmanager
def _bar(console: Console, name: str, total: int, unit: str) -> Iterator[Callable[[str], None]]:
    """A progress bar; gives the function that moves it one step on, and shows a text beside it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(name, total=total, numbers="")
        steps = itertools.count(1)

        def advance(numbers: str) -> None:
            step = next(steps)
            bar.update(line, advance=1, numbers=numbers)
            # Without a terminal there is no bar: ten lines tell as much to a log file.
            if not console.is_terminal and 10 * step // total > 10 * (step - 1) // total:
                text = ", ".join(filter(None, [f"{unit} {step}/{total}", numbers]))
                console.print(f"{name}: {text}", markup=False, highlight=False, soft_wrap=True)

        yield advance


def _losses(entry: dict[str, Any]) -> str:
    return f"loss {entry['loss']:.4f}, validation {_metrics(entry['validation'])}"


def _metrics(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


if __name__ == "__main__":
    main()
