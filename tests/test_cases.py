"""Inputs that broke neighbouring libraries; each case names where it was reported."""

import math

import pytest
import torch
from torch import Tensor

from ksubset import KSubset
from ksubset.numerics import inclusion_probabilities, log_normalizer

INF = math.inf


def close(actual: Tensor, expected: object, **tolerance: float) -> None:
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual.detach().cpu(), expected, **(tolerance or {"rtol": 1e-12, "atol": 1e-15}))


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_masked_class_has_no_nan_entropy() -> None:  # pytorch/pytorch#40553, huggingface/trl#7221
    logits = double(0, 0, -INF).requires_grad_()
    dist = KSubset(1, logits)
    close(dist.entropy(), 0.6931471805599453)
    close(dist.mean, [0.5, 0.5, 0])
    (grad,) = torch.autograd.grad(dist.entropy(), logits)
    close(grad, [0, 0, 0])


@pytest.mark.parametrize(("weights", "k", "possible"), [([0, 10, 3, 0], 4, 2), ([0, 1, 0, 0], 3, 1)])
def test_more_draws_than_positive_weights(weights: list[float], k: int, possible: int) -> None:
    # pytorch/pytorch#125388, pytorch/pytorch#12260: impossible or repeated items came back in silence.
    with pytest.raises(ValueError, match=f"got {possible} possible items with k = {k}"):
        KSubset(k, double(*weights).log())


WEIGHTS = double(
    0.12899, 0.62532, 0.036483, 0.15196, 0.0029675, 0.0049773, 0.045881, 0.0029019, 0.00052139, 1.5281e-17
)  # fmt: skip


def test_all_of_n_with_one_tiny_weight() -> None:  # pytorch/pytorch#25030
    dist = KSubset(10, WEIGHTS.log())
    assert dist.sample((1000,)).min() == 1
    assert dist.log_prob(torch.ones(10)) == 0
    assert dist.entropy() == 0


def test_seventeen_orders_of_magnitude() -> None:  # pytorch/pytorch#25030
    dist = KSubset(3, WEIGHTS.log())
    marginals = [
        0.6667972896344946, 0.9210196913214554, 0.273970037780504, 0.7094562744637132, 0.02518043137582631,
        0.04193356943560571, 0.3325504507700336, 0.02462952564247486, 0.004462729575892174, 1.3103593930951296e-16,
    ]  # fmt: skip
    close(dist.mean, marginals, rtol=1e-13, atol=0)
    close(dist.entropy(), 2.2016239293169106)
    close(dist.log_normalizer, -3.411575401964353)


def test_an_item_of_zero_weight_is_never_drawn() -> None:  # pytorch/pytorch#48841, pytorch/pytorch#50034
    dist = KSubset(1, torch.tensor([0.0, 1.0]).log().expand(100_000, 2))
    assert dist.sample_indices((10,)).min() == 1


def test_plus_infinity_means_certain() -> None:  # the limit of a growing logit, asked for in abess-team/abess#503
    dist = KSubset(2, double(INF, 0, 0), validate_args=False)
    close(dist.mean, [1, 0.5, 0.5])
    close(dist.entropy(), 0.6931471805599453)
    values = double(1, 1, 0, 1, 0, 1, 0, 1, 1).reshape(3, 3)
    close(dist.log_prob(values), [-0.6931471805599453, -0.6931471805599453, -INF])


def test_more_certain_items_than_places() -> None:
    with pytest.raises(ValueError, match="at most k items, got 2 of them with k = 1"):
        KSubset(1, double(INF, INF, 0, 0))


@pytest.mark.parametrize("k", [0, 3])  # scipy/scipy#23505, scikit-learn#3010, egap/registration#217
def test_none_and_all_of_n(k: int) -> None:
    logits = double(0.3, -1, 2).requires_grad_()
    dist = KSubset(k, logits)
    only = torch.full((3,), k / 3)
    assert torch.equal(dist.sample().float(), only)
    assert dist.log_prob(only) == 0
    assert dist.entropy() == 0
    assert dist.mean.tolist() == only.tolist()
    (grad,) = torch.autograd.grad(dist.log_prob(only), logits)
    assert grad.tolist() == [0, 0, 0]


THETA = double(0.0807254, 0.00795338, 0.03428723, 0.90139239, 0.00823136)


