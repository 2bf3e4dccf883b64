"""The Kullback-Leibler divergence, for `torch.distributions.kl_divergence`."""

import math

import torch
from torch import Tensor
from torch.distributions import register_kl

from ksubset.distributions.conditional import ConditionalBernoulli
from ksubset.numerics.moments import entropy, log_density
from ksubset.numerics.tilt import possible_sizes

__all__: list[str] = []


@register_kl(ConditionalBernoulli, ConditionalBernoulli)  # type: ignore[untyped-decorator]
def _kl(p: ConditionalBernoulli, q: ConditionalBernoulli) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence needs the same number of items, got {p.event_shape[0]} and {q.event_shape[0]}")
    same = len(p._parts) == len(q._parts) and all(
        a.items is b.items or (a.items is not None and b.items is not None and torch.equal(a.items, b.items))
        for a, b in zip(p._parts, q._parts, strict=False)
    )
    if not same:
        raise NotImplementedError(
            "kl_divergence needs the same groups of items in both distributions: whether all subsets of one grouping "
            "occur in another, without which it is infinite, is not decided"
        )
    terms = []
    rows = p._logits_of_parts()
    for m, other, (logits, a), b in zip(p._root._moments(), q._root._moments(), rows, q._parts, strict=True):
        # -H(p) - E_p[log q], exact because log q is linear in z; where p has sizes that q has not it is infinite.
        cross = log_density(m.deviation + ((m.tilted > 0).double() - (other.tilted > 0).double()), other)
        divergence = -entropy(m) - cross
        divergence = divergence - divergence.detach().clamp(max=0)
        least, most = possible_sizes(logits, a.low, a.high)
        low, high = (torch.as_tensor(size, device=cross.device) for size in (b.low, b.high))
        covered = (least >= low) & (most <= high)
        terms.append(torch.where(covered, divergence, math.inf))
    divergence = p._sum(terms).to(p.logits.dtype)
    return divergence.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))
