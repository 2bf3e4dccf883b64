r"""The hybrid of score function and pathwise gradient: a linear control variate whose mean is known exactly.

For any slope :math:`\beta` that does not depend on the subset z, :math:`\langle\beta, z - \pi\rangle` has mean 0 and
:math:`E[\langle\beta, z - \pi\rangle (z - \pi)] = \operatorname{Cov}(z)\beta`, a product that costs O(n). So

.. math:: \Big(f(z) - b - \alpha\langle\beta, z - \pi\rangle\Big)(z - \pi) + \alpha\operatorname{Cov}(z)\beta

is unbiased for every :math:`\beta`, every scale :math:`\alpha` and every baseline b that do not depend on z. At
:math:`\alpha = 0` it is the score function with a baseline, without its first part it is a pathwise gradient.
"""

import abc
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ksubset.distributions.ksubset import KSubset
from ksubset.estimators.base import Estimator

__all__ = ["Hybrid", "ReplayedSlope", "Slope", "SlopeAtMean", "SlopeAtSamples"]

# Weight that what was measured keeps from one call to the next.
_DECAY = 0.99


class Slope(abc.ABC):
    """A rule for the slope of the control variate: which linear function resembles f on the subsets."""

    differentiates = True
    """Whether the rule needs the gradient of f."""

    @abc.abstractmethod
    def __call__(self, f: Callable[[Tensor], Tensor], sample: Tensor, loss: Tensor, dist: KSubset) -> Tensor:
        """The slopes, without gradient; that of a sample must not depend on the sample itself.

        Shapes:
            f: `(S, *B, n)` -> `(S, *B)`, sample `(S, *B, n)`, loss `(S, *B)` -> `(S, *B, n)`, or what broadcasts to it.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """What it remembers of earlier calls; empty for most."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Go on from what another instance of the same kind remembered."""


class SlopeAtMean(Slope):
    """The gradient of f at the inclusion probabilities, for one more evaluation; f must accept fractions.

    References:
        Gu, Levine, Sutskever and Mnih (2016), MuProp: Unbiased Backpropagation for Stochastic Neural Networks,
        https://arxiv.org/abs/1511.05176.
    """

    def __call__(self, f: Callable[[Tensor], Tensor], sample: Tensor, loss: Tensor, dist: KSubset) -> Tensor:
        mean = dist.mean.detach()[None].requires_grad_()
        return _gradient(f(mean), mean)


class SlopeAtSamples(Slope):
    """The mean gradient of f at the OTHER samples: the gradient of SIMPLE, without its bias."""

    def __call__(self, f: Callable[[Tensor], Tensor], sample: Tensor, loss: Tensor, dist: KSubset) -> Tensor:
        gradient = _gradient(loss, sample)
        return (gradient.sum(0) - gradient) / (len(gradient) - 1)


def _gradient(loss: Tensor, at: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss.sum(), at, retain_graph=True, allow_unused=True)
    if gradient is None:
        raise ValueError("the losses that f returned do not depend on the subsets through differentiable operations")
    return gradient


