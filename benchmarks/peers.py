"""The algorithms that ksubset is compared with, written afresh and tuned as far as their idea goes."""

import math

import torch
from torch import Tensor

__all__ = [
    "dft_log_normalizer",
    "gumbel_top_k",
    "product_tree_log_normalizer",
    "recursion_log_normalizer",
]


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


def product_tree_log_normalizer(logits: Tensor, k: int) -> Tensor:
    """Log normaliser from a product tree of the Bernoulli polynomials, multiplied by FFT, cut at degree k.

    O(n log^2 n) with all nodes of a level in one transform; the logits are shifted so that k is likely, without which
    the products would underflow.

    Shapes:
        `(B, n)` -> `(B)`.
    """
    with torch.no_grad():  # bisection for a mean of k, to a tenth of an item
        low, high = -logits.amax(-1, keepdim=True) - 40, -logits.amin(-1, keepdim=True) + 40
        for _ in range(60):
            middle = (low + high) / 2
            small = torch.sigmoid(logits + middle).sum(-1, keepdim=True) < k
            low, high = torch.where(small, middle, low), torch.where(small, high, middle)
    tilted = logits + low
    p = torch.sigmoid(tilted)
    polynomial = torch.stack([1 - p, p], -1)
    while polynomial.shape[-2] > 1:
        if polynomial.shape[-2] % 2:
            one = torch.zeros_like(polynomial[:, :1])
            one[..., 0] = 1
            polynomial = torch.cat([polynomial, one], -2)
        left, right = polynomial[:, 0::2], polynomial[:, 1::2]
        degree = 2 * (polynomial.shape[-1] - 1)
        size = 1 << degree.bit_length()
        product = torch.fft.irfft(torch.fft.rfft(left, size) * torch.fft.rfft(right, size), size)
        polynomial = product[..., : min(degree, k) + 1]
    softplus = torch.nn.functional.softplus(tilted, threshold=1e9)
    return polynomial[:, 0, k].log() + softplus.sum(-1) - k * low.squeeze(-1)


def gumbel_top_k(logits: Tensor, k: int, num_samples: int) -> Tensor:
    """k-hot Gumbel top-k samples: what most code draws, and not a sample of the k-subset distribution.

    Shapes:
        `(*B, n)` -> `(num_samples, *B, n)`.
    """
    # On the CPU `exponential_` takes several times as long as uniform numbers and a logarithm.
    noise = torch.rand((num_samples, *logits.shape), dtype=logits.dtype, device=logits.device).log_().neg_().log_()
    return torch.zeros_like(noise).scatter_(-1, (logits - noise).topk(k, sorted=False).indices, 1.0)
