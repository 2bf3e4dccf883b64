"""Named settings: ``paper``, everything as printed, and ``best``, whatever validation data supports."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ksubset.experiments import published, tasks
from ksubset.experiments.config import RunConfig

__all__ = ["PROTOCOLS", "find", "grid", "name"]

PROTOCOLS = ("paper", "best")

# What a protocol leaves to the user.
_FREE = ("task", "dataset", "method", "k", "epochs", "seed", "images")


def find(protocol: str, task: str, dataset: str, method: str) -> dict[str, Any]:
    """The settings of a protocol for a task, data set and method, those apart that have the paper's values.

    What was chosen on images of 28 x 28 is taken to smaller ones as far as they have pixels.

    Raises:
        ValueError: the protocol or the data set is unknown, or the protocol has no settings for this task and method.
    """
    settings = _settings(protocol, task, method)
    if "k_start" in settings:
        settings["k_start"] = min(settings["k_start"], tasks.find(task).data_set(dataset).n)
    return settings


def _settings(protocol: str, task: str, method: str) -> dict[str, Any]:
    """As chosen, on whatever data set."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    kind = tasks.find(task)
    if protocol not in kind.protocols:
        raise ValueError(f"protocol: expected {' or '.join(kind.protocols)} for {task}, got {protocol!r}")
    if protocol == "paper":
        return {}
    known = _best().get(task, {})
    if method not in known:
        raise ValueError(
            f"protocol: 'best' has settings for the methods {', '.join(known) or 'none'} of {task}, got {method!r}"
        )
    return dict(known[method])


def grid(protocols: Sequence[str], values: Mapping[str, Sequence[Any]]) -> list[RunConfig]:
    """All combinations of values of some settings under each of the protocols, which give the other settings; without
    protocols, under the first one of the task.

    Raises:
        ValueError: as of :func:`find`, or a value is wrong.
    """
    configs = []
    for protocol, *chosen in itertools.product(protocols or [""], *values.values()):
        given = dict(zip(values, chosen, strict=True))
        cell = [given.get(setting, getattr(RunConfig, setting)) for setting in ("task", "dataset", "method")]
        configs.append(RunConfig(**find(protocol or tasks.find(cell[0]).protocols[0], *cell) | given))
    return configs


def name(config: RunConfig) -> str | None:
    """The protocol that a configuration follows in every setting; None if it follows none.

    A file of one's own need not be there any more, so that its number of pixels is unknown: such a run follows a
    protocol at any ``k_start`` up to the chosen one.
    """
    for protocol in PROTOCOLS:
        try:
            settings = _settings(protocol, config.task, config.method)
        except ValueError:
            continue
        if (chosen := settings.get("k_start")) is not None and config.k_start is not None:
            known = tasks.find(config.task).sets.get(config.dataset)
            settings["k_start"] = min(chosen, config.k_start if known is None else known.n)
        free = {setting: getattr(config, setting) for setting in _FREE}
        if config == dataclasses.replace(RunConfig(**settings), **free):
            return protocol
    return None


def _best() -> dict[str, Any]:
    return published.load("best")
