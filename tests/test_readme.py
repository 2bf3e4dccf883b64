"""The code of the README does what it says."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"


def test_the_example_trains(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "optimizer" in block]
    namespace: dict[str, object] = {}
    exec(example, namespace)
    printed = capsys.readouterr().out.strip()
    assert printed == "tensor([ 3,  7, 11])"
    assert f"# {printed}" in example
    assert isinstance(namespace["logits"], torch.Tensor)
