"""Exact samples of distributions of subsets: the choice among three ways of drawing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from ksubset.numerics import compiled, inversion, splitting, thinning
from ksubset.numerics.checks import inside_transform
from ksubset.numerics.encoding import ascending
from ksubset.numerics.tilt import largest_size

__all__ = ["Sampler"]

# Of each way, what prepares it and what draws.
_WAYS: dict[str, tuple[Callable[..., Any], Callable[..., Tensor]]] = {
    "inversion": (inversion.sampling_table, inversion.draw),
    "splitting": (splitting.splitting_tree, splitting.draw),
    "thinning": (thinning.arranged, thinning.draw),
}


class Sampler:
    """Draws subsets of `low` to `high` items from R distributions, the flattened batch of the logits.

    It prepares each way of drawing when it is first taken. Which one is taken depends on the shapes, the number of
    samples and the machine alone, so the same seed gives the same subsets, whatever was drawn before.

    Arguments:
        logits: Log-odds `(*B, n)`; -inf excludes an item, +inf includes it. A row is assumed feasible.
        low: Subset size, an integer or an integer tensor `(*B)`.
        high: Largest size, if it varies.

    Raises:
        RuntimeError: When used, a size does not broadcast over the batch. Values are not checked.

    Example:
        >>> sampler = Sampler(torch.tensor([[0.5, -0.3, 1.2, 0.0]] * 3), 2)
        >>> sampler.k_hot(1000, torch.float32).shape
        torch.Size([1000, 3, 4])
        >>> sampler.indices(1000).shape
        torch.Size([1000, 3, 2])
    """

    def __init__(self, logits: Tensor, low: int | Tensor, high: int | Tensor | None = None) -> None:
        self._arguments = (logits.detach(), low, high)
        self._prepared: dict[str, Any] = {}

    def _way(self, num_samples: int) -> str:
        """What draws: "inversion", "splitting" or "thinning"."""
        logits, low, high = self._arguments
        if torch.compiler.is_compiling() or not logits.numel():
            return "inversion"
        if compiled.usable(logits):
            return "thinning"
        if inside_transform():  # no value can be read there
            return "inversion"
        n = logits.shape[-1]
        depth = min(low, n - low) if isinstance(low, int) and high is None else min(self._largest, n // 2)
        # Times of preparation and samples, in units of some 50 ns, fitted to benchmarks/shapes.py --only ways.
        by_inversion, by_splitting = depth * (n + 10 * num_samples), n * (5 + 2 * num_samples)
        return "inversion" if by_inversion <= by_splitting else "splitting"

    def _state(self, way: str) -> Any:
        if way not in self._prepared:
            prepare, _ = _WAYS[way]
            self._prepared[way] = prepare(*self._arguments)
        return self._prepared[way]

    @property
    def _largest(self) -> int:
        logits, low, high = self._arguments
        return largest_size(low if high is None else high, logits.shape[-1])

    def k_hot(self, num_samples: int, dtype: torch.dtype, generator: Generator | None = None) -> Tensor:
        """Draw subsets as vectors of zeros and ones.

        Shapes:
            -> `(num_samples, R, n)`.
        """
        way = self._way(num_samples)
        _, draw = _WAYS[way]
        return draw(self._state(way), num_samples, dtype, generator)

    def indices(self, num_samples: int, generator: Generator | None = None) -> Tensor:
        """Draw subsets as the indices of their items, ascending; those with fewer than the largest number end in -1.

        Shapes:
            -> `(num_samples, R, K)`, int64, with K the size of the largest subset.
        """
        way = self._way(num_samples)
        state = self._state(way)
        if way == "thinning":
            drawn = thinning.draw_indices(state, num_samples, generator)
        elif way == "inversion" and state.flipped is None:
            drawn = inversion.draw_indices(state, num_samples, generator)
        else:
            return ascending(self.k_hot(num_samples, torch.uint8, generator) > 0, self._largest)
        n = self._arguments[0].shape[-1]
        # Unused places sort last as the largest value, and become -1 again afterwards.
        drawn = torch.where(drawn < 0, n, drawn).sort(-1).values
        return torch.where(drawn == n, -1, drawn)
