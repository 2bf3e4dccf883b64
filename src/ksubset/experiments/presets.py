"""Sets of runs that need no thought: the digits in a few minutes, and everything once in a few seconds."""

import dataclasses
import itertools

from ksubset.experiments.config import SUBSETS_PER, RunConfig
from ksubset.experiments.methods import METHODS
from ksubset.experiments.tasks import PRINTED

__all__ = ["digits", "smoke"]

_PAPER = ("gs", "stgs", "sfess", "sfess-v")


def digits() -> list[RunConfig]:
    """Both tasks, the paper's methods, both ways to draw subsets, two seeds, on scikit-learn's digits.

    The paper's learning rates are made for 20,000 steps; here are 760, and higher rates.
    """
    base = RunConfig(epochs=40, batch_size=64, selector_lr=5e-2, selector_beta1=0.9, network_lr=1e-3)
    return [
        dataclasses.replace(base, task=task, method=method, subsets_per=subsets_per, seed=seed)
        for task, subsets_per, method, seed in itertools.product(PRINTED, ("batch", "example"), _PAPER, (0, 1))
    ]


def smoke() -> list[RunConfig]:
    """Both tasks with every method for two epochs of the digits, in turn with each way to draw subsets."""
    base = RunConfig(k_start=12, epochs=2, samples=2, batch_size=256)
    return [
        dataclasses.replace(
            base,
            task=task,
            method=method,
            subsets_per=SUBSETS_PER[number % len(SUBSETS_PER)],
            k_start=None if METHODS[method].selector else base.k_start,
        )
        for number, (task, method) in enumerate(itertools.product(PRINTED, METHODS))
    ]
