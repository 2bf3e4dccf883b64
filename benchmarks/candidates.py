"""What lowers the error of the gradient of E f(z) at equal evaluations of f: candidates beside LeaveOneOut and Hybrid.

Usage: python benchmarks/candidates.py > benchmarks/results/candidates-cpu.md

The 252 subsets of 5 of 10 items are enumerated, so that f, the probabilities and the exact gradient are tables. Where
the variance has a closed form it is computed, elsewhere simulated. An evaluation that a candidate repeats is free.
"""

import itertools
import math
from collections.abc import Callable

import torch
from timing import machine
from torch import Tensor

from ksubset import KSubset
from ksubset.estimators.hybrid import ridge

N, K = 10, 5
SCALES, BUDGETS, SEEDS, ROWS = (0.0, 1.0, 3.0, 6.0), (2, 4, 8, 16), 6, 8000
PROBLEMS = ("quadratic", "tanh", "threshold")
LEGEND = """
- as it is: LeaveOneOut with S draws. Repeats free: with as many draws as cost S distinct evaluations in expectation.
- unordered set: S distinct subsets, drawn without replacement, with the built-in baseline.
- mode + rest, S/2 best + rest: these exactly, the rest sampled, repeats free.
- linear, others: ridge regression on the other samples of the call, with the exact covariance.
- Stein: two control variates from a swap kernel; surrogate of items and pairs, fitted to the other samples of the call.
- swap pairs: differences of f between S/2 subsets and a random swap of each; for uniform logits.
- replayed pairs: surrogate of items and pairs, fitted to past evaluations; resampled: its covariance with the subset is
  estimated from 32 S more subsets, which need no f, and repeats are free.
"""
# Past evaluations for what is fitted to them; draws per evaluation, at most; draws of a surrogate per evaluation.
PAST, MOST_DRAWS, RESAMPLES = 512, 100, 32
# Of regressions on the other samples: squared length of a centred subset, strength of the ridge.
NORM, RIDGE = K - K**2 / N, 0.1
torch.set_default_dtype(torch.float64)


def losses(x: Tensor) -> Tensor:
    """The three problems, `(..., n) -> (..., 3)`, with fresh random parameters."""
    n = x.shape[-1]
    a, c = torch.randn(20, n) / n**0.5, torch.randn(20)
    inner, outer, shift = torch.randn(32, n), torch.randn(32) / 32**0.5, torch.randn(32)
    units = (x - x.mean()) @ inner.mT + shift
    quadratic = (x @ a.mT - c).square().sum(-1)
    return torch.stack([quadratic, units.tanh() @ outer, (units > 0).to(x) @ outer], -1)


def pairs(x: Tensor) -> Tensor:
    """Features of the quadratic surrogate: items, and pairs of items."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], 1)
    return torch.cat([x, x[..., i] * x[..., j]], -1)


def moments(p: Tensor, f: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centred f `(N, C)` and x `(N, n)`, and their covariance `(C, n)`, under the weights p `(N)`."""
    f, x = f - p @ f, x - p @ x
    return f, x, (p[:, None] * f).mT @ x


def loo_variance(p: Tensor, f: Tensor, x: Tensor, draws: int) -> Tensor:
    """Total variance of the sample covariance of f and x, which LeaveOneOut is: `(C)`, exact."""
    f, x, covariance = moments(p, f, x)
    fourth = (p * x.square().sum(-1)) @ f.square()
    product = (p @ f.square()) * (p @ x.square()).sum()
    return (fourth + (product - (draws - 2) * covariance.square().sum(-1)) / (draws - 1)) / draws


