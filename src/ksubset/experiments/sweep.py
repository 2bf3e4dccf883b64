"""Many runs: one after the other, several at a time in processes of their own, or on a Ray cluster."""

import _thread
import math
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import torch

from ksubset._support import files
from ksubset._support.extras import require
from ksubset.experiments import records, runner
from ksubset.experiments.config import RunConfig
from ksubset.experiments.monitor import TensorBoard
from ksubset.experiments.records import Record

__all__ = ["BACKENDS", "Bar", "Failure", "Outcome", "metrics", "summary", "sweep", "title", "train"]

BACKENDS = ("local", "ray")
Bar = Callable[[str, int], AbstractContextManager[runner.Progress]]

# Workers lost in a row, with no run that ended in between, after which something is wrong beyond bad luck.
_LOSSES = 3
# Nodes that may be lost under one run: a cluster may take them away as often as it likes, and a run resumes.
_RETRIES = 20


@dataclass(frozen=True)
class Failure:
    """A run that raised an exception.

    Arguments:
        config: the run's knobs, ``k`` resolved.
        reason: kind and message of the exception, in one line.
    """

    config: RunConfig
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What came out of a sweep, in the order of its configurations.

    Arguments:
        records: of the finished runs, those included that were finished before.
        failures: of the others.
    """

    records: list[Record]
    failures: list[Failure]


_Result = Record | Failure
_Start = Callable[[RunConfig], None]
_End = Callable[[RunConfig, _Result], None]


@dataclass(frozen=True)
class _Plan:
    """What the runs of a sweep share."""

    out: Path
    checkpoint_every: int
    tensorboard: Path | None


def sweep(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    backend: str = "local",
    jobs: int = 1,
    checkpoint_every: int = 10,
    tensorboard: Path | None = None,
    say: Callable[[str], None],
    bar: Bar | None = None,
) -> Outcome:
    """Train every configuration once whose finished record is not in the folder ``out`` yet.

    A run that fails leaves the others alone. Runs that were killed, by an earlier Ctrl-C or with the process they were
    in, go on after their last checkpoints: those of lost processes within the same sweep.

    Arguments:
        configs: all are checked before the first one starts.
        out: folder for the records.
        backend: ``"local"``, or ``"ray"``: on the cluster that the environment variable ``RAY_ADDRESS`` names, by
            default on one within this machine. A cluster should share the folder ``out``; without, a run whose node is
            lost starts anew on another one, and records come back to this machine only when they are finished.
        jobs: runs at a time. Several have a process and a thread of torch each. A cluster that is given has as many at
            a time as there is room for: each takes a core, and such a share of a GPU that ``jobs`` find one.
        checkpoint_every: epochs from one checkpoint to the next.
        tensorboard: folder for TensorBoard's files, with a sub-folder for each run.
        say: called with a line for the user when a run starts, ends, fails or needs no training.
        bar: called with title and epochs of a run in this very process; gives the function that is called after each
            epoch with its entry of the history.

    Raises:
        ValueError: an argument or a configuration is wrong.
        ImportError: ray or tensorboard is missing.
        OSError: ``out`` is not writable, or workers are killed again and again.
        KeyboardInterrupt: all runs have ended after their steps; their checkpoints and records are written.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend: expected one of {', '.join(BACKENDS)}, got {backend!r}")
    for name, value in (("jobs", jobs), ("checkpoint_every", checkpoint_every)):
        if value < 1:
            raise ValueError(f"{name}: expected an integer >= 1, got {value}")
    if tensorboard is not None:
        require("torch.utils.tensorboard", "tensorboard")
    ray = require("ray", "ray") if backend == "ray" else None
    configs = list(dict.fromkeys(runner.resolve(config) for config in configs))
    titles = {config: f"[{number}/{len(configs)}] {title(config)}" for number, config in enumerate(configs, 1)}
    files.prepare(out)
    plan = _Plan(out.absolute(), checkpoint_every, None if tensorboard is None else tensorboard.absolute())
    results: dict[RunConfig, _Result] = {}

    def start(config: RunConfig) -> None:
        say(f"{titles[config]}: started")

    def end(config: RunConfig, result: _Result) -> None:
        results[config] = result
        if isinstance(result, Failure):
            say(f"{titles[config]}: failed, {result.reason}")
        else:
            say(f"{titles[config]}: {summary(result, out)}")

    left = []
    for config in configs:
        try:
            found = _finished(config, out)
        except ValueError as error:
            end(config, _failure(config, error))
            continue
        if found is None:
            left.append(config)
        else:
            results[config] = found
            say(f"{titles[config]}: already in {out / found.filename}")
    if ray is not None:
        _on_ray(ray, left, plan, jobs, titles, end)
    elif jobs > 1:
        _in_processes(left, plan, jobs, start, end, say)
    else:
        for config in left:
            with nullcontext() if bar is None else bar(titles[config], config.epochs) as progress:
                result = _attempt(config, plan, progress)
            end(config, result)
    ended = [results[config] for config in configs]
    return Outcome(
        [result for result in ended if isinstance(result, Record)],
        [result for result in ended if isinstance(result, Failure)],
    )


def train(
    config: RunConfig,
    out: Path,
    progress: runner.Progress | None = None,
    *,
    checkpoint_every: int = 10,
    tensorboard: Path | None = None,
) -> Record:
    """:func:`ksubset.experiments.runner.run`, watched by TensorBoard if there is a folder for its files."""
    config = runner.resolve(config)
    with nullcontext() if tensorboard is None else TensorBoard(tensorboard, config.name()) as monitor:
        return runner.run(config, out, progress, checkpoint_every=checkpoint_every, monitor=monitor)


