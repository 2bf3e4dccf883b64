"""What a selector says of data where there is nothing to find, and of data where there is.

Usage: python benchmarks/noise.py RESULTS.json [--seeds S] [--table] [--figure FILE]

Runs every row and seed that RESULTS.json does not have yet; it is written after each run. `--table` and `--figure` run
nothing. The data are made here, or scikit-learn's.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kstest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import machine, resumed

from ksubset._support import palette
from ksubset.selection import KSubsetSelector

NOISE = {(100, 50): 5, (100, 200): 8, (60, 500): 5, (60, 2_000): 5, (80, 5_000): 8, (96, 9_156): 10}
"""Rows and columns, and columns to keep."""
FITS, FOLDS, PERMUTATIONS = 200, 5, 19
NOTES = f"""\
Naive Bayes (ridge regression of standardised columns for diabetes) on the columns that `KSubsetSelector` keeps, with \
{FITS} fits for a search, {FOLDS} folds, {FOLDS} outer folds and {PERMUTATIONS} permutations; means over seeds with \
their standard errors. The truth is 1/2 for noise, whose classes are equally large; elsewhere it is the score on all \
rows that selection did not see. "best" is `best_score_`, "nested" is `score_`. Two corrections that need no further \
search are shown beside, over all subsets scored on every fold: that of Tibshirani and Tibshirani (2009), and \
the bootstrap bias correction of Tsamardinos et al. (2018), of folds. p is the share of seeds with `p_value_` at most \
0.05, which is the least that {PERMUTATIONS} permutations can give.\
"""


def noise(rows: int, columns: int, seed: int) -> tuple[Any, Any]:
    return np.random.default_rng(seed).standard_normal((rows, columns)), np.arange(rows) % 2


def shifted(seed: int) -> tuple[Any, Any]:
    """Two of 200 columns have another mean in each class."""
    x, y = noise(2_000, 200, seed)
    x[:, [20, 120]] += y[:, None]
    return x, y


def three_or_eight(_: int) -> tuple[Any, Any]:
    x, y = load_digits(return_X_y=True)
    some = np.isin(y, (3, 8))
    return x[some], y[some]


# Data, rows to select on, columns to keep, model.
SIGNAL: dict[str, tuple[Callable[[int], tuple[Any, Any]], int, int, Any]] = {
    "two of 200 columns, 80 rows": (shifted, 80, 2, GaussianNB()),
    "breast cancer, 80 rows": (lambda _: load_breast_cancer(return_X_y=True), 80, 5, GaussianNB()),
    "wine, 60 rows": (lambda _: load_wine(return_X_y=True), 60, 3, GaussianNB()),
    "digits 3 and 8, 80 rows": (three_or_eight, 80, 5, GaussianNB(var_smoothing=1e-2)),
    "diabetes, 100 rows": (
        lambda _: load_diabetes(return_X_y=True), 100, 3, make_pipeline(StandardScaler(), Ridge()),
    ),
}  # fmt: skip


def rows() -> list[str]:
    return [*(f"noise, {n} x {d}" for n, d in NOISE), *SIGNAL]


def run(row: str, seed: int) -> dict[str, Any]:
    truth = 0.5
    if row in SIGNAL:
        make, size, k, model = SIGNAL[row]
        x, y = make(seed)
        x, test, y, test_y = train_test_split(x, y, train_size=size, random_state=seed, stratify=_classes(y))
    else:
        (shape,) = (shape for shape in NOISE if row == f"noise, {shape[0]} x {shape[1]}")
        (x, y), k, model = noise(*shape, seed), NOISE[shape], GaussianNB()
    start = time.process_time()
    selector = KSubsetSelector(
        model, n_features_to_select=k, cv=FOLDS, outer_cv=FOLDS, n_permutations=PERMUTATIONS, max_evaluations=FITS,
        random_state=seed,
    ).fit(x, y)  # fmt: skip
    seconds = time.process_time() - start
    if row in SIGNAL:
        truth = float(selector.score(test, test_y))
    results = selector.cv_results_
    scores = np.stack([results[f"split{fold}_test_score"] for fold in range(FOLDS)], 1)
    scores = scores[np.isfinite(scores).all(1)]
    return {
        "truth": truth, "best": selector.best_score_, "nested": selector.score_,
        "tibshirani": tibshirani(scores), "bootstrap": bootstrap(scores, seed), "p": selector.p_value_,
        "fits": selector.n_fits_, "seconds": seconds,
    }  # fmt: skip


def _classes(y: NDArray[Any]) -> NDArray[Any] | None:
    return y if len(np.unique(y)) < 20 else None


def tibshirani(scores: NDArray[np.float64]) -> float:
    """The best mean, less how much the best of a fold leads it there."""
    best = scores.mean(1).argmax()
    return float(scores[best].mean() - (scores.max(0) - scores[best]).mean())


def bootstrap(scores: NDArray[np.float64], seed: int, draws: int = 500) -> float:
    """The mean score, on folds that were not drawn, of the subset that is best on those that were."""
    rng, left_out = np.random.default_rng(seed), []
    for _ in range(draws):
        drawn = rng.integers(scores.shape[1], size=scores.shape[1])
        rest = np.setdiff1d(np.arange(scores.shape[1]), drawn)
        if len(rest):
            left_out.append(scores[scores[:, drawn].mean(1).argmax(), rest].mean())
    return float(np.mean(left_out))


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| data | seeds | truth | best | nested | Tibshirani | bootstrap | p at most 0.05 | fits | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    errors, p_values = {}, []
    for row in rows():
        found = of_row(results, row)
        if not found:
            continue
        cells = [f"{_mean([one[name] for one in found])}" for name in ("truth", "best", "nested")]
        cells += [_mean([one[name] for one in found]) for name in ("tibshirani", "bootstrap")]
        share = np.mean([one["p"] <= 0.05 for one in found])
        cost = [np.mean([one[name] for one in found]) for name in ("fits", "seconds")]
        lines.append(f"| {row} | {len(found)} | {' | '.join(cells)} | {share:.2f} | {cost[0]:,.0f} | {cost[1]:.1f} |")
        errors[row] = np.array([one["nested"] - one["truth"] for one in found])
        if row not in SIGNAL:
            p_values += [one["p"] for one in found]
    of_noise = np.concatenate([error for row, error in errors.items() if row not in SIGNAL])
    of_signal = np.concatenate([error for row, error in errors.items() if row in SIGNAL])
    # Of discrete values, each in its place by chance: uniform if all are as likely.
    spread = np.array(p_values) - np.random.default_rng(0).random(len(p_values)) / (PERMUTATIONS + 1)
    test = kstest(spread, "uniform")
    lines += [
        "",
        f"Nested less truth: noise {_signed(of_noise)}, signal {_signed(of_signal)} (mean and standard error).",
        f"Kolmogorov-Smirnov test of the {len(p_values)} p-values of noise against the uniform distribution: "
        f"distance {test.statistic:.3f}, p = {test.pvalue:.2f}.",
    ]
    return "\n".join(lines)


def of_row(results: dict[str, dict[str, Any]], row: str) -> list[dict[str, Any]]:
    return [one for name, one in results.items() if name.rpartition("/")[0] == row]


def _mean(values: list[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} ± {error:.3f}" if error else f"{np.mean(values):.3f}"


def _signed(values: NDArray[np.float64]) -> str:
    return f"{values.mean():+.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def draw(results: dict[str, dict[str, Any]]) -> Figure:
    """Scores of noise by shape, and its p-values."""
    figure = Figure(figsize=(9.5, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2.2, 1])
    styles = {"best": ("best_score_, by which the search goes", palette.VERMILLION, "^", -0.14)}
    styles["nested"] = ("score_, on rows it has not seen", palette.BLUE, "o", 0.14)
    shown = [row for row in rows() if row not in SIGNAL and of_row(results, row)]
    for name, (label, color, marker, shift) in styles.items():
        for place, row in enumerate(shown):
            values = np.array([one[name] for one in of_row(results, row)])
            jitter = np.linspace(-0.1, 0.1, len(values))
            left.plot(place + shift + jitter, values, marker, color=color, alpha=0.35, markersize=4, linewidth=0)
            left.plot(
                place + shift, values.mean(), marker, color=color, markersize=9, markeredgecolor="white",
                label=label if place == 0 else None,
            )  # fmt: skip
    left.axhline(0.5, color="0.3", linestyle="--", linewidth=1.2, label="the truth")
    left.set_xticks(range(len(shown)), [row.removeprefix("noise, ").replace(" x ", " rows\n× ") for row in shown])
    left.set(ylabel="accuracy", title="Pure noise: one small mark a seed, large ones their mean", ylim=(0.1, 1.02))
    left.set_xlabel("columns")
    left.grid(axis="y", alpha=0.3)
    left.legend(fontsize="small", loc="lower left")
    for kind, color, line in (("noise", palette.BLUE, "-"), ("signal", palette.VERMILLION, "--")):
        values = np.sort(
            [one["p"] for row in rows() for one in of_row(results, row) if (row in SIGNAL) == (kind == "signal")]
        )
        steps = np.arange(1, len(values) + 1) / len(values)
        right.step([0, *values, 1], [0, *steps, 1], where="post", color=color, linestyle=line, label=kind, linewidth=2)
    right.plot([0, 1], [0, 1], color="0.3", linewidth=1, linestyle=":", label="uniform")
    right.set(xlabel="p_value_", ylabel="share of fits at most there", title="p-values", xlim=(0, 1), ylim=(0, 1.02))
    right.legend(fontsize="small", loc="lower right")
    right.grid(alpha=0.3)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not (arguments.table or arguments.figure):
        resumed(arguments.results, ((row, seed) for seed in range(arguments.seeds) for row in rows()), run)
        return
    results = json.loads(arguments.results.read_text())
    if arguments.figure:
        draw(results).savefig(arguments.figure, dpi=150)
    if arguments.table:
        print(f"# Scores of noise and of signal\n\n{machine()}\n\n{NOTES}\n\n{table(results)}")


if __name__ == "__main__":
    main()
