import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ksubset.training import seeded

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def run(*examples: str) -> dict[str, Any]:
    torch.manual_seed(0)
    namespace: dict[str, Any] = {}
    for example in examples:
        exec(example, namespace)
    return namespace


def test_the_examples_of_the_page_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace = run(*examples)
    *losses, right = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in losses] == ["100", "200", "300"]
    assert float(losses[-1].split()[1]) < 0.1 * float(losses[0].split()[1])
    assert float(right[7:-1]) > 0.95
    weights = []
    setup = examples[0].partition("    for step")[0]
    for _ in ("trained", "resumed at the end"):
        with seeded(0):
            namespace = run(setup, examples[1])
            namespace["resumable"](tmp_path / "file")
        assert namespace["training"].steps == 300
        weights.append(namespace["network"][0].weight)
    assert torch.equal(*weights)
