from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from ksubset.stats import ConditionalLogit, CoxPH, conditional_logit_loss, cox_exact_loss

ROWS = 60


@pytest.fixture
def made() -> dict[str, Tensor]:
    rng = np.random.default_rng(2)
    return {
        "x": torch.from_numpy(rng.normal(size=(ROWS, 2))),
        "y": torch.from_numpy(rng.integers(0, 2, ROWS)),
        "strata": torch.from_numpy(rng.integers(0, 9, ROWS) * 7 - 20),
        "time": torch.from_numpy(rng.integers(1, 12, ROWS)),
        "event": torch.from_numpy(rng.random(ROWS) < 0.6),
    }


def test_they_are_the_likelihoods_of_the_models(made: dict[str, Tensor]) -> None:
    x, y, strata, time, event = (made[name] for name in ("x", "y", "strata", "time", "event"))
    logit = ConditionalLogit(y.numpy(), x.numpy(), strata.numpy())
    cox = CoxPH(time.numpy(), event.numpy(), x.numpy(), "exact")
    losses: list[tuple[ConditionalLogit | CoxPH, int, Callable[[Tensor], Tensor]]] = [
        (logit, len(logit._sizes), lambda eta: conditional_logit_loss(eta, y, strata)),
        (cox, int(event.sum()), lambda eta: cox_exact_loss(eta, time, event)),
    ]
    for model, number, loss in losses:
        beta = torch.tensor([0.6, -0.9], dtype=torch.float64, requires_grad=True)
        value = loss(x @ beta)
        (gradient,) = torch.autograd.grad(value, beta)
        here = model._evaluate(beta.detach().numpy() * model._scale)
        assert value.item() == pytest.approx(-here.value / number, rel=1e-12)
        np.testing.assert_allclose(gradient, -here.score * model._scale / number, rtol=1e-9)
        assert loss((x @ beta).float()).dtype == torch.float32


def test_a_network_learns_from_them(made: dict[str, Tensor]) -> None:
    x, strata, event = (made[name] for name in ("x", "strata", "event"))
    wanted = x[:, 0] ** 2
    y = (wanted > 0.5).long()
    for loss in (
        lambda eta: conditional_logit_loss(eta, y, strata),
        lambda eta: cox_exact_loss(eta, (4 / (1 + wanted)).ceil(), event),
    ):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
        optimizer = torch.optim.Adam(network.parameters(), 0.03)
        values = []
        for _ in range(60):
            optimizer.zero_grad()
            value = loss(network(x).squeeze(1))
            value.backward()
            optimizer.step()
            values.append(value.item())
        assert values[-1] < 0.6 * values[0]


def test_what_they_refuse(made: dict[str, Tensor]) -> None:
    eta, y, strata, time, event = made["x"][:, 0], made["y"], made["strata"], made["time"], made["event"]
    broken = eta.clone()
    broken[4] = torch.nan
    for arguments, text in (
        ((broken, y, strata), "eta must be finite"),
        ((eta, y[1:], strata), r"eta and y must be tensors of one shape \(N\), got \(60,\) and \(59,\)"),
        ((eta, y + 1, strata), "y must be 0 or 1"),
        ((eta, torch.ones_like(y), strata), "no stratum has both cases and controls"),
    ):
        with pytest.raises(ValueError, match=text):
            conditional_logit_loss(*arguments)
    with pytest.raises(TypeError, match="eta must be a floating-point tensor"):
        conditional_logit_loss(y, y, strata)
    with pytest.raises(TypeError, match="strata must be an integer tensor"):
        conditional_logit_loss(eta, y, strata.double())
    with pytest.raises(ValueError, match="no row has an event"):
        cox_exact_loss(eta, time, torch.zeros_like(event))
    with pytest.raises(ValueError, match="time must be finite"):
        cox_exact_loss(eta, broken, event)
    with pytest.raises(ValueError, match="event must be 0 or 1"):
        cox_exact_loss(eta, time, time)
