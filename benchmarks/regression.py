"""Best subset regression in the simulations of Hastie, Tibshirani and Tibshirani, beside its peers.

Usage: python benchmarks/regression.py > benchmarks/results/regression-cpu.md

Their settings, of Bertsimas, King and Mazumder before them: rows of a normal distribution with correlations
0.35^|i - j|, s coefficients that are not zero, and a signal-to-noise ratio. Where k is given it is s; otherwise sizes
from 0 to 15, or the penalty, are those with the smallest squared error on validation data of as many rows. Relative
risk is the risk of the estimate divided by that of the null model, (b - beta)' Sigma (b - beta) / beta' Sigma beta.
What is finished stands in benchmarks/results/regression.json, and is not done again. It writes the figure
docs/figures/regression.png.

References:
    Hastie, Tibshirani and Tibshirani (2020), https://doi.org/10.1214/19-STS733.
    Bertsimas, King and Mazumder (2016), https://doi.org/10.1214/15-AOS1388.
"""

import importlib.metadata
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import machine

from ksubset._support.markdown import table
from ksubset._support.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from ksubset.regression import BestSubsetRegressor

DONE = Path(__file__).parent / "results" / "regression.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "regression.png"
# Rows, columns, and coefficients that are not zero.
SETTINGS = {"low": (100, 10, 5), "medium": (500, 100, 5), "high-5": (50, 1000, 5), "high-10": (100, 1000, 10)}
SEEDS = {"low": 10, "medium": 8, "high-5": 5, "high-10": 5}
RATIOS = [0.05, 0.42, 1.22, 6.0]
TYPES, SLOW_SEEDS, MOST, LIMIT = (1, 2, 3), 1, 15, 10
Array = Any


def covariance(columns: int) -> Array:
    place = np.arange(columns)
    return 0.35 ** np.abs(place[:, None] - place)


def coefficients(columns: int, number: int, kind: int) -> Array:
    """Their types 1 to 3: ones evenly spaced, ones in front, or from 10 down to 0.5 in front."""
    beta = np.zeros(columns)
    if kind == 1:
        beta[np.linspace(0, columns - 1, number).round().astype(int)] = 1
    else:
        beta[:number] = 1 if kind == 2 else np.linspace(10, 0.5, number)
    return beta


def made(setting: str, kind: int, ratio: float, seed: int) -> tuple[Array, ...]:
    """Data, as much again to validate with, and coefficients."""
    rows, columns, number = SETTINGS[setting]
    rng = np.random.default_rng([seed, kind])
    beta, sigma = coefficients(columns, number, kind), covariance(columns)
    x = rng.standard_normal((2 * rows, columns)) @ np.linalg.cholesky(sigma).T
    y = x @ beta + np.sqrt(beta @ sigma @ beta / ratio) * rng.standard_normal(2 * rows)
    return x[:rows], y[:rows], x[rows:], y[rows:], beta


def refitted(x: Array, y: Array, support: Array) -> Array:
    """Least squares with an intercept, on some columns."""
    beta = np.zeros(x.shape[1])
    beta[support] = np.linalg.lstsq(x[:, support] - x[:, support].mean(0), y - y.mean(), rcond=None)[0]
    return beta


def validated(x: Array, y: Array, x2: Array, y2: Array, betas: list[Array]) -> Array:
    """The coefficients with the smallest error on validation data."""
    errors = [np.mean(np.square(y2 - y.mean() - (x2 - x.mean(0)) @ beta)) for beta in betas]
    return betas[int(np.argmin(errors))]


def ours(x: Array, y: Array, sizes: Any) -> list[Array]:
    model = BestSubsetRegressor(sizes, max_nodes=0, random_state=0).fit(x, y)
    return [refitted(x, y, np.flatnonzero(support)) for support in model.path_["support"]]


def abess(x: Array, y: Array, sizes: Any) -> list[Array]:
    from abess.linear import LinearRegression

    found = [LinearRegression(support_size=size).fit(x, y).coef_ if size else np.zeros(x.shape[1]) for size in sizes]
    return [refitted(x, y, np.flatnonzero(beta)) for beta in found]


