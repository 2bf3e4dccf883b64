"""Tutorials, guides and explanations print what they say; the code of every page is run by some test."""

from pathlib import Path

import pytest
from pages import DOCS, check_examples

ROOT = DOCS.parent
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for folder in ("tutorials", "howto", "explanation")
    for path in (DOCS / folder).glob("*.md")
)


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_print_what_the_page_says(
    name: str, one_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    check_examples(name, (DOCS / name).read_text(encoding="utf-8").count("```python"), capsys)
