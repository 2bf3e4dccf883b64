"""The paper's figure "Scores"."""

from typing import Any

import torch
from matplotlib.figure import Figure

from ksubset import KSubset
from ksubset._support import palette

__all__ = ["draw"]


def draw(n: int = 10, k: int = 4) -> Figure:
    r"""Parameters :math:`\theta` and a subset's score :math:`\nabla_\theta \log p_{\theta,k}(z)`: included items have a
    positive score, all others a negative one.
    """
    generator = torch.Generator().manual_seed(4)
    theta = (0.1 + 0.8 * torch.rand(n, generator=generator, dtype=torch.float64)).requires_grad_()
    z = torch.zeros(n, dtype=torch.float64)
    z[torch.randperm(n, generator=generator)[:k]] = 1
    (score,) = torch.autograd.grad(KSubset(k, probs=theta).log_prob(z), theta)
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    items = range(1, n + 1)
    colours = [palette.VERMILLION if taken else palette.BLUE for taken in z.tolist()]
    left.bar(items, theta.tolist(), color=palette.BLUE)
    left.set_ylabel(r"$\theta_i$")
    left.set_ylim(0, 1)
    bars: Any = right.bar(items, score.tolist(), color=colours)
    right.axhline(0, color="black", linewidth=0.8)
    right.set_ylabel(r"$\partial \log p_{\theta,k}(z) \,/\, \partial \theta_i$")
    taken = z.tolist().index(1.0)
    right.legend([bars[taken], bars[z.tolist().index(0.0)]], ["included", "not included"], fontsize="small")
    for panel in (left, right):
        panel.set_xlabel("item $i$")
        panel.set_xticks(list(items))
    figure.suptitle(f"Scores for n = {n}, k = {k}", fontsize="small")
    return figure
