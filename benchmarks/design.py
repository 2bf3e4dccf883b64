"""Sensors and optimal designs, side by side with PySensors, optdesign and doekit.

Usage: python benchmarks/design.py RESULTS.json > benchmarks/results/design-cpu.md
       python benchmarks/design.py RESULTS.json --figures

Runs what RESULTS.json does not have yet; it is written after each run, so that an interrupted benchmark goes on. Data
are read from the folder that KSUBSET_DATA names. Test snapshots have no part in the choice of sensors or of a decoder.
`--figures` draws docs/figures/sensors.png and sensors-field.png from the results and one more placement. Seconds are of
the processor, on one thread.
"""

import importlib.metadata
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import PolynomialFeatures
from timing import machine

from ksubset._support.files import write
from ksubset._support.markdown import table
from ksubset._support.palette import BLUE, GREEN, GREY, ORANGE, VERMILLION
from ksubset.design import SensorSelector, optimal_design, plot_field
from ksubset.experiments.datasets import load

Array = NDArray[np.float64]
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
OURS = {"QR, our decoder": "qr", "ours, greedy": "greedy", "ours, search": "search"}
METHODS = ("random", "PySensors", *OURS)
# Sizes, splits, and noise of the sensors as a share of the standard deviation of the field.
FIELDS = {
    "twist": ([5, 8, 10, 20, 50], 20, None),
    "twist, forbidden region": ([5, 8, 10, 20], 20, None),
    "wake, noisy": ([5, 8, 10, 20, 50, 100], 5, 0.1),
    "MNIST": ([5, 8, 10, 20, 50, 100], 5, None),
}
NAMES = {
    "twist": "Heated flow, 35 simulations to choose by and 14 to test on, 5,064 places, mean of 20 splits (from 34 "
    "sensors on the snapshots have no more modes to tell apart)",
    "twist, forbidden region": "Heated flow with the left eighth of the region forbidden, mean of 20 splits",
    "wake, noisy": "Cylinder wake, readings with noise of a tenth of the standard deviation, 60 snapshots of the "
    "first half to choose by and 200 of the second to test on, 5,939 places, mean of 5 splits",
    "MNIST": "MNIST, 1,000 training images to choose by and 1,000 test images to test on, mean of 5 splits",
}


def folder() -> Path:
    return Path(os.environ["KSUBSET_DATA"])


@cache
def twist() -> tuple[Array, Array]:
    data = np.load(folder() / "sensors" / "opti_twist_temperature.npz")
    return data["T"][:, ::8].astype(float), data["xy"][::8].astype(float)


@cache
def wake() -> tuple[Array, Array]:
    data = np.load(folder() / "sensors" / "vonkarman_vorticity_pod.npz")
    fields = data["mean"][::16] + data["a"].astype(float) @ data["modes"][:, ::16]
    return fields, data["xy"][::16].astype(float)


@cache
def digits() -> tuple[Array, Array]:
    data = load("mnist")
    return data.train_images.double().numpy(), data.test_images.double().numpy()


def snapshots(name: str, split: int) -> tuple[Array, Array, Array]:
    """Snapshots to choose by and to test on, and places that are forbidden."""
    none = np.zeros(0, dtype=np.int64)
    rng = np.random.default_rng(split)
    if name.startswith("twist"):
        fields, places = twist()
        order = rng.permutation(len(fields))
        x = places[:, 0]
        forbidden = np.flatnonzero(x < x.min() + np.ptp(x) / 8) if "forbidden" in name else none
        return fields[order[:35]], fields[order[35:]], forbidden
    if name.startswith("wake"):
        fields = wake()[0]
        half = len(fields) // 2
        return fields[rng.permutation(half)[:60]], fields[half + rng.permutation(len(fields) - half)[:200]], none
    train, test = digits()
    return train[rng.permutation(len(train))[:1000]], test[rng.permutation(len(test))[:1000]], none


def share(told: Array, right: Array, mean: Array) -> float:
    return float(np.linalg.norm(told - right) / np.linalg.norm(right - mean))


def field_error(name: str, size: int, method: str, split: int) -> dict[str, float]:
    """Norm of the error on test snapshots, as a share of that of their fluctuations; and seconds to choose."""
    train, test, forbidden = snapshots(name, split)
    relative = FIELDS[name][2]
    noise = None if relative is None else relative * float((train - train.mean(0)).std())
    rng = np.random.default_rng(split)
    measured = test + (0 if noise is None else noise) * rng.normal(size=test.shape)
    mean = train.mean(0)
    start = time.process_time()
    if method in OURS:
        selector = SensorSelector(size, method=OURS[method], noise=noise, exclude=forbidden, random_state=split)
        selector.fit(train)
        seconds = time.process_time() - start
        assert not set(selector.sensors_) & set(forbidden.tolist())
        return {"error": share(selector.predict(measured), test, mean), "seconds": seconds, "own": selector.error_}
    if method == "random":
        errors = []
        for _ in range(10):
            sensors = rng.choice(np.setdiff1d(np.arange(train.shape[1]), forbidden), size, replace=False)
            selector = SensorSelector(size, method="qr", noise=noise, always=sensors).fit(train)
            errors.append(share(selector.predict(measured), test, mean))
        return {"error": float(np.mean(errors)), "seconds": 0.0}
    return peer(train, measured, test, size, forbidden, noise)


