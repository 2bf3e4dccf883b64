"""Work timed in a process of its own, so that two versions of ksubset can take turns in one run.

Processor time on one torch thread. Only what every version has is used here: the public interface, and the peers.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from peers import gumbel_top_k, recursion_log_normalizer
from torch import Tensor, nn

import ksubset
from ksubset import KSubset, LeaveOneOut, expectation
from ksubset.nn import SubsetHead

__all__ = ["LIMIT", "SOURCE", "Case", "Worker", "medians", "recursion_bytes"]

SOURCE = Path(__file__).parents[1] / "src"
# Wall-clock seconds after which a call is given up.
LIMIT = 120
# Seconds: a block of calls that is timed at once, all blocks of one side, and the most that a slow side may take.
BLOCK, BUDGET, MOST = 0.02, 1.5, 20.0
LEAST_BLOCKS, MOST_BLOCKS = 3, 25


class Case(NamedTuple):
    """What is timed: some work on standard normal logits `(rows, n)`."""

    work: str
    rows: int
    n: int
    k: int
    dtype: str = "float32"
    number: int = 1
    """Samples of each row."""


def prepared(case: Case) -> Callable[[], object]:
    """The work of a case, with all that it may take as given."""
    torch.manual_seed(0)
    k, number = case.k, case.number
    logits = torch.randn(case.rows, case.n, dtype=getattr(torch, case.dtype))
    shape = () if number == 1 else (number,)

    def fresh() -> KSubset:
        """A distribution that has nothing prepared."""
        return KSubset(k, logits, validate_args=False)

    def with_gradient(log_normalizer: Callable[[], Tensor]) -> Callable[[], object]:
        logits.requires_grad_()

        def both() -> tuple[Tensor, Tensor]:
            value = log_normalizer()
            return value.detach(), torch.autograd.grad(value.sum(), logits)[0]

        return both

    def moments() -> tuple[Tensor, Tensor]:
        dist = fresh()
        return dist.log_normalizer, dist.mean

    match case.work:
        case "first sample":
            return lambda: fresh().sample(shape)
        case "first indices":
            return lambda: fresh().sample_indices(shape)
        case "further sample":
            dist = fresh()
            dist.sample(shape)
            return lambda: dist.sample(shape)
        case "inversion" | "splitting" | "thinning":
            from ksubset.numerics import Sampler  # older versions lack it

            def drawn() -> Tensor:
                sampler = Sampler(logits, k)
                sampler._way = lambda _: case.work  # type: ignore[method-assign]
                return sampler.k_hot(number, logits.dtype)

            return drawn
        case "Gumbel top-k":
            return lambda: gumbel_top_k(logits, k, number)
        case "moments":
            return moments
        case "normalizer":
            return with_gradient(lambda: fresh().log_normalizer)
        case "normalizer by inductor":
            compiled = with_gradient(torch.compile(lambda: fresh().log_normalizer))
            compiled()  # compiles, which may take longer than a slow side gets a second call for
            return compiled
        case "recursion":
            return with_gradient(lambda: recursion_log_normalizer(logits, k))
        case "step":
            return training_step(case)
        case "layer":
            losses = torch.rand(number, case.rows)
            logits.requires_grad_()

            def layer() -> tuple[Tensor, ...]:
                loss = expectation(lambda _: losses, KSubset(k, logits), LeaveOneOut(), number).mean()
                return torch.autograd.grad(loss, logits)

            return layer
    raise ValueError(f"no such work: {case.work}")


def training_step(case: Case) -> Callable[[], None]:
    """A head that sees its image chooses k pixels of it, from which a small network tells one of ten classes."""
    n, width = case.n, 256
    head = SubsetHead(case.k, nn.Sequential(nn.Linear(n, width), nn.ReLU(), nn.Linear(width, n)))
    network = nn.Sequential(nn.Linear(n, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam([*head.parameters(), *network.parameters()], lr=1e-4)
    images, labels = torch.rand(case.rows, n), torch.randint(10, (case.rows,))

    def loss_of(subsets: Tensor) -> Tensor:
        output = network(subsets * images)
        return nn.functional.cross_entropy(output.mT, labels.expand(len(subsets), -1), reduction="none")

    def step() -> None:
        optimizer.zero_grad()
        expectation(loss_of, head(images), LeaveOneOut(), case.number).mean().backward()
        optimizer.step()

    return step


def recursion_bytes(case: Case) -> int:
    """What the graph of the recursion keeps: two rows of its table for every item."""
    return 2 * case.n * case.rows * (case.k + 1) * getattr(torch, case.dtype).itemsize


class Worker:
    """A process that times cases with the ksubset of a folder, with numba or without; started when it is needed."""

    def __init__(self, source: Path = SOURCE, *, numba: bool = True) -> None:
        self.source, self.numba = source.resolve(), numba
        self.process: subprocess.Popen[str] | None = None

    def seconds(self, case: Case, calls: int = 1) -> float | None:
        """Processor seconds a call; None if it was ended, for its time or its memory."""
        if self.process is None:
            environment = {**os.environ, "PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, str(self.source), *([] if self.numba else ["without numba"])]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        guard = threading.Timer(LIMIT, self.process.kill)
        guard.start()
        self.process.stdin.write(json.dumps([case, calls]) + "\n")
        answer = self.process.stdout.readline()
        guard.cancel()
        if answer:
            return float(answer)
        status = self.process.wait()
        self.process = None
        if status != -signal.SIGKILL:
            raise RuntimeError(f"{case} failed with the sources of {self.source}")
        return None

    def close(self) -> None:
        """End the process, and with it what it keeps of its cases."""
        if self.process is not None:
            self.process.communicate()
            self.process = None


def medians(sides: Sequence[tuple[Worker, Case]]) -> list[float | None]:
    """Median processor seconds of each side; they take turns, so that a slow phase of the machine hits all of them."""
    times: list[list[float]] = []
    plans: list[tuple[int, int]] = []
    for worker, case in sides:
        once = worker.seconds(case)
        if once is not None and once <= MOST:  # a first call may load or compile something
            once = worker.seconds(case)
        if once is None:
            times.append([])
            plans.append((0, 1))
            continue
        calls = max(1, round(BLOCK / once))
        blocks = min(MOST_BLOCKS, max(LEAST_BLOCKS, int(BUDGET / (calls * once))), int(MOST / once))
        times.append([once] if blocks == 0 else [])
        plans.append((blocks, calls))
    for turn in range(MOST_BLOCKS):
        for (worker, case), (blocks, calls), spent in zip(sides, plans, times, strict=True):
            if turn < blocks and (seconds := worker.seconds(case, calls)) is not None:
                spent.append(seconds)
    for worker in {worker for worker, _ in sides}:
        worker.close()
    return [statistics.median(spent) if spent else None for spent in times]


def serve() -> None:
    """Answer each case and number of calls on standard input with seconds a call."""
    if not Path(ksubset.__file__).is_relative_to(sys.argv[1]):
        raise RuntimeError(f"ksubset was to be imported from {sys.argv[1]}, but came from {ksubset.__file__}")
    if "without numba" in sys.argv:
        sys.modules["numba"] = None  # type: ignore[assignment] - how Python says that it is not there
    torch.set_num_threads(1)
    kept: dict[Case, Callable[[], object]] = {}
    for line in sys.stdin:
        given, calls = json.loads(line)
        case = Case(*given)
        if case not in kept:
            kept[case] = prepared(case)
        work = kept[case]
        start = time.process_time()
        for _ in range(calls):
            work()
        print((time.process_time() - start) / calls, flush=True)


if __name__ == "__main__":
    serve()