def test_poisson_binomial_without_imaginary_residue() -> None:  # tsakim/poibin#4
    logits = THETA.logit()
    pmf = [(log_normalizer(logits, k) + torch.log1p(-THETA).sum()).exp() for k in range(6)]
    expected = [
        0.08612834873810496, 0.7993434904668477, 0.11038507074553361, 0.004096395491182465, 4.653122311850126e-05,
        1.6333521272890748e-07,
    ]  # fmt: skip
    close(torch.stack(pmf), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("k", "marginals", "entropy"),
    [
        (
            1,
            [
                0.00946188408897135,
                0.0008638380493863686,
                0.0038255783834419944,
                0.9849544186862218,
                0.0008942807919784399,
            ],
            0.09269314297659671,
        ),
        (
            2,
            [0.629882060144368, 0.05800526712404069, 0.25611965905227035, 0.9959453974185312, 0.06004761626078986],
            0.9991393635317478,
        ),
        (
            3,
            [0.8758173455714874, 0.20350570399206233, 0.7116983660287456, 0.9987578548922166, 0.21022072951548806],
            1.2398287488315674,
        ),
        (
            4,
            [0.9600266626447395, 0.5621597300865644, 0.9011330975881027, 0.9996159994030899, 0.5770645102775036],
            1.0860559062470243,
        ),
    ],
)
def test_conditional_bernoulli_of_given_probs(k: int, marginals: list[float], entropy: float) -> None:
    dist = KSubset(k, probs=THETA)  # tsakim/poibin#4
    close(dist.mean, marginals, rtol=1e-13, atol=0)
    close(dist.entropy(), entropy)


def test_certain_trials() -> None:  # tsakim/poibin#3
    assert KSubset(100, probs=torch.ones(100)).log_prob(torch.ones(100)) == 0
    with pytest.raises(ValueError, match="got 100 of them with k = 10"):
        KSubset(10, probs=torch.ones(100))


def test_half_of_a_thousand() -> None:  # pharmaverse/tern#1314, therneau/survival#165
    dist = KSubset(500, torch.zeros(1000, dtype=torch.float64))
    close(dist.log_normalizer, 689.4672615678512)
    close(dist.log_prob(dist.sample()), -689.4672615678512)
    close(dist.mean, [0.5] * 1000)
    close(dist.entropy(), 689.4672615678512)


def test_a_million_rows_without_recursion() -> None:  # statsmodels/statsmodels#6668
    dist = KSubset(10, torch.zeros(1_000_000, dtype=torch.float64))
    close(dist.log_prob(dist.sample()), -123.05064800642472)
    close(dist.mean, [1e-5] * 1_000_000)
    wave = torch.arange(1_000_000, dtype=torch.float64).sin()
    close(log_normalizer(wave, 10), 125.40977472820893, rtol=1e-12, atol=0)


