"""Random numbers as torch draws them, under all of its transforms."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

__all__ = ["uniform"]


def uniform(shape: Sequence[int], device: torch.device, dtype: torch.dtype, generator: Generator | None) -> Tensor:
    """Uniform numbers in [0, 1), from torch's own generator if none is given."""
    if generator is None:
        # To pass None would keep torch.compile from shapes that it does not know yet.
        return torch.rand(shape, dtype=dtype, device=device)
    return torch.rand(shape, dtype=dtype, device=device, generator=generator)
