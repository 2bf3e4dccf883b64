"""Runs as tasks of a Ray cluster."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch

from ksubset.experiments import records
from ksubset.experiments.backends.base import Failure, Plan, Report, Result, finished
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import Record

__all__ = ["on_cluster"]

# Nodes that may be lost under one run: a cluster may take them away as often as it likes, and a run resumes.
_RETRIES = 20


def on_cluster(ray: ModuleType, configs: Sequence[RunConfig], plan: Plan, report: Report, jobs: int) -> None:
    """Train on the cluster that ``RAY_ADDRESS`` names, or on one within this machine that has room for ``jobs`` runs.

    Raises:
        KeyboardInterrupt: all runs have ended after their steps.
    """
    with _cluster(ray, jobs):
        gpus = ray.cluster_resources().get("GPU", 0)
        # Ray rounds to ten-thousandths, and up, so that the last of seven sevenths would find no room.
        share = math.floor(10_000 / math.ceil(jobs / gpus)) / 10_000 if gpus else 0
        remote = ray.remote(max_retries=_RETRIES, num_cpus=1, num_gpus=share)(_on_node)
        tasks = {remote.remote(config, plan, report.titles[config]): config for config in configs}
        try:
            while tasks:
                (task,), _ = ray.wait(list(tasks))
                config = tasks.pop(task)
                try:
                    result = ray.get(task)
                except ray.exceptions.RayError as error:
                    result = Failure.of(config, error)
                if isinstance(result, Record) and finished(config, plan.out) is None:
                    records.write(result, plan.out)  # the node has written it too, but maybe not into this folder
                report.end(config, result)
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


def _on_node(config: RunConfig, plan: Plan, name: str) -> Result:
    torch.set_num_threads(1)
    print(f"{name}: started", flush=True)  # Ray shows it in the terminal of the sweep
    return plan.attempt(config)
