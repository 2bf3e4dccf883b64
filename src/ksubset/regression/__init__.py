"""Regression and classification on exactly k columns. Needs the extra ``selection``."""

from ksubset._support.extras import require

require("sklearn", "selection")

from ksubset.regression.classifier import BestSubsetClassifier  # noqa: E402
from ksubset.regression.regressor import BestSubsetRegressor  # noqa: E402

__all__ = ["BestSubsetClassifier", "BestSubsetRegressor"]
