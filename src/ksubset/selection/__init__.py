"""Feature selection for scikit-learn models: exactly k columns. Needs the extra ``selection``."""

from ksubset.extras import require

require("sklearn", "selection")

from ksubset.selection.outcome import Progress  # noqa: E402
from ksubset.selection.report import CoInclusion  # noqa: E402
from ksubset.selection.selector import KSubsetSelector  # noqa: E402

__all__ = ["CoInclusion", "KSubsetSelector", "Progress"]
