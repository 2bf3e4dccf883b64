"""Test accuracy of nearest neighbours by a learned embedding, side by side: same network, same rows, same k.

Usage: python benchmarks/neighbours.py RESULTS.json [--rows ROW ...] [--methods METHOD ...] [--seeds SEED ...] [--table]
       python benchmarks/neighbours.py --figure FIGURE.png

Runs every method on every row and seed, or those named, that RESULTS.json does not have yet; it is written after each
run, so that an interrupted benchmark goes on. `--table` runs nothing and prints what the file has; `--figure` trains
once on MNIST and draws neighbours and the embedding. Data are read from the folder that KSUBSET_DATA names. Nothing is
trained or chosen on test data.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from selection import Split, har, images, isolet, mice
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.neighbors import NearestNeighbors, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler
from timing import machine
from torch import nn

from ksubset import IMLE, NCPSS, SIMPLE, GumbelTopK, Hybrid, LeaveOneOut, ScoreFunction
from ksubset._support.files import write
from ksubset._support.markdown import table
from ksubset._support.palette import BLACK, COLOURS, GREEN, VERMILLION
from ksubset.applications.neighbours import SubsetNeighborsClassifier
from ksubset.estimators import Estimator
from ksubset.training import seeded

NEIGHBOURS = (1, 5, 9)
SIZE = 32
NOTES = """\
Accuracy on the test data in percent, mean of the seeds and the smallest and largest of them, with k = 1, 5 and 9
neighbours, searched among all rows to train on. An embedding is trained once, with k = 5, and serves each k. Each seed
has its own rows to train and test on; of ISOLET and the images the official test data, and of the images its own 20,000
rows to train on. Tabular data have their missing values at the mean of the column, and are standardised; pixels are in
[0, 1]. "Rows as they are" is nearest neighbours on these. The network of cross-entropy is the same embedding with a
linear layer on it, trained with the same optimizer on batches of the same size, for as many steps (images) or five
times as many (tables). Seconds are those of the processor
for the training, on one thread, mean of the seeds.\
"""


@dataclass(frozen=True)
class Row:
    """Data, network and the methods that are compared."""

    data: str
    load: Callable[[int], Split]
    network: Callable[[int, int], nn.Module]
    methods: Sequence[str]
    steps: int
    cross_entropy_steps: int
    learning_rate: float


def perceptron(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, outputs))


def convolutions(inputs: int, outputs: int) -> nn.Module:
    """Smaller than LeNet, for a single core."""
    side = int(inputs**0.5)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, outputs),
    )  # fmt: skip


def tabular(load: Callable[[int], Split]) -> Callable[[int], Split]:
    def prepared(seed: int) -> Split:
        split = load(seed)
        imputer = SimpleImputer().fit(split.train)
        scaler = StandardScaler().fit(imputer.transform(split.train))
        train, test = (scaler.transform(imputer.transform(x)) for x in (split.train, split.test))
        return Split(train, split.labels, test, split.truth)

    return prepared


Points = tuple[NDArray[Any], NDArray[Any]]


def as_they_are(row: Row, split: Split, seed: int) -> Points:
    return split.train, split.test


def by_components(row: Row, split: Split, seed: int) -> Points:
    model = NeighborhoodComponentsAnalysis(SIZE, random_state=seed).fit(split.train, split.labels)
    return model.transform(split.train), model.transform(split.test)


def by_cross_entropy(row: Row, split: Split, seed: int, *, times: int = 1) -> Points:
    steps = times * row.cross_entropy_steps
    rows, labels = torch.from_numpy(split.train).float(), np.unique(split.labels, return_inverse=True)[1]
    truth = torch.from_numpy(labels)
    with seeded(seed):
        embedding = row.network(rows.shape[1], SIZE)
        embedding(rows[:2])
        network = nn.Sequential(embedding, nn.Linear(SIZE, int(truth.max()) + 1))
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            chosen = torch.randperm(len(rows))[:128]
            loss = nn.functional.cross_entropy(network(rows[chosen]), truth[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        points, others = (
            torch.cat([embedding(part) for part in torch.from_numpy(x).float().split(1000)]).numpy()
            for x in (split.train, split.test)
        )
    return points, others


def by_subsets(row: Row, split: Split, seed: int, **arguments: Any) -> Points:
    settings = {
        "embedding": row.network, "embedding_size": SIZE, "steps": row.steps, "learning_rate": row.learning_rate,
        "device": "cpu", "random_state": seed,
    }  # fmt: skip
    model = SubsetNeighborsClassifier(5, **settings | arguments).fit(split.train, split.labels)
    return model.transform(split.train), model.transform(split.test)


def linear(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs)


ESTIMATORS: dict[str, Estimator | None] = {
    "at the mean": None,
    "SIMPLE": SIMPLE(),
    "LeaveOneOut": LeaveOneOut(),
    "Hybrid": Hybrid(),
    "ScoreFunction": ScoreFunction(),
    "GS": GumbelTopK(0.5),
    "STGS": GumbelTopK(0.5, straight_through=True),
    "I-MLE": IMLE(),
    "NCPSS": NCPSS(),
}
LOSSES = ("share", "log", "vote")
COMPARED = {
    f"{loss}: {name}": functools.partial(
        by_subsets, loss=loss, gradient_estimator=estimator, num_samples=8, batch_size=64
    )
    for name, estimator in ESTIMATORS.items()
    for loss in LOSSES
    if loss != "vote" or (estimator is not None and not estimator.needs_gradient)
}
METHODS: dict[str, Callable[[Row, Split, int], Points]] = {
    "rows as they are": as_they_are,
    "cross-entropy": by_cross_entropy,
    "cross-entropy, twice the steps": functools.partial(by_cross_entropy, times=2),
    "random subsets": by_subsets,
    "NCA, linear": by_components,
    "random subsets, linear": functools.partial(by_subsets, embedding=linear),
    **COMPARED,
}
ON_TABLES = ("rows as they are", "cross-entropy", "random subsets", "NCA, linear", "random subsets, linear")
ON_IMAGES = ("rows as they are", "cross-entropy", "cross-entropy, twice the steps", "random subsets")

TABLE = (300, 1500, 1e-3)
IMAGES = (400, 400, 3e-3)
ROWS: dict[str, Row] = {
    "mice": Row("Mice Protein", tabular(mice), perceptron, ON_TABLES, *TABLE),
    "har": Row("HAR subset", tabular(har), perceptron, ON_TABLES, *TABLE),
    # Each step of NCA compares all pairs of rows.
    "isolet": Row("ISOLET", tabular(isolet), perceptron, ON_TABLES[:3], *TABLE),
    "mnist": Row("MNIST", lambda seed: images("mnist", seed, 20_000), convolutions, ON_IMAGES, *IMAGES),
    "fashion": Row(
        "Fashion-MNIST", lambda seed: images("fashion-mnist", seed, 20_000), convolutions, ON_IMAGES, *IMAGES
    ),
    "estimators": Row(
        "Fashion-MNIST, 5,000 rows", lambda seed: images("fashion-mnist", seed, 5000), perceptron, list(COMPARED),
        *TABLE,
    ),
}  # fmt: skip


def run(row: Row, method: str, seed: int) -> dict[str, Any]:
    split = row.load(seed)
    start = time.process_time()
    points, others = METHODS[method](row, split, seed)
    seconds = time.process_time() - start
    classes, labels = np.unique(split.labels, return_inverse=True)
    search = NearestNeighbors(n_neighbors=max(NEIGHBOURS)).fit(points.astype(np.float32))
    found = np.eye(len(classes))[labels[search.kneighbors(others.astype(np.float32), return_distance=False)]]
    scores = [float((classes[found[:, :k].sum(1).argmax(1)] == split.truth).mean()) for k in NEIGHBOURS]
    return {"scores": scores, "seconds": seconds}


def lines(results: dict[str, dict[str, Any]], rows: Sequence[str]) -> Iterator[Sequence[str]]:
    for name in rows:
        for method in ROWS[name].methods:
            runs = [results[key] for key in results if key.rpartition("/")[0] == f"{name}/{method}"]
            if runs:
                scores = 100 * np.array([found["scores"] for found in runs])
                cells = [
                    f"{mean:.2f} ({least:.2f} to {most:.2f})"
                    for mean, least, most in zip(scores.mean(0), scores.min(0), scores.max(0), strict=True)
                ]
                seconds = np.mean([found["seconds"] for found in runs])
                yield [ROWS[name].data, method, *cells, str(len(runs)), f"{seconds:.1f}"]


def draw(path: Path) -> None:
    """Test images with their nearest rows, two of them wrong, and the points of test images along two axes."""
    split = ROWS["mnist"].load(0)
    model = SubsetNeighborsClassifier(
        5, embedding=convolutions, steps=400, learning_rate=3e-3, device="cpu", random_state=0
    ).fit(split.train, split.labels)
    found = model.predict(split.test)
    wrong = np.flatnonzero(found != split.truth)
    queries = np.concatenate([[np.flatnonzero(split.truth == digit)[0] for digit in (0, 2, 3, 8)], wrong[:2]])
    _, rows = model.kneighbors(split.test[queries])
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    panels = left.subplots(len(queries), 6)
    for line, query, nearest in zip(panels, queries, rows, strict=True):
        shown = [
            (split.test[query], split.truth[query]),
            *zip(split.train[nearest], split.labels[nearest], strict=True),
        ]
        for panel, (image, label) in zip(line, shown, strict=True):
            panel.imshow(image.reshape(28, 28), cmap="gray_r")
            colour = BLACK if panel is line[0] else GREEN if label == split.truth[query] else VERMILLION
            panel.set_title(str(label), fontsize="small", color=colour)
            panel.set(xticks=[], yticks=[])
            for spine in panel.spines.values():
                spine.set(color=colour, linewidth=2)
    left.suptitle("test images, their labels, and the 5 nearest rows", fontsize="medium")
    points = PCA(2, random_state=0).fit(model.transform(split.train)).transform(model.transform(split.test[:1500]))
    panel = right.subplots()
    for digit in range(10):
        members = points[split.truth[:1500] == digit]
        panel.scatter(*members.T, marker=f"${digit}$", s=30, color=COLOURS[digit % len(COLOURS)], linewidths=0)
    panel.set(xticks=[], yticks=[], xlabel="first principal component", ylabel="second")
    panel.set_title(f"1,500 test images; accuracy on all {(found == split.truth).mean():.3f}", fontsize="medium")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.figure is not None:
        draw(arguments.figure)
        return
    if arguments.results is None:
        parser.error("RESULTS.json is missing")

    def known() -> dict[str, Any]:
        return json.loads(arguments.results.read_text()) if arguments.results.exists() else {}

    if arguments.table:
        head = ["data", "embedding by", *(f"k = {k}" for k in NEIGHBOURS), "seeds", "seconds"]
        print(f"# Nearest neighbours by learned embeddings\n\n{machine()}\n\n{NOTES}\n")
        print(table(head, lines(known(), arguments.rows)))
        return
    for seed in arguments.seeds:
        for name in arguments.rows:
            for method in arguments.methods:
                key = f"{name}/{method}/{seed}"
                if method not in ROWS[name].methods or key in known():
                    continue
                found = run(ROWS[name], method, seed)
                print(key, *(f"{score:.4f}" for score in found["scores"]), f"{found['seconds']:.1f} s", flush=True)
                # Read anew, as another process may have written meanwhile.
                write(arguments.results, json.dumps(known() | {key: found}, indent=0).encode())


if __name__ == "__main__":
    main()
