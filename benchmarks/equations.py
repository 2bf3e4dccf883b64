"""Equations found in data with noise: ours against PySINDy's optimizers, on its rows and on ours.

Usage: python benchmarks/equations.py > benchmarks/results/equations-cpu.md

A trial is right if every equation of the system has exactly the right terms. Where k is known, an optimizer of PySINDy
may try 30 thresholds from 0.001 to 300, or any step of its elimination, with and without normalised columns; of all its
equations with k terms the one with the smallest residual counts. What is finished stands in
benchmarks/results/equations.json, and is not done again. The fields need the folder of data sets that KSUBSET_DATA
names. Writes docs/figures/equations.png.
"""

import importlib.metadata
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.io import loadmat
from timing import machine

from ksubset._support.markdown import table
from ksubset._support.palette import BLACK, BLUE, GREY, ORANGE, SKY, VERMILLION
from ksubset.equations import Equations, discover_equations
from ksubset.equations.derivatives import along, weak_axis
from ksubset.equations.library import Library

DONE = Path(__file__).parent / "results" / "equations.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "equations.png"
NOISE = [0.0, 0.01, 0.02, 0.05, 0.1]
FIELD_NOISE = [0.0, 0.01, 0.05, 0.1, 0.2, 0.5]
SEEDS, FIELD_SEEDS = 20, 5
Rows = tuple[Any, Any, list[str]]


def lorenz(_: float, s: Any) -> list[float]:
    return [10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]]


def prey(_: float, s: Any) -> list[float]:
    return [s[0] - 0.5 * s[0] * s[1], 0.5 * s[0] * s[1] - s[1]]


def oscillator(_: float, s: Any) -> list[float]:
    return [-0.1 * s[0] + 2 * s[1], -2 * s[0] - 0.1 * s[1]]


# The system, its start, times and terms.
SYSTEMS: dict[str, tuple[Callable[..., Any], list[float], Any, list[set[str]]]] = {
    "Lorenz": (lorenz, [-8, 7, 27], np.linspace(0, 10, 1001), [{"x", "y"}, {"x", "y", "x z"}, {"z", "x y"}]),
    "Lotka-Volterra": (prey, [4, 1.5], np.linspace(0, 30, 601), [{"x", "x y"}, {"y", "x y"}]),
    "damped oscillator": (oscillator, [2, 0], np.linspace(0, 25, 1251), [{"x", "y"}, {"x", "y"}]),
}
# The file, its field, the terms in our library, and in PySINDy's.
FIELDS: dict[str, tuple[str, str, set[str], set[str]]] = {
    "Burgers": ("burgers.mat", "usol", {"(u^2)_x", "u_xx"}, {"x0x0_1", "x0_11"}),
    "Korteweg-de Vries": ("kdv.mat", "usol", {"(u^2)_x", "u_xxx"}, {"x0x0_1", "x0_111"}),
    "Kuramoto-Sivashinsky": (
        "kuramoto_sivishinky.mat", "uu", {"(u^2)_x", "u_xx", "u_xxxx"}, {"x0x0_1", "x0_11", "x0_1111"},
    ),
}  # fmt: skip


def simulated(name: str) -> tuple[Any, Any]:
    system, start, t, _ = SYSTEMS[name]
    solved = solve_ivp(system, (t[0], t[-1]), start, method="DOP853", t_eval=t, rtol=1e-10, atol=1e-12)
    return solved.y.T, t


def stored(name: str) -> tuple[Any, Any, Any]:
    file, field, *_ = FIELDS[name]
    data = loadmat(Path(os.environ["KSUBSET_DATA"]) / "pde" / file)
    return data[field].T.real, data["tt" if field == "uu" else "t"].ravel(), data["x"].ravel()


def noisy(x: Any, noise: float, seed: int) -> Any:
    """With normal noise of so many standard deviations of each variable, or of the field."""
    scale = x.std(0) if x.shape[1] < 4 else x.std()
    return x + noise * scale * np.random.default_rng(seed).standard_normal(x.shape)


def of_pysindy(names: Sequence[str]) -> list[str]:
    """PySINDy's names of monomials as ours."""
    shown = [name.replace("x0", "x").replace("x1", "y").replace("x2", "z") for name in names]
    return [" ".join(sorted(name.split(" "))) for name in shown]


