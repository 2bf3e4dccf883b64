"""Rows of every shape: samples against Gumbel top-k, normaliser and gradient against the recursion, a training step.

Usage: python benchmarks/shapes.py [--only PART] [--against SRC] > benchmarks/results/shapes-cpu.md
       python benchmarks/shapes.py --without-numba > benchmarks/results/shapes-without-numba-cpu.md

PART is sampling, ways, normalizer, inductor, step or committed. With `--against`, the src folder of another version of
this repository, that version takes turns with this one, also on the rows of sampler.py and normalizer.py (`committed`).

Medians of processor time on one torch thread, all sides of a row by turns.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import normalizer
import sampler
import torch
from timing import machine
from worker import LIMIT, Case, Worker, medians, recursion_bytes

from ksubset.numerics import Sampler

Shape = tuple[int, int, int]

SAMPLING: list[Shape] = [
    (1024, 784, 30),
    (256, 4096, 64),
    (8192, 128, 8),
    (4096, 64, 2),
    (3000, 300, 150),
    (64, 784, 30),
    (1, 784, 30),
    (4096, 4096, 64),
    (1, 100_000, 1000),
    (1, 1_000_000, 1000),
    (1, 10_000_000, 1000),
]
NORMALIZER: list[Shape] = [
    (100_000, 8, 2),
    (4096, 64, 2),
    (10_000, 50, 5),
    (1024, 784, 30),
    (8192, 128, 8),
    (256, 4096, 64),
    (64, 784, 30),
    (1, 784, 30),
    (3000, 300, 150),
    (1, 100_000, 1000),
    (1, 1_000_000, 1000),
]
WAYS: list[tuple[Shape, int]] = [
    ((4096, 64, 2), 1),
    ((4096, 64, 2), 10),
    ((8192, 128, 8), 1),
    ((8192, 128, 8), 10),
    ((1024, 784, 30), 1),
    ((1024, 784, 30), 10),
    ((64, 784, 30), 100),
    ((64, 300, 150), 10),
    ((1, 784, 30), 1000),
    ((1, 10_000, 100), 100),
]
STEP = Case("step", 1024, 784, 30, number=4)
# The recursion's graph may take so many bytes.
MEMORY = 2**32


def shown(seconds: float | None) -> str:
    if seconds is None:
        return f"over {LIMIT} s"
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"


def ratio(a: float | None, b: float | None) -> str:
    return "" if a is None or b is None else f"{a / b:.2f}" if a < 10 * b else f"{a / b:.0f}"


class Table:
    """Rows of times of the versions and of peers, printed as they come."""

    def __init__(self, versions: Sequence[Worker], head: Sequence[str]) -> None:
        self.versions = versions
        print(f"\n| {' | '.join(head)} |\n|{' --- |' * len(head)}", flush=True)

    def times(self, cases: Sequence[Case], peers: Sequence[Case] = ()) -> tuple[list[list[float | None]], list[str]]:
        """Times of cases by all versions, with the cells that compare them; the last times are those of the peers."""
        sides = [(version, case) for case in cases for version in self.versions]
        times = medians([*sides, *((self.versions[0], peer) for peer in peers)])
        by_case = [times[i : i + len(self.versions)] for i in range(0, len(sides), len(self.versions))]
        cells = [cell for now, *before in by_case for old in before for cell in (shown(old), ratio(now, old))]
        return [*by_case, times[len(sides) :]], cells

    def add(self, cells: Sequence[str]) -> None:
        print(f"| {' | '.join(cells)} |", flush=True)


def before(versions: Sequence[Worker], *works: str) -> list[str]:
    """Heads of the columns that compare versions."""
    return [head for work in works for head in (f"{work}, before", "now / before")] if len(versions) > 1 else []


def size(shape: Shape) -> str:
    return ", ".join(f"{number:,}" for number in shape)


def sampling(versions: Sequence[Worker]) -> None:
    print("\n## One sample of each row, k-hot, float32")
    print("\nFirst: preparation and one sample. Further: one more sample, of a distribution that has drawn before.")
    head = ["B; n; k", "first", "further", "Gumbel top-k", "first / Gumbel", "further / Gumbel"]
    table = Table(versions, [*head, *before(versions, "first", "further")])
    for shape in SAMPLING:
        cases = [Case(work, *shape) for work in ("first sample", "further sample")]
        ((first, *_), (further, *_), (gumbel,)), compared = table.times(cases, [Case("Gumbel top-k", *shape)])
        times = [shown(first), shown(further), shown(gumbel)]
        table.add([size(shape), *times, ratio(first, gumbel), ratio(further, gumbel), *compared])


def ways(versions: Sequence[Worker]) -> None:
    print("\n## The ways of drawing: preparation and S samples of each row, float32")
    print("\nThe rule takes thinning where there is numba, and otherwise what the last column says.")
    names = ["thinning", "splitting", "inversion"]
    table = Table(versions[:1], ["B; n; k", "S", *names, "without numba"])
    for shape, number in WAYS:
        times, _ = table.times([Case(name, *shape, number=number) for name in names])
        rows, n, k = shape
        with mock.patch("ksubset.numerics.compiled.usable", return_value=False):
            rule = Sampler(torch.zeros(rows, n), k)._way(number)
        table.add([size(shape), str(number), *(shown(time) for time, *_ in times[:-1]), rule])


def normalizers(versions: Sequence[Worker]) -> None:
    print("\n## Log normaliser and its gradient, float32")
    head = ["B; n; k", "ours", "recursion", "recursion / ours"]
    table = Table(versions, [*head, *before(versions, "ours")])
    for shape in NORMALIZER:
        peer = Case("recursion", *shape)
        affordable = recursion_bytes(peer) <= MEMORY
        ((ours, *_), theirs), compared = table.times([Case("normalizer", *shape)], [peer] if affordable else [])
        if affordable:
            cells = [shown(theirs[0]), ratio(theirs[0], ours)]
        else:
            cells = [f"left out: {recursion_bytes(peer) / 2**30:.0f} GiB", ""]
        table.add([size(shape), shown(ours), *cells, *compared])


def inductor(versions: Sequence[Worker]) -> None:
    shape = NORMALIZER[3]
    print("\n## Log normaliser and its gradient under torch.compile, float32, inductor")
    table = Table(versions[:1], ["B; n; k", "as it is", "compiled", "compiled / as it is"])
    ((plain, *_), (compiled, *_), _), _ = table.times(
        [Case(work, *shape) for work in ("normalizer", "normalizer by inductor")]
    )
    table.add([size(shape), shown(plain), shown(compiled), ratio(compiled, plain)])


def step(versions: Sequence[Worker]) -> None:
    _, rows, n, k, _, number = STEP
    print(f"\n## A training step: SubsetHead and LeaveOneOut, batch {rows}, n = {n}, k = {k}, S = {number}, float32")
    print("\nTwo layers make the logits, two tell the class, Adam. Ours: from logits and losses to a gradient.")
    table = Table(versions, ["version", "whole step", "ours", "share"])
    (whole, ours, _), _ = table.times([STEP, STEP._replace(work="layer")])
    for name, a, b in zip(("now", "before"), whole, ours, strict=False):
        share = "" if a is None or b is None else f"{100 * b / a:.1f} %"
        table.add([name, shown(a), shown(b), share])


def committed(versions: Sequence[Worker]) -> None:
    print("\n## The rows of sampler.py and normalizer.py")
    table = Table(versions, ["work", "samples or B; n; k", "dtype", "now", "before", "now / before"])
    cases = [
        Case(work, 1, n, k, number=number)
        for number, n, k in sampler.CASES
        for work in ("first indices", "first sample")
    ]
    rows = dict.fromkeys((shape, dtype) for shape, dtype, _ in normalizer.CASES)
    cases += [Case("moments", *shape, str(dtype).removeprefix("torch.")) for shape, dtype in rows]
    for case in cases:
        ((now, *_), _), compared = table.times([case])
        name = {"first indices": "samples, indices", "first sample": "samples, k-hot"}.get(case.work, "normaliser, pi")
        shape = (case.rows * case.number, case.n, case.k)
        table.add([name, size(shape), case.dtype, shown(now), *compared])


def main() -> None:
    parts = {
        "sampling": sampling,
        "ways": ways,
        "normalizer": normalizers,
        "inductor": inductor,
        "step": step,
        "committed": committed,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--against", type=Path, metavar="SRC", help="src folder of another version")
    parser.add_argument("--without-numba", action="store_true", help="all in eager torch")
    options = parser.parse_args()
    if options.only == "committed" and options.against is None:
        parser.error("the part committed compares versions: it needs --against")
    if options.against is not None and not (options.against / "ksubset").is_dir():
        parser.error(f"--against must be a folder that holds ksubset, got {options.against}")
    torch.set_num_threads(1)  # the workers' number, for the line on the machine
    print(f"# Shapes\n\n{machine()}\n")
    print("Medians of processor time; all sides of a row take turns.", end=" ")
    print("Without numba." if options.without_numba else "", end=" ")
    print("Before: the version given by `--against`." if options.against is not None else "")
    versions = [
        Worker(numba=not options.without_numba),
        *([] if options.against is None else [Worker(options.against)]),
    ]
    for name, part in parts.items():
        if name == options.only or (options.only is None and (name != "committed" or len(versions) > 1)):
            part(versions)


if __name__ == "__main__":
    main()
