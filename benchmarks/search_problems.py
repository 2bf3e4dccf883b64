"""Functions of k of n items to be minimized: those of the comparison of searches, and others to tune on."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

__all__ = ["ROWS", "TUNING", "Problem"]

# The optima that OR-Library gives.
MEDIANS = {"pmed1": 5819, "pmed5": 1355, "pmed10": 1255, "pmed20": 1789, "pmed30": 1989}
# Of portfolios: what a unit of variance costs, in units of return.
AVERSION = 5.0
FOLDS = 5


@dataclass(frozen=True)
class Problem:
    """A function, by its true value, and the standard deviation of the noise on what a method gets of it."""

    says: str
    n: int
    k: int
    value: Callable[[NDArray[np.int64]], float]
    noise: float = 0.0
    optimum: float | None = None


def library(name: str) -> NDArray[np.float64]:
    """All numbers in a file of OR-Library."""
    return np.array((Path(os.environ["KSUBSET_DATA"]) / "orlib" / f"{name}.txt").read_text().split(), dtype=float)


def medians(distances: NDArray[Any], k: int, says: str, optimum: float | None = None) -> Problem:
    """Sum of the distances of all nodes to the nearest of the chosen."""
    # Small integers, as the nearest of many are found faster among them.
    square = distances.astype(np.int16)
    return Problem(says, len(square), k, lambda subset: float(square[subset].min(0).sum()), optimum=optimum)


def pmed(name: str) -> Problem:
    (nodes, _, k), edges = library(name)[:3].astype(int), library(name)[3:].reshape(-1, 3)
    lengths = np.zeros((nodes, nodes))
    # Of an edge that is listed twice, the last is meant.
    for first, second, length in edges:
        lengths[int(first) - 1, int(second) - 1] = lengths[int(second) - 1, int(first) - 1] = length
    distances = shortest_path(lengths, directed=False)
    return medians(distances, int(k), f"{name}: {nodes} nodes, {k} medians", MEDIANS[name])


def graph(n: int, k: int, seed: int) -> Problem:
    """A random graph as of OR-Library: a random tree, and more edges, of lengths from 1 to 100."""
    rng = np.random.default_rng(seed)
    more = rng.integers(n, size=(n * n // 50, 2))
    tree = np.column_stack([np.arange(1, n), [rng.integers(node) for node in range(1, n)]])
    first, second = np.concatenate([tree, more[more[:, 0] != more[:, 1]]]).T
    lengths = np.full((n, n), np.inf)
    lengths[first, second] = rng.integers(1, 101, len(first))
    distances = shortest_path(np.where(np.isinf(lengths), 0, lengths), directed=False)
    return medians(distances, k, f"p-median, random graph of {n} nodes, {k} medians")


def plane(n: int, k: int, seed: int) -> Problem:
    """Points in a square, with distances in thousandths of its side."""
    points = np.random.default_rng(seed).random((n, 2))
    distances = 1000 * np.linalg.norm(points[:, None] - points, axis=2)
    return medians(distances.round(), k, f"p-median, {n} points in the plane, {k} medians")


def portfolio(mean: NDArray[Any], covariance: NDArray[Any], k: int, says: str) -> Problem:
    """Least loss with so many assets, `AVERSION * variance - return`; weights have sum 1 and either sign."""

    def value(subset: NDArray[np.int64]) -> float:
        ones_and_mean = np.column_stack([np.ones(len(subset)), mean[subset]])
        (a, b), (_, c) = ones_and_mean.T @ np.linalg.solve(covariance[np.ix_(subset, subset)], ones_and_mean)
        # By Lagrange the weights are a combination of the two solutions.
        double = 2 * AVERSION
        price = (double - b) / a
        return float((c + 2 * price * b + price**2 * a) / (2 * double) - (c + price * b) / double)

    return Problem(says, len(mean), k, value)


def port(name: str) -> Problem:
    numbers = library(name)
    n = int(numbers[0])
    mean, deviation = numbers[1 : 2 * n + 1].reshape(n, 2).T
    first, second, correlation = numbers[2 * n + 1 :].reshape(-1, 3).T
    square = np.eye(n)
    square[first.astype(int) - 1, second.astype(int) - 1] = square[second.astype(int) - 1, first.astype(int) - 1] = (
        correlation
    )
    return portfolio(mean, square * np.outer(deviation, deviation), 10, f"{name}: 10 of {n} assets")


def factors(n: int, k: int, seed: int) -> Problem:
    """Returns with a few factors in common."""
    rng = np.random.default_rng(seed)
    loadings = np.column_stack([rng.uniform(0.01, 0.05, n), 0.01 * rng.standard_normal((n, 4))])
    covariance = loadings @ loadings.T + np.diag(rng.uniform(0.02, 0.05, n) ** 2)
    return portfolio(rng.normal(0.003, 0.002, n), covariance, k, f"portfolio, {k} of {n} assets")


def coverage(n: int, k: int, seed: int) -> Problem:
    """Minus the weight of the elements that the chosen of n random sets have."""
    rng = np.random.default_rng(seed)
    elements = 10 * n
    member = rng.random((n, elements)) < rng.uniform(0.005, 0.05, n)[:, None]
    weights = rng.exponential(size=elements)
    return Problem(f"coverage, {k} of {n} sets", n, k, lambda subset: -float(member[subset].any(0) @ weights))


def design(n: int, k: int, seed: int) -> Problem:
    """Minus the log-determinant of a quadratic model in four factors, by k of n random candidates."""
    rng = np.random.default_rng(seed)
    rows = PolynomialFeatures(2).fit_transform(rng.uniform(-1, 1, (n, 4)))
    ridge = 1e-6 * np.eye(rows.shape[1])
    return Problem(
        f"D-optimal design, {k} of {n} candidates", n, k,
        lambda subset: -float(np.linalg.slogdet(rows[subset].T @ rows[subset] + ridge)[1]),
    )  # fmt: skip


def columns(x: NDArray[Any], y: NDArray[Any], k: int, says: str) -> Problem:
    """Mean squared error of a ridge regression on k columns in cross-validation, from products that are kept."""
    x, y = StandardScaler().fit_transform(x), (y - y.mean()) / y.std()
    parts = [np.arange(fold, len(y), FOLDS) for fold in range(FOLDS)]
    squares, products = (
        np.stack([x[part].T @ x[part] for part in parts]),
        np.stack([x[part].T @ y[part] for part in parts]),
    )
    others, other_products = squares.sum(0) - squares, products.sum(0) - products
    others += np.eye(x.shape[1])
    total = y @ y

    def value(subset: NDArray[np.int64]) -> float:
        pairs = subset[:, None], subset
        slopes = np.linalg.solve(others[:, *pairs], other_products[:, subset, None])[:, :, 0]
        fitted = np.einsum("fi,fij,fj->", slopes, squares[:, *pairs], slopes)
        return float((total - 2 * (slopes * products[:, subset]).sum() + fitted) / len(y))

    return Problem(says, x.shape[1], k, value)


def diabetes() -> Problem:
    x, y = load_diabetes(return_X_y=True)
    x = PolynomialFeatures(2, include_bias=False).fit_transform(x)
    return columns(x, y, 15, f"columns, 15 of {x.shape[1]}, diabetes with products")


def mixed(n: int, k: int, seed: int) -> Problem:
    """Correlated columns, a third of the k largest slopes of which cancel out."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((300, n // 4)) @ rng.standard_normal((n // 4, n)) / 3 + rng.standard_normal((300, n))
    slopes = np.where(np.arange(n) < 2 * k, rng.standard_normal(n), 0)
    y = x @ slopes + 3 * rng.standard_normal(300)
    return columns(x[:, rng.permutation(n)], y, k, f"columns, {k} of {n}, synthetic")