def peer(
    train: Array, measured: Array, test: Array, size: int, forbidden: Array, noise: float | None
) -> dict[str, float]:
    """SSPOR, with the better one on the test snapshots of its two ways to decode."""
    from pysensors.basis import SVD
    from pysensors.optimizers import CCQR, QR
    from pysensors.reconstruction import SSPOR

    mean = train.mean(0)
    rank = int(np.linalg.matrix_rank(train - mean))
    start = time.process_time()
    costs = np.zeros(train.shape[1])
    # Costs above any gain are its way to forbid places that stays the same for any number of sensors.
    costs[forbidden] = 1e12
    optimizer = CCQR(sensor_costs=costs) if len(forbidden) else QR()
    model = SSPOR(basis=SVD(n_basis_modes=min(size, rank), random_state=0), optimizer=optimizer, n_sensors=size)
    model.fit(train - mean, quiet=True)
    seconds = time.process_time() - start
    sensors = model.get_selected_sensors()
    assert not set(sensors) & set(forbidden.tolist())
    readings = (measured - mean)[:, sensors]
    ways = model.predict(readings, method="unregularized"), model.predict(readings, noise=noise)
    return {"error": min(share(told.reshape(test.shape) + mean, test, mean) for told in ways), "seconds": seconds}


@cache
def candidates(name: str) -> tuple[Array, int]:
    if name.startswith("random"):
        return np.random.default_rng(0).normal(size=(500, 8)), 16
    if name.startswith("grid"):
        grid = np.array(list(product(np.linspace(-1, 1, 7), repeat=3)))
        return PolynomialFeatures(2).fit_transform(grid), 15
    parts = np.array([np.bincount(one, minlength=4) for one in combinations_with_replacement(range(4), 10)]) / 10
    return PolynomialFeatures(2, include_bias=False, interaction_only=True).fit_transform(parts), 15


PROBLEMS = {
    "random": "500 normal rows, 8 columns, 16 runs",
    "grid": "three factors on 7 levels (343 rows), full quadratic model (10 columns), 15 runs",
    "mixture": "four components in tenths (286 rows), Scheffé's quadratic model (10 columns), 15 runs",
}
DESIGNERS = ("best of 1,000 random", "optdesign", "doekit", "exchange, 1 start", "exchange", "rounding", "search")


def designed(problem: str, criterion: str, method: str) -> dict[str, float] | None:
    rows, k = candidates(problem)
    rng = np.random.default_rng(0)
    start = time.process_time()
    if method == "best of 1,000 random":
        found = [value_of(rows[rng.choice(len(rows), k, replace=False)], rows, criterion) for _ in range(1000)]
        best = max(found) if criterion in "DE" else min(found)
        return {"value": best, "seconds": time.process_time() - start}
    if method == "optdesign":
        if criterion != "D":
            return None
        from optdesign import opt_dmetric

        subsets = [order[opt_dmetric(rows[order], k)[:k]] for order in (rng.permutation(len(rows)) for _ in range(10))]
        found = [value_of(rows[subset], rows, criterion) for subset in subsets]
        return {"value": max(found), "seconds": time.process_time() - start}
    if method == "doekit":
        return by_doekit(rows, k, criterion, rng)
    starts = 1 if "1 start" in method else 10
    result = optimal_design(rows, k, criterion, method=method.partition(",")[0], num_starts=starts, random_state=0)
    seconds = time.process_time() - start
    assert np.isclose(value_of(rows[result.subset], rows, criterion), result.value)
    return {"value": result.value, "seconds": seconds, "bound": result.bound, "optimal": float(result.optimal)}


def by_doekit(rows: Array, k: int, criterion: str, rng: Any) -> dict[str, float]:
    from doekit.generation.search.optimal import fedorov_exchange, kl_exchange

    start = time.process_time()
    # Its general exchange decomposes each swap anew, so that one start takes as long as it may.
    if criterion == "D":
        runs = [kl_exchange(rows, k, rows.shape[1], rng=rng) for _ in range(10)]
    else:
        sign = 1 if criterion == "E" else -1
        runs = [fedorov_exchange(rows, k, lambda chosen: sign * value_of(chosen, rows, criterion), rng=rng)]
    found = [value_of(rows[run], rows, criterion) for run in runs]
    assert all(len(set(run)) == k for run in runs)
    return {
        "value": max(found) if criterion in "DE" else min(found), "seconds": time.process_time() - start
    }  # fmt: skip


def value_of(chosen: Array, rows: Array, criterion: str) -> float:
    information = chosen.T @ chosen
    values = np.linalg.eigvalsh(information)
    if values[0] <= 1e-12 * values[-1]:
        return 0.0 if criterion in "DE" else 1e12
    if criterion == "D":
        return float(np.exp(np.log(values).mean()))
    if criterion == "E":
        return float(values[0])
    inverse = np.linalg.inv(information)
    return float(np.trace(inverse) if criterion == "A" else ((rows @ inverse) * rows).sum(1).mean())


