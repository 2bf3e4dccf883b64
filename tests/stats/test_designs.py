import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from oracle import z_limit

from ksubset.stats import SamplingDesign, pps_sample

PI = [0.07, 0.17, 0.41, 0.61, 0.83, 0.91]


def enumerated(design: SamplingDesign) -> tuple[np.ndarray, np.ndarray]:
    """All samples and their probabilities."""
    logits = design._distribution.logits.numpy()
    samples = np.array(list(itertools.combinations(range(len(logits)), design.k)))
    chance = np.exp(logits[samples].sum(1))
    return samples, chance / chance.sum()


def test_second_order_inclusion_probabilities() -> None:
    design = SamplingDesign(PI)
    joint = design.joint_inclusion_probabilities()
    expected = [0.02147743, 0.14068554, 0.46912417, 0.74606802]
    np.testing.assert_allclose([joint[0, 3], joint[2, 3], joint[3, 4], joint[4, 5]], expected, rtol=0, atol=5.5e-9)
    samples, chance = enumerated(design)
    hot = np.zeros((len(samples), 6))
    np.put_along_axis(hot, samples, 1.0, 1)
    np.testing.assert_allclose(joint, (hot.T * chance) @ hot, rtol=1e-10)
    np.testing.assert_allclose(np.diag(joint), PI, rtol=1e-9)
    np.testing.assert_array_equal(design.joint_inclusion_probabilities([4, 1]), joint[np.ix_([4, 1], [4, 1])])


def test_samples_have_the_inclusion_probabilities() -> None:
    design = SamplingDesign(PI)
    number = 4000
    counts = np.zeros(6)
    for seed in range(number):
        units = design.sample(random_state=seed)
        assert len(units) == 3
        assert (np.diff(units) > 0).all()
        counts[units] += 1
    z = (counts / number - PI) / np.sqrt(np.array(PI) * (1 - np.array(PI)) / number)
    assert np.abs(z).max() < z_limit(6)


def test_estimates_are_unbiased() -> None:
    design = SamplingDesign(PI)
    y = np.array([3.0, 1, 4, 1, 5, 9])
    samples, chance = enumerated(design)
    estimates = [design.total(y[sample], sample) for sample in samples]
    value, variance = (np.array([getattr(e, name) for e in estimates]) for name in ("value", "variance"))
    assert chance @ value == pytest.approx(y.sum(), rel=1e-9)
    assert chance @ variance == pytest.approx(chance @ (value - y.sum()) ** 2, rel=1e-9)
    mean = design.mean(y[samples[0]], samples[0])
    assert mean.value == pytest.approx(estimates[0].value / 6)
    assert mean.standard_error == pytest.approx(np.sqrt(estimates[0].variance) / 6)


def test_units_that_must_be_taken() -> None:
    design = SamplingDesign.from_sizes([100, 5, 3, 2, 0, 0], 3)
    np.testing.assert_allclose(design.inclusion_probabilities, [1, 1, 0.6, 0.4, 0, 0], atol=1e-12)
    assert design.certain.tolist() == [0, 1]
    assert all(set(design.sample(random_state=seed)) in ({0, 1, 2}, {0, 1, 3}) for seed in range(20))
    assert SamplingDesign.from_sizes([3, 2, 1, 0], 3).sample(random_state=0).tolist() == [0, 1, 2]
    assert SamplingDesign.from_sizes([1.0] * 7, 7).certain.tolist() == list(range(7))
    # In proportion to size, the estimate of the total of the sizes is always right.
    x = np.random.default_rng(0).lognormal(size=3000)
    design = SamplingDesign.from_sizes(x, 40)
    units = design.sample(random_state=1)
    assert design.total(x[units], units).value == pytest.approx(x.sum(), rel=1e-9)
    assert design.total(x[units], units).standard_error < 1e-6 * x.sum()