def smoothed_rows(x: Any, t: Any) -> Rows:
    """PySINDy's strong form, with its smoothed differences."""
    import pysindy

    library = pysindy.PolynomialLibrary(degree=3)
    right = np.asarray(library.fit_transform(x))
    return right, np.asarray(pysindy.SmoothedFiniteDifference()(x, t)), of_pysindy(library.get_feature_names())


def weak_rows(x: Any, t: Any) -> Rows:
    """PySINDy's weak form with 200 subdomains of its default size."""
    import pysindy

    library = pysindy.WeakPDELibrary(
        pysindy.PolynomialLibrary(degree=3, include_bias=False), spatiotemporal_grid=t, include_bias=True, K=200
    )
    right = np.asarray(library.fit_transform(x))
    left = np.asarray(library.convert_u_dot_integral(library.validate_input(x)))
    return right, left, of_pysindy(library.get_feature_names())


def our_rows(x: Any, t: Any, half: int) -> Rows:
    """Our weak form."""
    terms = Library(degree=3).terms(["x", "y", "z"][: x.shape[1]])
    axis = weak_axis(t[1] - t[0], len(t), half, 1)
    right = np.stack([along(term.function(x), [axis.matrices[0]]) for term in terms], 1)
    return right, axis.matrices[1] @ x, [term.name for term in terms]


def field_rows(u: Any, t: Any, x: Any) -> Rows:
    """PySINDy's weak form of a field: 200 subdomains, monomials up to degree 3, derivatives up to the fourth."""
    import pysindy

    grid = np.stack(np.meshgrid(x, t, indexing="ij"), -1)
    library = pysindy.WeakPDELibrary(
        pysindy.PolynomialLibrary(degree=3, include_bias=False), derivative_order=4, spatiotemporal_grid=grid,
        include_bias=True, K=200,
    )  # fmt: skip
    state = library.validate_input(u.T[..., None])
    right = np.asarray(library.fit_transform(state))
    return right, np.asarray(library.convert_u_dot_integral(state)), list(library.get_feature_names())


def tries(optimizer: str, right: Any, left: Any) -> list[Any]:
    """All coefficients that an optimizer of PySINDy makes of its thresholds or steps."""
    import pysindy

    found = []
    for normalize in (False, True):
        if optimizer == "STLSQ":
            for threshold in np.geomspace(1e-3, 300, 30):
                model = pysindy.STLSQ(threshold=threshold, alpha=1e-8, normalize_columns=normalize)
                found.append(model.fit(right, left).coef_)
            continue
        if optimizer == "SSR":
            model = pysindy.SSR(alpha=1e-8, max_iter=right.shape[1] - 1, normalize_columns=normalize)
        else:
            model = pysindy.FROLS(alpha=1e-8, max_iter=8, normalize_columns=normalize)
        found += list(np.asarray(model.fit(right, left).history_))
    return found


def chosen(optimizer: str, rows: Rows, sizes: Sequence[int]) -> list[set[str]]:
    """Terms of each equation with so many of them and the smallest residual."""
    right, left, names = rows
    every = tries(optimizer, right, left)
    equations = []
    for place, size in enumerate(sizes):
        supports = {tuple(np.flatnonzero(found[place])) for found in every}

        def residual(columns: tuple[int, ...], place: int = place) -> float:
            part = right[:, columns]
            fit = np.linalg.lstsq(part, left[:, place], rcond=None)[0]
            return float(np.square(left[:, place] - part @ fit).sum())

        fitting = [columns for columns in supports if len(columns) == size]
        equations.append({names[column] for column in min(fitting, key=residual)} if fitting else set())
    return equations


def default(optimizer: str, rows: Rows) -> list[set[str]]:
    """Terms of each equation with all settings as they come."""
    import pysindy

    right, left, names = rows
    model = getattr(pysindy, optimizer)().fit(right, left)
    return [{names[column] for column in np.flatnonzero(row)} for row in model.coef_]


def sets(equations: Equations) -> list[set[str]]:
    return [set(names) for names in equations.names]


