"""Problems of the laboratory: a distribution, a loss of subsets, and the gradient that estimators should find."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from ksubset._support.extras import require
from ksubset.distributions import KSubset
from ksubset.estimators import LeaveOneOut, expectation

__all__ = [
    "CHUNK", "PROBLEMS", "SEEDS", "SMALL",
    "Problem", "decoder", "enumerated", "network", "quadratic", "threshold", "toy",
]  # fmt: skip

SEEDS = (1234, 1067, 9198, 9453, 6240, 7044, 1755, 7898, 3131, 1277)
"""Those of the toy in the literature; the other small problems take them too."""

CHUNK = 500
"""Evaluations in one of the estimates whose mean is the reference gradient of `decoder`."""

_SIDE, _HIDDEN, _IMAGES = 28, 128, 8


@dataclass(frozen=True)
class Problem:
    """The gradient of `E[f(z)]` with respect to the logits, for subsets z of k items.

    Arguments:
        name: The kind of problem.
        seed: The instance.
        k: Size of the subsets.
        logits: `(n)`; estimates are made in its dtype.
        f: Maps subsets, and fractions if it is differentiable, to losses: `(*S, n)` -> `(*S)`.
        differentiable: Whether f has a gradient, without which pathwise estimators make no sense.
        gradient: The exact gradient, or a reference, `(n)`, float64.
        noise: Total squared standard error of the reference; 0 if it is exact.
        budget: Evaluations of f that one measurement may take, as far as it goes with a hundred estimates.

    Example:
        >>> from ksubset.lab import toy
        >>> problem = toy(1234)
        >>> problem.k, problem.logits.shape, problem.gradient.shape
        (5, torch.Size([10]), torch.Size([10]))
    """

    name: str
    seed: int
    k: int
    logits: Tensor
    f: Callable[[Tensor], Tensor]
    differentiable: bool
    gradient: Tensor
    noise: float = 0.0
    budget: int = 40_000


def toy(seed: int) -> Problem:
    """The toy of the literature, `f(z) = |z - b|^2`, n = 10, k = 5.

    On binary vectors f is linear: a control variate whose slope is fitted to values of f leaves no variance at all. So
    the toy separates biased from unbiased estimators, and says nothing about control variates where they matter. The
    gradient of f is another matter: between the vectors f bends, so that slopes taken from it are off even here.

    Arguments:
        seed: The instance; those of the literature are `SEEDS`.

    Raises:
        ImportError: NumPy is missing.

    Example:
        >>> from ksubset.lab import toy
        >>> toy(1234).logits[:2]
        tensor([ 0.4714, -1.1910], dtype=torch.float64)

    References:
        Ahmed et al., "SIMPLE: A Gradient Estimator for k-Subset Sampling", 2023.
    """
    # Published numbers belong to this old generator.
    random = require("numpy").random.RandomState(seed)
    logits = torch.as_tensor(random.randn(10))
    b = torch.as_tensor(random.randn(10)).abs()
    return enumerated("toy", 5, logits, lambda z: (z - b).square().sum(-1), seed=seed)


def quadratic(seed: int) -> Problem:
    """Least squares, `f(z) = |A z - c|^2` with 20 equations, n = 10, k = 5; the items interact.

    Arguments:
        seed: The instance.

    Raises:
        TypeError: The seed is no integer.

    Example:
        >>> from ksubset.lab import quadratic
        >>> quadratic(0).differentiable
        True
    """
    generator = Generator().manual_seed(seed)
    logits = _normal(10, generator=generator)
    a = _normal(20, 10, generator=generator) / math.sqrt(10)
    c = _normal(20, generator=generator)
    return enumerated("quadratic", 5, logits, lambda z: (z @ a.T - c).square().sum(-1), seed=seed)


def network(seed: int) -> Problem:
    """A frozen random network 10-32-1 with tanh, n = 10, k = 5.

    Arguments:
        seed: The instance.

    Raises:
        TypeError: The seed is no integer.

    Example:
        >>> from ksubset.lab import network
        >>> network(0).differentiable
        True
    """
    generator = Generator().manual_seed(seed)
    logits = _normal(10, generator=generator)
    weight, bias = _normal(10, 32, generator=generator) / math.sqrt(5), _normal(32, generator=generator)
    out = _normal(32, generator=generator) / math.sqrt(32)
    return enumerated("network", 5, logits, lambda z: torch.tanh(z @ weight + bias) @ out, seed=seed)


def threshold(seed: int) -> Problem:
    """The share of 8 random threshold units that fire, n = 10, k = 5; it has no gradient.

    Arguments:
        seed: The instance.

    Raises:
        TypeError: The seed is no integer.

    Example:
        >>> from ksubset.lab import threshold
        >>> threshold(0).differentiable
        False
    """
    generator = Generator().manual_seed(seed)
    logits = _normal(10, generator=generator)
    weight = _normal(10, 8, generator=generator)
    # Near a unit's mean over the subsets, so that every unit fires for some of them.
    limit = weight.sum(0) / 2 + _normal(8, generator=generator) / 2
    f = lambda z: (z @ weight > limit).to(z.dtype).mean(-1)  # noqa: E731 - as its neighbours
    return enumerated("threshold", 5, logits, f, seed=seed, differentiable=False)


def enumerated(
    name: str, k: int, logits: Tensor, f: Callable[[Tensor], Tensor], *, seed: int = 0, differentiable: bool = True
) -> Problem:
    """A problem with its exact gradient, by a sum over all subsets.

    Arguments:
        name: What to call it.
        k: Size of the subsets.
        logits: `(n)`, float64 for an exact gradient; n and k so small that all subsets can be listed.
        f: Maps subsets, and fractions if it is differentiable, to losses: `(*S, n)` -> `(*S)`.
        seed: Of the random numbers of estimates.
        differentiable: Whether f has a gradient, without which pathwise estimators make no sense.

    Raises:
        ValueError: `logits` is no vector, k does not suit it, there are too many subsets, or f does not give a loss for
            each.

    Example:
        >>> import torch
        >>> from ksubset.lab import enumerated
        >>> cost = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
        >>> enumerated("cost", 1, torch.zeros(3, dtype=torch.float64), lambda z: z @ cost).gradient
        tensor([-0.6667, -0.3333,  1.0000], dtype=torch.float64)
    """
    if logits.dim() != 1:
        raise ValueError(f"logits: expected a vector, got shape {tuple(logits.shape)}")
    parameter = logits.detach().clone().requires_grad_()
    dist = KSubset(k, parameter)
    subsets = dist.enumerate_support()
    losses = f(subsets)
    if losses.shape != subsets.shape[:1]:
        raise ValueError(f"f: expected losses of shape {tuple(subsets.shape[:1])}, got {tuple(losses.shape)}")
    expected = (dist.log_prob(subsets).exp() * losses).sum()
    (gradient,) = torch.autograd.grad(expected, parameter)
    return Problem(name, seed, k, parameter.detach(), f, differentiable, gradient.double())


def decoder(seed: int, evaluations: int, advance: Callable[[], None] = lambda: None) -> Problem:
    """A trained decoder 784-128-784 that fills in 8 images of which it sees 30 pixels: of real size, float32.

    The images are scikit-learn's digits, enlarged to 28 x 28; the loss is the binary cross-entropy, mean over pixels
    and images. The 784 logits are standard normal; the decoder was trained briefly on other images, with their subsets.
    The reference gradient is a mean of estimates by `LeaveOneOut`.

    Arguments:
        seed: Of logits, weights, training and reference.
        evaluations: Evaluations of f for the reference, at least two times `CHUNK`.
        advance: Called after every `CHUNK` evaluations.

    Raises:
        ImportError: scikit-learn is missing.
        ValueError: Too few evaluations.

    Example:
        >>> from ksubset.lab import decoder
        >>> decoder(0, evaluations=1000).logits.shape
        torch.Size([784])
    """
    if evaluations < 2 * CHUNK:
        raise ValueError(f"evaluations must be {2 * CHUNK} or more, got {evaluations}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        logits = torch.randn(_SIDE**2)
        dist = KSubset(30, logits)
        images = _digits()[torch.randperm(1797)]
        images, kept = images[_IMAGES:], images[:_IMAGES]
        loss = _decoder(dist, images)
        f = functools.partial(loss, kept)
        gradient, noise = _reference(f, dist, evaluations, advance)
    return Problem("decoder", seed, 30, logits, f, True, gradient, noise, budget=4000)


SMALL: dict[str, Callable[[int], Problem]] = {f.__name__: f for f in (toy, quadratic, network, threshold)}
"""Problems with an exact gradient, made from a seed."""

PROBLEMS = (*SMALL, "decoder")


def _normal(*shape: int, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _digits() -> Tensor:
    """scikit-learn's 1,797 digits, enlarged: `(1797, 784)`, values in [0, 1]."""
    images = torch.as_tensor(require("sklearn.datasets").load_digits().images, dtype=torch.float32)[:, None] / 16
    return functional.interpolate(images, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False).flatten(1)