def test_rows_of_a_data_frame() -> None:
    towns = pd.DataFrame({"name": list("abcd"), "people": [4, 3, 2, 1]}, index=[7, 5, 3, 1])
    design = SamplingDesign.from_sizes(towns["people"], 2)
    np.testing.assert_allclose(design.inclusion_probabilities, [0.8, 0.6, 0.4, 0.2], rtol=1e-10)
    drawn = pps_sample(towns, 2, "people", random_state=3)
    assert drawn.index.tolist() == towns.index[design.sample(random_state=3)].tolist()
    assert drawn.equals(pps_sample(towns, 2, [4, 3, 2, 1], random_state=3))
    # One after the other, as DataFrame.sample draws.
    p = np.array([0.4, 0.3, 0.2, 0.1])
    one_by_one = p + [sum(p[j] * p[i] / (1 - p[j]) for j in range(4) if j != i) for i in range(4)]
    np.testing.assert_allclose(one_by_one, [0.716, 0.608, 0.441, 0.235], atol=5.1e-4)


def test_tensors_are_arrays() -> None:
    sizes = np.array([4.0, 3, 2, 1])
    design, expected = (SamplingDesign.from_sizes(x, 2) for x in (torch.from_numpy(sizes), sizes))
    np.testing.assert_array_equal(design.inclusion_probabilities, expected.inclusion_probabilities)
    design, expected = (SamplingDesign(x) for x in (torch.from_numpy(sizes / 5), sizes / 5))
    np.testing.assert_array_equal(design.inclusion_probabilities, expected.inclusion_probabilities)
    assert design.joint_inclusion_probabilities([]).shape == (0, 0)
    with pytest.raises(ValueError, match=r"one dimension, got shape \(1, 2\)"):
        SamplingDesign(torch.tensor([[0.5, 0.5]]))


def test_sizes_of_all_magnitudes() -> None:
    assert SamplingDesign.from_sizes([1e-98, 7e275, 4e184, 1e-197], 3).certain.tolist() == [0, 1, 2]
    for sizes, expected in (
        ([1e300, 2e-310, 1e-310, 1e-310], [1, 1 / 2, 1 / 4, 1 / 4]),
        ([1e308, 1e308, 1e308, 5e-324], [2 / 3, 2 / 3, 2 / 3, 0]),
    ):
        np.testing.assert_allclose(SamplingDesign.from_sizes(sizes, 2).inclusion_probabilities, expected, rtol=1e-9)


def test_seeds_and_generators() -> None:
    towns = pd.DataFrame({"people": np.arange(1, 41)})
    design = SamplingDesign.from_sizes(towns["people"], 10)
    expected = design.sample(random_state=3).tolist()
    assert design.sample(random_state=np.int64(3)).tolist() == expected
    assert len(design.sample(random_state=2**64 - 1)) == 10
    for make in (np.random.default_rng, np.random.RandomState):
        rng = make(0)
        drawn = [design.sample(random_state=rng).tolist(), pps_sample(towns, 10, "people", rng).index.tolist()]
        assert drawn[0] != drawn[1]
        assert drawn[0] == design.sample(random_state=make(0)).tolist()
    torch.manual_seed(7)
    drawn = [design.sample().tolist() for _ in range(2)]
    torch.manual_seed(7)
    assert drawn == [design.sample(random_state=None).tolist() for _ in range(2)]
    # As a number of samples it would have been a seed.
    with pytest.raises(TypeError, match="positional"):
        design.sample(5)  # type: ignore[misc]
    for wrong in ("3", 1.0, True, torch.Generator(), [1]):
        for draw in (design.sample, lambda random_state: pps_sample(towns, 2, "people", random_state)):
            with pytest.raises(TypeError, match="random_state must be an integer, a generator of NumPy or None, got"):
                draw(random_state=wrong)
    for beyond in (-1, 2**64):
        with pytest.raises(ValueError, match=rf"random_state must be between 0 and 2\*\*64 - 1, got {beyond}"):
            design.sample(random_state=beyond)


def test_a_design_is_shown_in_a_line() -> None:
    assert repr(SamplingDesign.from_sizes([4, 3, 2, 1], 2)) == "SamplingDesign(k=2, n=4)"