def at_cost(p: Tensor, budget: int, variance: Callable[[int], Tensor]) -> tuple[Tensor, float]:
    """Variance with as many draws as cost `budget` distinct evaluations in expectation, and how many they are.

    The number of draws is fixed in advance, or one of two neighbours at random: no stopping rule, no bias.
    """

    def distinct(draws: int) -> float:
        return float(-torch.expm1(draws * torch.log1p(-p.clamp(max=1 - 1e-16))).sum())

    low, high = budget, MOST_DRAWS * budget
    if distinct(high) <= budget:
        return variance(high), high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if distinct(middle) <= budget else (low, middle)
    share = (budget - distinct(low)) / (distinct(low + 1) - distinct(low))
    return (1 - share) * variance(low) + share * variance(low + 1), low + share


def sample_covariance(f: Tensor, x: Tensor) -> Tensor:
    """`(R, S, C)`, `(R, S, n)` -> `(R, C, n)`."""
    return (f - f.mean(1, keepdim=True)).mT @ x / (f.shape[1] - 1)


def unordered_set(p: Tensor, f: Tensor, x: Tensor, drawn: Tensor) -> Tensor:
    """Kool, van Hoof and Welling (2020): distinct subsets `(R, S)`, drawn without replacement; built-in baseline.

    A set S is drawn if the clocks of its members, of rates p, all ring before those of the rest, of rate q together:
    probability `int q exp(-qt) prod_s (1 - exp(-p_s t)) dt`. Without members: the same without their factors.
    """
    rates = p[drawn]
    rest = p.repeat(len(drawn), 1).scatter(1, drawn, 0.0).sum(-1, keepdim=True)
    log_time = torch.arange(-34, 4, 0.2)  # in units of 1/q; trapezoids converge exponentially here
    rings = -torch.expm1(-rates[..., None] * (log_time.exp() / rest)[:, None])
    log_weight = log_time - log_time.exp() + rings.log().sum(1)
    weight = (log_weight - log_weight.amax(-1, keepdim=True)).exp()
    without = (weight[:, None] / rings).sum(-1)
    without_two = (weight[:, None] / rings) @ (1 / rings).mT
    share = rates * without / weight.sum(-1, keepdim=True)
    ratio = without_two / without[..., None]
    ratio.diagonal(dim1=1, dim2=2).fill_(1.0)
    advantage = f[drawn] - (ratio * rates[:, None]) @ f[drawn]
    return (share[..., None] * advantage).mT @ (x - p @ x)[drawn]


def sum_and_sample(p: Tensor, f: Tensor, x: Tensor, budget: int, top: int) -> tuple[Tensor, Tensor]:
    """The `top` likeliest subsets exactly, the rest sampled: variance `(C)` at equal cost, and estimates.

    The rest's mean of x follows from the others', so only its mean of f and its covariance are estimated.
    """
    best = p.topk(top).indices
    inside = torch.zeros_like(p).scatter(0, best, 1.0)
    mass = float(p @ (1 - inside))
    rest, score = p * (1 - inside) / mass, x - p @ x
    offset = mass * (rest @ score)
    exact = (p * inside * f.mT) @ score
    count = budget - top
    index = rest.multinomial(ROWS * count, replacement=True).reshape(ROWS, count)
    centred, x_centred, _ = moments(rest, f, x)
    mixed = (rest[:, None] * centred.square()).mT @ x_centred

    def variance(draws: int) -> Tensor:
        of_mean = offset.square().sum() * (rest @ centred.square()) + 2 * mass * mixed @ offset
        return of_mean / draws + mass**2 * loo_variance(rest, f, x, draws)

    estimates = exact + f[index].mean(1)[..., None] * offset + mass * sample_covariance(f[index], x[index])
    return at_cost(rest, count, variance)[0], estimates