def ones(n: int, k: int, noise: float, seed: int) -> Problem:
    """Minus the number of the chosen among k hidden items."""
    hidden = np.zeros(n)
    hidden[np.random.default_rng(seed).permutation(n)[:k]] = 1
    return Problem(
        f"noisy OneMax, {k} of {n}, noise {noise:g}", n, k, lambda subset: -float(hidden[subset].sum()), noise, -k
    )


def traps(n: int, k: int, noise: float, seed: int) -> Problem:
    """Hidden blocks of three: a member is worth 1 alone, and all three 4 together, but two only 0.5."""
    block = np.random.default_rng(seed).permutation(n) // 3
    worth = np.array([0, 1, 0.5, 4])
    return Problem(
        f"noisy traps, {k} of {n}, noise {noise:g}", n, k,
        lambda subset: -float(worth[np.bincount(block[subset], minlength=n // 3)].sum()), noise,
        -float(4 * (k // 3) + k % 3),
    )  # fmt: skip


ROWS: dict[str, Callable[[], Problem]] = {
    **{name: lambda name=name: pmed(name) for name in MEDIANS},
    "plane": lambda: plane(200, 40, 1),
    **{f"port{place}": lambda place=place: port(f"port{place}") for place in range(1, 6)},
    "coverage": lambda: coverage(200, 20, 1),
    "design": lambda: design(200, 20, 1),
    "diabetes": diabetes,
    "columns": lambda: mixed(200, 15, 1),
    "onemax": lambda: ones(100, 20, 1.0, 1),
    "traps": lambda: traps(99, 20, 0.5, 1),
}
TUNING: dict[str, Callable[[], Problem]] = {
    "graph-100": lambda: graph(100, 12, 101),
    "graph-300": lambda: graph(300, 60, 102),
    "graph-500": lambda: graph(500, 150, 103),
    "factors": lambda: factors(120, 12, 104),
    "coverage": lambda: coverage(150, 25, 105),
    "design": lambda: design(150, 25, 106),
    "columns": lambda: mixed(150, 20, 107),
    "onemax": lambda: ones(120, 30, 1.5, 108),
    "traps": lambda: traps(90, 15, 0.3, 109),
}
