"""The page's examples print what it says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "design.md"


def test_the_examples_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)\n```", text, re.DOTALL)
    assert len(blocks) == text.count("```python") == 2
    for code, printed in blocks:
        exec(code, namespace)
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert lines == printed.splitlines()