def _decoder(dist: KSubset, images: Tensor, steps: int = 400) -> Callable[[Tensor, Tensor], Tensor]:
    """A trained loss: images `(I, n)`, subsets `(*S, n)` -> `(*S)`."""
    n = images.shape[-1]
    parameters = [torch.randn(n, _HIDDEN) / 5, torch.zeros(_HIDDEN), torch.randn(_HIDDEN, n) / 10, torch.zeros(n)]

    def loss(images: Tensor, z: Tensor) -> Tensor:
        first, bias, second, shift = parameters
        pixels = functional.relu((z[..., None, :] * images) @ first + bias) @ second + shift
        target = images.expand(pixels.shape)
        return functional.binary_cross_entropy_with_logits(pixels, target, reduction="none").mean((-1, -2))

    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        batch = images[torch.randint(len(images), (64,))]
        # A subset for each image.
        loss(batch[:, None], dist.sample((64,))).mean().backward()
        optimizer.step()
    for parameter in parameters:
        parameter.requires_grad_(False)
    return loss


def _reference(
    f: Callable[[Tensor], Tensor], dist: KSubset, evaluations: int, advance: Callable[[], None]
) -> tuple[Tensor, float]:
    """Mean of many estimates by `LeaveOneOut` and its total squared standard error."""
    logits = dist.logits.clone().requires_grad_()
    # One distribution for all, so that its sampling table is computed once.
    dist = KSubset(dist.k, logits)
    # Allocated at once: small pieces among the large ones of the loss would keep the memory from being used again.
    estimates = torch.empty(evaluations // CHUNK, len(logits), dtype=torch.float64)
    for row in estimates:
        (estimate,) = torch.autograd.grad(expectation(f, dist, LeaveOneOut(), CHUNK), logits)
        row.copy_(estimate)
        advance()
    return estimates.mean(0), float(estimates.var(0).sum()) / len(estimates)
