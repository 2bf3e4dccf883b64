"""Reproduction of the paper's feature-selection experiments (needs the extra ``ksubset[experiments]``).

One :class:`~ksubset.experiments.config.RunConfig` goes in, one record comes out; tables and figures read records alone.
"""

from typing import TYPE_CHECKING, Any

from ksubset.experiments.config import RunConfig

if TYPE_CHECKING:
    from ksubset.experiments.records import Record, read
    from ksubset.experiments.runner import run

__all__ = ["Record", "RunConfig", "read", "run"]


def __getattr__(name: str) -> Any:
    # The command's help needs the settings alone, and not the seconds that scikit-learn and matplotlib take.
    if name in ("Record", "read"):
        from ksubset.experiments import records  # noqa: PLC0415

        return getattr(records, name)
    if name == "run":
        from ksubset.experiments.runner import run  # noqa: PLC0415

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
