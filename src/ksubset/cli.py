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
                "the same command goes on from there",
                err=True,
            )
            raise typer.Exit(130) from interrupt

    return typing.cast(_Command, wrapper)


def _options_of_config(command: _Command) -> _Command:
    """Give a command with the parameter ``grid`` one repeatable option for each field of :class:`RunConfig`; the grid
    holds what was given.
    """
    signature = inspect.signature(command)
    types = typing.get_type_hints(RunConfig)
    options = []
    for field in dataclasses.fields(RunConfig):
        kind = next(iter(typing.get_args(types[field.name])), types[field.name])  # int, for an int that may be None
        option = typer.Option(
            f"--{field.name.replace('_', '-')}",
            help=field.metadata["help"] + ("" if field.default is None else f" (default: {field.default})"),
            show_default=False,
            metavar=kind.__name__,
        )
        annotation = Annotated[Optional[list[kind]], option]  # type: ignore[valid-type]  # noqa: UP045
        options.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        )

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        knobs = {field.name: values.pop(field.name) for field in dataclasses.fields(RunConfig)}
        command(grid={name: given for name, given in knobs.items() if given}, **values)

    rest = [parameter for name, parameter in signature.parameters.items() if name != "grid"]
    rest = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    wrapper.__signature__ = signature.replace(parameters=[*options, *rest])  # type: ignore[attr-defined]
    return typing.cast(_Command, wrapper)


def _once(command: _Command) -> _Command:
    """Refuse an option that is given twice, of which the last one would win without a word."""
    signature = inspect.signature(command)
    single = {}
    for name, parameter in signature.parameters.items():
        kind, option = typing.get_args(parameter.annotation)
        if not any(typing.get_origin(part) is list for part in (kind, *typing.get_args(kind))):
            kind = next(iter(typing.get_args(kind)), kind)  # Path, for a path that may be None
            annotation = Annotated[Optional[list[kind]], option]  # type: ignore[valid-type]  # noqa: UP045
            default = None if parameter.default is None else [parameter.default]
            single[name] = parameter.replace(annotation=annotation, default=default)

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        for name, given in values.items():
            if given and len(given) > 1:
                grid = "" if name in single else "; a grid is a matter of 'ksubset sweep'"
                raise ValueError(f"--{name.replace('_', '-')}: expected one value, got {len(given)}{grid}")
        command(**{name: given[0] if given and name in single else given for name, given in values.items()})

    parameters = [single.get(name, parameter) for name, parameter in signature.parameters.items()]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return typing.cast(_Command, wrapper)


_PROTOCOL = typer.Option(metavar="str", help="values of all knobs that are not given: paper or best (default: paper)")
_OUT = typer.Option(metavar="folder", help="folder for the records, one JSON file a run")
_CHECKPOINT_EVERY = typer.Option(min=1, metavar="int", help="epochs from one checkpoint to the next")
_TENSORBOARD = typer.Option(metavar="folder", help="folder for TensorBoard's files, a sub-folder for each run")


@app.command()
@_clear_errors
@_once
@_options_of_config
def run(
    grid: dict[str, list[Any]],
    protocol: Annotated[Optional[list[str]], _PROTOCOL] = None,  # noqa: UP045
    out: Annotated[Path, _OUT] = Path("results"),
    checkpoint_every: Annotated[int, _CHECKPOINT_EVERY] = 10,
    tensorboard: Annotated[Optional[Path], _TENSORBOARD] = None,  # noqa: UP045
) -> None:
    """Train once, and write the record. A run that was killed goes on after its last checkpoint.

    Example: ksubset run --dataset fashion-mnist --method sfess-v --seed 0
    """
    from ksubset.experiments.sweep import summary, title, train

    (config,) = _configs(protocol, grid)
    console = Console()
    with _epochs(console, title(config), config.epochs) as progress:
        record = train(config, out, progress, checkpoint_every=checkpoint_every, tensorboard=tensorboard)
    _print(console, f"{title(config)}: {summary(record, out)}")


