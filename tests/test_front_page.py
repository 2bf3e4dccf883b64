"""The doors of the documentation's front page open."""

import pytest
from pages import check_examples


def test_the_examples_print_what_the_page_says(one_thread: None, capsys: pytest.CaptureFixture[str]) -> None:
    check_examples("index.md", 4, capsys)
