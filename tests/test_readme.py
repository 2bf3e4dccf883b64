"""The code of the README does what it says."""

import re
import tomllib
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


def test_links_of_the_long_description_lead_somewhere() -> None:
    settings = tomllib.loads((README.parent / "pyproject.toml").read_text())
    (rule,) = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]
    text = re.sub(rule["pattern"], rule["replacement"], README.read_text())
    assert re.findall(r"\]\((?!https://)", README.read_text())
    assert re.findall(r"\]\((?!https://)", text) == []
    assert "[Revisiting Score Function Estimators for k-Subset Sampling](https://arxiv.org/abs/2407.16058)" in text
    assert text.count("```") == README.read_text().count("```")