def forward(x: Array, y: Array, sizes: Any) -> list[Array]:
    """Forward stepwise selection."""
    left, residual = x - x.mean(0), y - y.mean()
    chosen: list[int] = []
    for _ in range(max(sizes)):
        length = np.sqrt(np.square(left).sum(0))
        scores = np.abs(left.T @ residual) / np.where(length > 1e-8, length, np.inf)
        scores[chosen] = -1
        chosen.append(int(scores.argmax()))
        axis = left[:, chosen[-1]] / length[chosen[-1]]
        residual = residual - axis * (axis @ residual)
        left = left - np.outer(axis, axis @ left)
    return [refitted(x, y, chosen[:size]) for size in sizes]


def lasso(x: Array, y: Array) -> list[Array]:
    from sklearn.linear_model import lasso_path

    return list(lasso_path(x - x.mean(0), y - y.mean(), n_alphas=50)[1].T)


def relaxed(x: Array, y: Array) -> list[Array]:
    """Between the lasso and least squares on its columns, where these are fewer than rows."""
    found = [(beta, refitted(x, y, np.flatnonzero(beta))) for beta in lasso(x, y) if np.count_nonzero(beta) < len(y)]
    return [share * beta + (1 - share) * free for beta, free in found for share in np.linspace(0, 1, 5)]


def l0bnb(x: Array, y: Array) -> list[Array]:
    """Eight penalties of the number of columns, each until the time is over."""
    # l0bnb 1.0.0 asks NumPy for a name that version 2 no longer has.
    np.Inf = np.inf  # noqa: NPY201
    from l0bnb import BNBTree

    x, y = x - x.mean(0), y - y.mean()
    found = []
    bound = 2 * np.abs(np.linalg.lstsq(x, y, rcond=None)[0]).max()
    for penalty in np.geomspace(1e-3, 0.3, 8) * (y @ y) / 2:
        solved = BNBTree(x, y, int_tol=1e-4, rel_tol=1e-4).solve(
            l0=penalty, l2=0.0, m=bound, gap_tol=1e-3, verbose=False, time_limit=LIMIT
        )
        found.append(refitted(x, y, np.flatnonzero(np.abs(solved.beta) > 1e-8)))
    return found


KNOWN: dict[str, Callable[..., list[Array]]] = {"ours": ours, "abess": abess, "forward": forward}
TUNED: dict[str, Callable[..., list[Array]]] = {"lasso": lasso, "relaxed lasso": relaxed, "l0bnb": l0bnb}


def trial(setting: str, kind: int, ratio: float, seed: int) -> dict[str, list[float]]:
    """Of each tool: whether the support is right, its F1, the relative risk, the columns, and seconds."""
    x, y, x2, y2, beta = made(setting, kind, ratio, seed)
    sigma, right = covariance(len(beta)), beta != 0
    work: dict[str, Callable[[], Array]] = {}
    for name, tool in KNOWN.items():
        work[f"{name}, k given"] = lambda tool=tool: tool(x, y, [int(right.sum())])[0]
        sizes = range(min(MOST, x.shape[1]) + 1)
        work[name] = lambda tool=tool, sizes=sizes: validated(x, y, x2, y2, tool(x, y, sizes))
    for name, tool in TUNED.items():
        if name != "l0bnb" or (setting == "low" and seed < SLOW_SEEDS):
            work[name] = lambda tool=tool: validated(x, y, x2, y2, tool(x, y))
    found = {}
    for name, fit in work.items():
        start = time.process_time()
        estimate = fit()
        seconds = time.process_time() - start
        support = estimate != 0
        f1 = 2 * (support & right).sum() / (support.sum() + right.sum())
        risk = (estimate - beta) @ sigma @ (estimate - beta) / (beta @ sigma @ beta)
        found[name] = [float((support == right).all()), float(f1), float(risk), float(support.sum()), seconds]
    return found


def finished() -> dict[str, Any]:
    """All trials, those that are missing done now."""
    done: dict[str, Any] = json.loads(DONE.read_text(encoding="utf-8")) if DONE.exists() else {}
    for setting in SETTINGS:
        for seed in range(SEEDS[setting]):
            for kind in TYPES:
                for ratio in RATIOS:
                    key = f"{setting} {kind} {ratio} {seed}"
                    if key not in done:
                        done[key] = trial(setting, kind, ratio, seed)
            DONE.write_text(json.dumps(done), encoding="utf-8")
    return done


