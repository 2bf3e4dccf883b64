"""Reproduction of the paper's feature-selection experiments (needs the extra ``ksubset[experiments]``).

One :class:`~ksubset.experiments.config.RunConfig` goes in, one record comes out; tables and figures read records alone.
"""

from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record, read
from ksubset.experiments.runner import run

__all__ = ["Record", "RunConfig", "read", "run"]
