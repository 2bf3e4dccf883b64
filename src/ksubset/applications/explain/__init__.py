"""Learning to explain: the k inputs of each example from which the answer of a model can be told."""

from ksubset.applications.explain.data import SYNTHETIC, Synthetic, synthetic
from ksubset.applications.explain.explainer import Explanation, SubsetExplainer
from ksubset.applications.explain.inputs import patches
from ksubset.applications.explain.metrics import (
    false_discovery_rate,
    median_rank,
    posthoc_accuracy,
    true_positive_rate,
)  # fmt: skip
from ksubset.applications.explain.plotting import plot_images, plot_inclusion, plot_text

__all__ = [
    "SYNTHETIC", "Explanation", "SubsetExplainer", "Synthetic", "false_discovery_rate", "median_rank", "patches",
    "plot_images", "plot_inclusion", "plot_text", "posthoc_accuracy", "synthetic", "true_positive_rate",
]  # fmt: skip
