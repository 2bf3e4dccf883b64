"""Searches that are compared: each proposes subsets of k of n items to a recorder until it has no evaluations left."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from search_problems import Problem

from ksubset.search import minimize

__all__ = ["METHODS", "Recorder", "Spent", "anneal"]

Rng = np.random.Generator
# Tuned by `search.py --tune`: of the mean difference of a random swap, at the beginning and at the end.
HOT, COLD = 0.3, 0.01
POPULATION = 50


class Spent(Exception):  # noqa: N818 - it is no error
    """No evaluations are left."""


class Recorder:
    """A problem as methods get it, which keeps the true value of the best known after certain numbers of evaluations.

    Arguments:
        problem: The function.
        budgets: Numbers of evaluations, ascending; after the last one `Spent` is raised.
        seed: Of the noise.
    """

    def __init__(self, problem: Problem, budgets: tuple[int, ...], seed: int) -> None:
        self.problem, self.budgets, self.evaluations = problem, budgets, 0
        self.scores: dict[int, float] = {}
        self.answer: NDArray[np.int64] | None = None
        """The best observed of size k; a method whose values have noise may put what it takes to be best instead."""
        self._best = math.inf
        self._rng = np.random.default_rng([seed, 1])

    def __call__(self, subset: NDArray[np.int64]) -> float:
        if self.evaluations == self.budgets[-1]:
            raise Spent
        self.evaluations += 1
        value = self.problem.value(subset)
        if self.problem.noise:
            value += self.problem.noise * self._rng.standard_normal()
        if len(subset) == self.problem.k and value < self._best:
            self._best, self.answer = value, subset
        if self.evaluations in self.budgets and self.answer is not None:
            self.scores[self.evaluations] = self.problem.value(self.answer)
        return value


def ksubset(call: Recorder, rng: Rng) -> None:
    problem = call.problem
    result = minimize(
        call, problem.n, problem.k, noisy=problem.noise > 0, max_evaluations=call.budgets[-1],
        random_state=int(rng.integers(2**31)),
    )  # fmt: skip
    call.scores[call.budgets[-1]] = problem.value(result.subset)


def draw(problem: Problem, rng: Rng) -> NDArray[np.int64]:
    return rng.permutation(problem.n)[: problem.k]


def swaps(call: Recorder, rng: Rng) -> None:
    """Uniform swaps, each taken if it is not worse."""
    anneal(call, rng, hot=0, cold=0)


def annealing(call: Recorder, rng: Rng) -> None:
    anneal(call, rng, hot=HOT, cold=COLD)


def anneal(call: Recorder, rng: Rng, *, hot: float, cold: float) -> None:
    """Uniform swaps, taken by Metropolis' rule; temperatures fall geometrically and are in units of a random swap."""
    problem, budget = call.problem, call.budgets[-1]
    order = rng.permutation(problem.n)
    inside, outside = order[: problem.k], order[problem.k :]
    value, first, differences, scale = call(inside), budget // 20, [], 0.0
    for step in range(budget):
        out, into = rng.integers(len(inside)), rng.integers(len(outside))
        other = inside.copy()
        other[out] = outside[into]
        difference = call(other) - value
        if hot and step < first:
            differences.append(abs(difference))
            scale = float(np.mean(differences))
        temperature = scale * hot * (cold / hot) ** (step / budget) if hot else 0.0
        if difference <= 0 or (temperature and rng.random() < math.exp(-difference / temperature)):
            outside[into] = inside[out]
            inside, value = other, value + difference
        # The luckiest of many noisy values says less than where the walk has come to.
        if problem.noise and hot:
            call.answer = inside


