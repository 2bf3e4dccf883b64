r"""The hybrid of score function and pathwise gradient: a linear control variate whose mean is known exactly.

For any slope :math:`\beta` that does not depend on the subset z, :math:`\langle\beta, z - \pi\rangle` has mean 0 and
:math:`E[\langle\beta, z - \pi\rangle (z - \pi)] = \operatorname{Cov}(z)\beta`, a product that costs O(n). So

.. math:: \Big(f(z) - b - \alpha\langle\beta, z - \pi\rangle\Big)(z - \pi) + \alpha\operatorname{Cov}(z)\beta

is unbiased for every :math:`\beta`, every scale :math:`\alpha` and every baseline b that do not depend on z. At
:math:`\alpha = 0` it is the score function with a baseline, without its first part it is a pathwise gradient.
"""

import abc
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ksubset.distributions import SubsetDistribution
from ksubset.estimators.base import Estimator, differentiate
from ksubset.numerics.checks import differentiated, inside_transform

__all__ = ["Hybrid", "ReplayedSlope", "Slope", "SlopeAtMean", "SlopeAtSamples"]

# Weight that what was measured keeps from one call to the next.
_DECAY = 0.99


class _InDouble(nn.Module):
    """A module whose own buffers go to other devices, but stay in float64: sums of squares overflow in float16."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def moved(buffer: Tensor) -> Tensor:
            applied = fn(buffer)
            return applied if applied.dtype == buffer.dtype else buffer.to(applied.device)

        for child in self.children() if recurse else ():
            child._apply(fn)
        return super()._apply(moved, recurse=False)


class Slope(nn.Module, abc.ABC):
    """A rule for the slope of the control variate: which linear function resembles f on the subsets.

    What it remembers of earlier calls lies in buffers.

    Example:
        >>> from ksubset import KSubset, expectation
        >>> class Known(Slope):
        ...     needs_gradient = False
        ...     def forward(self, f, sample, dist):
        ...         return f(sample), torch.tensor([1.0, 0.0, 0.0, 0.0])
        >>> estimator, logits = Hybrid(Known()), torch.zeros(4, requires_grad=True)
        >>> for _ in range(2):  # the first call finds out how good the slope is
        ...     logits.grad = None
        ...     expectation(lambda z: z[..., 0].round(), KSubset(2, logits), estimator, num_samples=64).backward()
        >>> logits.grad
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])
    """

    needs_gradient = True
    """Whether the rule needs the gradient of f."""

    @abc.abstractmethod
    def forward(self, f: Callable[[Tensor], Tensor], sample: Tensor, dist: SubsetDistribution) -> tuple[Tensor, Tensor]:
        """The losses `f(sample)`, and the slopes, without gradient; that of a sample must not depend on the sample.

        Shapes:
            f: `(S, *B, n)` -> `(S, *B)`, sample `(S, *B, n)` -> `(S, *B)`; and `(S, *B, n)`, or what broadcasts to it.
        """


class SlopeAtMean(Slope):
    """The gradient of f at the inclusion probabilities, for one more evaluation; f must accept fractions.

    References:
        Gu, Levine, Sutskever and Mnih (2016), MuProp: Unbiased Backpropagation for Stochastic Neural Networks,
        https://arxiv.org/abs/1511.05176.

    Example:
        >>> from ksubset import KSubset
        >>> dist = KSubset(2, torch.zeros(4))
        >>> loss, slope = SlopeAtMean()(lambda z: z[..., 0].square(), dist.sample((8,)), dist)
        >>> slope  # twice the inclusion probability of the first item
        tensor([[1., 0., 0., 0.]])
    """

    def forward(self, f: Callable[[Tensor], Tensor], sample: Tensor, dist: SubsetDistribution) -> tuple[Tensor, Tensor]:
        return f(sample), differentiate(f, dist.mean.detach()[None])[1]


class SlopeAtSamples(Slope):
    """The mean gradient of f at the OTHER samples: the gradient of SIMPLE, without its bias.

    References:
        Ahmed, Zeng, Niepert and Van den Broeck (2023), SIMPLE: A Gradient Estimator for k-Subset Sampling,
        https://arxiv.org/abs/2210.01941, for the gradient.

    Example:
        >>> from ksubset import KSubset
        >>> sample = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
        >>> loss, slope = SlopeAtSamples()(lambda z: z[..., 0].square(), sample, KSubset(2, torch.zeros(3)))
        >>> slope[:, 0]  # of each subset, the mean of 2 z over the other two
        tensor([1., 1., 2.])
    """

    def forward(self, f: Callable[[Tensor], Tensor], sample: Tensor, dist: SubsetDistribution) -> tuple[Tensor, Tensor]:
        loss, gradient = differentiate(f, sample)
        return loss, (gradient.sum(0) - gradient) / (len(gradient) - 1)


class ReplayedSlope(_InDouble, Slope):
    """A ridge regression of f on the subsets of earlier calls; needs no gradient of f.

    Rows of a batch share one memory and one slope; losses and subsets enter relative to the mean of their row. The
    strength of the ridge is chosen by generalised cross-validation, anew whenever a quarter of the memory is.

    References:
        Golub, Heath and Wahba (1979), Generalized Cross-Validation as a Method for Choosing a Good Ridge Parameter,
        https://doi.org/10.1080/00401706.1979.10489751.

    Arguments:
        memory: Evaluations M that are remembered, the last ones, of a call at most an eighth of M. A fit costs
            O(M n min(M, n)).

    Raises:
        TypeError: `memory` is no integer.
        ValueError: `memory` is below 8; or, when used, the number of items is not what it was.

    Example:
        >>> from ksubset import KSubset
        >>> dist, slope = KSubset(3, torch.zeros(6)), ReplayedSlope(memory=512)
        >>> for _ in range(8):
        ...     _ = slope(lambda z: 2 * z[..., 0] - z[..., 1], dist.sample((64,)), dist)
        >>> found = slope.slope  # up to a constant, as all subsets have 3 items
        >>> (found[:2] - found[2]).round(decimals=2)
        tensor([ 2., -1.], dtype=torch.float64)
    """

    needs_gradient = False
    subsets: Tensor | None
    losses: Tensor | None
    slope: Tensor | None

    def __init__(self, memory: int = 1024) -> None:
        super().__init__()
        if isinstance(memory, bool) or not isinstance(memory, numbers.Integral):
            raise TypeError(f"memory must be an integer, got {memory!r}")
        if memory < 8:
            raise ValueError(f"memory must be 8 or more, got {memory}")
        self.memory: int = int(memory)
        for name in ("subsets", "losses", "slope"):
            self.register_buffer(name, None)
        self._new: int = 0
        self.register_load_state_dict_pre_hook(_take_shapes)

    def extra_repr(self) -> str:
        return f"memory={self.memory}"

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self._new)  # no buffer, as it decides on the host what is done

    def set_extra_state(self, state: Tensor) -> None:
        self._new = int(state)

    def forward(self, f: Callable[[Tensor], Tensor], sample: Tensor, dist: SubsetDistribution) -> tuple[Tensor, Tensor]:
        loss = f(sample)
        n = sample.shape[-1]
        slope = sample.new_zeros(n, dtype=torch.float64) if self.slope is None else self.slope
        if len(slope) != n:
            raise ValueError(
                f"this ReplayedSlope remembers subsets of {len(slope)} items, got {n}: take a new one for a new problem"
            )
        if loss.numel() and not inside_transform():
            with torch.no_grad():
                self._remember(
                    (sample - sample.mean(0)).reshape(-1, n), (loss.double() - loss.double().mean(0)).flatten()
                )
        return loss, slope.to(sample.device)

    def _remember(self, subsets: Tensor, losses: Tensor) -> None:
        # Evenly over the rows: a single call must not fill the memory.
        step = -(-len(losses) // (self.memory // 8))
        subsets, losses = subsets[::step].double(), losses[::step]
        # A broken loss must not stay for hundreds of steps: a row of zeros says nothing to the regression.
        known = losses.isfinite()
        subsets, losses = torch.where(known[:, None], subsets, 0.0), torch.where(known, losses, 0.0)
        self._new += len(losses)
        if self.subsets is not None and self.losses is not None:
            subsets, losses = (
                torch.cat([self.subsets.to(subsets), subsets]),
                torch.cat([self.losses.to(losses), losses]),
            )
        self.subsets, self.losses = subsets[-self.memory :], losses[-self.memory :]
        if 4 * self._new >= len(self.losses):
            self.slope = ridge(self.subsets, self.losses)
            self._new = 0


def _take_shapes(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Give the buffers of a memory, which grows with use, the shapes of what is going to be loaded into them."""
    for name in module._buffers:
        found = state.get(prefix + name)
        setattr(module, name, None if found is None else torch.empty_like(found))


