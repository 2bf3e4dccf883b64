import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"


def test_the_example_of_the_page_finds_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(example, namespace)
    *_, rate = capsys.readouterr().out.splitlines()
    assert float(rate) > 0.95
