from ksubset.experiments import published
from ksubset.experiments.config import RunConfig
from ksubset.experiments.records import describe


def test_published_values() -> None:
    assert published.results("psnr", "MNIST", 30)["SFESS-V"] == (17.775, 0.209)
    assert list(published.results("accuracy", "KMNIST", 30)) == ["GS", "STGS", "SFESS", "SFESS-V"]
    assert published.results("accuracy", "Digits", 30) == {}
    assert published.results("psnr", "MNIST", 10) == {}


def test_the_published_protocol_is_the_default_one() -> None:
    assert f"protocol paper: {published.protocol()}" == f"{describe(RunConfig(k=30))}, 5 seeds"
