"""Runs on this machine: one after the other in this very process, or several at a time in processes of their own."""

import _thread
import multiprocessing
import multiprocessing.queues
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import torch

from ksubset.experiments import runner
from ksubset.experiments.backends.base import Plan, Report, Result
from ksubset.experiments.config import RunConfig

__all__ = ["Bar", "here", "in_processes"]

Bar = Callable[[str, int], AbstractContextManager[runner.Progress]]
Epochs: TypeAlias = "multiprocessing.queues.Queue[tuple[RunConfig, dict[str, Any]]]"

# Workers lost in a row, with no run that ended in between, after which something is wrong beyond bad luck.
_LOSSES = 3
# Seconds from one look at what the workers say to the next.
_GLANCE = 0.5


def here(configs: Sequence[RunConfig], plan: Plan, report: Report, bar: Bar | None) -> None:
    """Train one run after the other in this process; ``bar`` as of :func:`ksubset.experiments.sweep.sweep`."""
    for config in configs:
        with nullcontext() if bar is None else bar(report.titles[config], config.epochs) as progress:
            result = plan.attempt(config, progress)
        report.end(config, result)


def in_processes(configs: Sequence[RunConfig], plan: Plan, report: Report, jobs: int) -> None:
    """Train up to ``jobs`` runs at a time, in processes with one thread of torch each.

    Raises:
        ChildProcessError: workers are killed again and again.
        KeyboardInterrupt: all runs have ended after their steps.
    """
    context = multiprocessing.get_context("spawn")
    waiting = deque(configs)
    losses = 0
    while waiting:
        running: dict[Future[Result], RunConfig] = {}
        stop, hold = context.Pipe(duplex=False)
        epochs: Epochs = context.Queue()
        try:
            # On the way out, in this order: closing `hold` interrupts the runs, and the pool waits for them.
            with stop, ProcessPoolExecutor(min(jobs, len(waiting)), context, _prepare, (stop, epochs)) as pool, hold:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        with _shielded():
                            running[_submitted(pool, waiting[0], plan)] = waiting[0]
                        report.start(waiting.popleft())
                    done = wait(running, timeout=_GLANCE, return_when=FIRST_COMPLETED).done
                    with suppress(queue.Empty):
                        while True:
                            report.epoch(*epochs.get_nowait())
                    for future in done:
                        result = future.result()
                        report.end(running.pop(future), result)
                        losses = 0
        except BrokenProcessPool as error:
            for future, config in running.items():
                if future.exception() is None:
                    report.end(config, future.result())
                else:
                    waiting.append(config)
            losses += 1
            if losses == _LOSSES:
                raise ChildProcessError(
                    f"jobs: worker processes were killed {losses} times, and no run ended in between; perhaps {jobs} "
                    "at a time need more memory than there is. The same command goes on after the last checkpoints"
                ) from error
            report.say("a worker process was killed: its run and those beside it go on after their last checkpoints")


def _submitted(pool: ProcessPoolExecutor, config: RunConfig, plan: Plan) -> "Future[Result]":
    try:
        return pool.submit(_in_process, config, plan)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        # A pool that breaks at this very moment has closed the pipes that a new process takes, before it says so.
        raise BrokenProcessPool(str(error)) from error


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


_epochs: Epochs
_busy = threading.Lock()
_stopped = threading.Event()


def _prepare(stop: Connection, epochs: Epochs) -> None:
    """Make a new process a worker, that ends its run when the other end of the pipe is closed."""
    global _epochs  # noqa: PLW0603 - what a process is started with cannot travel with its runs
    _epochs = epochs
    # A worker that ends does not wait for somebody to hear of its last epoch.
    epochs.cancel_join_thread()
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


def _in_process(config: RunConfig, plan: Plan) -> Result:
    with _busy:
        # Before its first step a run is not ready to be interrupted gently.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if _stopped.is_set():
                raise KeyboardInterrupt
            return plan.attempt(config, lambda entry: _epochs.put((config, entry)))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