def ridge(x: Tensor, y: Tensor) -> Tensor:
    """Ridge regression `(M, n), (M) -> (n)`, with the strength that generalised cross-validation likes best."""
    # Items that were always chosen, or never: they get no slope, and over so many equal eigenvalues LAPACK may stumble.
    if not (used := x.any(0)).all():
        slope = x.new_zeros(x.shape[1])
        if used.any():
            slope[used] = ridge(x[:, used], y)
        return slope
    wide = len(x) < x.shape[1]
    square, basis = torch.linalg.eigh(x @ x.mT if wide else x.mT @ x)
    square = square.clamp(min=0)
    target = basis.mT @ (y if wide else x.mT @ y)
    strengths = square.max().clamp(min=1e-30) * torch.logspace(-6, 2, 33, dtype=x.dtype, device=x.device)[:, None]
    shrunk = 1 / (square + strengths)
    # What of y lies in each direction, and what in none of them.
    within = target.square() if wide else torch.where(square > 1e-12 * square.max(), target.square() / square, 0.0)
    outside = 0.0 if wide else (y.square().sum() - within.sum()).clamp(min=0)
    left_out = strengths * shrunk
    freedom = left_out.sum(-1) + (len(y) - len(square))
    best = (((left_out.square() * within).sum(-1) + outside) / freedom.square()).argmin()
    fitted: Tensor = basis @ (target * shrunk[best])
    return x.mT @ fitted if wide else fitted


