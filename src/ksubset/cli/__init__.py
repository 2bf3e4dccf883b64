"""The command ``ksubset``: columns of a data set, the paper's experiments, and the laboratory of the estimators."""

import sys
from typing import TYPE_CHECKING, Any

import ksubset

if TYPE_CHECKING:
    from ksubset.cli.commands import app

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    # Importing `main` needs no extra, and lets it answer for what is missing.
    if name != "app":
        raise AttributeError(name)
    from ksubset.cli.commands import app

    return app


def main() -> None:
    """Entry point of ``ksubset``."""
    if sys.argv[1:] == ["--version"]:  # needs no extra
        print(f"ksubset {ksubset.__version__}")
        return
    try:
        from ksubset.cli.commands import app
    except ModuleNotFoundError as error:
        # Whoever calls this is at a command line, where a traceback does not help.
        raise SystemExit(
            f"error: {error.name} is not installed; to select columns, get it by: pip install 'ksubset[selection]'; "
            "for the other commands: pip install 'ksubset[experiments]'"
        ) from error
    except KeyboardInterrupt as interrupt:
        raise SystemExit(130) from interrupt
    app()
