"""Conditional logit and Cox's model with exact ties: ours, statsmodels, SurPyval, lifelines, and R's survival.

Usage: python benchmarks/stats.py > benchmarks/results/stats-cpu.md, or with numbers of cases, for these rows alone

Each fit has a process of its own with one thread, and its processor time is taken, from data in memory to coefficients
with standard errors; ours after a first fit of other data, which compiles the loops or loads them. A process that takes
more than 75 seconds of it is ended; statsmodels and SurPyval, which take seconds for 10,000 rows, are not asked for the
cases of a million. The row of real data needs the folder of data sets that KSUBSET_DATA names;
lifelines, which has Efron's approximation alone, has this row only. R's column needs `Rscript` with the package
survival. Writes docs/figures/statistics-growth.png.
"""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from memory import peak_bytes
from timing import machine

from ksubset._support.markdown import table
from ksubset._support.palette import BLUE, ORANGE

CAP = 75
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "statistics-growth.png"
# Strata, rows in each, columns; half of the rows are cases.
CASES = [
    (1000, 10, 3),
    (50, 100, 3),
    (5, 800, 3),
    (2, 1000, 3),
    (2, 2000, 3),
    (40_000, 25, 3),
    (100_000, 10, 10),
    (500, 2000, 10),
]
# The first case that is for ours and R alone.
LARGE = 5
GROWTH = [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
R = """
suppressMessages(library(survival))
a <- commandArgs(TRUE); n <- as.integer(a[2]); p <- as.integer(a[3])
d <- matrix(readBin(a[1], "double", n * (p + 3)), n)
x <- d[, 4:(p + 3), drop = FALSE]; time <- d[, 1]; event <- d[, 2]; g <- d[, 3]
t <- system.time(m <- if (length(unique(g)) > 1) coxph(Surv(time, event) ~ x + strata(g), ties = "exact")
  else coxph(Surv(time, event) ~ x, ties = "exact"))
cat(t[["user.self"]] + t[["sys.self"]], coef(m), "\n")
"""


def made(strata: int, size: int, columns: int) -> pd.DataFrame:
    rng = np.random.default_rng(strata + size)
    x = rng.normal(size=(strata * size, columns))
    latent = (x @ np.linspace(-0.5, 0.5, columns) + rng.logistic(size=len(x))).reshape(strata, size)
    event = latent.argsort(1).argsort(1) >= size - size // 2
    frame = {"time": 1.0, "event": event.ravel() * 1.0, "group": np.repeat(np.arange(strata), size) * 1.0}
    return pd.DataFrame(frame | {f"x{j}": x[:, j] for j in range(columns)})


def chain() -> pd.DataFrame | None:
    """Survival by free light chains, in whole years."""
    folder = os.environ.get("KSUBSET_DATA")
    if not folder:
        return None
    data = pd.read_csv(Path(folder) / "statistics" / "flchain.csv").query("futime > 0")
    years = np.ceil(data["futime"] / 365.25)
    frame = pd.DataFrame({"time": years, "event": data["death"] * 1.0, "group": 0.0, "age": data["age"] * 1.0})
    return frame.assign(male=(data["sex"] == "M") * 1.0, kappa=data["kappa"], free=data["lambda"])


def ours(data: pd.DataFrame) -> Callable[[], Any]:
    from ksubset.stats import ConditionalLogit, CoxPH

    x = data.iloc[:, 3:]
    if data["time"].nunique() > 1:
        return lambda: CoxPH(data["time"], data["event"], x, "exact").fit().params
    return lambda: ConditionalLogit(data["event"], x, data["group"]).fit().params


def statsmodels(data: pd.DataFrame) -> Callable[[], Any]:
    from statsmodels.discrete.conditional_models import ConditionalLogit

    return lambda: ConditionalLogit(data["event"], data.iloc[:, 3:], groups=data["group"]).fit(disp=0).params


def surpyval(data: pd.DataFrame) -> Callable[[], Any]:
    from surpyval import CoxPH

    x, censored = data.iloc[:, 3:].to_numpy(), 1 - data["event"].to_numpy()
    strata = data["group"].to_numpy() if data["group"].nunique() > 1 else None
    return lambda: CoxPH.fit(data["time"].to_numpy(), x, c=censored, tie_method="kp", strata=strata).params


def lifelines(data: pd.DataFrame) -> Callable[[], Any]:
    from lifelines import CoxPHFitter

    strata = ["group"] if data["group"].nunique() > 1 else None
    used = data if strata else data.drop(columns="group")
    return lambda: CoxPHFitter().fit(used, "time", "event", strata=strata).params_


def limited(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run with the cap on processor time."""
    command = ["prlimit", f"--cpu={CAP}", *command]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def rscript(data: pd.DataFrame) -> list[float]:
    with tempfile.NamedTemporaryFile() as file:
        np.asfortranarray(data.to_numpy()).ravel("F").tofile(file.name)
        size = [file.name, str(len(data)), str(data.shape[1] - 3)]
        done = limited(["Rscript", "-e", R, *size])
    return [float(value) if value != "NA" else float("nan") for value in done.stdout.split()]


TOOLS = {"ours": ours, "statsmodels": statsmodels, "surpyval": surpyval, "lifelines": lifelines}


def work(tool: str, case: int) -> None:
    """One fit, in a process of its own: prints its seconds and coefficients."""
    warnings.simplefilter("ignore")
    data = made(*CASES[case]) if case >= 0 else chain()
    assert data is not None
    if tool == "ours":
        other = made(20, 4, 2)
        ours(other)()
        ours(other.assign(time=np.arange(80) // 9))()
    fit = TOOLS[tool](data)
    start = time.process_time()
    params = fit()
    print(json.dumps([time.process_time() - start, *map(float, params)]))


def fitted(tool: str, case: int, data: pd.DataFrame) -> list[float] | str:
    """Seconds and coefficients, or what went wrong."""
    try:
        if tool == "R":
            return rscript(data) if shutil.which("Rscript") else "-"
        command = [sys.executable, __file__, "--work", tool, str(case)]
        done = limited(command)
    except subprocess.CalledProcessError as error:
        if error.returncode in {-signal.SIGXCPU, -signal.SIGKILL}:
            return f"> {CAP}"
        lines = (error.stderr or "").strip().splitlines()
        return next((line.split(":")[0] for line in reversed(lines) if "Error" in line), "ended")
    values: list[float] = json.loads(done.stdout.splitlines()[-1])
    return values


def shown(found: list[float] | str, right: list[float]) -> str:
    if isinstance(found, str):
        return found
    if not np.isfinite(found[1:]).all():
        return "NA"
    difference = np.abs(np.array(found[1:]) - right).max()
    return f"{found[0]:.3g}" + (f" (off by {difference:.2g})" if difference > 1e-3 else "")


def grown(rows: int) -> None:
    """Prints seconds of an evaluation, and bytes beside the data."""
    from ksubset.stats import ConditionalLogit

    small = made(20, 4, 2)
    ConditionalLogit(small["event"], small.iloc[:, 3:], small["group"]).fit()
    data = made(rows // 100, 100, 10)
    y, x, group = data["event"].to_numpy(), data.iloc[:, 3:].to_numpy(), data["group"].to_numpy()
    del data
    before = peak_bytes()
    model = ConditionalLogit(y, x, group)
    model.fit()
    after = peak_bytes()
    start = time.process_time()
    model._evaluate(np.full(10, 0.1))
    print(json.dumps([time.process_time() - start, after - before]))


def growth() -> list[list[float]]:
    command = [sys.executable, __file__, "--grown"]
    return [
        json.loads(subprocess.run([*command, str(rows)], capture_output=True, text=True, check=True).stdout)
        for rows in GROWTH
    ]


def plot(values: list[list[float]]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    seconds, size = np.array(values).T
    for axis, points, label, colour in (
        (axes[0], seconds, "seconds an evaluation", BLUE),
        (axes[1], size / 2**20, "MiB beside the data", ORANGE),
    ):
        axis.loglog(GROWTH, points, "o-", color=colour)
        axis.loglog(GROWTH, points[-1] * np.array(GROWTH) / GROWTH[-1], ":", color="grey", label="in proportion")
        axis.set(xlabel="rows", ylabel=label)
        axis.legend(frameon=False)
    figure.suptitle("strata of 100 rows, half of them cases; 10 columns", fontsize="medium")
    figure.savefig(FIGURE, dpi=130)


def main(chosen: list[int]) -> None:
    warnings.simplefilter("ignore")
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("statsmodels", "surpyval", "lifelines")
    )
    if shutil.which("Rscript"):
        command = ["Rscript", "-e", 'cat(as.character(packageVersion("survival")))']
        versions += f", R survival {subprocess.run(command, capture_output=True, text=True, check=True).stdout}"
    print(f"{machine()}; {versions}\n")
    if not chosen:
        values = growth()
        plot(values)
        print("An evaluation of log-likelihood, score and Hessian; strata of 100, half of them cases, 10 columns:\n")
        lines = [
            [f"{n:,}", f"{t:.4f}", f"{t / n * 1e9:.0f}", f"{size / 2**20:.0f}", f"{size / n:.0f}"]
            for n, (t, size) in zip(GROWTH, values, strict=True)
        ]
        print(table(["rows", "seconds", "ns a row", "MiB beside the data", "bytes a row"], lines))
    print("\nSeconds of processor time of a fit; lifelines has Efron's approximation alone, an easier problem.\n")
    print(table(["strata x rows", "ours", "statsmodels", "SurPyval", "R", "lifelines (Efron)"], []))
    for case in chosen or [*range(LARGE), -1, *range(LARGE, len(CASES))]:
        shape = CASES[case] if case >= 0 else None
        data = made(*shape) if shape else chain()
        if data is None:
            continue
        name = "{:,} x {:,}, {} columns".format(*shape) if shape else "flchain in whole years, 4 columns"
        slow = () if case >= LARGE else ("statsmodels" if shape else "lifelines", "surpyval")
        tools = ("ours", "R", *slow)
        found = {tool: fitted(tool, case, data) for tool in tools}
        right = found["ours"][1:]
        assert not isinstance(right, str)
        cells = [shown(found.get(tool, "-"), right) for tool in ("ours", "statsmodels", "surpyval", "R")]
        easier = found.get("lifelines", "-")
        cells.append(easier if isinstance(easier, str) else f"{easier[0]:.3g}")
        print(f"| {' | '.join([name, *cells])} |", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--work", tool, case]:
            work(tool, int(case))
        case ["--grown", rows]:
            grown(int(rows))
        case chosen:
            main([int(case) for case in chosen])