class ReplayedSlope(Slope):
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
    """

    differentiates = False

    def __init__(self, memory: int = 1024) -> None:
        if isinstance(memory, bool) or not isinstance(memory, int):
            raise TypeError(f"memory must be an integer, got {memory!r}")
        if memory < 8:
            raise ValueError(f"memory must be 8 or more, got {memory}")
        self.memory = memory
        self._evaluations: tuple[Tensor, Tensor] | None = None
        self._slope: Tensor | None = None
        self._new = 0

    def __repr__(self) -> str:
        return f"ReplayedSlope(memory={self.memory})"

    def __call__(self, f: Callable[[Tensor], Tensor], sample: Tensor, loss: Tensor, dist: KSubset) -> Tensor:
        n = sample.shape[-1]
        slope = sample.new_zeros(n) if self._slope is None else self._slope
        if len(slope) != n:
            raise ValueError(
                f"this ReplayedSlope remembers subsets of {len(slope)} items, got {n}: take a new one for a new problem"
            )
        with torch.no_grad():
            self._remember((sample - sample.mean(0)).reshape(-1, n), (loss - loss.mean(0)).flatten())
        return slope.to(sample)

    def state_dict(self) -> dict[str, Tensor]:
        state = {"new": torch.tensor(self._new)}
        if self._evaluations is not None:
            state["subsets"], state["losses"] = self._evaluations
        if self._slope is not None:
            state["slope"] = self._slope
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._new = int(state["new"])
        self._evaluations = (state["subsets"], state["losses"]) if "subsets" in state else None
        self._slope = state.get("slope")

    def _remember(self, subsets: Tensor, losses: Tensor) -> None:
        # Evenly over the rows: a single call must not fill the memory.
        step = -(-len(losses) // (self.memory // 8))
        subsets, losses = subsets[::step].double(), losses[::step].double()
        # A broken loss must not stay for hundreds of steps: a row of zeros says nothing to the regression.
        known = losses.isfinite()
        subsets, losses = torch.where(known[:, None], subsets, 0.0), torch.where(known, losses, 0.0)
        self._new += len(losses)
        if self._evaluations is not None:
            old_subsets, old_losses = (old.to(losses.device) for old in self._evaluations)
            subsets, losses = torch.cat([old_subsets, subsets]), torch.cat([old_losses, losses])
        self._evaluations = subsets[-self.memory :], losses[-self.memory :]
        if 4 * self._new >= len(self._evaluations[1]):
            self._slope = ridge(*self._evaluations)
            self._new = 0


def ridge(x: Tensor, y: Tensor) -> Tensor:
    """Ridge regression `(M, n), (M) -> (n)`, with the strength that generalised cross-validation likes best."""
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
    slope: Tensor = basis @ (target * shrunk[best])
    return x.mT @ slope if wide else slope


class Hybrid(Estimator):
    r"""Score function with a leave-one-out baseline and a linear control variate; the paper's future work.

    .. math:: \frac{1}{S} \sum_s \Big(f(z_s) - \bar f_{-s} - \alpha\langle\beta_s, z_s - \bar z_{-s}\rangle\Big)
              (z_s - \pi) + \alpha \operatorname{Cov}(z)\, \bar\beta

    with the means :math:`\bar f_{-s}`, :math:`\bar z_{-s}` over the other samples. The scale :math:`\alpha` in [0, 1]
    is the one that minimised the variance of the bracket over earlier calls and the other rows of the batch; it is 0,
    and this is `LeaveOneOut`, at first and where the slope tells nothing about f.

    It remembers what it measured: take a new instance for a new problem. Unbiased all the same, as no slope and no
    scale depends on the sample that it is used for, provided that the loss of a row depends on the row's own subset.

    References:
        Wijk, Vinuesa and Azizpour (2024), https://arxiv.org/abs/2407.16058, names it as future work.
        Gu, Levine, Sutskever and Mnih (2016), https://arxiv.org/abs/1511.05176, for linear control variates.

    Arguments:
        slope: Where the slope :math:`\beta` comes from; by default `ReplayedSlope()`, which needs no gradient of f.

    Raises:
        TypeError: `slope` is no `Slope`.
    """

    unbiased, min_samples = True, 2

    def __init__(self, slope: Slope | None = None) -> None:
        self.slope = ReplayedSlope() if slope is None else slope
        if not isinstance(self.slope, Slope):
            raise TypeError(f"slope must be an instance of Slope, such as ReplayedSlope(), got {slope!r}")
        self._measured: tuple[Tensor, Tensor] | None = None

    def __repr__(self) -> str:
        return f"Hybrid({self.slope!r})"

    @property
    def pathwise(self) -> bool:  # type: ignore[override]
        """Whether the slope needs the gradient of f."""
        return self.slope.differentiates

    def estimate(self, f: Callable[[Tensor], Tensor], dist: KSubset, num_samples: int) -> Tensor:
        sample = self.sample(dist, num_samples)
        if not (torch.is_grad_enabled() and dist.logits.requires_grad):
            return f(sample).mean(0)
        loss = f(sample.requires_grad_(self.pathwise))
        if self.pathwise:
            self.require_gradient(loss)
        slope = self.slope(f, sample, loss, dist)
        return loss.mean(0) + self._correction(loss.detach(), sample.detach(), slope, dist)

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"slope.{name}": value for name, value in self.slope.state_dict().items()}
        if self._measured is not None:
            state["measured"] = torch.stack(self._measured)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.slope.load_state_dict({n.removeprefix("slope."): v for n, v in state.items() if n.startswith("slope.")})
        explained_and_spread = state.get("measured")
        self._measured = None if explained_and_spread is None else (explained_and_spread[0], explained_and_spread[1])

    def _correction(self, loss: Tensor, sample: Tensor, slope: Tensor, dist: KSubset) -> Tensor:
        """Zero, with the estimate as its gradient: `(S, *B)`, `(S, *B, n)` twice -> `(*B)`."""
        dtype = torch.promote_types(loss.dtype, torch.float32)
        others = len(loss) / (len(loss) - 1)
        advantage = others * (loss - loss.mean(0)).to(dtype)
        linear = others * ((sample - sample.mean(0)).to(dtype) * slope).sum(-1)
        scale = self._scale((advantage * linear).sum(0), linear.square().sum(0)).to(dtype)
        advantage = advantage - scale * linear
        score = (advantage[..., None] * (sample - dist.mean.detach())).mean(0)
        path = scale[..., None] * slope.expand(sample.shape).mean(0)
        # Infinite logits fix their items: they have no score, and inf - inf must not enter the sum.
        free = torch.where(dist.logits.isfinite(), dist.logits, 0.0)
        parts = score * (free - free.detach()) + path * (dist.mean - dist.mean.detach())
        return parts.sum(-1).to(loss.dtype)

    def _scale(self, explained: Tensor, spread: Tensor) -> Tensor:
        """The best scale of each row `(*B)` by all measurements but its own; remembers the new ones."""
        explained, spread = (torch.where((explained + spread).isfinite(), x.double(), 0.0) for x in (explained, spread))
        sums = explained.sum(), spread.sum()
        if self._measured is not None:
            sums = sums[0] + self._measured[0].to(spread.device), sums[1] + self._measured[1].to(spread.device)
        self._measured = _DECAY * sums[0], _DECAY * sums[1]
        best = (sums[0] - explained) / (sums[1] - spread)
        # Where nothing was measured yet, 0/0.
        return torch.where(best.isfinite(), best, 0.0).clamp(0, 1)