def of_system(name: str, noise: float, seed: int) -> dict[str, bool]:
    """Which tools are right in one trial."""
    x, t = simulated(name)
    x = noisy(x, noise, seed)
    right = SYSTEMS[name][3]
    sizes = [len(terms) for terms in right]
    np.random.seed(seed)  # noqa: NPY002, as PySINDy places its subdomains by it
    weak = discover_equations(x, t, sizes, random_state=0)
    strong = discover_equations(x, t, sizes, form="strong", random_state=0)
    auto = discover_equations(x, t, random_state=0)
    found = {"ours, weak": sets(weak), "ours, strong": sets(strong), "auto: ours": sets(auto)}
    rows = {
        "our rows": our_rows(x, t, weak.half_widths[0]), "its weak rows": weak_rows(x, t),
        "its smoothed differences": smoothed_rows(x, t),
    }  # fmt: skip
    for kind, made in rows.items():
        found |= {f"{optimizer}, {kind}": chosen(optimizer, made, sizes) for optimizer in ("STLSQ", "SSR", "FROLS")}
        found |= {f"auto: {optimizer}, {kind}": default(optimizer, made) for optimizer in ("STLSQ", "SSR")}
    return {tool: terms == right for tool, terms in found.items()}


def of_field(name: str, noise: float, seed: int) -> dict[str, Any]:
    """The same for a field, with seconds and the largest error of a coefficient."""
    u, t, x = stored(name)
    u = noisy(u, noise, seed)
    _, _, right, theirs = FIELDS[name]
    np.random.seed(seed)  # noqa: NPY002, as PySINDy places its subdomains by it
    start = time.process_time()
    weak = discover_equations(u, t, len(right), space=x, random_state=0)
    mid = time.process_time()
    found = {"ours, weak": sets(weak) == [right]}
    found["ours, strong"] = sets(discover_equations(u, t, len(right), space=x, form="strong", random_state=0)) == [
        right
    ]
    found["auto: ours"] = sets(discover_equations(u, t, space=x, random_state=0)) == [right]
    last = time.process_time()
    rows = field_rows(u, t, x)
    made = time.process_time() - last
    for optimizer in ("STLSQ", "SSR", "FROLS"):
        found[f"{optimizer}, its weak rows"] = chosen(optimizer, rows, [len(right)]) == [theirs]
    for optimizer in ("STLSQ", "SSR"):
        found[f"auto: {optimizer}, its weak rows"] = default(optimizer, rows) == [theirs]
    return found | {"seconds": mid - start, "seconds of its rows": made, "equation": str(weak)}


def finished() -> dict[str, Any]:
    """All trials, those that are missing done now."""
    done: dict[str, Any] = json.loads(DONE.read_text(encoding="utf-8")) if DONE.exists() else {}
    fields = FIELDS if os.environ.get("KSUBSET_DATA") else {}
    todo = [(of_system, name, noise, seed) for name in SYSTEMS for noise in NOISE for seed in range(SEEDS)]
    todo += [(of_field, name, noise, seed) for name in fields for noise in FIELD_NOISE for seed in range(FIELD_SEEDS)]
    for work, name, noise, seed in todo:
        key = f"{name} {noise} {seed}"
        if key not in done:
            done[key] = work(name, noise, seed)
            DONE.write_text(json.dumps(done), encoding="utf-8")
    return done


def trials(done: dict[str, Any], name: str, noise: float) -> list[dict[str, Any]]:
    return [value for key, value in done.items() if key.startswith(f"{name} {noise} ")]


def rate(found: list[dict[str, Any]], tool: str) -> float:
    return float(np.mean([each[tool] for each in found]))


def rates(done: dict[str, Any], name: str, levels: Sequence[float]) -> str:
    """Of each tool, how many trials are right at each noise."""
    tools = [tool for tool, value in trials(done, name, 0.0)[0].items() if isinstance(value, bool)]
    lines = [
        [tool, *(f"{rate(trials(done, name, noise), tool):.0%}".replace("%", " %") for noise in levels)]
        for tool in sorted(tools, key=lambda tool: tool.startswith("auto"))
    ]
    return table(["", *(f"{noise:.0%} noise".replace("%", " %") for noise in levels)], lines)


