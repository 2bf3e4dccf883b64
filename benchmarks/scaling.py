"""What the selector itself costs with 10,000 columns: time and memory beside those of the model and the data.

Usage: python benchmarks/scaling.py > benchmarks/results/scaling-cpu.md

Selects 20 of 10,000 columns with logistic regression of ten classes, on made data of several lengths, with as many
model fits as it takes by default. The model's own time is that spent in its `fit` and `score`; all other time is the
selector's: preparing, drawing, learning, taking rows and columns. Beside it that of `cross_val_score`, for as many
columns at random.
"""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from timing import machine

from ksubset.selection import KSubsetSelector

COLUMNS, K, FOLDS, CLASSES = 10_000, 20, 3, 10
ROWS = (1_000, 5_000, 20_000)
SUBSETS = 100


@contextmanager
def clocked(kind: type, methods: tuple[str, ...]) -> Iterator[list[float]]:
    """Seconds of the processor in these methods meanwhile."""
    spent = [0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: object, **options: object) -> object:
            start = time.process_time()
            result = method(*arguments, **options)
            spent[0] += time.process_time() - start
            return result

        return run

    originals = {name: getattr(kind, name) for name in methods}
    for name, method in originals.items():
        setattr(kind, name, timed(method))
    yield spent
    for name, method in originals.items():
        setattr(kind, name, method)


def data(rows: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Classes are tenths of the sum of the first 20 columns and noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    signal = x[:, :K].sum(1) + K**0.5 * rng.standard_normal(rows)
    return x, np.digitize(signal, np.quantile(signal, np.arange(1, CLASSES) / CLASSES))


def beside_the_model(work: Callable[[], int]) -> tuple[float, float]:
    """Milliseconds an evaluation in the model, and beside it; work returns how many there were."""
    start = time.process_time()
    with clocked(LogisticRegression, ("fit", "score")) as spent:
        evaluations = work()
    total = time.process_time() - start
    return 1e3 * spent[0] / evaluations, 1e3 * (total - spent[0]) / evaluations


def main() -> None:
    print(f"# {K} of {COLUMNS:,} columns, logistic regression of ten classes\n\n{machine()}\n")
    print("Milliseconds of one core for each evaluation, of which the selector makes 10,000.\n")
    print(
        "| rows | the model | the selector | share | `cross_val_score` beside the model | peak memory | columns found |"
    )
    print("|" + " --- |" * 7)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for rows in ROWS:
        x, y = data(rows)
        selector = KSubsetSelector(LogisticRegression(), n_features_to_select=K, cv=folds, random_state=0)
        model, own = beside_the_model(lambda: selector.fit(x, y).n_fits_)  # noqa: B023 - called at once
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / x.nbytes
        rng = np.random.default_rng(0)

        def validate() -> int:
            for _ in range(SUBSETS):
                columns = rng.choice(COLUMNS, K, replace=False)  # noqa: B023 - called at once
                cross_val_score(LogisticRegression(), x[:, columns], y, cv=folds)  # noqa: B023
            return SUBSETS * FOLDS

        print(
            f"| {rows:,} | {model:.2f} | {own:.2f} | {100 * own / model:.1f} % | {beside_the_model(validate)[1]:.2f} | "
            f"{memory:.1f} times the data's {x.nbytes / 2**20:,.0f} MiB | {selector.support_[:K].sum()} of {K} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
