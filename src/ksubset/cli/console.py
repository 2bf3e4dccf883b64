"""What commands share: the application, errors in one line, options given once, and progress bars."""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ksubset

__all__ = ["Command", "app", "bar", "clear_errors", "once", "one_thread", "say"]

app = typer.Typer(
    help="Learning with k-subsets: select columns of a data set; run the paper's experiments, tabulate and plot them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ksubset {ksubset.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """What the command takes before the name of another one."""


Command = TypeVar("Command", bound=Callable[..., None])


def clear_errors(command: Command) -> Command:
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
                "interrupted: finished epochs of a run, finished problems of the laboratory, and the scores of a "
                "checkpoint are kept; the same command goes on from there",
                err=True,
            )
            raise typer.Exit(130) from interrupt

    return typing.cast(Command, wrapper)


def once(*repeatable: str) -> Callable[[Command], Command]:
    """Refuse an option that is given twice, of which the last one would win without a word.

    Arguments:
        repeatable: Parameters for options that may be.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        single = {}
        for name, parameter in signature.parameters.items():
            kind, option = typing.get_args(parameter.annotation)
            several = any(typing.get_origin(part) is list for part in (kind, *typing.get_args(kind)))
            if not several and isinstance(option, typer.models.OptionInfo):
                kind = next(iter(typing.get_args(kind)), kind)  # Path, for a path that may be None
                annotation = Annotated[list[kind] | None, option]  # type: ignore[valid-type]
                default = parameter.default
                if default not in (None, inspect.Parameter.empty):
                    default = [default]
                single[name] = parameter.replace(annotation=annotation, default=default)

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            for name, given in values.items():
                if isinstance(given, list) and len(given) > 1 and name not in repeatable:
                    grid = "" if name in single else "; a grid is a matter of 'ksubset sweep'"
                    raise ValueError(f"--{name.replace('_', '-')}: expected one value, got {len(given)}{grid}")
            command(**{name: given[0] if given and name in single else given for name, given in values.items()})

        parameters = [single.get(name, parameter) for name, parameter in signature.parameters.items()]
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return typing.cast(Command, wrapper)

    return decorate


@contextmanager
def one_thread() -> Iterator[None]:
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


def say(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def bar(console: Console, name: str, total: int, unit: str) -> Iterator[Callable[[str, int], None]]:
    """A progress bar; gives the function that takes a text to show beside it and the number of finished steps."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as display:
        line = display.add_task(name, total=total, numbers="")
        before: int | None = None

        def advance(numbers: str, step: int) -> None:
            nonlocal before
            display.update(line, completed=step, numbers=numbers)
            # Without a terminal there is no bar: ten lines tell as much to a log file.
            if not console.is_terminal and 10 * step // total > 10 * (step - 1 if before is None else before) // total:
                text = ", ".join(filter(None, [f"{unit} {step}/{total}", numbers]))
                say(console, f"{name}: {text}")
            before = step

        yield advance