class Hybrid(_InDouble, Estimator):
    r"""Score function with a leave-one-out baseline and a linear control variate; the paper's future work.

    .. math:: \frac{1}{S} \sum_s \Big(f(z_s) - \bar f_{-s} - \alpha\langle\beta_s, z_s - \bar z_{-s}\rangle\Big)
              (z_s - \pi) + \alpha \operatorname{Cov}(z)\, \bar\beta

    with the means :math:`\bar f_{-s}`, :math:`\bar z_{-s}` over the other samples. The scale :math:`\alpha` in [0, 1]
    is the one that minimised the variance of the bracket over earlier calls and the other rows of the batch; it is 0,
    and this is `LeaveOneOut`, at first and where the slope tells nothing about f.

    It remembers what it measured: take a new instance for a new problem, and none within gradient checkpointing, which
    would have it learn from the samples that it is used for. Unbiased all the same, as no slope and no
    scale depends on the sample that it is used for, provided that the loss of a row depends on the row's own subset.

    References:
        Wijk, Vinuesa and Azizpour (2024), https://arxiv.org/abs/2407.16058, names it as future work.
        Gu, Levine, Sutskever and Mnih (2016), https://arxiv.org/abs/1511.05176, for linear control variates.

    Arguments:
        slope: Where the slope :math:`\beta` comes from; by default `ReplayedSlope()`, which needs no gradient of f.

    Raises:
        TypeError: `slope` is no `Slope`.

    Example:
        >>> from ksubset import KSubset, expectation
        >>> estimator = Hybrid()  # one for the whole training, as it learns from every call
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> dist = KSubset(2, logits)
        >>> for _ in range(20):
        ...     logits.grad = None
        ...     expectation(lambda z: z[..., 0].round(), dist, estimator, num_samples=8).backward()
        >>> torch.allclose(logits.grad, dist.covariance_matrix[0].detach(), atol=0.01)  # of 8 samples
        True
    """

    unbiased, min_samples = True, 2
    measured: Tensor

    def __init__(self, slope: Slope | None = None) -> None:
        super().__init__()
        self.slope = ReplayedSlope() if slope is None else slope
        if not isinstance(self.slope, Slope):
            raise TypeError(f"slope must be an instance of Slope, such as ReplayedSlope(), got {slope!r}")
        # How much of the losses' variance the slopes explained, and their own variance.
        self.register_buffer("measured", torch.zeros(2, dtype=torch.float64))

    @property
    def needs_gradient(self) -> bool:  # type: ignore[override]
        """Whether the slope needs the gradient of f."""
        return self.slope.needs_gradient

    def estimate(
        self,
        f: Callable[[Tensor], Tensor],
        dist: SubsetDistribution,
        num_samples: int,
        generator: Generator | None = None,
    ) -> Tensor:
        sample = self.sample(dist, num_samples, generator)
        if not (inside_transform() or differentiated(dist.logits)):
            return f(sample).mean(0)
        loss, slope = self.slope(f, sample, dist)
        value: Tensor = loss.mean(0) + self._correction(loss.detach(), sample, slope, dist)
        return value

    def _correction(self, loss: Tensor, sample: Tensor, slope: Tensor, dist: SubsetDistribution) -> Tensor:
        """Zero, with the estimate as its gradient: `(S, *B)`, `(S, *B, n)` twice -> `(*B)`."""
        dtype = torch.promote_types(torch.promote_types(loss.dtype, dist.logits.dtype), torch.float32)
        wide, sample, slope = loss.to(dtype), sample.to(dtype), slope.to(dtype)
        others = len(loss) / (len(loss) - 1)
        advantage = others * (wide - wide.mean(0))
        linear = others * ((sample - sample.mean(0)) * slope).sum(-1)
        scale = self._scale((advantage * linear).sum(0), linear.square().sum(0)).to(dtype)
        advantage = advantage - scale * linear
        mean = dist.mean.to(dtype)
        score = (advantage[..., None] * (sample - mean.detach())).mean(0)
        path = scale[..., None] * slope.expand(sample.shape).mean(0)
        # Infinite logits fix their items: they have no score, and inf - inf must not enter the sum.
        free = torch.where(dist.logits.isinf(), 0.0, dist.logits).to(dtype)
        parts = score * (free - free.detach()) + path * (mean - mean.detach())
        return parts.sum(-1).to(loss.dtype)

    def _scale(self, explained: Tensor, spread: Tensor) -> Tensor:
        """The best scale of each row `(*B)` by all measurements but its own; remembers the new ones."""
        explained, spread = (torch.where((explained + spread).isfinite(), x.double(), 0.0) for x in (explained, spread))
        measured = torch.stack([explained.sum(), spread.sum()]) + self.measured.to(spread.device)
        if not inside_transform():
            self.measured = _DECAY * measured
        best = (measured[0] - explained) / (measured[1] - spread)
        # Where nothing was measured yet, 0/0.
        scale: Tensor = torch.where(best.isfinite(), best, 0.0).clamp(0, 1)
        return scale
