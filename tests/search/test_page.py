import pytest
from pages import check_examples


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    check_examples("minimize.md", 3, capsys)
