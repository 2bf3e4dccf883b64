"""Stochastic nearest neighbours: an embedding in which the k nearest of the candidates have the right label."""

from ksubset._support.extras import require

require("sklearn", "selection")

from ksubset.applications.neighbours.classifier import SubsetNeighborsClassifier  # noqa: E402
from ksubset.applications.neighbours.model import (  # noqa: E402
    AtMean,
    NeighborSelector,
    class_shares,
    log_share,
    vote_error,
    wrong_share,
)

__all__ = [
    "AtMean", "NeighborSelector", "SubsetNeighborsClassifier", "class_shares", "log_share", "vote_error", "wrong_share",
]  # fmt: skip
