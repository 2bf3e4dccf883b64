"""How many columns: the sizes that are tried, and what chooses one of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksubset.search.arguments import check_integer, is_integer

__all__ = ["CRITERIA", "check_sizes", "penalty"]

CRITERIA = ("aic", "bic", "ebic", "gic")


def check_sizes(k: Any, least: int, most: int, num_rows: float) -> list[int]:
    """Sizes, ascending, each once.

    Arguments:
        k: An integer, a sequence of integers, or "auto": all up to N / (log n log log N), where abess ends, too.
        least: The smallest that is possible.
        most: The largest.
        num_rows: N.

    Raises:
        TypeError: It is something else.
        ValueError: It is out of range, or empty.
    """
    if isinstance(k, str):
        if k != "auto":
            raise ValueError(f"k: expected an integer, integers or 'auto', got {k!r}")
        growth = math.log(max(most, 3)) * math.log(math.log(max(num_rows, 16)))
        return list(range(least, max(least, min(most, int(num_rows / growth))) + 1))
    if is_integer(k):
        sizes = [int(k)]
    elif isinstance(k, Sequence | np.ndarray):
        sizes = sorted({check_integer("k", size, 0) for size in k})
    else:
        raise TypeError(f"k: expected an integer, integers or 'auto', got {k!r}")
    if not sizes or not least <= sizes[0] <= sizes[-1] <= most:
        raise ValueError(f"k: expected {least} to {most} columns of those that are there, got {k!r}")
    return sizes


def penalty(criterion: str, size: int, num_columns: int, num_rows: float) -> float:
    """What an information criterion adds to minus twice the log-likelihood, for k of n columns and N rows.

    References:
        Akaike (1974); Schwarz (1978); Chen and Chen (2008), https://doi.org/10.1093/biomet/asn034, with gamma = 1;
        Zhu, Wen, Zhu, Zhang and Wang (2020), https://doi.org/10.1073/pnas.2014241117, for "gic".
    """
    if criterion == "aic":
        return 2.0 * size
    if criterion == "gic":
        return size * math.log(max(num_columns, 2)) * math.log(math.log(max(num_rows, 3)))
    bayes = size * math.log(num_rows)
    return bayes if criterion == "bic" else bayes + 2 * math.log(math.comb(num_columns, size))
