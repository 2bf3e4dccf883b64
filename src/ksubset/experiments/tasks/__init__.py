"""The paper's tasks, and those of the applications. A new one is a file beside these, and an entry of :data:`TASKS`."""

from ksubset.experiments.tasks.base import Metric, Task
from ksubset.experiments.tasks.classification import Classification
from ksubset.experiments.tasks.explain import Explain
from ksubset.experiments.tasks.neighbours import Neighbours
from ksubset.experiments.tasks.reconstruction import Reconstruction
from ksubset.experiments.tasks.vae import Autoencoder

__all__ = ["MEASURES", "PRINTED", "TASKS", "Task", "find"]

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Classification, Reconstruction, Explain, Autoencoder, Neighbours)
}
PRINTED = [task.name for task in TASKS.values() if "paper" in task.protocols]
# In the order of the paper's table.
MEASURES: dict[str, Metric] = {
    name: metric for task in reversed(TASKS.values()) for name, metric in task.measures.items()
}


def find(name: str) -> type[Task]:
    """The task of this name; else a ValueError with the known names."""
    if name not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name]
