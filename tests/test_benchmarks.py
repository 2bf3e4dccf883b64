"""The scripts of benchmarks/, which run for hours: what they name is there."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_imports_of_the_package(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ksubset":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


def test_paths_of_the_run_on_a_gpu() -> None:
    paths = re.findall(r"\b(?:tests|benchmarks)/[\w/.]*\w", (ROOT / "benchmarks/cuda.sh").read_text(encoding="utf-8"))
    assert len(paths) > 3
    assert [path for path in paths if not (ROOT / path).exists()] == []
