"""Private names of scikit-learn are in one module."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "ksubset"
PLACE = SOURCE / "selection" / "_sklearn.py"


def private_names(source: str) -> list[str]:
    """Private names of scikit-learn, or names in its private modules, that a module imports."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.split(".")[0] == "sklearn" and any(p[0] == "_" for p in name.split("."))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from sklearn.utils import _safe_indexing, check_array", ["sklearn.utils._safe_indexing"]),
        ("def f():\n import sklearn.utils._set_output", ["sklearn.utils._set_output"]),
        ("from sklearn.utils._set_output import a", ["sklearn.utils._set_output.a"]),
        ("from sklearn.base import clone\nfrom ._a import _b\nfrom scipy import _c", []),
    ],
)
def test_private_names_are_found(source: str, found: list[str]) -> None:
    assert private_names(source) == found


def test_private_names_of_scikit_learn_are_in_one_module() -> None:
    files = [path for path in SOURCE.rglob("*.py") if private_names(path.read_text())]
    assert files == [PLACE]
