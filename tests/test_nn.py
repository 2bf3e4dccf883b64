import copy
import io
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ksubset import (
    DPS,
    IMLE,
    NCPSS,
    SIMPLE,
    Estimator,
    GumbelTopK,
    Hybrid,
    KSubset,
    LeaveOneOut,
    ReinMax,
    ScoreFunction,
    SlopeAtMean,
    StochasticGates,
    UnorderedSet,
    expectation,
)
from ksubset.nn import ConcreteSelector, FeatureGate, SubsetHead, SubsetLayer

PAGE = Path(__file__).parents[1] / "docs" / "nn.md"


def test_the_examples_of_the_page_train(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    namespace: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(example, namespace)
    gate, units, head, layer = capsys.readouterr().out.splitlines()
    assert gate == units == "tensor([3, 7])"
    assert float(head[7:-1]) > 0.95
    assert float(layer[7 : layer.index(",")]) < 0.35
    model, x = namespace["model"], namespace["x"]
    assert isinstance(model, nn.Module)
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    "estimator",
    [SIMPLE(), ReinMax(), IMLE(), NCPSS(), DPS(0.5), GumbelTopK(0.5, straight_through=True)],
    ids=lambda e: type(e).__name__,
)
def test_a_layer_samples_in_training_and_takes_the_mode_in_evaluation(estimator: Estimator) -> None:
    layer = SubsetLayer(2, estimator)
    logits = torch.randn(100, 5, requires_grad=True)
    sample = layer(logits)
    assert sample.shape == (100, 5)
    assert set(sample.unique().tolist()) == {0.0, 1.0}
    (sample * torch.randn(5)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() > 0
    layer.eval()
    assert torch.equal(layer(logits).topk(2).indices.sort().values, logits.topk(2).indices.sort().values)


class SurrogateToo(SIMPLE):
    def surrogate(self, loss: Tensor, sample: Tensor, dist: KSubset) -> Tensor:
        return 2 * loss


# The base class counts as pathwise, but its samples have no gradient.
@pytest.mark.parametrize(
    "estimator",
    [LeaveOneOut(), ScoreFunction(), UnorderedSet(), Hybrid(), Hybrid(SlopeAtMean()), SurrogateToo(), Estimator()],
    ids=lambda e: type(e).__name__,
)
def test_a_layer_refuses_what_does_not_send_its_gradient_through_the_sample(estimator: Estimator) -> None:
    with pytest.raises(ValueError, match=r"use ksubset\.expectation for others"):
        SubsetLayer(2, estimator)


@pytest.mark.parametrize("training", [True, False])
def test_logits_are_validated(training: bool) -> None:
    broken, few = torch.tensor([[1.0, torch.nan, 0.0]]), torch.tensor([[1.0, -torch.inf, -torch.inf]])
    for module in (SubsetHead(2, nn.Identity()), SubsetLayer(2, SIMPLE())):
        module.train(training)
        with pytest.raises(ValueError, match="logits"):
            module(broken)
        with pytest.raises(ValueError, match="at least k in row 0, got 1 possible items"):
            module(few)
    assert SubsetLayer(2, SIMPLE(), validate_args=False).train(training)(broken).shape == (1, 3)
    gate = FeatureGate(3, 2, validate_args=False)
    gate.logits.data.fill_(torch.nan)
    gate()
    gate.validate_args = True
    with pytest.raises(ValueError, match="logits"):
        gate()


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="estimator must be an instance of Estimator"):
        SubsetLayer(2, SIMPLE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k must be between 0 and the number of items, 3, got 4"):
        FeatureGate(3, 4)
    with pytest.raises(TypeError, match="k must be an integer"):
        FeatureGate(3, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="k must be an integer, got tensor"):
        FeatureGate(3, torch.tensor([2, 1]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n must be 1 or more, got 0"):
        FeatureGate(0, 0)
    with pytest.raises(TypeError, match="n must be an integer"):
        FeatureGate((2, 3), 1)  # type: ignore[arg-type]


def test_state_device_and_dtype(device: torch.device) -> None:
    gate = FeatureGate(5, 2, dtype=torch.float64, device=device)
    assert gate().mean.dtype == torch.float64
    assert gate.to(torch.float32)().mean.dtype == torch.float32
    with torch.no_grad():
        gate.logits.normal_()
    other = FeatureGate(5, 2, device=device)
    other.load_state_dict(gate.state_dict())
    torch.testing.assert_close(other().mean, gate().mean)
    file = io.BytesIO()
    torch.save(gate.state_dict(), file)
    file.seek(0)
    fresh = FeatureGate(5, 2)
    fresh.load_state_dict(torch.load(file, map_location="cpu"))
    assert torch.equal(fresh.logits, gate.logits.cpu())


@pytest.mark.parametrize(
    "module",
    [FeatureGate(5, 2), SubsetHead(2, nn.Linear(3, 5)), SubsetLayer(2, SIMPLE())],
    ids=lambda m: type(m).__name__,
)
def test_copies_and_pickles(module: nn.Module) -> None:
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(twin) == repr(module)
        assert "k=2" in repr(twin)
        torch.testing.assert_close(twin.state_dict(), module.state_dict(), rtol=0, atol=0)


# torch's own tracer makes an instance of the class that it warns of.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("training", [True, False])
def test_compiled(training: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.head = FeatureGate(6, 2), SubsetHead(3, nn.Linear(6, 6))
            self.rest = nn.Sequential(nn.Linear(6, 6), SubsetLayer(2, SIMPLE()), nn.Linear(6, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.rest(x * self.gate().mean + self.head(x).mean)  # type: ignore[no-any-return]

    model = Model().train(training)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 6)
    value = compiled(x)
    assert value.shape == (4, 1)
    if training:
        value.sum().backward()
        assert model.gate.logits.grad is not None
    else:
        torch.testing.assert_close(value, model(x))


def test_the_units_are_the_papers_concrete_variables() -> None:
    selector = ConcreteSelector(5, k=3, dtype=torch.float64)
    torch.manual_seed(0)
    pairs = GumbelTopK(0.7).sample(selector(), 40)
    torch.manual_seed(0)
    noise = -torch.log(torch.empty(40, 3, 5, dtype=torch.float64).exponential_())
    units = torch.softmax((selector.logits + noise) / 0.7, -1)
    torch.testing.assert_close(pairs.view(40, 3, 5), units)
    chosen = selector.items(pairs)
    left_out = (1 - units[:, 0]) * (1 - units[:, 1]) * (1 - units[:, 2])
    torch.testing.assert_close(chosen, 1 - left_out)
    (chosen.square() * torch.arange(5)).sum().backward()
    assert selector.logits.grad is not None
    assert selector.logits.grad.isfinite().all()
    assert (selector.logits.grad != 0).all()


def test_units_that_agree_count_as_one() -> None:
    selector = ConcreteSelector(4, k=3)
    with torch.no_grad():
        selector.logits.copy_(torch.tensor([[0.0, 9, 0, 0], [0, 9, 0, 0], [0, 0, 0, 9]]))
    assert selector.items(selector().mode).tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"pairs must have shape \(\.\.\., \d+\), got \(4,\)"):
        selector.items(torch.ones(4))
    # Frequencies of the items, and what the probabilities of the pairs make of them.
    selector = ConcreteSelector(4, k=3, dtype=torch.float64)
    often = selector.items(selector().sample((100_000,))).mean(0)
    torch.testing.assert_close(often, selector.items(selector().mean), rtol=0, atol=0.01)


def test_units_learn_with_any_estimator() -> None:
    torch.manual_seed(0)
    selector = ConcreteSelector(6, k=2)
    optimizer = torch.optim.Adam(selector.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss = expectation(lambda z: -selector.items(z)[..., [1, 4]].sum(-1), selector(), LeaveOneOut(), 8)
        loss.backward()
        optimizer.step()
    assert selector.items(selector().mode).tolist() == [0, 1, 0, 0, 1, 0]


def test_a_number_of_units_is_for_good() -> None:
    selector = ConcreteSelector(6, k=2)
    selector.k = 3
    with pytest.raises(ValueError, match="k must stay the number of units, 2, got 3"):
        selector()
    with pytest.raises(ValueError, match="k must be 1 or more, got 0"):
        ConcreteSelector(6, 0)


@pytest.mark.parametrize(
    "estimator",
    [SIMPLE(), ReinMax(), GumbelTopK(0.5), IMLE(), NCPSS(), DPS(0.5), StochasticGates(0.5)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_layer_in_vmap(estimator: Estimator) -> None:
    layer = SubsetLayer(2, estimator)
    logits, weights = torch.randn(4, 6, dtype=torch.float64), torch.arange(6.0, dtype=torch.float64)

    def loss(row: Tensor) -> Tensor:
        return (layer(row) @ weights) ** 2

    gradients = torch.func.vmap(torch.func.grad(loss), randomness="different")(logits)
    assert gradients.shape == (4, 6)
    assert gradients.isfinite().all()
    assert (gradients != 0).any()


def test_modules_are_made_without_storage_and_filled_later() -> None:
    for make in (lambda: FeatureGate(5, 2), lambda: ConcreteSelector(5, 2)):
        given = make()
        nn.init.normal_(given.logits)
        with torch.device("meta"):
            module = make()
        module = module.to_empty(device="cpu")
        module.load_state_dict(given.state_dict())
        assert torch.equal(module().mean, given().mean)
