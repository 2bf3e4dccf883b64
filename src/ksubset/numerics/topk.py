"""Top-k by sorting, by Gumbel noise, and relaxed to a differentiable vector."""

import torch
from torch import Tensor

from ksubset.numerics.tilt import largest_size, sizes

__all__ = ["gumbel_keys", "relaxed_top_k", "top_k"]


def top_k(scores: Tensor, k: int | Tensor) -> Tensor:
    """The k-hot vector of the k largest scores; of equal scores the lowest index wins, on every device.

    Shapes:
        scores `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`, of the scores' dtype.
    """
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    first = torch.arange(scores.shape[-1], device=scores.device) < sizes(k, scores)[..., None]
    return torch.zeros_like(scores).scatter(-1, order, first.expand(order.shape).to(scores.dtype))


def gumbel_keys(logits: Tensor, num_samples: int) -> Tensor:
    """Logits plus standard Gumbel noise.

    The k largest keys are a draw without replacement in sequence, which is NOT the k-subset distribution of the logits.

    Shapes:
        logits `(*B, n)` -> `(num_samples, *B, n)`.
    """
    exponential = torch.empty((num_samples, *logits.shape), dtype=logits.dtype, device=logits.device).exponential_()
    return logits - torch.log(exponential.clamp(min=torch.finfo(logits.dtype).tiny))


def relaxed_top_k(keys: Tensor, k: int | Tensor, temperature: float) -> Tensor:
    """Continuous relaxation of top-k: the sum of k successive softmaxes, each of which lowers what it has chosen.

    `a^1 = keys`, `p^j = softmax(a^j / temperature)`, `a^{j+1} = a^j + log(1 - p^j)`, result `sum_j p^j`. It sums to k,
    and tends to the hard top-k as the temperature falls; an entry can exceed 1 at high temperatures. Keys of +inf are
    chosen with certainty, keys of -inf never.

    Xie and Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations, https://arxiv.org/abs/1901.10517.

    Shapes:
        keys `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`.
    """
    dtype = keys.dtype
    # Half precision has too little range for keys over a temperature.
    keys = keys.float() if dtype in (torch.float16, torch.bfloat16) else keys
    info = torch.finfo(keys.dtype)
    certain = keys.isposinf()
    open_places = sizes(k, keys)[..., None] - certain.sum(-1, keepdim=True)
    # A finite floor instead of -inf: a row without candidates must have a softmax, though none of it is used.
    keys = torch.where(keys.isfinite(), keys, info.min / 16)
    chosen = certain.to(keys.dtype) + 0.0 * keys  # an empty subset has a gradient too: zero
    for place in range(largest_size(k)):
        # Over a small temperature only differences to the largest key stay finite.
        share = torch.softmax((keys - keys.detach().amax(-1, keepdim=True)) / temperature, -1)
        chosen = chosen + torch.where(place < open_places, share, 0.0)
        # A share that rounds to 1 takes its item off the list; otherwise large keys would be chosen twice.
        keys = torch.where(share < 1, keys + torch.log((1 - share).clamp(min=info.tiny)), info.min / 16)
    return chosen.to(dtype)
