"""The command ``ksubset``: columns of a data set, the paper's experiments, and the laboratory of the estimators."""

try:
    from ksubset.cli import experiments, lab, selection  # noqa: F401 - each registers its commands
    from ksubset.cli.console import app
except ModuleNotFoundError as error:
    # Whoever imports this is a command line, which a traceback does not help.
    raise SystemExit(
        f"error: {error.name} is not installed; to select columns, get it by: pip install 'ksubset[selection]'; "
        "for the other commands: pip install 'ksubset[experiments]'"
    ) from error

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of ``ksubset``."""
    app()
