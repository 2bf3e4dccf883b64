import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ksubset import KSubset
from ksubset.experiments import datasets, runner
from ksubset.experiments.config import PRECISIONS, SUBSETS_PER, RunConfig
from ksubset.experiments.methods import METHODS
from ksubset.experiments.tasks import PRINTED, pixels
from ksubset.experiments.training import Training
from ksubset.training import joint

CPU = torch.device("cpu")
QUICK = RunConfig(dataset="digits", epochs=2, batch_size=256, selector_lr=5e-2, network_lr=1e-3)


def start(**knobs: Any) -> Training:
    config = runner.resolve(dataclasses.replace(QUICK, **knobs))
    torch.manual_seed(config.seed)
    return Training(config, datasets.load("digits"), CPU)


def epoch(state: Training, number: int) -> dict[str, Any]:
    entry = state.epoch(lambda: False)
    assert entry is not None
    assert entry["epoch"] == number
    return entry


def parameters(state: Training) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in state.task.network.parameters()])


def test_initial_logits_and_optimizer_are_the_papers() -> None:
    config = runner.resolve(RunConfig(dataset="digits"))
    state = Training(config, datasets.load("digits"), CPU)
    torch.testing.assert_close(state.task.selector.logits.detach(), torch.full((64,), math.log(10 / 54)))
    selector, network = state.joint.optimizer.param_groups
    assert (selector["lr"], selector["betas"], selector["weight_decay"]) == (1e-2, (0.99, 0.999), 0)
    assert (network["lr"], network["betas"], network["weight_decay"]) == (1e-4, (0.9, 0.999), 1e-4)


@pytest.mark.parametrize(("tuning", "shares"), [(0, [0.0, 0.25, 0.5, 0.75, 1.0]), (0.4, [0.0, 0.5, 1.0])])
def test_the_schedule_goes_from_its_start_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tuning: float, shares: list[float]
) -> None:
    seen = []
    method = METHODS["sfess-v"]

    def prepare(config: RunConfig) -> Any:
        return lambda progress: seen.append(progress) or method.prepare(config)(progress)

    monkeypatch.setitem(METHODS, "sfess-v", dataclasses.replace(method, prepare=prepare))
    state = start(epochs=5, tuning=tuning)
    seen.clear()
    for number in range(1, 6):
        epoch(state, number)
    assert list(dict.fromkeys(seen)) == shares


