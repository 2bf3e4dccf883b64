"""Feature selection for scikit-learn models: exactly k columns. Needs the extra ``selection``."""

from ksubset._support.extras import require

require("sklearn", "selection")

from ksubset.selection.co_inclusion import CoInclusion  # noqa: E402
from ksubset.selection.neural.selector import NeuralSubsetSelector  # noqa: E402
from ksubset.selection.neural.training import TrainingProgress  # noqa: E402
from ksubset.selection.stability import Stability, stability  # noqa: E402
from ksubset.selection.substitutes import Substitute  # noqa: E402
from ksubset.selection.wrapper.results import Progress  # noqa: E402
from ksubset.selection.wrapper.selector import KSubsetSelector  # noqa: E402

__all__ = [
    "CoInclusion", "KSubsetSelector", "NeuralSubsetSelector", "Progress", "Stability", "Substitute", "TrainingProgress",
    "stability",
]  # fmt: skip
