import math

import numpy as np
import pytest

from ksubset.applications.explain import SYNTHETIC, synthetic


def by_hand(name: str, x: np.ndarray, relevant: np.ndarray) -> float:
    """The probability of the label 1 of one row, written down a second time."""
    product = x[0] * x[1]
    gentle = -10 * math.sin(0.2 * x[6]) + abs(x[7]) + x[8] + math.exp(-x[9]) - 2.4
    late = sum(x[i] ** 2 for i in (2, 3, 4, 5)) - 4
    early = sum(x[i] ** 2 for i in (0, 1, 2, 3)) - 4
    before = len(x) > 10 and x[10] < 0
    log_odds = {
        "xor": product,
        "orange-skin": early,
        "additive": -100 * math.sin(0.2 * x[0]) + abs(x[1]) + x[2] + math.exp(-x[3]) - 2.4,
        "switch": early if relevant[0] else -100 * math.sin(0.2 * x[4]) + abs(x[5]) + x[6] + math.exp(-x[7]) - 2.4,
        "syn1": product,
        "syn2": late,
        "syn3": gentle,
        "syn4": product if before else late,
        "syn5": product if before else gentle,
        "syn6": late if before else gentle,
    }[name]
    return 1 / (1 + math.exp(log_odds))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_probabilities_are_those_of_the_definitions(name: str) -> None:
    data = synthetic(name, 50, seed=1)
    for x, probability, relevant in zip(data.x, data.probability, data.relevant, strict=True):
        assert probability == pytest.approx(by_hand(name, x, relevant), rel=1e-12)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_label_depends_on_the_relevant_columns_alone(name: str) -> None:
    data = synthetic(name, 400, seed=2)
    sizes = {"xor": {2}, "syn1": {2}, "switch": {5}, "syn4": {3, 5}, "syn5": {3, 5}, "syn6": {5}}.get(name, {4})
    assert set(data.relevant.sum(1).tolist()) == sizes
    rng = np.random.default_rng(0)
    others = np.where(data.relevant, data.x, rng.standard_normal(data.x.shape))
    for x, probability, relevant in zip(others, data.probability, data.relevant, strict=True):
        assert by_hand(name, x if len(x) == 11 else np.append(x, 0.0)[: len(x)], relevant) == pytest.approx(probability)


def test_labels_have_their_probabilities_and_kinds_their_means() -> None:
    data = synthetic("switch", 20_000, seed=3)
    # Standard errors; a bound of 5 has a false-alarm rate below 1e-6.
    error = math.sqrt((data.probability * (1 - data.probability)).mean() / len(data.y))
    assert abs(data.y.mean() - data.probability.mean()) < 5 * error
    skin = data.relevant[:, 0]
    assert skin.sum() == 10_000
    assert abs(data.x[skin, 9].mean() - 3) < 5 / 100
    assert abs(data.x[~skin, 9].mean() + 3) < 5 / 100


def test_the_seed_decides() -> None:
    one, same, other = (synthetic("syn5", 20, seed) for seed in (4, 4, 5))
    assert np.array_equal(one.x, same.x)
    assert np.array_equal(one.y, same.y)
    assert not np.array_equal(one.x, other.x)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match=r"name: expected one of xor, .*got 'syn7'"):
        synthetic("syn7", 10, 0)
    with pytest.raises(ValueError, match="num_rows: expected 1 or more, got 0"):
        synthetic("syn1", 0, 0)
