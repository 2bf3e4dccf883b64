"""Implicit maximum likelihood: the difference of two solutions of a perturbed top-k problem."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator, differentiate, positive
from ksubset.numerics.checks import differentiated, inside_transform
from ksubset.numerics.tilt import sizes
from ksubset.numerics.topk import perturbed, top_k

__all__ = ["IMLE"]


class IMLE(Estimator):
    r"""Implicit maximum likelihood estimation, perturb-and-MAP for top-k.

    A sample is the k largest of the perturbed logits, :math:`z = \operatorname{top}_k(w + \varepsilon)`, and its
    gradient moves towards the subset of a target distribution, whose logits are one step down the loss:

    .. math:: \frac{1}{\beta}\Big(z - \operatorname{top}_k\big(w + \varepsilon - \beta\, \nabla_z f(z)\big)\Big)

    The noise is :math:`\frac{\tau}{\kappa}\big(\sum_{i=1}^{s} \operatorname{Gamma}(1/\kappa, \kappa/i) - \log s\big)`
    with :math:`\kappa = k`, so that the sum over k items is nearly Gumbel. Biased; the samples are not those of the
    k-subset distribution. f must be differentiable, and sees hard subsets only.

    `beta` multiplies the gradient of the loss of a single subset, whatever becomes of the losses that `expectation`
    returns. Where `sample` stands in a network by itself, that loss is not known, and `beta` multiplies the gradient
    that arrives, with the number of samples taken out.

    References:
        Niepert, Minervini and Franceschi (2021), Implicit MLE: Backpropagating Through Discrete Exponential Family
        Distributions, https://arxiv.org/abs/2106.01798.

    Arguments:
        beta: Size of the step to the target distribution, above 0; the default is that of the authors' package.
        temperature: Scale of the noise, 0 or more; 0 gives the k largest logits.
        terms: Number s of Gamma variables in the noise; the default is the paper's.

    Raises:
        TypeError: An argument is no number, or `terms` no integer.
        ValueError: An argument is out of its range.

    Example:
        >>> from ksubset import KSubset, expectation
        >>> logits = torch.tensor([2.0, 1.0, 0.5, 0.0], requires_grad=True)
        >>> loss = expectation(lambda z: z[..., 0], KSubset(2, logits), IMLE(beta=10.0, temperature=0.0))
        >>> loss.backward()  # without noise: with the first item dearer by 10 the two largest are items 1 and 2
        >>> logits.grad
        tensor([ 0.1000,  0.0000, -0.1000,  0.0000])
    """

    needs_gradient = reparameterized = True

    def __init__(self, beta: float = 10.0, temperature: float = 1.0, terms: int = 10) -> None:
        super().__init__()
        self.beta: float = positive("beta", beta)
        if isinstance(temperature, bool) or not isinstance(temperature, numbers.Real):
            raise TypeError(f"temperature must be a number, got {temperature!r}")
        if not (temperature >= 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature must be a finite number of 0 or more, got {temperature}")
        if isinstance(terms, bool) or not isinstance(terms, numbers.Integral):
            raise TypeError(f"terms must be an integer, got {terms!r}")
        if terms < 1:
            raise ValueError(f"terms must be 1 or more, got {terms}")
        self.temperature: float = float(temperature)
        self.terms: int = int(terms)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, temperature={self.temperature}, terms={self.terms}"

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        rows = dist.to_rows(dist.logits.expand(num_samples, *dist.batch_shape, *dist.event_shape))
        step = self.beta * num_samples
        drawn = [_PerturbAndMap.apply(w, self._noise(w, k, generator), k, step) for w, k in rows]
        return dist.from_rows(drawn)

    def estimate(
        self,
        f: Callable[[Tensor], Tensor],
        dist: SubsetDistribution,
        num_samples: int,
        generator: Generator | None = None,
    ) -> Tensor:
        logits = dist.logits.detach().expand(num_samples, *dist.batch_shape, *dist.event_shape)
        rows = dist.to_rows(logits.to(torch.promote_types(logits.dtype, torch.float32)))
        noises = [self._noise(w, k, generator) for w, k in rows]
        chosen = [top_k(perturbed(w, noise, k), k) for (w, k), noise in zip(rows, noises, strict=True)]
        sample = dist.from_rows(chosen).to(logits.dtype)
        if not (inside_transform() or differentiated(dist.logits)):
            return f(sample).mean(0)
        loss, gradient = differentiate(f, sample)
        moved = dist.to_rows(logits - self.beta * gradient.to(rows[0][0].dtype))
        target = dist.from_rows([top_k(perturbed(w, noise, k), k) for (w, k), noise in zip(moved, noises, strict=True)])
        # A gradient that is no number sorts like one; it must not pass for a step.
        direction = (sample - target) / self.beta + 0.0 * gradient
        free = torch.where(dist.logits.isinf(), 0.0, dist.logits)
        return (loss + (direction * (free - free.detach())).sum(-1).to(loss.dtype)).mean(0)

    def _noise(self, logits: Tensor, k: int | Tensor, generator: Generator | None) -> Tensor:
        return self.temperature * sum_of_gamma(logits, k, self.terms, generator)


def sum_of_gamma(logits: Tensor, k: int | Tensor, terms: int, generator: Generator | None = None) -> Tensor:
    """The noise of the class above at temperature 1, in float32 at least: the sum of k of them tends to Gumbel noise.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    # Of an empty subset nothing is drawn, but a Gamma variable needs a shape above 0.
    kappa = sizes(k, logits).clamp(min=1).to(dtype)[..., None]
    shape = (1 / kappa).expand(logits.shape)
    total = torch.zeros_like(logits, dtype=dtype)
    for i in range(1, terms + 1):
        # What torch's own distribution draws, which takes no generator.
        total = total + torch._standard_gamma(shape, generator=generator) * (kappa / i)
    return (total - math.log(terms)) / kappa


class _PerturbAndMap(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, noise: Tensor, k: int | Tensor, step: float) -> Tensor:
        return top_k(perturbed(logits, noise, k), k).to(logits.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, noise, ctx.k, ctx.step = inputs
        ctx.save_for_backward(logits, noise, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        logits, noise, sample = ctx.saved_tensors
        target = top_k(perturbed(logits, noise - ctx.step * grad, ctx.k), ctx.k).to(grad.dtype)
        # A gradient that is no number sorts like one; it must not pass for a step.
        return (sample - target) / ctx.step + 0.0 * grad, None, None, None
