"""What an application does with the training floor, and what it relies on."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ksubset import NCPSS, ExponentialSchedule, GumbelTopK, LeaveOneOut
from ksubset.nn import FeatureGate, SubsetHead
from ksubset.training import Batch, JointTraining, Plan, seeded
from ksubset.training import joint as joint_module

X = torch.randn(512, 6, generator=torch.Generator().manual_seed(0))
# The first column says where the target is.
RIGHT = torch.where(X[:, 0] > 0, 2, 4)
Y = X.gather(1, RIGHT[:, None]).squeeze(1)


def start(
    estimator: Any = None, device: torch.device | str = "cpu", **changes: Any
) -> tuple[JointTraining, Callable[[], Batch]]:
    """The toy application: a head that sees its input, and a network that sees one column of it."""
    settings = {"lr": 2e-2}
    plan = Plan(**{"rounds": 300, "selector": settings, "network": settings, "num_samples": 8, **changes})
    head = SubsetHead(1, nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6))).to(device)
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.05), nn.Linear(16, 1)).to(device)
    training = JointTraining(head, network, LeaveOneOut() if estimator is None else estimator, plan)

    def draw() -> Batch:
        rows = torch.randint(len(X), (128,), generator=training.generator)
        x, y = X[rows].to(device), Y[rows].to(device)
        return Batch(lambda z: (network(z * x).squeeze(-1) - y).square(), (x,))

    return training, draw


TUNED: dict[str, Any] = {"selecting": 200, "cosine": True, "size": ExponentialSchedule(4, 1, 0.5)}


def test_a_toy_application_learns(device: torch.device) -> None:
    with seeded(0, device):
        training, draw = start(device=device, **TUNED)
        losses = [training.mean_loss() for step in training.run(draw) if step % 50 == 0]
    assert losses[-1] < 0.1 * losses[0]
    assert (training.selector(X.to(device)).mode.cpu().argmax(-1) == RIGHT).float().mean() > 0.95


def test_reports_are_the_mean_losses_of_a_run() -> None:
    with seeded(0):
        training, draw = start(rounds=50, steps_per_round=2)
        every = [training.mean_loss() for _ in training.run(draw)]
    with seeded(0):
        training, draw = start(rounds=50, steps_per_round=2)
        reports = list(training.reports(draw, 3))
    assert training.num_steps == 100
    assert [step for step, _ in reports] == [33, 66, 99, 100]
    for (step, loss), first in zip(reports, (0, 33, 66, 99), strict=True):
        assert loss == pytest.approx(sum(every[first:step]) / (step - first), rel=1e-5)


def test_a_report_of_a_divergence_names_the_rate() -> None:
    training, draw = start(rounds=5, network={"lr": 1e30})
    with pytest.raises(FloatingPointError, match=r"diverged .*; try a smaller learning_rate than 1e\+30"):
        list(training.reports(draw, 5))


class Stateful(LeaveOneOut):
    """Its samples depend on how often it was asked."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def surrogate(self, loss: Tensor, sample: Tensor, dist: Any) -> Tensor:
        self.count += 1
        return super().surrogate(loss, sample, dist) / (1 + self.count / 100)


@pytest.mark.parametrize("killed", [0, 1, 77, 200, 250, 300])
def test_a_killed_training_ends_bit_for_bit_the_same(killed: int, device: torch.device) -> None:
    with seeded(0, device):
        whole, draw = start(Stateful().to(device), device, **TUNED)
        state, losses = {name: value.clone() for name, value in whole.state_dict().items()}, []
        for step in whole.run(draw):
            if step % 50 == 0:
                losses.append(whole.mean_loss())
            if step == killed:
                state = {name: value.clone() for name, value in whole.state_dict().items()}
    with seeded(1, device):
        resumed, draw = start(Stateful().to(device), device, **TUNED)
        # What it has done before does not matter.
        resumed.step(draw())
        resumed.load_state_dict(state)
        again = [resumed.mean_loss() for step in resumed.run(draw) if step % 50 == 0]
        assert again == losses[len(losses) - len(again) :]
        assert resumed.state_dict().keys() == whole.state_dict().keys()
    final = whole.state_dict()
    for name, value in resumed.state_dict().items():
        assert torch.equal(value, final[name]) or name.startswith("random")


