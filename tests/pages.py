"""Pages of the documentation whose examples are followed by what they print."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def check_examples(name: str, number: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the examples of a page one after the other, so many, and compare what they print with the text below them, if
    there is any; returns the text of the page.
    """
    text = (DOCS / name).read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)\n```)?", text, re.DOTALL)
    assert len(blocks) == text.count("```python") == number
    for code, printed in blocks:
        exec(code, namespace)
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert lines == printed.splitlines(), f"{name} printed {lines}"
    return text
