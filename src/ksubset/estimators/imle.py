"""Implicit maximum likelihood: the difference of two solutions of a perturbed top-k problem."""

import math
import numbers
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import Gamma

from ksubset.distributions.ksubset import KSubset
from ksubset.estimators.base import Estimator
from ksubset.numerics.tilt import sizes
from ksubset.numerics.topk import top_k

__all__ = ["IMLE"]


@dataclass(frozen=True)
class IMLE(Estimator):
    r"""Implicit maximum likelihood estimation, perturb-and-MAP for top-k.

    A sample is the k largest of the perturbed logits, :math:`z = \operatorname{top}_k(w + \varepsilon)`, and its
    gradient moves towards the subset of a target distribution, whose logits are one step down the loss:

    .. math:: \frac{1}{\beta}\Big(z - \operatorname{top}_k\big(w + \varepsilon - \beta\, \nabla_z f(z)\big)\Big)

    The noise is :math:`\frac{\tau}{\kappa}\big(\sum_{i=1}^{s} \operatorname{Gamma}(1/\kappa, \kappa/i) - \log s\big)`
    with :math:`\kappa = k`, so that the sum over k items is nearly Gumbel. Biased; the samples are not those of the
    k-subset distribution. f must be differentiable, and sees hard subsets only.

    `beta` multiplies the gradient that reaches each sample, with the number of samples taken out: losses that are
    averaged over a batch want a `beta` that is larger by its size.

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
    """

    beta: float = 10.0
    temperature: float = 1.0
    terms: int = 10

    def __post_init__(self) -> None:
        for name in ("beta", "temperature"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(f"{name} must be a number, got {value!r}")
        if not (self.beta > 0 and math.isfinite(self.beta)):
            raise ValueError(f"beta must be a positive, finite number, got {self.beta}")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be a finite number of 0 or more, got {self.temperature}")
        if isinstance(self.terms, bool) or not isinstance(self.terms, int):
            raise TypeError(f"terms must be an integer, got {self.terms!r}")
        if self.terms < 1:
            raise ValueError(f"terms must be 1 or more, got {self.terms}")

    def sample(self, dist: KSubset, num_samples: int) -> Tensor:
        logits = dist.logits.expand(num_samples, *dist.batch_shape, *dist.event_shape)
        noise = self.temperature * sum_of_gamma(logits, dist.k, self.terms)
        sample: Tensor = _PerturbAndMap.apply(logits, noise, dist.k, self.beta * num_samples)
        return sample


def sum_of_gamma(logits: Tensor, k: int | Tensor, terms: int) -> Tensor:
    """The noise of the class above at temperature 1: the sum of k of them tends to a Gumbel variable.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`.
    """
    # Of an empty subset nothing is drawn, but a Gamma variable needs a shape above 0.
    dtype = torch.promote_types(logits.dtype, torch.float32)  # torch draws no Gamma variables in half precision
    kappa = sizes(k, logits).clamp(min=1).to(dtype)[..., None]
    gamma = Gamma((1 / kappa).expand(logits.shape), torch.ones_like(logits, dtype=dtype), validate_args=False)
    total = sum((gamma.sample() * (kappa / i) for i in range(1, terms + 1)), torch.zeros_like(logits, dtype=dtype))
    return ((total - math.log(terms)) / kappa).to(logits.dtype)


class _PerturbAndMap(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, noise: Tensor, k: int | Tensor, step: float) -> Tensor:
        return top_k(logits + noise, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, noise, ctx.k, ctx.step = inputs
        ctx.save_for_backward(logits, noise, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        logits, noise, sample = ctx.saved_tensors
        target = top_k(logits + noise - ctx.step * grad, ctx.k)
        # A gradient that is no number sorts like one; it must not pass for a step.
        return (sample - target) / ctx.step + 0.0 * grad, None, None, None