def test_the_ends_of_float16() -> None:  # huggingface/trl#7221
    dist = KSubset(1, torch.tensor([65504.0, -65504.0, 0.0], dtype=torch.float16))
    assert dist.mean.tolist() == [1, 0, 0]
    assert dist.entropy() == 0
    assert dist.sample().tolist() == [1, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_count_beyond_float16(dtype: torch.dtype) -> None:  # pytorch/pytorch#34372, pytorch/pytorch#41663
    dist = KSubset(9, torch.zeros(19, dtype=dtype))
    for actual, expected in ((dist.log_prob(dist.mode), -11.43364413404251), (dist.mean[0], 0.47368421052631576)):
        assert actual.dtype == dtype
        assert actual.item() == torch.tensor(expected, dtype=dtype).item()


def test_a_count_beyond_float32() -> None:
    dist = KSubset(70, torch.zeros(140))
    close(dist.log_prob(dist.mode), -94.34220701534096, rtol=1e-6, atol=0)
    close(dist.mean, [0.5] * 140, rtol=1e-6, atol=0)


def test_separated_logits_do_not_cancel() -> None:  # scipy/scipy#17146
    logits = torch.tensor([50.0, -50.0]).repeat(500)
    dist = KSubset(500, logits)
    assert -1e-5 <= dist.log_prob((logits > 0).float()) <= 0
    close(dist.mean[0::2], [1.0] * 500, rtol=0, atol=0)
    close(KSubset(500, logits.double()).mean[1::2], [1.860037988e-41] * 500, rtol=1e-9, atol=0)


@pytest.mark.parametrize("shift", [0, 1e3, -1e3, 1e6])
def test_shifts_change_nothing(shift: float) -> None:
    dist = KSubset(2, double(0.5, -0.3, 1.2, 0) + shift)
    # The sum of logits and shift is already rounded, at 1e-10 for the largest shift.
    tolerance = {"rtol": 0, "atol": 1e-14 + 3e-16 * abs(shift)}
    close(dist.mean, [0.5613380776845834, 0.297473272869537, 0.7570778965306071, 0.38411075291527247], **tolerance)
    close(dist.entropy(), 1.5990626653095374, **tolerance)


def test_k_by_row() -> None:
    dist = KSubset(torch.tensor([0, 2, 5]), torch.zeros(3, 5, dtype=torch.float64))
    close(dist.log_prob(dist.sample()), [0, -2.302585092994046, 0])
    close(dist.mean, [[0] * 5, [0.4] * 5, [1] * 5])
    close(dist.entropy(), [0, 2.302585092994046, 0])


# The tracer warns of a use of autograd functions that is its own.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_an_empty_batch(compiled: bool) -> None:  # pytorch/pytorch#71689, pytorch/pytorch#194548
    def shapes(logits: Tensor) -> tuple[Tensor, Tensor]:
        dist = KSubset(2, logits, validate_args=False)
        sample = dist.sample()
        return sample, dist.log_prob(sample)

    # The tracer is what is tested; a C++ compiler is not everywhere.
    run = torch.compile(shapes, fullgraph=True, backend="aot_eager") if compiled else shapes
    sample, log_prob = run(torch.zeros(0, 5))
    assert sample.shape == (0, 5)
    assert log_prob.shape == (0,)


def test_two_gradients_that_users_confuse() -> None:  # UCLA-StarAI/SIMPLE#1
    logits = double(0.5, -0.3, 1.2, 0).requires_grad_()
    (grad,) = torch.autograd.grad(log_normalizer(logits, 2), logits)
    close(grad, [0.5613380776845834, 0.297473272869537, 0.7570778965306071, 0.38411075291527247])
    log_probability = log_normalizer(logits, 2) - torch.nn.functional.softplus(logits).sum()
    (grad,) = torch.autograd.grad(log_probability, logits)
    close(grad, [-0.06112125351727116, -0.12808421031880401, -0.011446886968410452, -0.11588924708472753])


def test_the_mode_under_ties() -> None:  # pytorch/pytorch#27542, pytorch/pytorch#133542
    logits = torch.tensor([1.0, 2, 5, 4, 5])
    assert KSubset(1, logits).mode.tolist() == [0, 0, 1, 0, 0]
    assert KSubset(2, logits).mode.tolist() == [0, 0, 1, 0, 1]


def test_nan_is_refused() -> None:  # pytorch/pytorch#16762: top-k takes NaN for the largest
    with pytest.raises(ValueError, match=r"(?s)logits.*nan"):
        KSubset(1, torch.tensor([math.nan, INF, 3.0]), validate_args=True)


def test_impossible_states_have_no_nan_gradient() -> None:  # pytorch/pytorch#31829, jax-ml/jax#6811
    logits = double(-INF, 0, 1).requires_grad_()
    assert KSubset(2, logits).log_prob(double(0, 1, 1)) == 0
    (grad,) = torch.autograd.grad(log_normalizer(logits, 2), logits)
    close(grad, [0, 1, 1])
    close(inclusion_probabilities(logits, 2), [0, 1, 1])


def test_an_explicit_generator() -> None:  # pytorch/pytorch#45115, pytorch/pytorch#175478
    dist = KSubset(2, torch.randn(6))
    state = torch.get_rng_state()
    samples = [dist.sample((5,), generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(*samples)
    assert torch.equal(torch.get_rng_state(), state)


def test_inclusion_probabilities_are_not_the_weights() -> None:  # tidyverse/dplyr#6848, numpy/numpy#29722
    dist = KSubset(2, double(0.5, 0.3, 0.2).log())
    close(dist.log_prob(dist.enumerate_support()).exp(), [0.4838709677419355, 0.3225806451612903, 0.1935483870967742])
    close(dist.mean, [0.8064516129032258, 0.6774193548387096, 0.5161290322580645])
    close(dist.entropy(), 1.0340787928128257)


def test_marginals_that_do_not_sum_to_an_integer() -> None:  # doi 10.1214/12-EJS719
    with pytest.raises(ValueError, match=r"within a tolerance of 1.0e-05, got 3\.04"):
        KSubset.from_marginals(double(0.07, 0.17, 0.41, 0.61, 0.83, 0.95))
    dust = KSubset.from_marginals(double(*[0.1] * 10))
    assert dust.k == 1
    assert dust.logits.unique().numel() == 1
    certain = KSubset.from_marginals(double(0, 1, 0.5, 0.5))
    assert certain.k == 2
    assert certain.logits.tolist() == [-INF, INF, 0, 0]


def test_more_than_two_to_the_24_items() -> None:  # pytorch/pytorch#2576
    n = 2**24 + 1
    dist = KSubset(1, torch.zeros(n))
    close(dist.log_prob(dist.mode), -16.63553239504333, rtol=1e-6, atol=0)
    last = KSubset(2, torch.cat([torch.full((n - 1,), -INF), torch.zeros(1)]).index_fill(0, torch.tensor([7]), 0.0))
    assert last.sample_indices().tolist() == [7, n - 1]


def test_exactly_one_of_each_group() -> None:  # abess-team/abess#492: a product of distributions, masked by -inf
    mask = torch.tensor([[0, 0, 0, -INF, -INF], [-INF, -INF, -INF, 0, 0]], dtype=torch.float64)
    groups = torch.distributions.Independent(KSubset(1, mask), 1)
    close(groups.log_prob(groups.sample()), -1.791759469228055)
    close(groups.entropy(), 1.791759469228055)
    close(groups.mean.sum(0), [1 / 3, 1 / 3, 1 / 3, 0.5, 0.5])


def test_groups_chosen_as_units() -> None:  # abess-team/abess#503, rasbt/mlxtend#956: k counts groups
    group_of = torch.tensor([0, 0, 1, 2, 2, 2])
    dist = KSubset(2, torch.zeros(3, dtype=torch.float64))
    support = dist.enumerate_support()
    assert [row.nonzero().flatten().tolist() for row in support[:, group_of]] == [
        [0, 1, 2],
        [0, 1, 3, 4, 5],
        [2, 3, 4, 5],
    ]
    close(dist.log_prob(support).exp(), [1 / 3] * 3)
