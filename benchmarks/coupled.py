"""Whether coupled subsets (ARMS, DisARM) estimate the gradient of E f(z) better than independent ones, without a bias.

Usage: python benchmarks/coupled.py > benchmarks/results/coupled-cpu.md

The 252 subsets of 5 of 10 items and all pairs of them are enumerated, so that the joint probabilities of a coupling are
a table, and biases exact. Variances of sets are simulated, those of pairs exact.
"""

import torch
from candidates import K, N, loo_variance, losses
from timing import machine
from torch import Tensor

from ksubset import KSubset

SCALES, BUDGETS, SEEDS, ROWS = (0.0, 1.0, 3.0, 6.0), (2, 4, 8), 6, 20_000
LEGEND = f"""
Two samples are antithetic if the items are decided one after the other, by a uniform number for the one and its
complement for the other; each by itself is an exact sample.

- within the pair: the difference of their losses times that of the subsets, the leave-one-out of two, as DisARM and
  ARMS have it for Bernoulli variables, where a factor for each variable takes out the bias. Here: the relative bias
  that the best common factor leaves, and that without a factor; mean over problems and seeds.
- other pairs: S/2 antithetic pairs, each loss compared with the mean of the other pairs; unbiased.
- distance, pairs: S/2 independent pairs, drawn with a probability proportional to the product of those of the subsets
  and the number d of items that the one has and the other lacks; the leave-one-out of two times E[d] / d. Unbiased, as
  E[d] is known, the sum of the variances of the items. Exact samples: of an item, one subset with it and one without.
- distance, sets: the same for S subsets and the sum of squares around their mean; unbiased.

Variances relative to that of LeaveOneOut with S samples: geometric mean (worst) of 3 problems and {SEEDS} seeds;
n = {N}, k = {K}."""


def inclusion(logits: Tensor) -> Tensor:
    """P(item i is in | c places are left for the items from i on), `(n, K + 1)`; 0 where it cannot be."""
    weight = logits.exp()
    sums = [torch.eye(1, K + 1).squeeze(0)]  # elementary symmetric polynomials of the items from i on
    for w in weight.flip(0):
        sums.append(sums[-1] + w * torch.nn.functional.pad(sums[-1][:-1], (1, 0)))
    after, upto = torch.stack(sums[:-1][::-1]), torch.stack(sums[1:][::-1])
    taken = weight[:, None] * torch.nn.functional.pad(after[:, :-1], (1, 0))
    return torch.where(upto > 0, taken / upto.clamp(min=1e-300), 0.0)


def antithetic(logits: Tensor, x: Tensor) -> Tensor:
    """The joint probabilities of two antithetic subsets, `(252, 252)`."""
    chance = inclusion(logits)
    left = (K - x.cumsum(1) + x).long()
    joint = torch.ones(len(x), len(x))
    for i in range(N):
        one = chance[i, left[:, i]]
        a, b = one[:, None], one[None]
        both = (a + b - 1).clamp(min=0)
        first, second = x[:, None, i], x[None, :, i]
        inside = torch.where(second == 1, both, a - both)
        joint = joint * torch.where(first == 1, inside, torch.where(second == 1, b - both, 1 - a - b + both))
    return joint.clamp(min=0)  # of rounding


def total_variance(estimates: Tensor) -> Tensor:
    """`(R, C, n)` -> `(C)`."""
    return estimates.var(0).sum(-1)


