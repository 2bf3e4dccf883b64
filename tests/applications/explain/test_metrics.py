from collections.abc import Callable

import numpy as np
import pytest

from ksubset.applications.explain import false_discovery_rate, median_rank, posthoc_accuracy, true_positive_rate

RELEVANT = np.array([[1, 1, 0, 0], [0, 0, 0, 1]])


def test_rates_by_hand() -> None:
    chosen = np.array([[1, 0, 1, 0], [0, 0, 1, 1]], dtype=bool)
    assert true_positive_rate(chosen, RELEVANT) == pytest.approx((1 / 2 + 1) / 2)
    assert false_discovery_rate(chosen, RELEVANT) == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert false_discovery_rate(np.zeros((2, 4)), RELEVANT) == 0
    assert true_positive_rate(np.zeros((2, 4)), RELEVANT) == 0


def test_ranks_by_hand() -> None:
    scores = [[0.9, 0.5, 0.7, 0.1], [0.0, 0.3, 0.3, 0.3]]
    # Ranks 1 and 3; the mean of 1, 2 and 3.
    assert median_rank(scores, RELEVANT).tolist() == [2.0, 2.0]
    assert median_rank([[4, 3, 2, 1], [0, 0, 0, 9]], RELEVANT).tolist() == [1.5, 1.0]


def test_accuracy_by_hand() -> None:
    full = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]
    assert posthoc_accuracy(full, [[0.6, 0.4], [0.7, 0.3], [0.1, 0.9]]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: true_positive_rate([[1, 0]], [[0, 0]]), "relevant: expected a column in each row, got none in row 0"),
        (lambda: true_positive_rate([[1, 0]], [[1, 0, 0]]), "chosen: expected the shape of relevant"),
        (lambda: false_discovery_rate([[0.5, 0]], [[1, 0]]), "chosen: expected zeros and ones"),
        (lambda: false_discovery_rate([1, 0], [1, 0]), r"chosen: expected the shape \(N, n\)"),
        (lambda: median_rank([[np.nan, 0]], [[1, 0]]), "scores: expected finite numbers"),
        (lambda: median_rank([[1.0]], [[1, 0]]), "scores: expected the shape of relevant"),
        (lambda: posthoc_accuracy([[1, 2]], [[1, 2, 3]]), "restricted: expected the shape"),
        (lambda: posthoc_accuracy(np.zeros((0, 3)), np.zeros((0, 3))), "restricted: expected the shape"),
        (lambda: posthoc_accuracy([[1, np.nan]], [[1, 2]]), "expected numbers, got NaN"),
    ],
)
def test_what_does_not_fit_is_said(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
