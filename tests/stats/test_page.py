"""The page's examples print what it says, and its figures are there."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest
from pages import DOCS, check_examples


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    text = check_examples("statistics.md", 6, capsys)
    assert (tmp_path / "statistics-ties.png").stat().st_size > 10_000
    for figure in re.findall(r"\]\((figures/.*?)\)", text):
        assert (DOCS / figure).exists()
