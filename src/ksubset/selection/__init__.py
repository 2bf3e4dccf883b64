"""Feature selection for scikit-learn models: exactly k columns. Needs the extra ``selection``."""

from ksubset.extras import require

require("sklearn", "selection")

from ksubset.selection.neural import NeuralSubsetSelector  # noqa: E402
from ksubset.selection.outcome import Progress  # noqa: E402
from ksubset.selection.report import CoInclusion  # noqa: E402
from ksubset.selection.selector import KSubsetSelector  # noqa: E402
from ksubset.selection.training import TrainingProgress  # noqa: E402

__all__ = ["CoInclusion", "KSubsetSelector", "NeuralSubsetSelector", "Progress", "TrainingProgress"]
