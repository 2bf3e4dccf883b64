"""The example of the documentation does what it says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "selection.md"


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, object] = {}
    exec(example, namespace)
    support, score_and_fits = capsys.readouterr().out.splitlines()
    assert support == "[ 4 11]"
    assert f"# {support}" in example
    assert float(score_and_fits.split()[0]) == 1.0
    assert namespace["X_selected"].shape == (400, 2)  # type: ignore[attr-defined]