def plot(done: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    styles = {
        "ours, weak": (BLUE, "o", "-"),
        "SSR, our rows": (SKY, "^", "-."),
        "STLSQ, its weak rows": (ORANGE, "s", "--"),
        "SSR, its weak rows": (VERMILLION, "v", "--"),
        "STLSQ, its smoothed differences": (GREY, "D", ":"),
    }
    for axis, name in zip(axes[0], SYSTEMS, strict=True):
        for tool, (colour, marker, line) in styles.items():
            values = [100 * rate(trials(done, name, noise), tool) for noise in NOISE]
            label = tool if tool.startswith("ours") else f"PySINDy's {tool}"
            axis.plot([100 * noise for noise in NOISE], values, line, color=colour, marker=marker, label=label)
        axis.set(title=name, xlabel="noise, % of the standard deviation", ylim=(-4, 104))
    axes[0, 0].set_ylabel(f"all terms right, % of {SEEDS}")
    x, t = simulated("Lorenz")
    data = noisy(x, 0.05, 0)
    found = discover_equations(data, t, [2, 3, 2], random_state=0)
    path = found.simulate(x[0], t)
    axes[1, 0].plot(data[:, 0], data[:, 2], ".", color=GREY, markersize=2.5, label="data, 5 % noise")
    axes[1, 0].plot(path[:, 0], path[:, 2], "-", color=BLUE, linewidth=1.2, label="the equations found, solved")
    axes[1, 0].set(xlabel="x", ylabel="z", ylim=(-24, 66))
    axes[1, 0].text(0.03, 0.03, str(found), transform=axes[1, 0].transAxes, family="monospace", fontsize=9)
    axes[1, 0].legend(frameon=False, fontsize=8, loc="upper left", markerscale=3)
    if os.environ.get("KSUBSET_DATA"):
        u, t, place = stored("Kuramoto-Sivashinsky")
        data = noisy(u, 0.1, 0)
        found = discover_equations(data, t, 3, space=place, random_state=0)
        axes[1, 1].pcolormesh(place, t, data, cmap="cividis", rasterized=True)
        axes[1, 1].set(xlabel="space", ylabel="time", title="Kuramoto-Sivashinsky, 10 % noise")
        axes[1, 1].text(
            0.5, 0.05, str(found).replace(" u_xx ", " u_xx\n      "), transform=axes[1, 1].transAxes,
            family="monospace", fontsize=9, ha="center",
            bbox={"facecolor": "white", "edgecolor": BLACK, "boxstyle": "round"},
        )  # fmt: skip
        for tool, (colour, marker, line) in styles.items():
            if tool in trials(done, "Burgers", 0.0)[0]:
                values = [
                    100 * np.mean([rate(trials(done, name, noise), tool) for name in FIELDS]) for noise in FIELD_NOISE
                ]
                axes[1, 2].plot([100 * noise for noise in FIELD_NOISE], values, line, color=colour, marker=marker)
        axes[1, 2].set(title="three fields", xlabel="noise, % of the standard deviation", ylim=(-4, 104))
        axes[1, 2].set_ylabel(f"all terms right, % of 3 x {FIELD_SEEDS}")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=9
    )
    figure.savefig(FIGURE, dpi=120)


def main() -> None:
    warnings.simplefilter("ignore")
    done = finished()
    print(f"{machine()}; pysindy {importlib.metadata.version('pysindy')}\n")
    print("Trials in which all equations have exactly the right terms; k known, or as each tool chooses it (auto).")
    print("PySINDy's MIOSR needs Gurobi, which is not free, and is left out.")
    for name in SYSTEMS:
        library = 20 if name == "Lorenz" else 10
        print(f"\n{name}, {SEEDS} seeds, a library of {library} terms:\n\n{rates(done, name, NOISE)}")
    for name in FIELDS:
        found = [trials(done, name, noise) for noise in FIELD_NOISE]
        if not found[0]:
            continue
        print(f"\n{name}, {FIELD_SEEDS} seeds:\n\n{rates(done, name, FIELD_NOISE)}\n")
        for noise, each in zip(FIELD_NOISE, found, strict=True):
            print(f"- {noise:.0%} noise, first seed: `{each[0]['equation']}`")
        seconds = [
            np.median([trial[key] for each in found for trial in each]) for key in ("seconds", "seconds of its rows")
        ]
        print(f"\nSeconds, median: ours {seconds[0]:.2f} in all, PySINDy's rows alone {seconds[1]:.2f}.")
    plot(done)


if __name__ == "__main__":
    main()
