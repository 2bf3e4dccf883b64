"""Synthetic data whose labels depend on known columns, others from row to row, by their published definitions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["SYNTHETIC", "Synthetic", "synthetic"]

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Synthetic:
    """Rows, labels, and what the labels depend on.

    Arguments:
        x: `(N, n)`.
        y: Labels 0 and 1, `(N)`.
        probability: Of the label 1, `(N)`.
        relevant: Columns that the label of each row depends on, `(N, n)`, boolean.

    Example:
        >>> data = synthetic("syn4", 5, seed=0)
        >>> data.relevant.sum(1)  # the last column, and two or four others
        array([3, 5, 3, 5, 3])
        >>> data.x[:, -1].round(1)
        array([-0.6,  1.4, -0.2,  0.8, -1.3])
    """

    x: NDArray[np.float64]
    y: NDArray[np.int64]
    probability: NDArray[np.float64]
    relevant: NDArray[np.bool_]


def _product(x: Rows) -> Rows:
    return x[:, 0] * x[:, 1]


def _shell(x: Rows) -> Rows:
    squares: Rows = np.square(x).sum(1)
    return squares - 4


def _steep(x: Rows) -> Rows:
    """L2X's sum of four functions."""
    return -100 * np.sin(0.2 * x[:, 0]) + np.abs(x[:, 1]) + x[:, 2] + np.exp(-x[:, 3]) - 2.4


def _gentle(x: Rows) -> Rows:
    """INVASE's, as in its authors' program."""
    return -10 * np.sin(0.2 * x[:, 0]) + np.abs(x[:, 1]) + x[:, 2] + np.exp(-x[:, 3]) - 2.4


@dataclass(frozen=True)
class _Rule:
    """Log-odds of the label 0, as a function of some columns."""

    log_odds: Callable[[Rows], Rows]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class _Definition:
    """One rule for all rows, or two, between which the last column decides.

    Arguments:
        rules: Of rows where that column is below 0, or has the lower mean, and of the others.
        num_columns: n.
        apart: How far from 0 the mean of the last column is in rows of either kind; at 0 its sign decides.
    """

    rules: tuple[_Rule, ...]
    num_columns: int
    apart: float = 0.0


_SYN = (_Rule(_product, (0, 1)), _Rule(_shell, (2, 3, 4, 5)), _Rule(_gentle, (6, 7, 8, 9)))
_DEFINITIONS: Mapping[str, _Definition] = {
    "xor": _Definition((_Rule(_product, (0, 1)),), 10),
    "orange-skin": _Definition((_Rule(_shell, (0, 1, 2, 3)),), 10),
    "additive": _Definition((_Rule(_steep, (0, 1, 2, 3)),), 10),
    "switch": _Definition((_Rule(_steep, (4, 5, 6, 7)), _Rule(_shell, (0, 1, 2, 3))), 10, apart=3.0),
    "syn1": _Definition(_SYN[:1], 11),
    "syn2": _Definition(_SYN[1:2], 11),
    "syn3": _Definition(_SYN[2:], 11),
    "syn4": _Definition(_SYN[:2], 11),
    "syn5": _Definition((_SYN[0], _SYN[2]), 11),
    "syn6": _Definition(_SYN[1:], 11),
}

SYNTHETIC = tuple(_DEFINITIONS)
"""Names of the sets: four of L2X, six of INVASE."""


def synthetic(name: str, num_rows: int, seed: int) -> Synthetic:
    r"""Draw a set of L2X (n = 10) or INVASE (n = 11).

    Columns are standard normal, and :math:`P(y = 1 \mid x) = 1 / (1 + e^{g(x)})` with

    - `xor`: :math:`g = x_1 x_2`; `orange-skin`: :math:`x_1^2 + \dots + x_4^2 - 4`; `additive`:
      :math:`-100 \sin(0.2 x_1) + |x_2| + x_3 + e^{-x_4} - 2.4`;
    - `switch`: half of the rows have :math:`x_{10}` with mean 3, and g of `orange-skin`; the others mean -3, and g of
      `additive`, of columns 5 to 8;
    - `syn1`: :math:`g = x_1 x_2`; `syn2`: :math:`x_3^2 + \dots + x_6^2 - 4`; `syn3`:
      :math:`-10 \sin(0.2 x_7) + |x_8| + x_9 + e^{-x_{10}} - 2.4`;
    - `syn4`, `syn5`, `syn6`: where :math:`x_{11} < 0`, g of `syn1`, `syn1`, `syn2`; elsewhere of `syn2`, `syn3`,
      `syn3`.

    The third function of INVASE is that of its authors' program; the paper prints :math:`-10 \sin(2 x_7) + 2 |x_8| +
    x_9 + e^{-x_{10}}`. The column that chooses between two functions is relevant in all rows.

    Arguments:
        name: One of `SYNTHETIC`.
        num_rows: N.
        seed: Of numpy's generator.

    Raises:
        ValueError: The name is unknown, or `num_rows` below 1.

    References:
        Chen, Song, Wainwright and Jordan (2018), Learning to Explain, https://arxiv.org/abs/1802.07814, section 4.1.
        Yoon, Jordon and van der Schaar (2019), INVASE, https://openreview.net/forum?id=BJg_roAcK7, section 4.1.

    Example:
        >>> data = synthetic("syn4", 1000, seed=0)
        >>> data.x.shape, sorted(set(data.relevant.sum(1).tolist()))
        ((1000, 11), [3, 5])
    """
    if name not in _DEFINITIONS:
        raise ValueError(f"name: expected one of {', '.join(SYNTHETIC)}, got {name!r}")
    if num_rows < 1:
        raise ValueError(f"num_rows: expected 1 or more, got {num_rows}")
    definition, rng = _DEFINITIONS[name], np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, definition.num_columns))
    if definition.apart:
        later = rng.permutation(np.arange(num_rows) < num_rows // 2)
        x[:, -1] += np.where(later, definition.apart, -definition.apart)
    else:
        later = (x[:, -1] >= 0) & (len(definition.rules) > 1)
    log_odds, relevant = np.empty(num_rows), np.zeros(x.shape, dtype=bool)
    for rule, rows in zip(definition.rules, (~later, later), strict=False):
        log_odds[rows] = rule.log_odds(x[rows][:, rule.columns])
        relevant[:, rule.columns] |= rows[:, None]
    relevant[:, -1] |= len(definition.rules) > 1
    probability = 1 / (1 + np.exp(log_odds))
    return Synthetic(x, (rng.random(num_rows) < probability).astype(np.int64), probability, relevant)