def title(config: RunConfig) -> str:
    """What tells a run from others for a reader: ``classification digits sfess-v seed 0``."""
    return f"{config.task} {config.dataset} {config.method} seed {config.seed}"


def summary(record: Record, out: Path) -> str:
    """What came out of a run and where it is, in one line."""
    return f"test {metrics(record.test)}, {record.seconds_total:.1f} s, {out / record.filename}"


def metrics(values: dict[str, float]) -> str:
    """Metrics in words: ``psnr 17.123, ssim 0.812``."""
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def _finished(config: RunConfig, out: Path) -> Record | None:
    path = out / f"{config.name()}.json"
    record = records.load(path) if path.exists() else None
    return record if record is not None and record.status == records.FINISHED else None


def _failure(config: RunConfig, error: Exception) -> Failure:
    return Failure(config, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _attempt(config: RunConfig, plan: _Plan, progress: runner.Progress | None = None) -> _Result:
    try:
        return train(config, plan.out, progress, checkpoint_every=plan.checkpoint_every, tensorboard=plan.tensorboard)
    # Whatever is wrong with a run, the others may be right; and not every exception could travel between processes.
    except Exception as error:
        return _failure(config, error)


def _in_processes(
    configs: Sequence[RunConfig], plan: _Plan, jobs: int, start: _Start, end: _End, say: Callable[[str], None]
) -> None:
    context = multiprocessing.get_context("spawn")
    waiting = deque(configs)
    losses = 0
    while waiting:
        running: dict[Future[_Result], RunConfig] = {}
        stop, hold = context.Pipe(duplex=False)
        try:
            # On the way out, in this order: closing `hold` interrupts the runs, and the pool waits for them.
            with stop, ProcessPoolExecutor(min(jobs, len(waiting)), context, _prepare, (stop,)) as pool, hold:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        with _shielded():
                            running[pool.submit(_in_process, waiting[0], plan)] = waiting[0]
                        start(waiting.popleft())
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        end(running.pop(future), result)
                        losses = 0
        except BrokenProcessPool as error:
            for future, config in running.items():
                if future.exception() is None:
                    end(config, future.result())
                else:
                    waiting.append(config)
            losses += 1
            if losses == _LOSSES:
                raise ChildProcessError(
                    f"jobs: worker processes were killed {losses} times, and no run ended in between; perhaps {jobs} "
                    "at a time need more memory than there is. The same command goes on after the last checkpoints"
                ) from error
            say("a worker process was killed: its run and those beside it go on after their last checkpoints")


@contextmanager
def _shielded() -> Iterator[None]:
    """Processes that are started within never see the terminal's Ctrl-C, as their parent has to pass it on anyway: it
    may be the only one that got it, and a second one would cut their steps short.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_busy = threading.Lock()
_stopped = threading.Event()


def _prepare(stop: Connection) -> None:
    """Make a new process a worker, that ends its run when the other end of the pipe is closed."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(stop,), daemon=True).start()


def _watch(stop: Connection) -> None:
    stop.poll(None)
    _stopped.set()
    _thread.interrupt_main()
    # A parent that was killed has closed the pipe too, but will not end this process.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    with _busy:
        os._exit(1)


def _in_process(config: RunConfig, plan: _Plan) -> _Result:
    with _busy:
        # Before its first step a run is not ready to be interrupted gently.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if _stopped.is_set():
                raise KeyboardInterrupt
            return _attempt(config, plan)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_ray(
    ray: ModuleType, configs: Sequence[RunConfig], plan: _Plan, jobs: int, titles: dict[RunConfig, str], end: _End
) -> None:
    with _cluster(ray, jobs):
        gpus = ray.cluster_resources().get("GPU", 0)
        # Ray rounds to ten-thousandths, and up, so that the last of seven sevenths would find no room.
        share = math.floor(10_000 / math.ceil(jobs / gpus)) / 10_000 if gpus else 0
        remote = ray.remote(max_retries=_RETRIES, num_cpus=1, num_gpus=share)(_on_node)
        tasks = {remote.remote(config, plan, titles[config]): config for config in configs}
        try:
            while tasks:
                (task,), _ = ray.wait(list(tasks))
                config = tasks.pop(task)
                try:
                    result = ray.get(task)
                except ray.exceptions.RayError as error:
                    result = _failure(config, error)
                if isinstance(result, Record) and _finished(config, plan.out) is None:
                    records.write(result, plan.out)  # the node has written it too, but maybe not into this folder
                end(config, result)
        except KeyboardInterrupt:
            for task in tasks:
                ray.cancel(task)
            for task in tasks:
                ray.wait([task])
            raise


@contextmanager
def _cluster(ray: ModuleType, jobs: int) -> Iterator[None]:
    """Ray as the caller or ``RAY_ADDRESS`` has it, or else a cluster of one's own for the time being."""
    if ray.is_initialized():
        yield
        return
    own = {} if "RAY_ADDRESS" in os.environ else {"address": "local", "num_cpus": jobs, "include_dashboard": False}
    ray.init(**own)
    try:
        yield
    finally:
        ray.shutdown()


def _on_node(config: RunConfig, plan: _Plan, name: str) -> _Result:
    torch.set_num_threads(1)
    print(f"{name}: started", flush=True)  # Ray shows it in the terminal of the sweep
    return _attempt(config, plan)
