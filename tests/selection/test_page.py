"""The examples of the documentation do what they say."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "selection.md"


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
EXAMPLES = [block for block in BLOCKS if "print" in block]


@pytest.mark.parametrize(("example", "support"), list(zip(EXAMPLES, ["[ 4 11]", "[ 3  7 11]"], strict=True)))
def test_an_example_of_the_page(example: str, support: str, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    printed, score = capsys.readouterr().out.splitlines()
    assert printed == support
    assert f"# {support}" in example
    assert float(score.split()[0]) > 0.95
    assert namespace["X_selected"].shape == (len(namespace["X"]), len(re.findall(r"\d+", support)))