def jobs() -> Iterator[tuple[str, Callable[[], Any]]]:
    for problem, criterion, method in product(PROBLEMS, "DAEI", DESIGNERS):
        yield f"design/{problem}/{criterion}/{method}", lambda a=problem, b=criterion, c=method: designed(a, b, c)
    for name, (sizes, splits, _) in FIELDS.items():
        for size, method in product(sizes, METHODS):
            for split in range(splits):
                key = f"field/{name}/{size}/{method}/{split}"
                yield key, lambda a=name, b=size, c=method, d=split: field_error(a, b, c, d)


def run(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for key, job in jobs():
        if key not in found:
            start = time.process_time()
            found[key] = job()
            print(f"{key}: {time.process_time() - start:.1f} s", file=sys.stderr, flush=True)
            write(path, json.dumps(found, indent=0).encode())
    return found


def average(found: dict[str, Any], name: str, size: int, method: str, what: str = "error") -> float:
    return float(np.mean([found[f"field/{name}/{size}/{method}/{split}"][what] for split in range(FIELDS[name][1])]))


def report(found: dict[str, Any]) -> None:
    peers = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("python-sensors", "optdesign", "doekit")
    )
    print(f"{machine()}; {peers}\n")
    print("## Sensors\n\nNorm of the error on test snapshots, as a share of that of their fluctuations.")
    print("In brackets the splits on which a placement of ours is better than QR with the same decoder.\n")
    for name, (sizes, splits, _) in FIELDS.items():
        print(f"{NAMES[name]}:\n")
        lines = []
        for size in sizes:
            cells = [f"{average(found, name, size, method):.4f}" for method in METHODS]
            for place, method in ((-2, METHODS[-2]), (-1, METHODS[-1])):
                pairs = [
                    [found[f"field/{name}/{size}/{one}/{split}"]["error"] for one in (method, METHODS[2])]
                    for split in range(splits)
                ]
                cells[place] += f" ({sum(mine < other for mine, other in pairs)} of {splits})"
            lines.append([str(size), *cells])
        print(table(["k", *METHODS], lines), end="\n\n")
    print("Seconds to choose:\n")
    lines = [
        [f"{name}, k = {size}", *(f"{average(found, name, size, method, 'seconds'):.2f}" for method in METHODS[1:])]
        for name, (sizes, *_) in FIELDS.items()
        for size in sizes[:: len(sizes) - 1]
    ]
    print(table(["data", *METHODS[1:]], lines), end="\n\n")
    print("## Optimal designs\n")
    print(
        "Efficiency, the value beside the best bound of the relaxed design, in percent, and seconds; ten starts unless "
        "one is said, one of doekit's general exchange (A, E, I).\n"
    )
    for problem, text in PROBLEMS.items():
        print(f"{text[0].upper()}{text[1:]}:\n")
        lines = []
        for criterion in "DAEI":
            here = {method: found[f"design/{problem}/{criterion}/{method}"] for method in DESIGNERS}
            bound = here["rounding"]["bound"]
            lines.append([criterion, f"{bound:.5g}"])
            for cell in here.values():
                if cell is None:
                    lines[-1].append("-")
                    continue
                efficiency = cell["value"] / bound if criterion in "DE" else bound / cell["value"]
                lines[-1].append(f"{100 * efficiency:.2f} ({cell['seconds']:.2f} s)")
        print(table(["criterion", "bound", *DESIGNERS], lines), end="\n\n")


def figures(found: dict[str, Any]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    styles = {
        "random": (GREY, "x:"), "PySensors": (ORANGE, "v--"), "QR, our decoder": (VERMILLION, "s--"),
        "ours, greedy": (GREEN, "^-"), "ours, search": (BLUE, "o-"),
    }  # fmt: skip
    titles = {"twist": "heated flow", "wake, noisy": "cylinder wake, noisy sensors", "MNIST": "MNIST"}
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axis, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        sizes = FIELDS[name][0]
        for method, (colour, style) in styles.items():
            values = [average(found, name, size, method) for size in sizes]
            axis.loglog(sizes, values, style, color=colour, label=method, markersize=5)
        axis.set(xlabel="sensors k", title=title)
        axis.set_xticks(sizes, [str(size) if size != 8 else "" for size in sizes])
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("error on test snapshots")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(FIGURES / "sensors.png", dpi=130)
    train, test, _ = snapshots("twist", 0)
    selector = SensorSelector(8, random_state=0).fit(train)
    told = selector.predict(test)
    # The test snapshot of median error: neither the best nor the worst is shown.
    middle = np.argsort(np.linalg.norm(told - test, axis=1))[len(test) // 2]
    fields = {"simulated": test[middle], "from 8 sensors": told[middle], "difference": told[middle] - test[middle]}
    plot_field(twist()[1], fields, selector.sensors_, difference="difference", unit="temperature").savefig(
        FIGURES / "sensors-field.png", dpi=110
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    results = run(Path(sys.argv[1]))
    if "--figures" in sys.argv:
        figures(results)
    else:
        report(results)
