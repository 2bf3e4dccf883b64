"""The examples of the documentation do what they say."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "selection.md"
TRAINING, STABILITY, NETWORK = (
    block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "print" in block
)


def test_the_columns_of_an_exclusive_or(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(TRAINING + STABILITY, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["[ 4 11]", "1.0 0.1", "1.0 [1. 1.]"]
    assert all(f"# {line}\n" in TRAINING + STABILITY for line in printed)
    assert namespace["X_selected"].shape == (400, 2)


def test_the_columns_of_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(NETWORK, namespace)
    printed, score = capsys.readouterr().out.splitlines()
    assert printed == "[ 3  7 11]"
    assert f"# {printed}" in NETWORK
    assert float(score.split()[0]) > 0.95
    assert namespace["X_selected"].shape == (1000, 3)
