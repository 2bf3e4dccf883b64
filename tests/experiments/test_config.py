import dataclasses

import pytest

from ksubset.experiments.config import RunConfig, descriptions


def test_defaults_are_the_papers() -> None:
    config = RunConfig()
    assert (config.epochs, config.samples, config.batch_size) == (500, 5, 1024)
    assert (config.selector_lr, config.selector_beta1) == (1e-2, 0.99)
    assert (config.network_lr, config.weight_decay) == (1e-4, 1e-4)
    assert (config.temperature_start, config.temperature_end) == (1.0, 0.01)
    assert config.subsets_per == "batch"


def test_every_knob_is_explained() -> None:
    assert list(descriptions()) == [field.name for field in dataclasses.fields(RunConfig)]
    assert "" not in descriptions().values()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("task", 3, "a string"),
        ("k", 0, "an integer >= 1"),
        ("k", 2.5, "an integer >= 1"),
        ("k_start", 0, "an integer >= 1"),
        ("k_until", 0.0, "a number in (0, 1]"),
        ("epochs", 0, "an integer >= 1"),
        ("samples", True, "an integer >= 1"),
        ("seed", -1, "an integer from 0 to 4294967295"),
        ("seed", 2**32, "an integer from 0 to 4294967295"),
        ("seed", 10**40, "an integer from 0 to 4294967295"),
        ("batch_size", "64", "an integer >= 1"),
        ("subsets_per", "pixel", "one of batch, example, group"),
        ("selector_lr", 0.0, "a finite number > 0"),
        ("network_lr", float("nan"), "a finite number > 0"),
        ("weight_decay", -1e-4, "a finite number >= 0"),
        ("selector_beta1", 1.0, "a number in [0, 1)"),
        ("temperature_end", float("inf"), "a finite number > 0"),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        RunConfig(**{field: value})
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert expected in message
    assert repr(value) in message


def test_names_differ_with_any_knob() -> None:
    base = RunConfig()
    others = [dataclasses.replace(base, samples=6), dataclasses.replace(base, seed=1), dataclasses.replace(base, k=9)]
    assert len({config.name() for config in [base, *others]}) == 4
    assert base.name() == RunConfig().name()
    assert base.name().startswith("classification-digits-sfess-v-seed0-")
