"""How good explanations are: against known columns, and by what the model says on the chosen inputs alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["false_discovery_rate", "median_rank", "posthoc_accuracy", "true_positive_rate"]


def true_positive_rate(chosen: Any, relevant: Any) -> float:
    """Share of the relevant columns that were chosen, the mean over the rows.

    References:
        Yoon, Jordon and van der Schaar (2019), INVASE, https://openreview.net/forum?id=BJg_roAcK7, section 4.

    Arguments:
        chosen: `(N, n)`, boolean or 0 and 1.
        relevant: Likewise, with a relevant column in each row.

    Raises:
        ValueError: Shapes differ or are not of two dimensions, a value is neither 0 nor 1, or a row has no relevant
            column.

    Example:
        >>> true_positive_rate([[1, 1, 0, 0], [1, 0, 0, 0]], relevant=[[1, 0, 0, 0], [1, 1, 0, 0]])
        0.75
    """
    chosen, relevant = _masks(chosen, relevant)
    return float(((chosen & relevant).sum(1) / relevant.sum(1)).mean())


def false_discovery_rate(chosen: Any, relevant: Any) -> float:
    """Share of the chosen columns that are not relevant, the mean over the rows; 0 where none was chosen.

    References:
        Yoon, Jordon and van der Schaar (2019), INVASE, https://openreview.net/forum?id=BJg_roAcK7, section 4.

    Arguments:
        chosen: `(N, n)`, boolean or 0 and 1.
        relevant: As of `true_positive_rate`.

    Raises:
        ValueError: As `true_positive_rate` says.

    Example:
        >>> false_discovery_rate([[1, 1, 0, 0], [1, 0, 0, 0]], relevant=[[1, 0, 0, 0], [1, 1, 0, 0]])
        0.25
    """
    chosen, relevant = _masks(chosen, relevant)
    return float(((chosen & ~relevant).sum(1) / np.maximum(chosen.sum(1), 1)).mean())


def median_rank(scores: Any, relevant: Any) -> NDArray[np.float64]:
    """Median of the ranks of the relevant columns of each row, 1 for the largest score; equal scores share their mean.

    The measure of Chen et al. (2018): of m relevant columns that come first it is (m + 1) / 2.

    References:
        Chen, Song, Wainwright and Jordan (2018), Learning to Explain, https://arxiv.org/abs/1802.07814, section 4.

    Arguments:
        scores: Importance of the columns, such as inclusion probabilities, `(N, n)`.
        relevant: As of `true_positive_rate`.

    Raises:
        ValueError: As `true_positive_rate` says; or a score is not finite.

    Shapes:
        -> `(N)`.

    Example:
        >>> median_rank([[0.9, 0.8, 0.1, 0.2], [0.9, 0.1, 0.3, 0.5]], relevant=[[1, 1, 0, 0], [0, 1, 0, 0]])
        array([1.5, 4. ])
    """
    scores = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("scores: expected finite numbers, got NaN or infinity")
    relevant = _mask("relevant", relevant)
    if scores.shape != relevant.shape:
        raise ValueError(f"scores: expected the shape of relevant, {relevant.shape}, got {scores.shape}")
    _, relevant = _masks(relevant, relevant)
    ranks = np.where(relevant, rankdata(-scores, axis=1), np.nan)
    result: NDArray[np.float64] = np.nanmedian(ranks, axis=1)
    return result


def posthoc_accuracy(full: Any, restricted: Any) -> float:
    """Share of the rows in which a model says the same class on the chosen inputs alone as on all.

    References:
        Chen, Song, Wainwright and Jordan (2018), Learning to Explain, https://arxiv.org/abs/1802.07814, section 4.

    Arguments:
        full: Its scores or probabilities on all inputs, `(N, C)`.
        restricted: On the chosen ones, the others masked, `(N, C)`.

    Raises:
        ValueError: Shapes differ or are not of two dimensions, there are no rows, or a number is NaN.

    Example:
        >>> posthoc_accuracy([[0.9, 0.1], [0.2, 0.8]], restricted=[[0.6, 0.4], [0.7, 0.3]])
        0.5
    """
    full, restricted = np.asarray(full), np.asarray(restricted)
    if full.ndim != 2 or not full.size or full.shape != restricted.shape:
        raise ValueError(f"restricted: expected the shape (N, C) of full, {full.shape}, got {restricted.shape}")
    if np.isnan(full).any() or np.isnan(restricted).any():
        raise ValueError("full, restricted: expected numbers, got NaN")
    return float((full.argmax(1) == restricted.argmax(1)).mean())


def _masks(chosen: Any, relevant: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    chosen, relevant = _mask("chosen", chosen), _mask("relevant", relevant)
    if chosen.shape != relevant.shape:
        raise ValueError(f"chosen: expected the shape of relevant, {relevant.shape}, got {chosen.shape}")
    if not relevant.any(1).all():
        raise ValueError(f"relevant: expected a column in each row, got none in row {int((~relevant.any(1)).argmax())}")
    return chosen, relevant


def _mask(name: str, value: Any) -> NDArray[np.bool_]:
    mask = np.asarray(value)
    if mask.ndim != 2 or not len(mask):
        raise ValueError(f"{name}: expected the shape (N, n), got {mask.shape}")
    if mask.dtype != np.bool_ and not np.isin(mask, (0, 1)).all():
        raise ValueError(f"{name}: expected zeros and ones, got other values")
    return mask.astype(np.bool_)