def proofs(done: dict[str, Any]) -> list[list[float]]:
    """Of the medium setting with k given, whether it was proved, and seconds with the proof, by ratio."""
    if "proofs" not in done:
        found = []
        for ratio in RATIOS:
            for seed in range(1):
                x, y, *_ = made("medium", 1, ratio, seed)
                start = time.process_time()
                optimal = BestSubsetRegressor(SETTINGS["medium"][2], random_state=0).fit(x, y).optimal_
                found.append([ratio, float(optimal), time.process_time() - start])
        done["proofs"] = found
        DONE.write_text(json.dumps(done), encoding="utf-8")
    proved: list[list[float]] = done["proofs"]
    return proved


def of(done: dict[str, Any], setting: str, ratio: float, tool: str) -> Array:
    """All that was measured of a tool, `(trials, 5)`."""
    return np.array([
        found[tool]
        for key, found in done.items()
        if key.startswith(f"{setting} ") and f" {ratio} " in key and tool in found
    ])  # fmt: skip


def report(done: dict[str, Any], setting: str) -> str:
    rows, columns, number = SETTINGS[setting]
    tools = list(done[f"{setting} 1 {RATIOS[0]} 0"])
    lines = []
    for tool in tools:
        cells = [tool]
        seconds = []
        for ratio in RATIOS:
            exact, f1, risk, size, spent = of(done, setting, ratio, tool).T
            seconds.append(spent)
            cells.append(f"{100 * exact.mean():.0f} / {f1.mean():.2f} / {np.median(risk):.3f} / {size.mean():.1f}")
        lines.append([*cells, f"{np.median(np.concatenate(seconds)):.3f}"])
    head = ["", *(f"snr {ratio:g}" for ratio in RATIOS), "seconds"]
    title = f"{setting}: {rows} rows, {columns} columns, {number} of them right; {SEEDS[setting]} seeds of 3 types"
    return f"{title}\n\n{table(head, lines)}"


def plot(done: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    styles = {
        "ours": (BLUE, "o", "-"), "abess": (SKY, "^", "--"), "forward": (VERMILLION, "v", ":"),
        "lasso": (ORANGE, "s", "-."), "relaxed lasso": (GREEN, "D", "-."), "ours, k given": (PURPLE, "P", "-"),
    }  # fmt: skip
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), layout="constrained", sharex=True, sharey="row")
    for column, setting in enumerate(SETTINGS):
        for tool, (colour, marker, line) in styles.items():
            found = [of(done, setting, ratio, tool) for ratio in RATIOS]
            for axis, values in (
                (axes[0, column], [each[:, 1].mean() for each in found]),
                (axes[1, column], [np.median(each[:, 2]) for each in found]),
            ):
                if tool != "ours, k given" or axis is axes[0, column]:
                    axis.plot(RATIOS, values, line, color=colour, marker=marker, label=tool, markersize=5)
        rows, columns, number = SETTINGS[setting]
        axes[0, column].set(title=f"n = {rows}, p = {columns}, s = {number}", xscale="log")
        axes[1, column].set(xlabel="signal-to-noise ratio", yscale="log")
        axes[1, column].set_xticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS])
        axes[1, column].minorticks_off()
    axes[0, 0].set_ylabel("F1 of the columns")
    axes[1, 0].set_ylabel("relative risk, median")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False)
    figure.savefig(FIGURE, dpi=120)


def main() -> None:
    warnings.simplefilter("ignore")
    done = finished()
    peers = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("abess", "scikit-learn", "l0bnb"))
    print(f"{machine()}; {peers}\n")
    print("Each cell: trials with exactly the right columns in %, mean F1 of the columns, median relative risk, mean")
    print("number of columns. Seconds are of the processor, the median, for all sizes that were tried; ours without")
    print(f"proofs. l0bnb has {SLOW_SEEDS} seed and one setting, with {LIMIT} seconds at most for each of 8 penalties.")
    print("L0Learn is not on PyPI, and is left out.\n")
    print("\n\n".join(report(done, setting) for setting in SETTINGS))
    print("\nProofs, of the medium setting with k given, type 1:\n")
    for ratio, optimal, seconds in proofs(done):
        print(f"- snr {ratio:g}: {'proved' if optimal else 'not proved'}, {seconds:.2f} seconds")
    plot(done)


if __name__ == "__main__":
    main()