def test_the_state_of_another_training_is_an_error() -> None:
    training, _ = start()
    state = training.state_dict()
    for change in ({"network.9.weight": torch.zeros(3)}, {"optimizer.99.exp_avg": torch.zeros(3)}):
        with pytest.raises((LookupError, RuntimeError)):
            training.load_state_dict(state | change)
    with pytest.raises((LookupError, RuntimeError)):
        start(Stateful())[0].load_state_dict(state)


def test_a_gate_draws_for_rows_or_for_the_batch() -> None:
    seen: list[tuple[int, ...]] = []

    def losses(z: Tensor) -> Tensor:
        seen.append(tuple(z.shape))
        assert set(z.sum(-1).flatten().tolist()) == {2.0}
        return z @ torch.arange(5.0)

    plan = Plan(2, selector={"lr": 0.1}, network={}, num_samples=3, selecting=1)
    for rows, shapes in ((None, [(3, 5), (1, 5)]), (7, [(3, 7, 5), (1, 1, 5)])):
        training = JointTraining(FeatureGate(5, 2), nn.Linear(1, 1), LeaveOneOut(), plan)
        batch = Batch(lambda z: losses(z) + 0 * training.network.bias, rows=rows)  # noqa: B023 - called in this round
        assert list(training.run(lambda: batch)) == [1, 2]  # noqa: B023
        assert seen == shapes
        seen.clear()


