"""Top-k by sorting, by Gumbel noise, and relaxed to a differentiable vector."""

import math
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from ksubset.numerics.checks import all_known
from ksubset.numerics.tilt import kth_largest, largest_size, sizes

__all__ = ["gumbel_keys", "perturbed", "relaxed_top_k", "remaining_top_k", "top_k"]

# Beyond this no noise that a generator can draw makes a difference.
_FAR = 2.0**16
# Logits up to this size leave a noise of single precision 2^-17 and finer.
_LARGE = 64.0


def top_k(scores: Tensor, k: int | Tensor) -> Tensor:
    """The k-hot vector of the k largest scores; of equal scores the lowest index wins, on every device.

    Arguments:
        scores: Numbers, of which none is NaN.
        k: How many, an integer in 0..n, which is not checked, or an integer tensor.

    Raises:
        RuntimeError: k does not broadcast over the batch.

    Shapes:
        scores `(*B, n)`, k `()` or `(*B)` -> `(*B, n)`, of the scores' dtype.

    Example:
        >>> top_k(torch.tensor([[3.0, 1.0, 3.0, 3.0], [0.0, 2.0, 1.0, 4.0]]), torch.tensor([2, 1]))
        tensor([[1., 0., 1., 0.],
                [0., 0., 0., 1.]])
    """
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    first = torch.arange(scores.shape[-1], device=scores.device) < sizes(k, scores)[..., None]
    return torch.zeros_like(scores).scatter(-1, order, first.expand(order.shape).to(scores.dtype))


def perturbed(logits: Tensor, noise: Tensor, k: int | Tensor) -> Tensor:
    """Logits plus noise, whose k largest are those of the sum, but which does not round the noise away.

    Where the k-th largest logit is large it becomes 0, so that no common size takes up the digits of the noise; what is
    so far from it that no noise makes a difference is certain to be chosen, +inf, or not, -inf.

    Shapes:
        logits `(*B, n)`, noise `(*S, *B, n)`, of float32 at least, k `()` or `(*B)` -> `(*S, *B, n)`, of its dtype.
    """
    wide = logits.to(noise.dtype)
    kth = kth_largest(wide.detach(), k)
    centred = wide - torch.where(kth.abs() > _LARGE, kth, 0.0)
    centred = torch.where(centred.abs() > _FAR, centred.sign() * math.inf, centred)
    return centred + noise


