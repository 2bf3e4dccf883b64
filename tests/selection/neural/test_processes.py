"""A fit that another process goes on with, whatever its estimator."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The estimator is a user's: its state is a buffer, its setting an attribute.
PROGRAM = """
import pickle, sys
import numpy as np
import torch
from ksubset import Hybrid, LeaveOneOut, SlopeAtMean, SlopeAtSamples
from ksubset.selection import NeuralSubsetSelector

torch.set_num_threads(1)


class Damped(LeaveOneOut):
    def __init__(self, strength):
        super().__init__()
        self.strength = strength
        self.register_buffer("count", torch.zeros(()))

    def surrogate(self, loss, sample, dist):
        self.count += 1
        return super().surrogate(loss, sample, dist) / (1 + self.strength * self.count)


def fit(estimator, checkpoint=None, end=None):
    selector = NeuralSubsetSelector(
        2, hidden_layer_sizes=(16,), steps=60, batch_size=32, device="cpu", random_state=0,
        gradient_estimator=estimator, checkpoint=checkpoint, callbacks=lambda progress: progress.step == end,
    )
    X = np.random.default_rng(0).standard_normal((100, 6))
    return selector.fit(X, X[:, 3] * X[:, 5])


folder, process = sys.argv[1:]
results = {}
for name, estimator, other in (
    ("damped", Damped(0.01), Damped(0.02)), ("hybrid", Hybrid(SlopeAtSamples()), Hybrid(SlopeAtMean()))
):
    if process == "first":
        fit(estimator, f"{folder}/{name}", end=25)
        results[name] = fit(estimator)
    else:
        try:
            fit(other, f"{folder}/{name}")
        except ValueError as error:
            results[f"{name} refused"] = str(error)
        results[name] = fit(estimator, f"{folder}/{name}")
    fitted = results[name]
    weights = [value.numpy() for value in fitted.module_.state_dict().values()]
    results[name] = [fitted.inclusion_probabilities_, fitted.history_["loss"], *weights]
pickle.dump(results, open(f"{folder}/results of the {process}", "wb"))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of a process that begins two fits, and ends them elsewhere, and of one that goes on with them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    for process in ("first", "second"):
        subprocess.run([sys.executable, str(program), str(folder), process], check=True)
    return [pickle.loads(Path(folder / f"results of the {process}").read_bytes()) for process in ("first", "second")]


@pytest.mark.parametrize("name", ["damped", "hybrid"])
def test_another_process_goes_on_bit_for_bit(results: list[dict[str, Any]], name: str) -> None:
    whole, resumed = (result[name] for result in results)
    assert all(map(np.array_equal, whole, resumed))


@pytest.mark.parametrize(("name", "differing"), [("damped", "estimator.strength"), ("hybrid", "estimator.slope")])
def test_another_estimator_is_refused_by_name(results: list[dict[str, Any]], name: str, differing: str) -> None:
    assert f", which differs in {differing}; delete it" in results[1][f"{name} refused"]
