"""Best subset classification beside abess and forward stepwise selection.

Usage: python benchmarks/classification.py > benchmarks/results/classification-cpu.md

Rows of a normal distribution with correlations 0.35^|i - j|, and labels by a logistic model whose s coefficients are
not zero, evenly spaced, with k = s given. Forward selection takes the column with the smallest log loss of
scikit-learn's logistic regression, one after the other. Losses are those of scikit-learn's refit on the columns found.
"""

import importlib.metadata
import time
import warnings
from typing import Any

import numpy as np
from regression import coefficients, covariance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from timing import machine

from ksubset._support.markdown import table
from ksubset.regression import BestSubsetClassifier

# Rows, columns, and coefficients that are not zero; their size.
SETTINGS = [(100, 10, 3, 1.0), (200, 60, 5, 1.0), (200, 60, 5, 0.5), (300, 300, 5, 1.0)]
SEEDS = 5
Array = Any


def made(rows: int, columns: int, number: int, size: float, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    beta = size * coefficients(columns, number, 1)
    x = rng.standard_normal((rows, columns)) @ np.linalg.cholesky(covariance(columns)).T
    return x, (x @ beta + rng.logistic(size=rows) > 0).astype(int), beta != 0


def refitted(x: Array, y: Array, columns: Array) -> float:
    part = x[:, columns] / x[:, columns].std(0)
    return float(
        log_loss(y, LogisticRegression(C=1e3, max_iter=1000).fit(part, y).predict_proba(part), normalize=False)
    )


def ours(x: Array, y: Array, size: int) -> Array:
    return np.flatnonzero(BestSubsetClassifier(size, random_state=0).fit(x, y).support_)


def abess(x: Array, y: Array, size: int) -> Array:
    from abess.linear import LogisticRegression as Abess

    return np.flatnonzero(Abess(support_size=size).fit(x, y).coef_)


def forward(x: Array, y: Array, size: int) -> Array:
    chosen: list[int] = []
    for _ in range(size):
        others = [column for column in range(x.shape[1]) if column not in chosen]
        chosen.append(min(others, key=lambda column: refitted(x, y, [*chosen, column])))
    return np.array(chosen)


def main() -> None:
    warnings.simplefilter("ignore")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("abess", "scikit-learn"))
    print(f"{machine()}; {versions}\n")
    print(
        f"{SEEDS} seeds: share of right columns found, mean sum of log losses, and seconds of processor time, median.\n"
    )
    lines = []
    for rows, columns, number, size in SETTINGS:
        cells = [f"{rows} rows, {columns} columns, {number} of size {size:g}"]
        for tool in (ours, abess, forward):
            found = []
            for seed in range(SEEDS):
                x, y, right = made(rows, columns, number, size, seed)
                start = time.process_time()
                chosen = tool(x, y, number)
                found.append([right[chosen].mean(), refitted(x, y, chosen), time.process_time() - start])
            share, loss, seconds = np.array(found).T
            cells.append(f"{share.mean():.2f}, {loss.mean():.2f}, {np.median(seconds):.2f}")
        lines.append(cells)
    print(table(["", "ours", "abess", "forward"], lines))


if __name__ == "__main__":
    main()
