"""Equations of k terms that trajectories and fields obey. Needs the extra ``selection``."""

from ksubset._support.extras import require

require("sklearn", "selection")

from ksubset.equations.discover import discover_equations  # noqa: E402
from ksubset.equations.library import Library, Term  # noqa: E402
from ksubset.equations.results import Equations, Path  # noqa: E402

__all__ = ["Equations", "Library", "Path", "Term", "discover_equations"]
