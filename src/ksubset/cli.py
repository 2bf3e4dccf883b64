"""The command ``ksubset``: run the paper's experiments, and turn their records into tables and figures."""

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
                "interrupted: the finished epochs of the current run are in its record, later runs were not started",
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
    import torch

    from ksubset.experiments import presets

    threads = torch.get_num_threads()
    # Steps of a few milliseconds gain nothing from a second thread, and lose up to a factor of 50 waiting for one that
    # another process keeps from its core.
    torch.set_num_threads(1)
    try:
        done = _train(presets.smoke() if smoke else presets.digits(), out)
    finally:
        torch.set_num_threads(threads)
    _print_tables(done)
    _draw(done, figures)


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
        with _bar(console, name, config.epochs) as progress:
            record = runner.run(config, out, progress)
        summary = f"{name}: test {_metrics(record.test)}, {record.seconds_total:.1f} s, {path}"
        console.print(summary, markup=False, highlight=False, soft_wrap=True)
        done.append(record)
    return done


@contextmanager
def _bar(console: Console, name: str, epochs: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A progress bar for one run; gives the callback that moves it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(name, total=epochs, numbers="")

        def advance(entry: dict[str, Any]) -> None:
            numbers = f"loss {entry['loss']:.4f}, validation {_metrics(entry['validation'])}"
            bar.update(line, advance=1, numbers=numbers)
            epoch = entry["epoch"]
            # Without a terminal there is no bar: ten lines a run tell as much to a log file.
            if not console.is_terminal and 10 * epoch // epochs > 10 * (epoch - 1) // epochs:
                console.print(
                    f"{name}: epoch {epoch}/{epochs}, {numbers}", markup=False, highlight=False, soft_wrap=True
                )

        yield advance


def _metrics(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


if __name__ == "__main__":
    main()
