"""The page's example prints what it says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "regression.md"


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == printed.splitlines()
