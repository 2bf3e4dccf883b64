import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ksubset import SIMPLE
from ksubset.nn import FeatureGate
from ksubset.training import JointTraining, Plan, load, save

# An application in a file of its own, its estimator included: what it is has to be the same in every process.
APPLICATION = """
import sys, time
import torch
from torch import nn
from ksubset import ExponentialSchedule, LeaveOneOut
from ksubset.nn import SubsetHead
from ksubset.training import Batch, JointTraining, Plan, load, save, seeded

torch.set_num_threads(1)
x = torch.randn(512, 6, generator=torch.Generator().manual_seed(0))
y = torch.where(x[:, 0] > 0, x[:, 2], x[:, 4])


class Damped(LeaveOneOut):
    def __init__(self, strength):
        super().__init__()
        self.strength = strength
        self.register_buffer("count", torch.zeros(()))

    def surrogate(self, loss, sample, dist):
        self.count += 1
        return super().surrogate(loss, sample, dist) / (1 + self.strength * self.count)


path, end, strength, rate = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
with seeded(0):
    head = SubsetHead(1, nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6)))
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.05), nn.Linear(16, 1))
    plan = Plan(
        200, {"lr": 2e-2}, {"lr": rate}, num_samples=4, selecting=120, size=ExponentialSchedule(4, 1, 0.5), cosine=True
    )
    training = JointTraining(head, network, Damped(strength), plan)
    identity = training.identity(x=x, y=y)
    if (found := load(path)) is not None:
        found.check(identity)
        training.load_state_dict(found.state)
        print("resumed", training.steps)

    def draw():
        rows = torch.randint(len(x), (64,), generator=training.generator)
        seen, wanted = x[rows], y[rows]
        return Batch(lambda z: (network(z * seen).squeeze(-1) - wanted).square(), (seen,))

    for step in training.run(draw):
        if step % 10 == 0:
            save(path, training.state_dict(), identity)
            print(step, flush=True)
            if str(step) == end:
                time.sleep(600)  # until it is killed
"""


def command(folder: Path, name: str, end: str = "", strength: float = 0.01, rate: float = 2e-2) -> list[str]:
    application = folder / "application.py"
    application.write_text(APPLICATION)
    return [sys.executable, str(application), str(folder / name), end, str(strength), str(rate)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a training that nobody kills; for reading only."""
    folder = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(command(folder, "whole"), check=True, stdout=subprocess.DEVNULL)
    return folder / "whole"


def test_an_application_that_is_killed_ends_bit_for_bit_the_same(tmp_path: Path, undisturbed: Path) -> None:
    for kill in (50, 150):
        with subprocess.Popen(command(tmp_path, "killed", str(kill)), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == str(kill):
                    os.kill(process.pid, signal.SIGKILL)
                    break
            assert process.wait() == -signal.SIGKILL
    last = subprocess.run(command(tmp_path, "killed"), check=True, capture_output=True, text=True)
    assert int(last.stdout.split()[1]) >= 150
    whole, killed = load(undisturbed), load(tmp_path / "killed")
    assert whole is not None
    assert killed is not None
    assert whole.identity == killed.identity
    assert [name for name, value in whole.state.items() if not torch.equal(value, killed.state[name])] == []


def test_the_file_of_another_training_is_refused_by_name(tmp_path: Path, undisturbed: Path) -> None:
    content = undisturbed.read_bytes()
    (tmp_path / "file").write_bytes(content)
    changed = command(tmp_path, "file", strength=0.02, rate=1e-2)
    other = subprocess.run(changed, capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert "which differs in plan.network, estimator.strength; delete it, or give another path" in other.stderr
    assert (tmp_path / "file").read_bytes() == content


def identity(network: nn.Module, **values: Any) -> dict[str, str]:
    return JointTraining(FeatureGate(3, 1), network, SIMPLE(), Plan(1, {"lr": 1.0}, {"lr": 1.0})).identity(**values)


class Scaled(nn.Linear):
    scale: Any = 1.0


def test_what_a_module_is() -> None:
    def build(scale: Any = 1.0, **settings: Any) -> nn.Module:
        torch.manual_seed(0)
        network = Scaled(3, 1, **settings)
        network.scale = scale
        return network

    first = identity(build())
    assert identity(build().eval()) == first
    for other, names in (
        (build(2.0), ["network.scale"]),
        (build(torch.tensor(1.0)), ["network.scale"]),
        (build(bias=False), ["network.bias"]),
        (build(dtype=torch.bfloat16), ["network.weight", "network.bias"]),
    ):
        found = identity(other)
        assert [name for name in {**first, **found} if first.get(name) != found.get(name)] == names
    with pytest.raises(TypeError, match=r"network\.scale: expected a value that can be pickled, got function"):
        identity(build(lambda: 0))


def test_many_differences_are_not_all_named(tmp_path: Path) -> None:
    save(tmp_path / "file", {}, dict.fromkeys("abcdefg", "1"))
    found = load(tmp_path / "file")
    assert found is not None
    found.check(dict.fromkeys("abcdefg", "1"))
    with pytest.raises(ValueError, match="which differs in a, b, c, d, e and others; delete it"):
        found.check({})


def test_there_is_no_file_yet(tmp_path: Path) -> None:
    assert load(tmp_path / "file") is None


@pytest.mark.parametrize("content", [b"", b"[]", b"PK\x03\x04", pickle.dumps({"seed": 3}), pickle.dumps(print)])
def test_a_file_of_another_kind_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "training.pt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint: expected a file of a training, got .*training\.pt"):
        load(file)


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "training.pt"
    save(file, {"weight": torch.zeros(100)}, {})
    content = bytearray(file.read_bytes())
    place = content.index(bytes(400))
    for damaged in (content[:-50], content[:place] + b"\1" + content[place + 1 :]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"got .*training\.pt \(.*\); delete it, or give another path"):
            load(file)


def test_no_byte_can_be_damaged_without_being_seen(tmp_path: Path) -> None:
    file = tmp_path / "training.pt"
    state = {"steps": torch.arange(40.0), "part": {"rate": 0.5}}
    save(file, state, {"data": "5f2c"})
    content = file.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 85
        file.write_bytes(damaged)
        try:
            found = load(file)
        except ValueError as error:
            assert "delete it, or give another path" in str(error)  # noqa: PT017 - most places are no error, but fillings
        else:
            assert found is not None
            assert torch.equal(found.state["steps"], state["steps"])
            assert found.state["part"] == state["part"]
            assert found.identity == {"data": "5f2c"}


def test_a_file_has_its_checksums_whatever_torch_was_told(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        save(tmp_path / "file", {"weight": torch.ones(3)}, {})
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(True)
    found = load(tmp_path / "file")
    assert found is not None
    assert torch.equal(found.state["weight"], torch.ones(3))


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    save(path, {"steps": 1, "nested": {"loss": 0.5, "seen": (1, None, "x"), "weights": torch.ones(2)}}, {})
    for value in (np.float64(0.5), np.ones(2), object(), Path("x")):
        with pytest.raises(TypeError, match=r"state: expected tensors and numbers of Python, got something else"):
            save(path, {"steps": 2, "nested": {"loss": value}}, {})
    found = load(path)
    assert found is not None
    assert found.state["steps"] == 1