@app.command()
@_clear_errors
@_options_of_config
def sweep(
    grid: dict[str, list[Any]],
    protocol: Annotated[Optional[list[str]], _PROTOCOL] = None,  # noqa: UP045
    out: Annotated[Path, _OUT] = Path("results"),
    backend: Annotated[str, typer.Option(help="where to train: local, or ray (the cluster of RAY_ADDRESS)")] = "local",
    jobs: Annotated[int, typer.Option(min=1, help="runs at a time")] = 1,
    checkpoint_every: Annotated[int, _CHECKPOINT_EVERY] = 10,
    tensorboard: Annotated[Optional[Path], _TENSORBOARD] = None,  # noqa: UP045
) -> None:
    """Train a grid, and write one record for each run.

    Every option of the configuration may be given several times: the runs are all combinations. Runs whose finished
    record is in the folder are left out, and runs that were killed go on after their last checkpoints.

    Example: ksubset sweep --dataset fashion-mnist --method gs --method sfess-v --seed 0 --seed 1 --jobs 2
    """
    _train(
        _configs(protocol, grid),
        out,
        backend=backend,
        jobs=jobs,
        checkpoint_every=checkpoint_every,
        tensorboard=tensorboard,
    )


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

    It needs no download, and goes on where it was ended. The paper's data sets are a matter of 'ksubset sweep'; see
    docs/reproduction.md.
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
    from ksubset import files
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
    with _one_thread():
        for name in problem or problems.PROBLEMS:
            known = results.get(name)
            if known and (known.settings, known.environment) == (settings, report.environment()):
                _print(console, f"{name}: already in {path}")
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
        with _bar(console, f"{name}: reference gradient", chunks, "estimate") as advance:
            instances = [problems.decoder(settings.seeds[0], settings.reference, lambda: advance("", next(count)))]
    cells = [(instance, *cell) for instance in instances for cell in measure.cells(instance, settings.samples)]
    measurements = []
    with _bar(console, name, len(cells), "measurement") as advance:
        for number, (instance, estimator, samples) in enumerate(cells, 1):
            measurements.append(measure.measure(instance, estimator, samples, settings.repeats))
            advance(f"{estimator}, S = {samples}, mse {measurements[-1].mse:.3g}", number)
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


def _configs(protocols: list[str] | None, grid: dict[str, list[Any]]) -> list[RunConfig]:
    """All combinations of a grid, under each of the protocols."""
    from ksubset.experiments.protocols import find

    configs = []
    for protocol, *values in itertools.product(protocols or ["paper"], *grid.values()):
        given = dict(zip(grid, values, strict=True))
        cell = (given.get(name, getattr(RunConfig, name)) for name in ("task", "dataset", "method"))
        configs.append(RunConfig(**find(protocol, *cell) | given))
    return configs


def _train(configs: list[RunConfig], out: Path, **options: Any) -> list["Record"]:
    """Sweep over the configurations and give their records, or end with a line for each run that failed."""
    from ksubset.experiments.sweep import sweep

    console = Console()
    say, bar = functools.partial(_print, console), functools.partial(_epochs, console)
    outcome = sweep(configs, out, say=say, bar=bar, **options)
    for failure in outcome.failures:
        typer.echo(f"error: {failure.config.name()}: {failure.reason}", err=True)
    if outcome.failures:
        raise typer.Exit(2)
    return outcome.records


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _epochs(console: Console, name: str, epochs: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A progress bar over the epochs of a run; gives the function that takes their entries of the history."""
    from ksubset.experiments.sweep import metrics

    with _bar(console, name, epochs, "epoch") as advance:

        def progress(entry: dict[str, Any]) -> None:
            text = f"loss {entry['loss']:.4f}, validation {metrics(entry['validation'])}"
            advance(text, entry["epoch"])

        yield progress


@contextmanager
def _bar(console: Console, name: str, total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """A progress bar; gives the function that takes a text to show beside it and the number of finished steps."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(name, total=total, numbers="")

        def advance(numbers: str, step: int) -> None:
            bar.update(line, completed=step, numbers=numbers)
            # Without a terminal there is no bar: ten lines tell as much to a log file.
            if not console.is_terminal and 10 * step // total > 10 * (step - 1) // total:
                text = ", ".join(filter(None, [f"{unit} {step}/{total}", numbers]))
                _print(console, f"{name}: {text}")

        yield advance


if __name__ == "__main__":
    main()
