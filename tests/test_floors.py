"""The tree is the architecture: a module imports only from floors below its own."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ksubset"
# What each part may import of the package, besides itself.
ALLOWED = {
    "numerics": set(),
    "_support": set(),
    "distributions": {"numerics"},
    "estimators": {"numerics", "distributions"},
    "training": {"_support", "schedules", "numerics", "distributions", "estimators", "nn"},
    "experiments": {"", "_support", "schedules", "numerics", "distributions", "estimators", "nn", "training"},
    "lab": {"", "_support", "numerics", "distributions", "estimators"},
    "selection": {"_support", "schedules", "numerics", "distributions", "estimators", "nn", "training"},
    "nn": {"numerics", "distributions", "estimators"},
    "cli": {"", "_support", "experiments", "lab", "selection"},
    "schedules": set(),
    "": {"distributions", "estimators", "schedules"},
}
FILES = sorted(SOURCE.rglob("*.py"))


def part(module: str) -> str:
    """The part of the package that a dotted module name belongs to; the empty string for the package itself."""
    names = module.split(".")
    return names[1] if len(names) > 1 and names[1] in ALLOWED else ""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    module = ".".join(("ksubset", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    own = part(module)
    used = {part(name) for name in imports(path) if name.split(".")[0] == "ksubset"}
    assert used <= ALLOWED[own] | {own}


@pytest.mark.parametrize(
    "path",
    [f for f in FILES if not {"experiments", "lab", "selection", "cli"} & set(f.parts)],
    ids=lambda path: path.stem,
)
def test_the_core_needs_torch_alone(path: Path) -> None:
    known = {"torch", "ksubset", *__import__("sys").stdlib_module_names}
    assert {name.split(".")[0] for name in imports(path)} <= known


@pytest.mark.parametrize("path", sorted(SOURCE.glob("estimators/[a-z]*.py")), ids=lambda path: path.stem)
def test_estimators_never_import_each_other(path: Path) -> None:
    used = {module for module in imports(path) if "estimators" in module}
    assert used <= {"ksubset.estimators.base"}
