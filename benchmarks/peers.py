"""The algorithms that ksubset is compared with, written afresh and tuned as far as their idea goes."""

import math

import torch
from torch import Tensor

__all__ = ["dft_log_normalizer", "gumbel_top_k", "recursion_log_normalizer"]


def dft_log_normalizer(logits: Tensor, k: int) -> Tensor:
    """Log normaliser from the (n + 1)-point DFT of the paper (appendix, "Score Function Calculation").

    The listing's product over an n x (n + 1) complex matrix, with a batch dimension. Its probability underflows, or is
    rounding noise, as soon as sum(theta) is far from k: then the result is -inf or NaN, and so is the gradient.

    Shapes:
        `(B, n)` -> `(B)`.
    """
    theta = torch.sigmoid(logits)
    n = theta.shape[-1]
    angle = torch.arange(n + 1, dtype=theta.dtype, device=theta.device)[:, None] * (2 * math.pi / (n + 1))
    turn = torch.polar(torch.ones_like(angle), angle)
    product = torch.prod(theta[:, None, :] * turn + (1 - theta[:, None, :]), dim=-1)
    probability = torch.fft.fft(product).real[:, k] / (n + 1)
    return probability.log() + torch.nn.functional.softplus(logits).sum(-1)


def recursion_log_normalizer(logits: Tensor, k: int) -> Tensor:
    """Log elementary symmetric polynomial by the textbook recursion in log space, one vectorised step an item.

    Shapes:
        `(B, n)` -> `(B)`.
    """
    row = torch.full((len(logits), k + 1), -1e30, dtype=logits.dtype, device=logits.device)
    row[:, 0] = 0
    for item in logits.unbind(-1):
        row = torch.cat([row[:, :1], torch.logaddexp(row[:, 1:], row[:, :-1] + item[:, None])], dim=-1)
    return row[:, k]


def gumbel_top_k(logits: Tensor, k: int, num_samples: int) -> Tensor:
    """k-hot Gumbel top-k samples: what most code draws, and not a sample of the k-subset distribution.

    Shapes:
        `(n)` -> `(num_samples, n)`.
    """
    noise = torch.empty((num_samples, *logits.shape), dtype=logits.dtype, device=logits.device).exponential_().log()
    return torch.zeros_like(noise).scatter_(-1, (logits - noise).topk(k, sorted=False).indices, 1.0)
