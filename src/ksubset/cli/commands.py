"""All commands together."""

from ksubset.cli import experiments, lab, selection  # noqa: F401 - each registers its commands
from ksubset.cli.console import app

__all__ = ["app"]