def ratios(scale: float, seed: int) -> tuple[dict[tuple[str, int], Tensor], Tensor]:
    """Variances over that of LeaveOneOut by candidate and number of samples, `(C)` each, and the biases, `(2, C)`."""
    torch.manual_seed(seed)
    dist = KSubset(K, scale * torch.randn(N))
    x = dist.enumerate_support()
    f, p = losses(x), dist.log_prob(x).exp()
    exact = (p[:, None] * (f - p @ f)).mT @ x
    centred = x - p @ x
    joint = antithetic(dist.logits, x)
    torch.testing.assert_close(joint.sum(1), p)

    # Half of the sum over pairs of q (f - f') (x - x').
    found = (p[:, None] * f).mT @ x - torch.einsum("ij,ic,jn->cn", joint, f, x)
    factor = (found * exact).sum(-1, keepdim=True) / found.square().sum(-1, keepdim=True)
    norm = exact.norm(dim=-1)
    bias = torch.stack([(factor * found - exact).norm(dim=-1), (found - exact).norm(dim=-1)]) / norm

    expected = dist.variance.sum()
    # The distance cancels: half of E (f - f')^2 d, times E d / d.
    of_pair = expected * (p @ (f - p @ f).square()) - exact.square().sum(-1)

    result = {}
    for budget in BUDGETS:
        base = loo_variance(p, f, x, budget)
        result["distance, pairs", budget] = of_pair / (budget / 2) / base
        drawn = p.multinomial(ROWS * budget, replacement=True).reshape(ROWS, budget)
        fs, xs = f[drawn], x[drawn]
        estimates = (fs - fs.mean(1, keepdim=True)).mT @ xs / (budget - 1)
        spread = (xs - xs.mean(1, keepdim=True)).square().sum((1, 2)) / (budget - 1)
        # The second moment under the other law, from samples of this one.
        weight = torch.where(spread > 0, expected / spread.clamp(min=1e-9), 0.0)
        second = (weight[:, None] * estimates.square().sum(-1)).mean(0)
        result["distance, sets", budget] = (second - exact.square().sum(-1)) / base
        if budget > 2:
            index = joint.flatten().multinomial(ROWS * budget // 2, replacement=True).reshape(ROWS, -1)
            pair = torch.stack([index // len(x), index % len(x)], -1)
            fs, xs = f[pair], centred[pair]
            means = fs.mean(2)
            others = (means.sum(1, keepdim=True) - means) / (budget // 2 - 1)
            advantage = (fs - others[:, :, None]).flatten(1, 2)
            result["other pairs", budget] = total_variance(advantage.mT @ xs.flatten(1, 2) / budget) / base
    return result, bias


def at_training_size() -> None:
    """How much the distance varies among 30 of 784 pixels."""
    print(
        "\nIf the losses differ as much as the subsets do, distance leaves E[d]^2 / E[d^2] of the variance of pairs:\n"
    )
    print("| n, k | logits | expected d | left |\n| --- | --- | --- | --- |")
    for scale in (0.0, 1.0, 3.0, 6.0, 12.0):
        torch.manual_seed(0)
        pair = KSubset(30, scale * torch.randn(784)).sample((2, ROWS))
        distance = 30 - (pair[0] * pair[1]).sum(-1)
        left = distance.mean() ** 2 / distance.square().mean()
        print(f"| 784, 30 | {scale:g} times standard normal | {distance.mean():.3g} | {left:.3g} |")


def main() -> None:
    torch.set_num_threads(1)
    print(f"{machine()}; `python benchmarks/coupled.py`\n{LEGEND}\n")
    columns = ["other pairs", "distance, pairs", "distance, sets"]
    head = ["scale", "S", "within the pair: bias, factored (plain)", *columns]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for scale in SCALES:
        found = [ratios(scale, seed) for seed in range(SEEDS)]
        bias = torch.stack([bias for _, bias in found])
        for budget in BUDGETS:
            first = "{:.2g} ({:.2g})".format(*bias.mean((0, 2)).tolist()) if budget == 2 else ""
            cells = []
            for name in columns:
                values = torch.cat([one[name, budget] for one, _ in found if (name, budget) in one] or [torch.empty(0)])
                cells.append(f"{values.log().mean().exp():.2g} ({values.max():.2g})" if len(values) else "-")
            print(f"| {scale:g} | {budget} | {first} | {' | '.join(cells)} |")
    at_training_size()


if __name__ == "__main__":
    main()
