"""Tutorials, guides and explanations print what they say; the code of every page is run by some test."""

import re
from pathlib import Path

import pytest
import torch
from pages import DOCS, check_examples

import ksubset

ROOT = DOCS.parent
WITH_CODE = [page for page in (ROOT / "README.md", *DOCS.rglob("*.md")) if "```python" in page.read_text("utf-8")]
IN_FOLDERS = sorted(page.relative_to(DOCS).as_posix() for page in WITH_CODE if page.parent not in (ROOT, DOCS))


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_the_examples_print_what_the_page_says(
    name: str, one_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    check_examples(name, (DOCS / name).read_text(encoding="utf-8").count("```python"), capsys)


def test_the_code_of_every_other_page_is_run_by_a_test_that_names_it() -> None:
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [page.name for page in WITH_CODE if page.parent in (ROOT, DOCS) and f'"{page.name}"' not in tests] == []


def test_the_sketches_of_the_page_on_estimators_run() -> None:
    sketches, _, _ = (DOCS / "estimators.md").read_text("utf-8").partition("## Write your own")
    logits = torch.zeros(300, requires_grad=True)
    names = {"f": lambda z: z[..., 0], "k": 3, "logits": logits, "estimator": ksubset.LeaveOneOut(), "steps": 3}
    for code in re.findall(r"```python\n(.*?)```", sketches, re.DOTALL):
        exec(code, names | vars(ksubset))


def test_figures_say_in_words_what_they_show() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        assert "![](" not in text, page
        assert text.count("{figure}") == text.count("\n:alt: "), page


def test_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\((?!https://)([^)#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
