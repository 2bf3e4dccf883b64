"""What commands share: the application, errors in one line, options given once, and progress bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ksubset

__all__ = ["Command", "app", "bar", "one_thread", "say"]

# What options that take a path call their values.
_PATHS = ("file", "folder")

app = typer.Typer(
    help="Learning with k-subsets: select columns of a data set; run the paper's experiments, tabulate and plot them.",
    no_args_is_help=True,
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


class Command(typer.core.TyperCommand):
    """Refuses an option that is given twice, of which the last one would win without a word, and a path without a name;
    turns the errors that a user can mend into one line and exit code 2, and Ctrl-C into exit code 130.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        parsed: Any = self.make_parser(ctx).parse_args(list(args))
        values, _, given = parsed
        for option in given:
            # As a path, an empty name would be the present folder.
            if option.metavar in _PATHS and "" in (values[option.name], *(values[option.name] or ())):
                raise _ended(f"error: {option.opts[0]}: expected the name of a {option.metavar}, got an empty one", 2)
        for option in given:
            if (count := given.count(option)) > 1 and not (option.multiple or option.is_flag):
                raise _ended(f"error: {option.opts[0]}: expected one value, got {count}", 2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever reads has enough, which click answers in silence
            raise
        except (ValueError, ImportError, OSError, FloatingPointError) as error:
            raise _ended(f"error: {' '.join(str(error).split())}", 2) from error
        except KeyboardInterrupt as interrupt:
            kept = "finished epochs of a run, measurements of the laboratory, and the scores of a checkpoint"
            raise _ended(f"interrupted: {kept} are kept; the same command goes on from there", 130) from interrupt


def _ended(message: str, code: int) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(code)


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
