import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_examples_of_the_page_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    namespace: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(example, namespace)
    *losses, right = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in losses] == ["100", "200", "300"]
    assert float(losses[-1].split()[1]) < 0.1 * float(losses[0].split()[1])
    assert float(right[7:-1]) > 0.95
    # The training is at its end, and its file is that of the last step.
    with torch.random.fork_rng():
        namespace["training"].steps = 299
        namespace["resumable"](tmp_path / "file")
        assert namespace["training"].steps == 300
        namespace["resumable"](tmp_path / "file")