class Swaps:
    """The kernel that proposes a uniform swap and accepts by Barker's rule; it leaves the distribution as it is."""

    def __init__(self, x: Tensor, logits: Tensor) -> None:
        to = x @ x.mT == K - 1
        self.neighbours = to.nonzero()[:, 1].reshape(len(x), -1)
        energy = x @ logits
        self.rates = (energy[self.neighbours] - energy[:, None]).sigmoid() / self.neighbours.shape[1]

    def drift(self, at: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """(Kh - h)(z) and (K(h x) - h x)(z), of mean zero: at `(R, S)`, h `(R, S, 1 + 25, C)`, first at z itself."""
        rates, next_x = self.rates[at], x[self.neighbours[at]]
        step = (rates[..., None] * (h[:, :, 1:] - h[:, :, :1])).sum(2)
        moved = (rates[..., None] * h[:, :, 1:]).mT @ next_x
        stayed = (rates.sum(-1)[..., None] * h[:, :, 0])[..., None] * x[at][:, :, None]
        return step, moved - stayed

    def reach(self, at: Tensor) -> Tensor:
        return torch.cat([at[..., None], self.neighbours[at]], -1)


def stein(swaps: Swaps, p: Tensor, f: Tensor, x: Tensor, size: int, h: Tensor | None = None) -> Tensor:
    """Shi, Zhou, Hwang, Titsias and Mackey (2022): LeaveOneOut with two control variates of zero mean.

    The surrogate h is given as a table `(N, C)`, or a kernel ridge regression on the other samples of the call.
    """
    index = p.multinomial(ROWS * size, replacement=True).reshape(ROWS, size)
    score, loss = x - p @ x, f[index]
    reach = swaps.reach(index)
    if h is not None:
        surrogate = (h - p @ h)[reach]
    else:
        kernel = ((x @ x.mT - K**2 / N) / NORM + 1).square() / 4  # items and pairs
        near, target = others(index), others(loss)
        matrix = kernel[near[..., :, None], near[..., None, :]] + RIDGE * torch.eye(size - 1)
        weights = torch.linalg.solve(matrix, target - target.mean(2, keepdim=True))
        surrogate = kernel[reach[..., :, None], near[..., None, :]] @ weights
    step, vector = swaps.drift(index, surrogate, score)
    inner = (step - step.sum(1, keepdim=True)).mT @ score[index] / (size * (size - 1))
    return controlled(sample_covariance(loss, score[index]), torch.stack([inner, vector.mean(1)], -1))


def linear_others(p: Tensor, f: Tensor, x: Tensor, size: int) -> Tensor:
    """Hybrid without a past: the slope is a ridge regression on the other samples of the call."""
    index = p.multinomial(ROWS * size, replacement=True).reshape(ROWS, size)
    score, loss = x - p @ x, f[index]
    near = others(x[index])
    target, near = (v - v.mean(2, keepdim=True) for v in (others(loss), near))
    matrix = near @ near.mT / NORM + RIDGE * torch.eye(size - 1)
    slope = torch.linalg.solve(matrix, target).mT @ near / NORM
    linear = torch.einsum("rscn,rsn->rsc", slope, x[index] - others(x[index]).mean(2))
    covariance = (p[:, None] * score).mT @ score
    control = slope.mean(1) @ covariance - linear.mT @ score[index] / size
    return controlled(sample_covariance(loss, score[index]), control[..., None])


def others(values: Tensor) -> Tensor:
    """`(R, S, ...)` -> `(R, S, S - 1, ...)`: for each sample all but itself."""
    size = values.shape[1]
    return values[:, [[j for j in range(size) if j != s] for s in range(size)]]


def controlled(base: Tensor, terms: Tensor) -> Tensor:
    """`(R, C, n)` with control variates `(R, C, n, q)`: their coefficients are fitted on the other half of the rows.

    On thousands of them: better than a user could know the coefficients.
    """
    result, half = torch.empty_like(base), ROWS // 2
    for here, there in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        t, error = terms[there], base[there] - base[there].mean(0)
        gram = torch.einsum("rcni,rcnj->cij", t, t)
        floor = 1e-12 * gram.diagonal(dim1=1, dim2=2).sum(-1) + 1e-300
        gram = gram + floor[:, None, None] * torch.eye(gram.shape[-1])
        best = torch.linalg.solve(gram, -torch.einsum("rcni,rcn->ci", t, error))
        result[here] = base[here] + torch.einsum("rcni,ci->rcn", terms[here], best)
    return result


def swap_pairs_variance(p: Tensor, f: Tensor, x: Tensor, swaps: Swaps, size: int) -> Tensor:
    """For uniform logits: Cov(z, f) = k (n - k) / 2n E[(f(z) - f(z')) (z - z')], z' a random swap of z."""
    near = swaps.neighbours
    terms = K * (N - K) / (2 * N) * (f[near] - f[:, None])[..., None] * (x[near] - x[:, None])[..., None, :]
    mean = (p @ terms.mean(1).flatten(1)).unflatten(0, terms.shape[2:])
    torch.testing.assert_close(mean, moments(p, f, x)[2])
    return ((p @ terms.square().sum(-1).mean(1)) - mean.square().sum(-1)) / (size // 2)


def fitted(features: Tensor, f: Tensor, past: Tensor, p: Tensor) -> Tensor:
    """ReplayedSlope's regression on the past draws `(S, B)`, as a table `(N, C)`; items as features give Hybrid's.

    Times Hybrid's scale, what it tends to: the best in [0, 1].
    """
    columns = []
    for loss in f.mT:
        x, y = features[past], loss[past]
        h = features @ ridge((x - x.mean(0)).flatten(0, 1), (y - y.mean(0)).flatten())
        centred = h - p @ h
        columns.append(h * ((p @ (loss * centred)) / (p @ centred.square()).clamp(min=1e-300)).clamp(0, 1))
    return torch.stack(columns, -1)


class Study:
    """Variances by column, scale, problem and budget, one per seed; and how well the simulations agree."""

    def __init__(self) -> None:
        self.variances: dict[tuple[str, float, str, int], list[float]] = {}
        self.deviations: dict[tuple[str, float], float] = {}
        self.errors: dict[tuple[str, float], float] = {}
        self.draws: dict[tuple[float, int], list[float]] = {}
        self.subsets: dict[float, list[float]] = {}

    def simulated(self, name: str, scale: float, estimates: Tensor, exact: Tensor) -> Tensor:
        """The variance of the estimates `(R, C, n)`, after a check of their mean."""
        variance = estimates.var(0)
        z = (estimates.mean(0) - exact).abs() / (variance / len(estimates)).sqrt()
        # Items that change once in thousands of samples say nothing: no normal approximation.
        z = z[variance > 0.01 * variance.sum(-1, keepdim=True)]
        squares = (estimates - exact).square().sum(-1)
        error = squares.std(0) / squares.mean(0) / len(estimates) ** 0.5
        for record, value in ((self.deviations, z.max()), (self.errors, error.max())):
            record[name, scale] = max(record.get((name, scale), 0.0), float(value))
        return squares.mean(0)

    def cell(self, seed: int, scale: float, size: int) -> None:
        """All candidates on the three problems."""
        torch.manual_seed(seed)
        x = torch.tensor([[float(i in c) for i in range(N)] for c in itertools.combinations(range(N), K)])
        f, logits = losses(x), scale * torch.randn(N)
        dist = KSubset(K, logits)
        p = dist.log_prob(x).exp()
        torch.manual_seed(1000 * seed + size)
        past = p.multinomial(PAST, replacement=True).reshape(size, -1)
        linear = fitted(x, f, past, p)
        bent = fitted(pairs(x - p @ x), f - linear, past, p)
        both = torch.cat([f, f - linear], -1)
        exact, swaps, columns = moments(p, both, x)[2], Swaps(x, logits), {}
        index = p.multinomial(ROWS * size, replacement=True).reshape(ROWS, size)
        self.simulated("LeaveOneOut", scale, sample_covariance(both[index], x[index]), exact)

        def add(name: str, variance: Tensor) -> None:
            columns[name], columns[f"{name}, H"] = variance[:3], variance[3:]

        add("as it is", loo_variance(p, both, x, size))
        repeats, draws = at_cost(p, size, lambda s: loo_variance(p, both, x, s))
        add("repeats free", repeats)
        if size == 2:  # few enough sets to add up
            first, second = torch.triu_indices(len(p), len(p), 1)
            chance = p[first] * p[second] * (1 / (1 - p[first]) + 1 / (1 - p[second]))
            estimates = unordered_set(p, both, x, torch.stack([first, second], -1))
            torch.testing.assert_close(torch.einsum("r,rcn->cn", chance, estimates), exact, rtol=1e-9, atol=1e-12)
        drawn = (p.log() - torch.empty(ROWS, len(p)).exponential_().log()).topk(size).indices
        add("unordered set", self.simulated("unordered set", scale, unordered_set(p, both, x, drawn), exact))
        for name, top in (("mode + rest", 1), ("S/2 best + rest", size // 2)) if size > 2 else ():
            variance, estimates = sum_and_sample(p, both, x, size, top)
            self.simulated(name, scale, estimates, exact)
            add(name, variance)
        if size > 2:  # of a single other sample nothing can be learned
            add("linear, others", self.simulated("linear, others", scale, linear_others(p, both, x, size), exact))
            add("Stein", self.simulated("Stein", scale, stein(swaps, p, both, x, size), exact))
        if scale == 0:
            add("swap pairs", swap_pairs_variance(p, both, x, swaps, size))
        replayed = stein(swaps, p, f - linear, x, size, bent)
        columns["Stein, replayed pairs"] = self.simulated("Stein, replayed pairs", scale, replayed, exact[3:])
        left, _ = at_cost(p, size, lambda s: loo_variance(p, f - linear - bent, x, s))
        columns["resampled pairs"] = left + loo_variance(p, bent, x, RESAMPLES * size)
        for name, variance in columns.items():
            for problem, value in zip(PROBLEMS, variance.tolist(), strict=True):
                self.variances.setdefault((name, scale, problem, size), []).append(value)
        self.draws.setdefault((scale, size), []).append(draws)
        self.subsets.setdefault(scale, []).append(float(dist.entropy().exp()))

    def ratio(self, name: str, reference: str, scale: float, problems: tuple[str, ...], size: int) -> str:
        keys = [(scale, problem, size) for problem in problems]
        if (name, *keys[0]) not in self.variances:
            return "-"
        pairs_of_lists = [(self.variances[name, *key], self.variances[reference, *key]) for key in keys]
        return summary([a / b for pair in pairs_of_lists for a, b in zip(*pair, strict=True)])

    def table(self, columns: dict[str, tuple[str, str]], groups: dict[str, tuple[str, ...]]) -> None:
        """Columns of a variance relative to another; rows of a scale, a group of problems, a budget."""
        header("scale", "problem", "S", *columns)
        for scale, (group, problems), size in itertools.product(SCALES, groups.items(), BUDGETS):
            cells = [self.ratio(name, reference, scale, problems, size) for name, reference in columns.values()]
            row(f"{scale:g}", group, str(size), *cells)


def summary(values: list[float]) -> str:
    """Geometric mean, and the worst."""
    mean = math.exp(sum(math.log(v) for v in values) / len(values))
    return f"{mean:.2g} ({max(values):.2g})"


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def header(*cells: str) -> None:
    row(*cells)
    row(*["---"] * len(cells))


def larger(n: int, k: int, size: int = 8, fresh: int = 20_000) -> None:
    """The replayed surrogates where the past is but a small part of the subsets; the moments are those of samples."""
    ratios: dict[tuple[str, int], list[list[float]]] = {}
    total = fresh + 2048
    for seed, count in itertools.product(range(SEEDS), (512, 2048)):
        torch.manual_seed(seed)
        x = KSubset(k, torch.randn(n)).sample((total,))
        f, past = losses(x), torch.arange(fresh, fresh + count).reshape(size, -1)
        p = (torch.arange(total) < fresh) / fresh
        linear = fitted(x, f, past, p)
        bent = fitted(pairs(x - p @ x), f - linear, past, p)
        hybrid, both = (loo_variance(p, f - h, x, size) for h in (linear, linear + bent))
        both = both + loo_variance(p, bent, x, RESAMPLES * size)
        for problem, *values in zip(PROBLEMS, *(v / loo_variance(p, f, x, size) for v in (hybrid, both)), strict=True):
            ratios.setdefault((problem, count), []).append([float(v) for v in values])
    for (problem, count), values in ratios.items():
        row(f"{n}, {k}", problem, str(count), *(summary(list(column)) for column in zip(*values, strict=True)))


def main() -> None:
    study = Study()
    for scale, size, seed in itertools.product(SCALES, BUDGETS, range(SEEDS)):
        study.cell(seed, scale, size)
    print(f"{machine()}; `python benchmarks/candidates.py`\n")
    print(f"Total variance of the gradient at S evaluations of f in expectation; n = {N}, k = {K}, {SEEDS} seeds:")
    print("geometric mean (worst). Logits: scale times standard normal. All candidates are unbiased.")
    print(LEGEND)
    header("scale", "subsets, exp(entropy)", *(f"draws that cost {size}" for size in BUDGETS))
    for scale, subsets in study.subsets.items():
        draws = [study.draws[scale, size] for size in BUDGETS]
        row(f"{scale:g}", *(f"{min(v):.3g} to {max(v):.3g}" for v in (subsets, *draws)))
    print(f"\nAt most {MOST_DRAWS} draws per evaluation. Relative to LeaveOneOut with S draws, without a past:\n")
    free, same, each = "repeats free", "as it is", {name: (name,) for name in PROBLEMS}
    plain = ["unordered set", "mode + rest", "S/2 best + rest", "linear, others", "Stein"]
    study.table({name: (name, same) for name in (free, *plain, "swap pairs")}, each)
    print(f"\nTo the same, with regressions on {PAST} past evaluations. H: applied to what the slope of Hybrid leaves,")
    print('so that "as it is, H" is Hybrid:\n')
    columns = [*(f"{name}, H" for name in (same, free, *plain)), "Stein, replayed pairs", "resampled pairs"]
    study.table({name: (name, same) for name in columns}, each)
    print("\nAll three problems, relative to LeaveOneOut with repeats free; what draws S subsets, to that as it is:\n")
    reference = dict.fromkeys(plain[:3], free) | dict.fromkeys([*plain[3:], "swap pairs"], same)
    study.table({name: (name, other) for name, other in reference.items()}, {"all": PROBLEMS})
    print("\nThe same with a past, relative to Hybrid:\n")
    reference = {f"{name}, H": other for name, other in reference.items()}
    reference |= {"Stein, replayed pairs": same, "resampled pairs": free}
    study.table({name: (name, f"{other}, H") for name, other in reference.items()}, {"all": PROBLEMS})
    print(f"\nLargest |z| of a mean against the exact gradient, {ROWS} estimates each; in brackets the largest")
    print("relative standard error of a variance. At scale 6 heavy tails make both uncertain:\n")
    header("candidate", *(f"scale {scale:g}" for scale in SCALES))
    for name in dict.fromkeys(key[0] for key in study.deviations):
        row(name, *(f"{study.deviations[name, s]:.1f} ({study.errors[name, s]:.2g})" for s in SCALES))
    print("\nMore items, logits of scale 1, S = 8; variance relative to LeaveOneOut's, on 20,000 fresh subsets:\n")
    header("n, k", "problem", "past evaluations", "Hybrid", "resampled pairs")
    for n, k in ((20, 10), (100, 10)):
        larger(n, k)


if __name__ == "__main__":
    main()