def test_what_is_no_design() -> None:
    for sizes, k, text in (
        ([1, -2, 3], 1, "sizes must not be negative, got -2"),
        ([1, 0, 3], 3, "units of positive size, 2, got 3"),
        ([1, 2, 3], 0, "k must be between 1"),
        ([1, np.nan, 3], 1, "sizes has 1 missing values"),
        ([1, np.inf, 3], 1, "sizes has 1 infinite values"),
    ):
        with pytest.raises(ValueError, match=text):
            SamplingDesign.from_sizes(sizes, k)
    with pytest.raises(TypeError, match="k must be an integer"):
        SamplingDesign.from_sizes([1, 2], 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"inclusion_probabilities must have an integer sum, at least 1, got 1\.1"):
        SamplingDesign([0.5, 0.6])
    with pytest.raises(ValueError, match=r"inclusion_probabilities must lie in \[0, 1\], got -0\.5 to 1\.5"):
        SamplingDesign([-0.5, 1.5])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        SamplingDesign([0.0, 0.0])
    design = SamplingDesign([0.0, 1.0, 0.5, 0.5])
    with pytest.raises(ValueError, match="unit 0 has inclusion probability 0"):
        design.total([1.0, 2.0], [0, 1])
    with pytest.raises(ValueError, match="a sample of 2 different units"):
        design.total([1.0, 2.0], [1, 1])
    with pytest.raises(ValueError, match="between 0 and 3"):
        design.joint_inclusion_probabilities([4])
    with pytest.raises(TypeError, match="units must be integers"):
        design.total([1.0, 2.0], [0.5, 1])
    with pytest.raises(TypeError, match="df must be a pandas DataFrame"):
        pps_sample([1, 2], 1, [1, 1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="df must be a pandas DataFrame, got polars DataFrame"):
        pps_sample(pl.DataFrame({"people": [4, 3]}), 1, "people")  # type: ignore[arg-type]
    towns = pd.DataFrame({"people": [4, 3, 2, 1]}, index=list("abcd"))
    with pytest.raises(ValueError, match="weights must have the index of df"):
        pps_sample(towns, 2, towns["people"].sort_values())


def test_rare_pairs_have_all_digits() -> None:
    design = SamplingDesign.from_sizes([1e-20, 3e-25, 1.0, 2.0, 2.0, 1.5], 3)
    logits = design._distribution.logits
    exact = np.zeros((6, 6))
    for members in itertools.combinations(range(6), 3):
        weight = float(logits[list(members)].sum().exp())
        exact[np.ix_(members, members)] += weight
    exact /= exact.trace() / 3
    joint = design.joint_inclusion_probabilities()
    assert 0 < joint[0, 1] < 1e-40
    np.testing.assert_allclose(joint, exact, rtol=1e-7)
    np.testing.assert_allclose(
        design.joint_inclusion_probabilities([1, 4, 0]), exact[np.ix_([1, 4, 0], [1, 4, 0])], rtol=1e-7
    )


@pytest.mark.parametrize(("sizes", "k"), [([4, 3, 2, 1], 1), ([10, 3, 2, 1, 1], 2), ([10, 8, 3, 2, 1, 1], 3)])
def test_no_variance_where_chance_fills_one_place(sizes: list[int], k: int) -> None:
    """Of the units that are not certain no two are ever in one sample."""
    design = SamplingDesign.from_sizes(sizes, k)
    estimate = design.total(np.arange(float(k)), range(k))
    assert np.isfinite(estimate.value)
    assert np.isnan(estimate.variance)
    assert np.isnan(estimate.standard_error)
    assert np.isnan(design.mean(np.arange(float(k)), range(k)).standard_error)


def test_a_census_has_no_variance_and_a_certain_unit_is_in_every_sample() -> None:
    assert SamplingDesign([1.0, 1.0, 0.0]).total([3.0, 4.0], [0, 1]).standard_error == 0
    with pytest.raises(ValueError, match="unit 0 has inclusion probability 1 and must be in the sample"):
        SamplingDesign.from_sizes([10, 3, 2, 1, 1, 1], 3).total([1.0, 2.0, 3.0], [1, 2, 3])


def test_probabilities_in_single_precision() -> None:
    """300 in all, but for the rounding of each."""
    assert SamplingDesign(np.full(1000, 0.3, dtype=np.float32)).k == 300
    with pytest.raises(ValueError, match=r"an integer sum, at least 1, got 300\.0001"):
        SamplingDesign(np.full(1000, 0.3000001))