def gumbel_keys(logits: Tensor, k: int | Tensor, num_samples: int, generator: Generator | None = None) -> Tensor:
    """Logits plus standard Gumbel noise, as `perturbed` adds them.

    The k largest keys are a draw without replacement in sequence, which is NOT the k-subset distribution of the logits.

    Shapes:
        logits `(*B, n)`, k `()` or `(*B)` -> `(num_samples, *B, n)`, in float32 at least.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    shape = (num_samples, *logits.shape)
    # Like the logits, so that vmap takes it for one of its tensors.
    exponential = torch.empty_like(logits.detach().expand(shape), dtype=dtype, memory_format=torch.contiguous_format)
    exponential.exponential_(generator=generator)
    return perturbed(logits, -torch.log(exponential.clamp(min=torch.finfo(dtype).tiny)), k)


def relaxed_top_k(keys: Tensor, k: int | Tensor, temperature: float) -> Tensor:
    """Continuous relaxation of top-k: the sum of k successive softmaxes, each of which lowers what it has chosen.

    `a^1 = keys`, `p^j = softmax(a^j / temperature)`, `a^{j+1} = a^j + log(1 - p^j)`, result `sum_j p^j`. It sums to k,
    and tends to the hard top-k as the temperature falls; an entry can exceed 1 at high temperatures. Keys of +inf are
    chosen with certainty, keys of -inf never.

    Xie and Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations, https://arxiv.org/abs/1901.10517.

    Shapes:
        keys `(*B, n)`, of float32 at least, k `()` or `(*B)` -> `(*B, n)`.
    """
    certain = keys.isposinf()
    open_places = sizes(k, keys)[..., None] - certain.sum(-1, keepdim=True)
    # A finite floor instead of -inf: a row without candidates must have a softmax, though none of it is used.
    finite = torch.where(keys.isinf(), torch.finfo(keys.dtype).min / 16, keys)
    places = largest_size(k, keys.shape[-1])
    # An empty subset has a gradient too: zero.
    chosen = _SuccessiveSoftmax.apply(finite, open_places, places, temperature)[0] if places else 0.0 * finite
    return certain.to(keys.dtype) + chosen


class _SuccessiveSoftmax(torch.autograd.Function):
    """Left to autograd, each of the k softmaxes would keep four tensors, and pass over memory three times as often."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keys: Tensor, open_places: Tensor, places: int, temperature: float) -> tuple[Tensor, ...]:
        filled = all_known(open_places >= places)
        floor = torch.finfo(keys.dtype).min / 16
        shares = []
        chosen = torch.zeros_like(keys)
        for place in range(places):
            # Over a small temperature only differences to the largest key that is left are finite, and exact.
            share = torch.softmax((keys - keys.amax(-1, keepdim=True)).div_(temperature), -1)
            shares.append(share)
            chosen += share if filled else torch.where(place < open_places, share, 0.0)
            # A share that rounds to 1 takes its item off the list; otherwise large keys would be chosen twice.
            keys = torch.log1p(-share).add_(keys).clamp(min=floor)
        return chosen, *shares

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, open_places, _, ctx.temperature = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(open_places, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
        open_places, *shares = ctx.saved_tensors
        filled = all_known(open_places >= len(shares))
        total = torch.zeros_like(grad)  # the temperature times the gradient with respect to the keys of the next place
        for place in reversed(range(len(shares))):
            share = shares[place]
            # Items off the list pass nothing on: their rest is 0, and 0 / tiny is 0.
            total *= share < 1
            inner = total / (share - 1).clamp(max=-torch.finfo(grad.dtype).tiny)
            inner = inner.div_(ctx.temperature).add_(grad if filled else torch.where(place < open_places, grad, 0.0))
            inner -= (share * inner).sum(-1, keepdim=True)
            total += inner.mul_(share)
        return total / ctx.temperature, None, None, None


def remaining_top_k(keys: Tensor, k: int | Tensor, temperature: float) -> Tensor:
    """The sum of k softmaxes, the j-th of which is over all keys but the j - 1 largest.

    It sums to k, and tends to the hard top-k as the temperature falls. Keys of +inf are chosen with certainty, keys of
    -inf never. All but the k largest keys have the same part in each softmax, so that it takes O(n + k^2).

    Huijben, Veeling and van Sloun (2020), Deep Probabilistic Subsampling for Task-Adaptive Compressed Sensing,
    https://openreview.net/forum?id=SJeq9JBFvH.

    Shapes:
        keys `(*B, n)`, of float32 at least, k `()` or `(*B)` -> `(*B, n)`.
    """
    floor = torch.finfo(keys.dtype).min / 16
    certain = keys.isposinf()
    open_places = sizes(k, keys)[..., None] - certain.sum(-1, keepdim=True)
    keys = torch.where(keys.isinf(), floor, keys)
    best, items = keys.topk(largest_size(k, keys.shape[-1]), dim=-1)
    rest = keys.scatter(-1, items, floor)
    origin = rest.detach().amax(-1, keepdim=True)
    # Over a small temperature only differences to the largest key stay finite.
    scaled = (rest - origin) / temperature
    together = origin + temperature * scaled.logsumexp(-1, keepdim=True)
    left = torch.cat([best, together], -1)
    place = torch.arange(left.shape[-1], device=keys.device)
    rows = torch.where(place >= place[:-1, None], left[..., None, :], floor)
    shares = torch.softmax((rows - rows.detach().amax(-1, keepdim=True)) / temperature, -1)
    shares = torch.where(place[:-1, None] < open_places[..., None], shares, 0.0).sum(-2)
    chosen = torch.softmax(scaled, -1) * shares[..., -1:]
    return certain + chosen.scatter_add(-1, items, shares[..., :-1])