def test_sizes_fall_and_the_selector_keeps_its_own() -> None:
    training, _ = start(rounds=10, selecting=5, steps_per_round=2, size=ExponentialSchedule(6, 1))
    sizes = []

    def losses(z: Tensor) -> Tensor:
        sizes.append(int(z[0, 0].sum()))
        return z[..., 0] + 0 * training.network(X[:1]).sum()

    for step in training.run(lambda: Batch(losses, (X,))):
        assert sizes[-1] == training.size_at((step - 1) // 2)
        assert training.selector.k == 1
    assert sizes == [6, 6, 4, 4, 2, 2, 2, 2, *[1] * 12]


def test_learning_rates_and_settings_of_the_phases() -> None:
    training, draw = start(
        rounds=4, selecting=2, steps_per_round=2, cosine=True, tuning={"weight_decay": 0.5}, num_samples=2
    )
    seen = []
    for _ in training.run(draw):
        selector, network = training.optimizer.param_groups
        seen.append((selector["lr"], network["lr"], network["weight_decay"]))
        assert selector["weight_decay"] == 0
    half = [2e-2 * (1 + math.cos(math.pi * share / 4)) / 2 for share in range(4)]
    expected = [(2e-2, half[0], 0), (2e-2 / 2, half[1], 0), (0, half[2], 0.5), (0, half[3], 0.5)]
    assert seen[::2] == seen[1::2]
    torch.testing.assert_close(torch.tensor(seen[::2]), torch.tensor(expected))


def test_a_learning_rate_may_be_a_tensor_and_stays_the_callers() -> None:
    def rates(number: Any) -> list[float]:
        plan = {"selector": {"lr": number}, "network": {"lr": number}, "tuning": {"lr": number}}
        training, draw = start(rounds=6, selecting=4, cosine=True, **plan)
        return [float(group["lr"]) for _ in training.run(draw) for group in training.optimizer.param_groups]

    rate = torch.tensor(0.1)
    assert rates(rate) == pytest.approx(rates(0.1))
    assert rate == torch.tensor(0.1)


def test_a_selection_of_one_round_is_at_its_end() -> None:
    training, draw = start(rounds=3, selecting=1, size=ExponentialSchedule(4, 1))
    assert [training.size_at(number) for number in range(3)] == [1, 1, 1]
    list(training.run(draw))


def test_the_second_phase_trains_the_network_alone_on_the_mode() -> None:
    training, draw = start(rounds=4, selecting=2)
    steps = training.run(draw)
    for _ in range(2):
        assert training.selector.training or training.steps == 0
        next(steps)
    before = {name: value.clone() for name, value in training.state_dict().items()}
    modes = training.selector(X).mode
    for _ in steps:
        assert not training.selector.training
    after = training.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(name.startswith(("selector", "optimizer.0", "optimizer.1.")) for name in moved)
    assert any(name.startswith("network") for name in moved)
    assert torch.equal(training.selector(X).mode, modes)


def test_the_estimator_may_depend_on_the_progress() -> None:
    asked: list[float] = []
    temperature = ExponentialSchedule(1.0, 0.1)
    training, draw = start(
        lambda progress: asked.append(progress) or GumbelTopK(temperature(progress)), rounds=7, selecting=5
    )
    asked.clear()
    list(training.run(draw))
    assert asked == [0, 0.25, 0.5, 0.75, 1]


def test_parameters_of_the_estimator_are_trained() -> None:
    size = nn.Parameter(torch.tensor(3.0))
    training, _ = start(NCPSS(size=size), rounds=5)
    # The more items the lower the loss.
    list(training.run(lambda: Batch(lambda z: -z.sum(-1), (X,))))
    assert size > 3.05


def test_a_gradient_that_breaks_is_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    original = joint_module.expectation
    training, draw = start()

    def broken(losses: Any, dist: Any, *arguments: Any) -> Tensor:
        # A root at 0, whose slope is infinite: the losses stay finite.
        return original(losses, dist, *arguments) + (dist.logits - dist.logits.detach()).sum(-1).abs().sqrt()

    training.step(draw())
    training.mean_loss()
    monkeypatch.setattr(joint_module, "expectation", broken)
    training.step(draw())
    assert all(bool(parameter.isfinite().all()) for parameter in training.selector.parameters())
    with pytest.raises(FloatingPointError, match="diverged before step 2: expected finite losses, gradients"):
        training.mean_loss()


@pytest.mark.parametrize(
    "change", [{"selector": {"lr": 1e308}}, {"network": {"lr": 1e308}}], ids=["selector", "network"]
)
def test_parameters_that_are_no_numbers_are_a_divergence(change: dict[str, Any]) -> None:
    training, draw = start(**change)
    training.step(draw())
    with pytest.raises(FloatingPointError, match="finite losses, gradients and parameters"):
        training.mean_loss()


@pytest.mark.parametrize("rounds", [7, 40])
def test_a_run_does_not_end_as_if_it_had_not_diverged(rounds: int) -> None:
    training, _ = start(rounds=rounds)
    broken = X.clone()
    broken[17, 2] = math.nan
    network = training.network
    steps = training.run(lambda: Batch(lambda z: (network(z * broken).squeeze(-1) - Y).square(), (X,)))
    with pytest.raises(FloatingPointError, match="diverged before step"):
        list(steps)
    assert training.steps == max(1, rounds // 10)


def test_batches_that_come_to_an_end() -> None:
    training, draw = start(rounds=5)
    batches = iter([draw(), draw()])
    with pytest.raises(ValueError, match="draw: expected a batch for each of 5 steps, got none after 2"):
        list(training.run(batches.__next__))


@pytest.mark.parametrize("name", ["selector", "network", "tuning"])
def test_settings_that_no_optimizer_has(name: str) -> None:
    with pytest.raises(ValueError, match=rf"plan\.{name}: expected settings of Adam, lr, .*, got learning_rate$"):
        start(**{name: {"learning_rate": 0.1}})


@pytest.mark.parametrize("name", ["selector", "network", "tuning"])
def test_settings_that_an_optimizer_refuses(name: str) -> None:
    with pytest.raises(ValueError, match=rf"plan\.{name}: Invalid learning rate: -0\.1"):
        start(**{name: {"lr": -0.1}})
    with pytest.raises(TypeError, match=rf"plan\.{name}: "):
        start(**{name: {"lr": "a"}})


def test_an_optimizer_that_cannot_be_fused() -> None:
    training, draw = start(optimizer=torch.optim.RMSprop, rounds=2)
    assert list(training.run(draw)) == [1, 2]


def test_a_state_stays_as_it_was() -> None:
    with seeded(0):
        training, draw = start(rounds=20)
        steps = training.run(draw)
        for _ in range(10):
            next(steps)
        state = training.state_dict()
        kept = copy.deepcopy(state)
        ends = []
        for _ in "ab":
            list(training.run(draw))
            ends.append([p.clone() for p in training.network.parameters()])
            training.load_state_dict(state)
    torch.testing.assert_close(state, kept, rtol=0, atol=0)
    torch.testing.assert_close(*ends, rtol=0, atol=0)


class Counting(LeaveOneOut):
    """It has a state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0))

    def surrogate(self, loss: Tensor, sample: Tensor, dist: Any) -> Tensor:
        self.count += 1  # type: ignore[operator]
        return super().surrogate(loss, sample, dist)


def test_a_copy_has_an_estimator_of_its_own() -> None:
    training, draw = start(Counting(), rounds=4)
    twin = pickle.loads(pickle.dumps(copy.deepcopy(training)))
    list(training.run(draw))
    assert training.state_dict()["estimator.count"] == 4
    assert twin.state_dict()["estimator.count"] == 0
    list(twin.run(draw))
    assert twin.state_dict()["estimator.count"] == 4


def test_a_seed_may_be_any_integer() -> None:
    drawn = []
    for seed in (3, np.int64(3)):
        with seeded(seed):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    training, _ = start(seed=np.int64(3))
    assert training.generator.initial_seed() == 3
    with pytest.raises(TypeError), seeded(3.0):  # type: ignore[arg-type]
        pass


def test_random_numbers_are_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(0):
        training, draw = start(rounds=2)
        list(training.run(draw))
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(0):
        again, draw = start(rounds=2)
        list(again.run(draw))
        assert torch.equal(torch.rand(3), inside)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds must be 1 or more, got 0"),
        ({"num_samples": 0}, "num_samples must be 1 or more, got 0"),
        ({"steps_per_round": 0}, "steps_per_round must be 1 or more, got 0"),
        ({"selecting": 301}, "selecting must be at most rounds, 300, got 301"),
        ({"selecting": -1}, "selecting must be 0 or more, got -1"),
        ({"annealing": 0}, "annealing must be above 0, got 0"),
        ({"annealing": float("nan")}, "annealing must be above 0, got nan"),
    ],
)
def test_plans_that_are_no_plan(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        start(**change)


def test_what_is_of_another_kind() -> None:
    with pytest.raises(TypeError, match=r'selector must be settings of the optimizer, such as {"lr": 0\.01}, got 0\.1'):
        Plan(10, selector=0.1, network={})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"rounds must be an integer, got 2\.5"):
        start(rounds=2.5)
    with pytest.raises(TypeError, match=r"selecting must be an integer, got 5\.5"):
        start(selecting=5.5)
    with pytest.raises(TypeError, match="size must be a schedule, such as LinearSchedule, or None, got 3"):
        start(size=3)
    with pytest.raises(TypeError, match="annealing must be a number or None, got 'a'"):
        start(annealing="a")
    for change, message in (
        ({"seed": "a"}, "seed must be an integer, got 'a'"),
        ({"cosine": "x"}, "cosine must be True or False, got 'x'"),
        ({"optimizer": "adam"}, "optimizer must be a class, such as torch.optim.Adam, got 'adam'"),
    ):
        with pytest.raises(TypeError, match=message):
            start(**change)
    training, draw = start()
    with pytest.raises(TypeError, match="draw: expected a function that gives a Batch, got NoneType from it"):
        list(training.run(lambda: None))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="number must be 1 or more, got 0"):
        list(training.reports(draw, 0))
    with pytest.raises(TypeError, match=r"inputs must be a tuple, such as \(x,\), got Tensor"):
        Batch(torch.sum, inputs=(torch.zeros(3)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"rows must be an integer or None, got 2\.5"):
        Batch(torch.sum, rows=2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="network must be a module, got <built-in method sum"):
        JointTraining(training.selector, torch.sum, LeaveOneOut(), training.plan)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plan must be a Plan, got"):
        JointTraining(training.selector, training.network, LeaveOneOut(), {})  # type: ignore[arg-type]


def test_arguments_that_do_not_fit() -> None:
    plan = Plan(1, selector={}, network={})
    for estimator in (LeaveOneOut, None):
        with pytest.raises(TypeError, match="estimator must be an instance of Estimator, such as"):
            JointTraining(FeatureGate(3, 1), nn.Identity(), estimator, plan)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="selector must have parameters, got SubsetHead"):
        JointTraining(SubsetHead(1, nn.Identity()), nn.Identity(), LeaveOneOut(), plan)
    with pytest.raises(ValueError, match=r"plan\.size must end with the k of the selector, 1, got 2"):
        start(size=ExponentialSchedule(4, 2))


def test_a_selector_alone() -> None:
    """Nothing but logits is trained, on losses that nobody can differentiate."""
    gate = FeatureGate(6, 2)
    training = JointTraining(
        gate, nn.Identity(), LeaveOneOut(), Plan(200, selector={"lr": 0.1}, network={}, num_samples=8)
    )
    list(training.run(lambda: Batch(lambda z: [float(row[1] + row[4] != 2) for row in z])))
    assert gate().mode.tolist() == [0, 1, 0, 0, 1, 0]
