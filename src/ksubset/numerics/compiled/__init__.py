"""Loops over single items, compiled by numba: taken on the CPU where numba is installed (the extra `fast`).

Each has a twin in eager torch, which is taken elsewhere, and which the tests hold it to.
"""

import functools
import importlib.util

from torch import Tensor

from ksubset.numerics.checks import inside_transform

__all__ = ["TINY", "usable"]

# The least flip probability that is written, so that it has a sign; far below that of items taken to be certain.
TINY = 1e-300


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def usable(logits: Tensor) -> bool:
    """Whether compiled loops can read this tensor: it is on the CPU, and its values are there."""
    return logits.is_cpu and not inside_transform() and _installed()
