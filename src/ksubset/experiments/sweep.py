"""Many runs: those that are left of a grid, trained here, in processes of their own, or on a Ray cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ksubset._support import files
from ksubset._support.extras import require
from ksubset.experiments import runner
from ksubset.experiments.backends import local
from ksubset.experiments.backends.base import Failure, Plan, Report, finished
from ksubset.experiments.backends.ray import on_cluster
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record

__all__ = ["BACKENDS", "Outcome", "sweep"]

BACKENDS = ("local", "ray")


@dataclass(frozen=True)
class Outcome:
    """What came out of a sweep, in the order of its configurations.

    Arguments:
        records: of the finished runs, those included that were finished before.
        failures: of the others.
    """

    records: list[Record]
    failures: list[Failure]


def sweep(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    backend: str = "local",
    jobs: int = 1,
    checkpoint_every: int = 10,
    tensorboard: Path | None = None,
    say: Callable[[str], None],
    bar: local.Bar | None = None,
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
            a time as there is room for: each takes a core, and such a fraction of a GPU that ``jobs`` find one.
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
        files.prepare(tensorboard, "tensorboard")
    ray = require("ray", "ray") if backend == "ray" else None
    configs = list(dict.fromkeys(runner.resolve(config) for config in configs))
    files.prepare(out)
    plan = Plan(out.absolute(), checkpoint_every, None if tensorboard is None else tensorboard.absolute())
    report = Report(configs, out, say)
    left = []
    for config in configs:
        try:
            found = finished(config, out)
        except ValueError as error:
            report.end(config, Failure.of(config, error))
            continue
        if found is None:
            left.append(config)
        else:
            report.skip(found)
    if ray is not None:
        on_cluster(ray, left, plan, report, jobs)
    elif jobs > 1:
        local.in_processes(left, plan, report, jobs)
    else:
        local.here(left, plan, report, bar)
    ended = [report.results[config] for config in configs]
    return Outcome(
        [result for result in ended if isinstance(result, Record)],
        [result for result in ended if isinstance(result, Failure)],
    )
