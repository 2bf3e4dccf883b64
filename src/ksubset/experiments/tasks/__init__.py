"""The paper's tasks. A new task is one file beside these, and one entry of :data:`TASKS`."""

from ksubset.experiments.tasks.base import Task
from ksubset.experiments.tasks.classification import Classification
from ksubset.experiments.tasks.reconstruction import Reconstruction

__all__ = ["TASKS", "Task", "find"]

TASKS: dict[str, type[Task]] = {task.name: task for task in (Classification, Reconstruction)}


def find(name: str) -> type[Task]:
    """The task of this name; else a ValueError with the known names."""
    if name not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name]
