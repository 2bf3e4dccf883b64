"""The page's examples print what it says."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)\n```", text, re.DOTALL)
    assert len(blocks) == text.count("```python") == 5
    for code, printed in blocks:
        exec(code, namespace)
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert lines == printed.splitlines()
    assert (tmp_path / "statistics-ties.png").stat().st_size > 10_000
    for figure in re.findall(r"\]\((figures/.*?)\)", text):
        assert (PAGE.parent / figure).exists()