@pytest.mark.parametrize("method", ["sfess-v", "simple"])
def test_the_size_is_annealed_to_its_target(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    sizes = []
    original = KSubset.sample

    def sample(self: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(self.k)
        return original(self, *arguments, **options)

    monkeypatch.setattr(KSubset, "sample", sample)
    state = start(method=method, epochs=5, k=10, k_start=40, k_until=0.5)
    for number in range(1, 6):
        epoch(state, number)
    assert list(dict.fromkeys(sizes)) == [40, 20, 10]
    assert state.task.mode().sum() == 10


def test_cosine_learning_rates_fall_over_what_is_trained() -> None:
    # The selector's reach 0 where the tuning of the network begins, the network's at the end.
    state = start(epochs=10, tuning=0.2, batch_size=2000, lr_schedule="cosine")
    rates = []
    for number in range(1, 11):
        epoch(state, number)
        rates.append([group["lr"] for group in state.joint.optimizer.param_groups])
    selector, network = zip(*rates, strict=True)
    assert (selector[0], network[0]) == (5e-2, 1e-3)
    assert selector[4] == pytest.approx(5e-2 / 2)
    assert network[5] == pytest.approx(1e-3 / 2)
    assert selector[7] == pytest.approx(5e-2 * (1 + math.cos(math.pi * 7 / 8)) / 2)
    assert network[9] == pytest.approx(1e-3 * (1 + math.cos(math.pi * 9 / 10)) / 2)
    assert selector[8:] == (0, 0)
    for rate in (selector[:9], network):
        assert list(rate) == sorted(set(rate), reverse=True)


def test_constant_learning_rates_stay() -> None:
    state = start()
    for number in (1, 2):
        epoch(state, number)
        assert [group["lr"] for group in state.joint.optimizer.param_groups] == [5e-2, 1e-3]


@pytest.mark.parametrize("lr_schedule", ["constant", "cosine"])
@pytest.mark.parametrize("method", ["gs", "sfess-v", "hybrid"])
def test_tuning_trains_the_network_alone(method: str, lr_schedule: str) -> None:
    state = start(method=method, epochs=4, tuning=0.5, lr_schedule=lr_schedule)
    for number in (1, 2):
        logits = state.task.selector.logits.detach().clone()
        assert epoch(state, number)["evaluations"] == len(state.task.train[0]) * 5
        assert not torch.equal(state.task.selector.logits.detach(), logits)
    logits = state.task.selector.logits.detach().clone()
    # Adam walks on where a gradient is zero, by the momentum of those before.
    of_logits = state.joint.optimizer.state[state.task.selector.logits]
    moments = {name: value.clone() for name, value in of_logits.items()}
    for number in (3, 4):
        weights = parameters(state)
        assert epoch(state, number)["evaluations"] == len(state.task.train[0])
        assert not torch.equal(parameters(state), weights)
        assert torch.equal(state.task.selector.logits.detach(), logits)
        assert all(torch.equal(of_logits[name], moments[name]) for name in moments)


def test_tuning_is_on_the_likeliest_pixels() -> None:
    state = start(task="reconstruction", epochs=4, tuning=0.25, batch_size=2000, precision="float32")
    for number in (1, 2, 3):
        epoch(state, number)
    images, labels = state.task.train
    with torch.no_grad():
        mask = torch.zeros(64).index_fill(0, state.task.selector.logits.topk(10).indices, 1.0)
        expected = state.task.loss(state.task.network(images, mask[None, None]), images, labels).mean().item()
    # One batch, whose loss is that before the step.
    assert epoch(state, 4)["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("subsets_per", SUBSETS_PER)
@pytest.mark.parametrize("samples", [2, 3])
def test_evaluations_are_examples_times_samples(subsets_per: str, samples: int) -> None:
    state = start(samples=samples, subsets_per=subsets_per)
    rows = 0

    def count(module: object, arguments: object, output: Tensor) -> None:
        nonlocal rows
        rows += output.shape[:2].numel()

    state.task.network.register_forward_hook(count)
    entry = epoch(state, 1)
    assert entry["evaluations"] == len(state.task.train[0]) * samples
    # What the network was really asked for: this, and the validation.
    assert rows == len(state.task.train[0]) * samples + len(state.task.held_out["validation"][0])


@pytest.mark.parametrize("subsets_per", SUBSETS_PER)
def test_the_mean_of_the_losses_is_that_of_the_images(subsets_per: str) -> None:
    state = start(subsets_per=subsets_per, samples=2)
    state.task.network.eval()
    batch = state.task.batch(torch.arange(73), state.joint, lambda sums: None)
    images, labels = (part[:73] for part in state.task.train)
    rows = {"batch": 1, "example": 73, "group": 3}[subsets_per]  # two groups of 32, and one of 9
    assert batch.rows == (None if rows == 1 else rows)
    mask = KSubset(10, torch.randn(rows, 64)).sample((2,))
    of_each = mask.repeat_interleave(-(-73 // rows), 1)[:, :73].expand(2, 73, 64)
    expected = state.task.loss(state.task.network(images, of_each), images, labels).mean(-1)
    losses = batch.losses(mask[:, 0] if rows == 1 else mask)
    torch.testing.assert_close(losses if rows == 1 else losses.mean(-1), expected, rtol=0.02, atol=0.0)


@pytest.mark.parametrize("task", PRINTED)
def test_mixed_precision_changes_little(task: str) -> None:
    if not pixels.mixed_precision(CPU):
        pytest.skip("this CPU has no bfloat16 instructions, so that mixed precision is float32 here")
    losses = {}
    for precision in PRECISIONS:
        state = start(task=task, precision=precision)
        assert state.task.mixed == (precision == "mixed")
        logits, weights = state.task.selector.logits.detach().clone(), parameters(state)
        losses[precision] = [epoch(state, number)["loss"] for number in (1, 2)]
        assert not torch.equal(state.task.selector.logits.detach(), logits)
        assert not torch.equal(parameters(state), weights)
        assert parameters(state).dtype == torch.float32
    # The same subsets and the same dropout in both, so that rounding alone makes the difference.
    assert losses["mixed"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["mixed"] != losses["float32"]


def test_without_the_hardware_mixed_precision_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "mixed_precision", lambda _: False)
    mixed, full = (epoch(start(precision=precision), 1)["loss"] for precision in PRECISIONS)
    assert mixed == full


def test_an_interrupt_ends_an_epoch_between_two_steps() -> None:
    state = start()
    answers = iter([False, False, True])
    assert state.epoch(lambda: next(answers)) is None
    steps = {int(moments["step"]) for moments in state.joint.optimizer.state.values()}
    assert steps == {2}


def test_a_gradient_that_breaks_is_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    state, original = start(), joint.expectation

    def broken(*arguments: Any) -> Tensor:
        # A root at 0, whose slope is infinite: the losses stay finite, and only the count of broken gradients tells.
        return original(*arguments) + (state.task.selector.logits - state.task.selector.logits.detach()).sum().sqrt()

    monkeypatch.setattr(joint, "expectation", broken)
    with pytest.raises(FloatingPointError, match=r"-digits-.* diverged in epoch 1 .*selector_lr \(0\.05\)"):
        epoch(state, 1)
