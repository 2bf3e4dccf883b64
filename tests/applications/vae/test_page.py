import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ksubset.experiments import datasets

PAGE = Path(__file__).parents[3] / "docs" / "autoencoder.md"


def independent_pixels(train: Tensor, test: Tensor) -> float:
    """Mean log-likelihood of test images under the frequency of each pixel in the others, one half added to counts."""
    mean = (train.sum(0) + 0.5) / (len(train) + 1)
    return -torch.nn.functional.binary_cross_entropy(mean.expand_as(test), test, reduction="sum").item() / len(test)


def test_the_example_of_the_page_beats_independent_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(example.splitlines()) < 22
    torch.manual_seed(0)
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    elbo, closer = (float(value) for value in re.findall(r"-\d+\.\d", capsys.readouterr().out))
    assert -22.5 < elbo <= closer < -18
    baseline = independent_pixels(namespace["train"], namespace["test"])
    assert f"each with its own mean, have {baseline:.1f}.\n" in PAGE.read_text()
    assert (tmp_path / "digits.png").stat().st_size > 10_000


def test_independent_pixels_have_what_the_page_says() -> None:
    split = datasets.load("digits")
    baseline = independent_pixels(split.train_images.round(), split.test_images.round())
    assert f"independent pixels have {baseline:.1f}.\n" in PAGE.read_text()
