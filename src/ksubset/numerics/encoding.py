"""Subsets as vectors of zeros and ones, and as indices."""

import torch
from torch import Tensor

__all__ = ["ascending", "k_hot"]


def k_hot(indices: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    """Ones at distinct indices, of which -1 is none.

    Shapes:
        indices `(*S, K)`, int64 -> `(*S, n)`.
    """
    # From the indices, so that vmap knows of the samples' dimension too.
    chosen = indices.new_zeros((*indices.shape[:-1], n), dtype=dtype)
    # What is none adds nothing to the first item.
    return chosen.scatter_add_(-1, indices.clamp(0, n - 1), (indices >= 0).to(dtype))


def ascending(chosen: Tensor, most: int) -> Tensor:
    """Indices of what is chosen, at most `most`, ascending; -1 where there are fewer.

    Shapes:
        chosen `(*S, n)`, boolean -> `(*S, most)`, int64.
    """
    n = chosen.shape[-1]
    indices = torch.where(chosen, torch.arange(n, device=chosen.device), n).sort(-1).values[..., :most]
    return torch.where(indices == n, -1, indices)
