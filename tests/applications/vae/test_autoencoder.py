"""The subset autoencoder: its bounds against sums over all codes, its gradients against exact ones, its training."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence

from ksubset import (
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    LeaveOneOut,
    PartitionedKSubset,
    ScoreFunction,
    SlopeAtMean,
    SlopeAtSamples,
    UnorderedSet,
    expectation,
)
from ksubset.applications.vae import SubsetAutoencoder, SubsetEncoder, binarize, dense, draw
from ksubset.training import Batch, JointTraining, Plan, seeded

ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    "LeaveOneOut": LeaveOneOut,
    "ScoreFunction": ScoreFunction,
    "UnorderedSet": UnorderedSet,
    "Hybrid": Hybrid,
    "Hybrid, slope at mean": lambda: Hybrid(SlopeAtMean()),
    "Hybrid, slope at samples": lambda: Hybrid(SlopeAtSamples()),
    "SIMPLE": SIMPLE,
    "GS": lambda: GumbelTopK(0.5),
    "STGS": lambda: GumbelTopK(0.5, straight_through=True),
    "I-MLE": IMLE,
    "NCPSS": NCPSS,
}


def small(groups: int = 2, n: int = 4, k: int = 2, pixels: int = 6) -> SubsetAutoencoder:
    """A model in float64 whose posteriors and images are far from uniform."""
    with seeded(0):
        model = SubsetAutoencoder(nn.Linear(pixels, groups * n), nn.Linear(groups * n, pixels), groups, n, k).double()
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    return model


def images(number: int = 3, pixels: int = 6) -> Tensor:
    return torch.rand(number, pixels, generator=torch.Generator().manual_seed(1), dtype=torch.float64).round()


def enumerated(model: SubsetAutoencoder, x: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """All codes, their log-probabilities given images `(N, B)`, and those of the images given them."""
    groups, n, k = model.encoder.groups, model.encoder.n, model.encoder.k
    logits = model.encoder.score(x).view(-1, groups, n)
    codes, posterior, likelihood = [], [], []
    for chosen in itertools.product(itertools.combinations(range(n), k), repeat=groups):
        code = torch.zeros(groups, n, dtype=x.dtype)
        for group, items in enumerate(chosen):
            code[group, list(items)] = 1
        codes.append(code.flatten())
        posterior.append((logits * code).sum(-1))
        chance = model.decoder(code.flatten()).sigmoid()
        likelihood.append(torch.where(x == 1, chance, 1 - chance).log().sum(-1))
    weights = torch.stack(posterior).exp()
    # One group after the other, each with its own normaliser.
    share = (weights / weights.sum(0)).prod(-1)
    return codes, (share / share.sum(0)).log(), torch.stack(likelihood)


@pytest.mark.parametrize(("groups", "n", "k"), [(1, 10, 3), (2, 4, 2), (3, 3, 1), (2, 3, 0), (2, 3, 3), (1, 1, 1)])
def test_the_bound_and_the_divergence_are_sums_over_all_codes(groups: int, n: int, k: int) -> None:
    model, x = small(groups, n, k), images()
    _, log_q, log_p = enumerated(model, x)
    divergence = (log_q.exp() * (log_q + groups * math.log(math.comb(n, k)))).sum(0)
    torch.testing.assert_close(model.divergence(model.encoder(x)), divergence, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(model.exact_elbo(x), (log_q.exp() * log_p).sum(0) - divergence)


def test_the_divergence_of_a_range_of_sizes() -> None:
    groups, logits = [0, 0, 0, 1, 1, 1], torch.tensor([2.0, 0, -1, 1, 1, -3])
    dist, prior = (PartitionedKSubset(groups, [1, 2], w, low=[0, 1]) for w in (logits, torch.zeros(6)))
    torch.testing.assert_close(small(2, 3, 1).divergence(dist), kl_divergence(dist, prior))


def test_no_images_have_no_bounds_and_any_decoder_generates() -> None:
    model = dense(6, groups=2, n=3, k=1, widths=(4,))
    for bound in (*model.bounds(torch.rand(0, 6)), model.elbo(torch.rand(0, 6)), model.exact_elbo(torch.rand(0, 6))):
        assert bound.shape == (0,)
    assert SubsetAutoencoder(nn.Linear(6, 6), nn.Identity(), 2, 3, 1).generate(5).shape == (5, 6)


def test_a_divergence_is_never_negative() -> None:
    model = dense(4, groups=20, n=20, k=10)
    dist = model.encoder.subsets(1e-4 * torch.randn(1000, 400))
    assert (model.divergence(dist) >= 0).all()


@pytest.mark.parametrize(("groups", "n", "k"), [(1, 10, 3), (2, 4, 2)])
def test_sampled_bounds_agree_with_the_exact_ones(groups: int, n: int, k: int) -> None:
    # Two comparisons of three images at 5 standard errors: a false alarm in 300,000 runs.
    model, x, number = small(groups, n, k), images(), 20_000
    _, log_q, log_p = enumerated(model, x)
    with torch.no_grad():
        sampled, closer = model.bounds(x, number, torch.Generator().manual_seed(2))
    error = ((log_q.exp() * log_p.square()).sum(0) - (log_q.exp() * log_p).sum(0).square()).sqrt() / number**0.5
    assert ((sampled - model.exact_elbo(x)).abs() < 5 * error).all()
    evidence = (log_p - groups * math.log(math.comb(n, k))).logsumexp(0)
    ratio = (log_p - groups * math.log(math.comb(n, k)) - log_q - evidence).exp()
    error = ((log_q.exp() * ratio.square()).sum(0) - 1).sqrt() / number**0.5
    assert (((closer - evidence).exp() - 1).abs() < 5 * error).all()
    assert (model.exact_elbo(x) < evidence).all()


def test_the_closer_bound_is_no_less_than_the_other_on_average() -> None:
    model, x = dense(16, groups=3, n=5, k=2), images(200, 16).float()
    with torch.no_grad():
        elbo, closer = model.bounds(x, 20)
    # Jensen's inequality holds for the estimates themselves where the divergence is sampled, too.
    assert closer.mean() > elbo.mean()


def test_pieces_of_many_samples_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = small(), images()
    monkeypatch.setattr("ksubset.applications.vae.model._BLOCK", 4 * x.numel())
    with torch.no_grad():
        sampled, _ = model.bounds(x, 4001, torch.Generator().manual_seed(0))
        exact = model.exact_elbo(x)
    assert ((sampled - exact).abs() < 0.5).all()


def test_reconstructions_and_samples_are_probabilities() -> None:
    model, x = dense(16, groups=3, n=5, k=2), images(7, 16).float()
    for pixels, number in ((model.reconstruct(x), 7), (model.generate(9), 9)):
        assert pixels.shape == (number, 16)
        assert ((pixels > 0) & (pixels < 1)).all()
    same = [model.generate(9, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*same)


def test_a_figure_has_a_panel_for_each_image() -> None:
    x = torch.rand(5, 16)
    figure = draw(x, x, torch.rand(3, 16), columns=4)
    assert sum(bool(panel.images) for panel in figure.get_axes()) == 13
    with pytest.raises(ValueError, match="images must be square to be drawn, got 15 pixels"):
        draw(x[:, :15], x[:, :15], x)
    with pytest.raises(ValueError, match="reconstructions must have the shape of images"):
        draw(x, x[:3], x)
    with pytest.raises(ValueError, match="samples must have the 16 pixels of images, got 15"):
        draw(x, x, x[:, :15])
    with pytest.raises(ValueError, match="columns must be 1 or more, got 0"):
        draw(x, x, x, columns=0)
    assert len(draw(x.bfloat16(), x.bfloat16(), x.bfloat16()).get_axes()) == 36


def test_binary_images_are_draws_of_the_grey_ones() -> None:
    grey = torch.tensor([0.0, 0.25, 1.0]).expand(10_000, 3)
    binary = binarize(grey, seed=1)
    assert torch.equal(binary, binarize(grey, seed=np.int64(1)))
    assert not torch.equal(binary, binarize(grey, seed=2))
    assert ((binary == 0) | (binary == 1)).all()
    # 5 standard errors: a false alarm in a million runs, but the seed is fixed.
    assert binary[:, 0].sum() == 0
    assert binary[:, 2].sum() == 10_000
    assert abs(float(binary[:, 1].mean()) - 0.25) < 5 * (0.25 * 0.75 / 10_000) ** 0.5


def test_what_is_wrong_is_named() -> None:
    model = dense(16, groups=3, n=5, k=2)
    for wrong, message in (
        (255 * torch.rand(3, 16), r"images must lie in \[0, 1\], got values from"),
        (torch.full((3, 16), math.nan), r"images must lie in \[0, 1\]"),
    ):
        for use in (model.elbo, model.exact_elbo, model.batch, model.reconstruct, binarize):
            with pytest.raises(ValueError, match=message):
                use(wrong)
    with pytest.raises(TypeError, match=r"images must be a floating-point tensor, got torch\.int64"):
        model.elbo(torch.zeros(3, 16, dtype=torch.int64))
    with pytest.raises(TypeError, match="images must be a floating-point tensor, got list"):
        model.elbo([0.0])  # type: ignore[arg-type]
    odd = SubsetAutoencoder(nn.Linear(16, 15), nn.Linear(15, 12), 3, 5, 2)
    with pytest.raises(ValueError, match="images must have the decoder's 12 pixels, got 16"):
        odd.elbo(torch.zeros(3, 16))
    with pytest.raises(ValueError, match=r"score must give 3 \* 6 = 18 logits, got 15"):
        SubsetEncoder(nn.Linear(16, 15), 3, 6, 2)(torch.zeros(2, 16))
    with pytest.raises(ValueError, match="k must be at most the number of items of a group, 5, got 6"):
        dense(16, groups=3, n=5, k=6)
    with pytest.raises(ValueError, match="k must be 0 or more, got -1"):
        dense(16, groups=3, n=5, k=-1)
    with pytest.raises(ValueError, match="groups must be 1 or more, got 0"):
        dense(16, groups=0)
    with pytest.raises(TypeError, match=r"n must be an integer, got 2\.0"):
        dense(16, n=2.0)  # type: ignore[arg-type]
    assert dense(16, np.int64(3), np.int64(5), np.int64(2)).generate(2).shape == (2, 16)
    with pytest.raises(TypeError, match=r"num_samples must be an integer, got 2\.5"):
        model.bounds(torch.zeros(3, 16), 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="enumerate_support lists at most 1000000 subsets"):
        dense(16).exact_elbo(torch.zeros(1, 16))
    with pytest.raises(ValueError, match="num_samples must be 1 or more, got 0"):
        model.elbo(torch.zeros(3, 16), 0)


def gradient_of_exact_bound(model: SubsetAutoencoder, x: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(-model.exact_elbo(x).mean(), list(model.parameters())))


def step(estimator: Estimator, batch: Callable[[SubsetAutoencoder], Batch]) -> list[Tensor]:
    """The gradients of the encoder's parameters in a training's first step, as what gradient descent takes off."""
    model = small()
    before = [parameter.detach().clone() for parameter in model.encoder.parameters()]
    rate = {"lr": 1.0}
    plan = Plan(1, selector=rate, network=rate, num_samples=4, optimizer=torch.optim.SGD)
    with seeded(5):
        JointTraining(model.encoder, model.decoder, estimator, plan).step(batch(model))
    return [old - new for old, new in zip(before, (p.detach() for p in model.encoder.parameters()), strict=True)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_divergence_adds_its_exact_gradient_to_any_estimate(name: str) -> None:
    x = images()
    whole = step(ESTIMATORS[name](), lambda model: model.batch(x))
    alone = step(ESTIMATORS[name](), lambda model: Batch(model.batch(x).losses, inputs=(x,)))
    model = small()
    exact = torch.autograd.grad(model.divergence(model.encoder(x)).mean(), list(model.encoder.parameters()))
    for both, one, penalty in zip(whole, alone, exact, strict=True):
        torch.testing.assert_close(both - one, penalty, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name, build in ESTIMATORS.items() if build().unbiased])
def test_unbiased_estimates_have_the_exact_bound_as_their_mean(name: str) -> None:
    # Of 9 coordinates at 5 standard errors: a false alarm in 200,000 runs of an estimator.
    model, rows = small(), 20_000
    x = images(1).expand(rows, -1)
    logits = model.encoder.score(x[:1]).detach()
    (exact,) = torch.autograd.grad(
        _negative_bound(model, x[:1], leaf := logits.clone().requires_grad_()), leaf, materialize_grads=True
    )
    own = logits.repeat(rows, 1).requires_grad_()
    dist = model.encoder.subsets(own)
    batch = model.batch(x)
    assert batch.penalty is not None
    with seeded(6):
        values = expectation(batch.losses, dist, ESTIMATORS[name](), num_samples=3) + batch.penalty(dist)
    (each,) = torch.autograd.grad(values.sum(), own)
    error = each.std(0) / rows**0.5
    assert ((each.mean(0) - exact[0]).abs() < 5 * error).all()
    bound = -float(model.exact_elbo(x[:1]).detach())
    assert abs(float(values.detach().mean()) - bound) < 5 * float(values.detach().std()) / rows**0.5


def _negative_bound(model: SubsetAutoencoder, x: Tensor, logits: Tensor) -> Tensor:
    dist = model.encoder.subsets(logits)
    codes = dist.enumerate_support()
    log_pixels = model.log_pixels(codes, x)
    return (model.divergence(dist) - (dist.log_density(codes).exp() * log_pixels).sum(0)).sum()


def test_the_gradient_of_the_decoder_is_that_of_the_bound_too() -> None:
    # With all codes in the set, the estimate of the unordered set is exact.
    model, x = small(1, 4, 2), images()
    values = expectation(model.batch(x).losses, model.encoder(x), UnorderedSet(), num_samples=6)
    loss = (values + model.divergence(model.encoder(x))).mean()
    found = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(list(found), gradient_of_exact_bound(model, x))


def trained(model: SubsetAutoencoder, x: Tensor, steps: int, stop: int | None = None) -> JointTraining:
    rate = {"lr": 5e-3}
    plan = Plan(steps, selector=rate, network=rate, num_samples=4)
    training = JointTraining(model.encoder, model.decoder, LeaveOneOut(), plan)
    _run(training, model, x, stop)
    return training


def _run(training: JointTraining, model: SubsetAutoencoder, x: Tensor, stop: int | None) -> None:
    def batch() -> Batch:
        return model.batch(x[torch.randint(len(x), (100,), generator=training.generator)])

    for number in training.run(batch):
        if number == stop:
            return


def test_a_training_that_is_cut_in_two_ends_the_same() -> None:
    x = images(200, 16).float()
    with seeded(0):
        whole = dense(16, groups=3, n=5, k=2, widths=(32,))
        trained(whole, x, 8)
    with seeded(0):
        model = dense(16, groups=3, n=5, k=2, widths=(32,))
        state = {name: value.clone() for name, value in trained(model, x, 8, stop=3).state_dict().items()}
    with seeded(1):
        other = dense(16, groups=3, n=5, k=2, widths=(32,))
        resumed = trained(other, x, 8, stop=1)
        resumed.load_state_dict(state)
        _run(resumed, other, x, None)
    for a, b in zip(whole.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_it_learns_the_digits() -> None:
    from sklearn.datasets import load_digits

    x = torch.tensor(load_digits().data / 16, dtype=torch.float32).round()
    with seeded(0):
        model = dense(64, groups=10, n=4, k=1, widths=(128,))
        with torch.no_grad():
            before = float(model.elbo(x[1500:], 20).mean())
        trained(model, x[:1500], 200)
        with torch.no_grad():
            after = float(model.elbo(x[1500:], 20).mean())
    # What pixels have that are independent of each other, with their own means.
    means = x[:1500].mean(0).clamp(1e-3, 1 - 1e-3)
    independent = float((x[1500:] * means.log() + (1 - x[1500:]) * (1 - means).log()).sum(-1).mean())
    assert before < -44
    assert independent == pytest.approx(-24.0, abs=0.1)
    assert after > independent + 1.5
