import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "neighbours.md"


def test_the_example_of_the_page_gains_by_the_embedding(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, object] = {}
    exec(example, namespace)
    learned, raw = (float(line.split()[0]) for line in capsys.readouterr().out.splitlines())
    assert 0.98 <= learned <= 0.99
    assert raw == 0.978