def genetic(call: Recorder, rng: Rng) -> None:
    """pymoo's, on masks; children have what both parents have, and half of what one has."""
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.crossover import Crossover
    from pymoo.core.mutation import Mutation
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.core.sampling import Sampling
    from pymoo.optimize import minimize as evolve

    n, k = call.problem.n, call.problem.k

    def largest(keys: NDArray[Any]) -> NDArray[np.bool_]:
        masks = np.zeros(keys.shape, dtype=bool)
        np.put_along_axis(masks, np.argpartition(-keys, k - 1, axis=-1)[..., :k], True, axis=-1)
        return masks

    class Called(ElementwiseProblem):
        def __init__(self) -> None:
            super().__init__(n_var=n, n_obj=1, vtype=bool)

        def _evaluate(self, x: Any, out: Any, *arguments: Any, **options: Any) -> None:
            out["F"] = call(np.flatnonzero(x))

    class Drawn(Sampling):
        def _do(self, problem: Any, n_samples: int, **options: Any) -> Any:
            return largest(rng.random((n_samples, n)))

    class Mixed(Crossover):
        def __init__(self) -> None:
            super().__init__(2, 2)

        def _do(self, problem: Any, parents: Any, **options: Any) -> Any:
            both = parents.sum(0)
            return np.stack([largest(both + rng.random(both.shape)) for _ in range(2)])

    class Swapped(Mutation):
        def _do(self, problem: Any, masks: Any, **options: Any) -> Any:
            result = masks.copy()
            for mask in result:
                # One swap in the mean.
                for _ in range(rng.poisson(1)):
                    out, into = rng.choice(np.flatnonzero(mask)), rng.choice(np.flatnonzero(~mask))
                    mask[out], mask[into] = False, True
            return result

    algorithm = GA(POPULATION, sampling=Drawn(), crossover=Mixed(), mutation=Swapped(prob=1.0))
    # Large populations of the same few subsets would otherwise end it before its evaluations.
    while True:
        evolve(Called(), algorithm, ("n_gen", 10**6), seed=int(rng.integers(2**31)), copy_algorithm=True)


def by_nevergrad(name: str) -> Callable[[Recorder, Rng], None]:
    """The k first of a ranking by real numbers."""

    def method(call: Recorder, rng: Rng) -> None:
        import nevergrad

        numbers = nevergrad.p.Array(init=np.zeros(call.problem.n))
        numbers.random_state.seed(int(rng.integers(2**31)))
        optimizer = nevergrad.optimizers.registry[name](parametrization=numbers, budget=call.budgets[-1])
        while True:
            asked = optimizer.ask()
            optimizer.tell(asked, call(np.argpartition(asked.value, call.problem.k)[: call.problem.k]))

    def quiet(call: Recorder, rng: Rng) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method(call, rng)

    return quiet


def greedy(call: Recorder, rng: Rng) -> None:
    """Add the best item k times, with values of smaller subsets, then uniform swaps; the rest is drawn if it takes
    more evaluations than there are.
    """
    problem = call.problem
    chosen: list[int] = []
    call.answer = draw(problem, rng)
    left = rng.permutation(problem.n)
    while len(chosen) < problem.k:
        values = [call(np.array([*chosen, item])) for item in left]
        place = int(np.argmin(values))
        chosen.append(int(left[place]))
        left = np.delete(left, place)
        if len(chosen) < problem.k:
            call.answer = np.array([*chosen, *left[: problem.k - len(chosen)]])
    inside, value = np.array(chosen), values[place]
    while True:
        out, into = rng.integers(len(inside)), rng.integers(len(left))
        other = inside.copy()
        other[out] = left[into]
        if (found := call(other)) <= value:
            left[into] = inside[out]
            inside, value = other, found


def at_random(call: Recorder, rng: Rng) -> None:
    while True:
        call(draw(call.problem, rng))


METHODS: dict[str, Callable[[Recorder, Rng], None]] = {
    "ksubset": ksubset,
    "uniform swaps": swaps,
    "annealing": annealing,
    "genetic": genetic,
    "nevergrad, discrete": by_nevergrad("DiscreteLenglerOnePlusOne"),
    "nevergrad, CMA": by_nevergrad("CMA"),
    "greedy": greedy,
    "random subsets": at_random,
}
