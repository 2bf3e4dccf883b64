import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[3] / "docs" / "autoencoder.md"


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
    assert (tmp_path / "digits.png").stat().st_size > 10_000
