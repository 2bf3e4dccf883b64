"""Slow and obvious twins of the fast paths, and the strictness of the statistical tests."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Chance that a statistical test, all its comparisons together, fails although nothing is wrong. Seeds are fixed, so a
# test that passed once goes on passing; the rate says what a failure after a change means.
FALSE_ALARM = 1e-6


def z_limit(comparisons: int) -> float:
    """Largest |z| that `comparisons` standard normal variables exceed with probability FALSE_ALARM (Bonferroni)."""
    return -float(torch.special.ndtri(torch.tensor(FALSE_ALARM / (2 * comparisons), dtype=torch.float64)))


def subsets(n: int, k: int) -> Tensor:
    """All k-hot vectors, `(C(n, k), n)`, by filtering all binary ones."""
    binary = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * n).reshape(-1, n)
    return binary[binary.sum(-1) == k]


def probabilities(logits: Tensor, k: int) -> Tensor:
    """Probability of each of `subsets(n, k)`, differentiable: `(*B, n)` -> `(*B, C(n, k))`."""
    return torch.softmax(logits.double() @ subsets(logits.shape[-1], k).T, -1)


def gradient(f: Callable[[Tensor], Tensor], logits: Tensor, k: int) -> Tensor:
    """Gradient of `E[f(z)]` with respect to the logits `(n)`, by enumeration."""
    logits = logits.detach().double().requires_grad_()
    expected = (probabilities(logits, k) * f(subsets(logits.shape[-1], k)).detach()).sum()
    (grad,) = torch.autograd.grad(expected, logits)
    return grad


def log_esp(logits: Tensor, k: int) -> Tensor:
    """Log elementary symmetric polynomials of orders 0..k of exp(logits), by the textbook recursion in float64.

    The rows grow with the items, because logaddexp(-inf, -inf) has a NaN gradient: `(*B, n)` -> `(*B, k + 1)`.
    """
    logits = logits.double()
    rows = [torch.zeros_like(logits[..., 0])]
    for item in logits.unbind(-1):
        taken = [row + item for row in rows]
        rows = rows[:1] + [torch.logaddexp(a, b) for a, b in zip(rows[1:], taken, strict=False)] + taken[-1:]
        rows = rows[: k + 1]
    return torch.stack(rows, dim=-1)


def recursion(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Log normaliser and inclusion probabilities by the float64 recursion for sums of Bernoulli draws.

    P(sum of the first i = j) and the same of the last ones, item by item, all terms positive: relative accuracy 1e-14.
    The logits are shifted to the k-th largest, which makes the sum k neither certain nor rare.

    Shapes: `(*B, n)` -> `(*B)`, `(*B, n)`; finite logits, 1 <= k <= n.
    """
    logits = logits.double()
    origin = logits.sort(-1, descending=True).values[..., k - 1, None]
    p, q = torch.sigmoid(logits - origin), torch.sigmoid(origin - logits)

    def sweep(order: range) -> list[Tensor]:
        rows = [torch.nn.functional.one_hot(torch.tensor(0), k + 1).double().expand(*logits.shape[:-1], k + 1)]
        for i in order:
            shifted = torch.nn.functional.pad(rows[-1][..., :-1], (1, 0))
            rows.append(rows[-1] * q[..., i, None] + shifted * p[..., i, None])
        return rows

    n = logits.shape[-1]
    before, after = sweep(range(n)), sweep(range(n - 1, -1, -1))[::-1]
    probability = before[-1][..., k]
    others = [(before[i][..., :k] * after[i + 1][..., :k].flip(-1)).sum(-1) for i in range(n)]
    mean = p * torch.stack(others, -1) / probability[..., None]
    softplus = torch.where(logits > origin, logits - origin, 0.0) + torch.log1p(torch.exp(-(logits - origin).abs()))
    return probability.log() + softplus.sum(-1) + k * origin.squeeze(-1), mean


def gumbel_top_k(logits: Tensor, k: int, num_samples: int) -> Tensor:
    """Indices of the k largest of logits plus Gumbel noise, `(n)` -> `(num_samples, k)`: another distribution."""
    noise = -torch.log(torch.empty(num_samples, len(logits)).exponential_())
    return (logits + noise).topk(k).indices


def chi_square_p_value(sample: Tensor, logits: Tensor, k: int) -> float:
    """P-value of the observed frequencies of all subsets, `(S, n)` k-hot draws."""
    from scipy.stats import chi2

    n = logits.shape[-1]
    powers = 2 ** torch.arange(n)
    codes = subsets(n, k).long() @ powers
    counts = torch.bincount(sample.cpu().long() @ powers, minlength=2**n)[codes]
    assert counts.sum() == len(sample)
    expected = probabilities(logits, k) * len(sample)
    assert expected.min() > 5
    return float(chi2.sf(float(((counts - expected) ** 2 / expected).sum()), len(codes) - 1))


def binomial_p_value(counts: Tensor, probability: Tensor, trials: int) -> float:
    """Smallest two-sided binomial p-value of many counts, times their number (Bonferroni)."""
    from scipy.stats import binom

    p, c = probability.double().cpu().numpy(), counts.cpu().numpy()
    tail = 2 * min(float(binom.cdf(c, trials, p).min()), float(binom.sf(c - 1, trials, p).min()))
    return min(1.0, tail * math.prod(counts.shape))
