"""The subset autoencoder as a task of the experiments."""

from pathlib import Path

import pytest
import torch

from ksubset.experiments import protocols, runner, tasks
from ksubset.experiments.config import RunConfig
from ksubset.experiments.methods import METHODS
from ksubset.experiments.training import Training
from ksubset.training import seeded

# The others have settings for pixels alone.
SETTLED = [name for name in METHODS if name not in ("reinmax", "dps", "stg", "concrete", "hybrid-pathwise")]


def config(**values: object) -> RunConfig:
    settings = {"task": "autoencoder", "dataset": "digits", "epochs": 2, "samples": 2, "batch_size": 400}
    return RunConfig(**(settings | values))  # type: ignore[arg-type]


def training(**values: object) -> Training:
    resolved = runner.resolve(config(**values))
    with seeded(0):
        return Training(resolved, tasks.find("autoencoder").load(resolved.dataset), torch.device("cpu"))


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.selector is None])
def test_every_method_makes_a_record(method: str, tmp_path: Path) -> None:
    record = runner.run(config(method=method, k_start=4), tmp_path)
    assert record.config.k == 2
    assert set(record.test) == {"elbo", "log_likelihood"}
    # Two nats of rounding: both are estimates, and next to nothing is learned.
    assert -60 < record.test["elbo"] < record.test["log_likelihood"] + 2 < 0
    for entry in record.history:
        assert entry["train"]["elbo"] == pytest.approx(-entry["loss"])
        assert set(entry["validation"]) == {"elbo"}
    assert len(record.reconstructions) == len(record.originals) == 3
    assert record.side == 8


def test_an_evaluation_leaves_random_numbers_alone_and_repeats() -> None:
    run = training()
    state = torch.get_rng_state()
    assert run.task.evaluate("validation") == run.task.evaluate("validation")
    assert run.task.evaluate("test")["elbo"] < 0
    for image in run.task.pictures().values():
        assert image.shape == (8, 8)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_loss_of_an_epoch_is_the_negative_bound() -> None:
    run = training(selector_lr=1e-9, network_lr=1e-9, samples=30)
    entry = run.epoch(lambda: False)
    assert entry is not None
    with torch.no_grad():
        bound = run.task.model.elbo(run.task.data.train, 30).mean()  # type: ignore[attr-defined]
    # Both over a thousand images and 30 codes: 0.02 nats are many standard errors.
    assert entry["train"]["elbo"] == pytest.approx(float(bound), abs=0.02)


def test_settings_of_every_method_are_known() -> None:
    for method in SETTLED:
        settings = protocols.find("best", "autoencoder", "mnist", method)
        assert RunConfig(**settings, task="autoencoder", method=method).tuning == 0


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match="k: expected less than the 8 items of a group of digits, got 8"):
        runner.resolve(config(k=8))
    with pytest.raises(ValueError, match="dataset: expected one of digits, mnist, mnist-grey for autoencoder"):
        runner.resolve(config(dataset="kmnist"))
    with pytest.raises(ValueError, match=r"tuning: expected 0, as the bound is that of encoder and decoder, got 0\.5"):
        training(tuning=0.5)
