"""The paper's experiments, their tables and figures."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ksubset._support import files
from ksubset.cli.console import Command, app, bar, one_thread, say
from ksubset.experiments.config import RunConfig, descriptions

if TYPE_CHECKING:
    from ksubset.experiments.records import Record

__all__: list[str] = []


def _options_of_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with the parameter ``grid`` one repeatable option for each field of :class:`RunConfig` that a
    user chooses; the grid holds what was given.
    """
    signature, described = inspect.signature(command), descriptions()
    types, keyword_only = typing.get_type_hints(RunConfig), inspect.Parameter.KEYWORD_ONLY
    fields = [field for field in dataclasses.fields(RunConfig) if field.metadata.get("option", True)]
    options = []
    for field in fields:
        kind = next(iter(typing.get_args(types[field.name])), types[field.name])  # int, for an int that may be None
        option = typer.Option(
            f"--{field.name.replace('_', '-')}",
            help=described[field.name] + ("" if field.default is None else f" (default: {field.default})"),
            show_default=False,
            metavar=kind.__name__,
        )
        annotation = Annotated[list[kind] | None, option]  # type: ignore[valid-type]
        options.append(inspect.Parameter(field.name, keyword_only, default=None, annotation=annotation))

    @wraps(command)
    def wrapper(**values: Any) -> None:
        settings = {field.name: values.pop(field.name) for field in fields}
        command(grid={name: given for name, given in settings.items() if given}, **values)

    rest = [one.replace(kind=keyword_only) for name, one in signature.parameters.items() if name != "grid"]
    wrapper.__signature__ = signature.replace(parameters=[*options, *rest])  # type: ignore[attr-defined]
    return wrapper


_PROTOCOL = typer.Option(
    metavar="str",
    help="values of the settings that are not given: paper (default for the paper's tasks) or best",
)
_OUT = typer.Option(metavar="folder", help="folder for the records, one JSON file a run")
_CHECKPOINT_EVERY = typer.Option(min=1, metavar="int", help="epochs from one checkpoint to the next")
_TENSORBOARD = typer.Option(metavar="folder", help="folder for TensorBoard's files, a sub-folder for each run")


@app.command(cls=Command)
@_options_of_config
def run(
    grid: dict[str, list[Any]],
    protocol: Annotated[list[str] | None, _PROTOCOL] = None,
    out: Annotated[Path, _OUT] = Path("results"),
    checkpoint_every: Annotated[int, _CHECKPOINT_EVERY] = 10,
    tensorboard: Annotated[Path | None, _TENSORBOARD] = None,
) -> None:
    """Train once, and write the record. A run that was killed goes on after its last checkpoint.

    A run whose finished record is in the folder is not trained again; delete the record to do so.

    Example: ksubset run --dataset fashion-mnist --method sfess-v --seed 0
    """
    from ksubset.experiments import protocols, runner
    from ksubset.experiments.backends.base import Plan, finished, summary, title

    for name, given in (grid | {"protocol": protocol or []}).items():
        if len(given) > 1:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option}: expected one value, got {len(given)}; a grid is a matter of 'ksubset sweep'")
    (config,) = protocols.grid(protocol or [], grid)
    config = runner.resolve(config)
    console = Console()
    if (record := finished(config, out)) is not None:
        say(console, f"{title(config)}: already in {out / record.filename}; delete it to train again")
        return
    with _epochs(console, title(config), config.epochs) as progress:
        record = Plan(out, checkpoint_every, tensorboard).train(config, progress)
    say(console, f"{title(config)}: {summary(record, out)}")


@app.command(cls=Command)
@_options_of_config
def sweep(
    grid: dict[str, list[Any]],
    protocol: Annotated[list[str] | None, _PROTOCOL] = None,
    out: Annotated[Path, _OUT] = Path("results"),
    backend: Annotated[str, typer.Option(help="where to train: local, or ray (the cluster of RAY_ADDRESS)")] = "local",
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time")] = 1,
    checkpoint_every: Annotated[int, _CHECKPOINT_EVERY] = 10,
    tensorboard: Annotated[Path | None, _TENSORBOARD] = None,
) -> None:
    """Train a grid, and write one record for each run.

    Every option of the configuration may be given several times: the runs are all combinations. Runs whose finished
    record is in the folder are left out, and runs that were killed go on after their last checkpoints.

    Example: ksubset sweep --dataset fashion-mnist --method gs --method sfess-v --seed 0 --seed 1 --jobs 2
    """
    from ksubset.experiments import protocols

    options = {"backend": backend, "jobs": jobs, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard}
    _train(protocols.grid(protocol or [], grid), out, **options)


@app.command(cls=Command)
def table(folders: Annotated[list[Path], typer.Argument(metavar="folder", help="folders with records")]) -> None:
    """Print the paper's two tables in Markdown, the published values beside those of the records.

    Example: ksubset table results
    """
    from ksubset.experiments import records

    _print_tables(list(records.read(*folders)))


@app.command(cls=Command)
def plot(
    folders: Annotated[list[Path], typer.Argument(metavar="folder", help="folders with records")],
    out: Annotated[Path, typer.Option(metavar="folder", help="folder for the figures")] = Path("figures"),
    format: Annotated[str, typer.Option(metavar="str", help="png, svg or pdf")] = "png",
) -> None:
    """Draw convergence, reconstructions and scores; needs no training.

    Example: ksubset plot results --out figures --format pdf
    """
    from ksubset.experiments import records

    _draw(list(records.read(*folders)), out, format)


@app.command(cls=Command)
def reproduce(
    out: Annotated[Path, typer.Option(metavar="folder", help="folder for the records")] = Path("results/digits"),
    figures: Annotated[Path, typer.Option(metavar="folder", help="folder for the figures (PNG)")] = Path(
        "figures/digits"
    ),
    smoke: Annotated[bool, typer.Option("--smoke", help="every task and method for two epochs: seconds")] = False,
) -> None:
    """Run both tasks with the paper's methods on scikit-learn's digits (minutes on two cores), with tables and figures.

    It needs no download, and goes on where it was ended. The paper's data sets are a matter of 'ksubset sweep'; see
    docs/reproduction.md.

    Example: ksubset reproduce --out results/digits --figures figures/digits
    """
    from ksubset.experiments import presets

    files.prepare(figures, "figures")
    with one_thread():
        done = _train(presets.smoke() if smoke else presets.digits(), out)
    _print_tables(done)
    _draw(done, figures)


def _print_tables(records: list["Record"]) -> None:
    from ksubset.experiments import tables

    typer.echo(tables.results(records))
    typer.echo(tables.runtime(records))


def _draw(records: list["Record"], folder: Path, format: str = "png") -> None:
    from ksubset.experiments import plots

    for path in plots.plot(records, folder, format):
        typer.echo(path)


def _train(configs: list[RunConfig], out: Path, **options: Any) -> list["Record"]:
    """Sweep over the configurations and give their records, or end with a line for each run that failed."""
    from ksubset.experiments.sweep import sweep

    console = Console()
    outcome = sweep(configs, out, say=partial(say, console), bar=partial(_epochs, console), **options)
    for failure in outcome.failures:
        typer.echo(f"error: {failure.config.name()}: {failure.reason}", err=True)
    if outcome.failures:
        raise typer.Exit(2)
    return outcome.records


@contextmanager
def _epochs(console: Console, name: str, epochs: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A progress bar over the epochs of a run; gives the function that takes their entries of the history."""
    from ksubset.experiments.backends.base import progress

    with bar(console, name, epochs, "epoch") as advance:
        yield lambda entry: advance(progress(entry), entry["epoch"])
