"""The tree is the architecture: a module imports only from floors below its own."""

import ast
import contextlib
import functools
import graphlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ksubset"
# What each part may import of the package, besides itself; "" is the package's own namespace.
ALLOWED = {
    "_support": set(),
    "schedules": set(),
    "numerics": set(),
    "distributions": {"numerics"},
    "estimators": {"numerics", "distributions"},
    "": {"distributions", "estimators", "schedules"},
    "nn": {"numerics", "distributions", "estimators"},
    "training": {"_support", "schedules", "numerics", "distributions", "estimators", "nn"},
}
ALLOWED |= {room: set(ALLOWED) for room in ("stats", "lab")}
ALLOWED["search"] = {"_support", "schedules", "numerics", "distributions", "estimators"}
ALLOWED["design"] = ALLOWED["search"] | {"search"}
ALLOWED["selection"] = set(ALLOWED) - {"design", "stats", "lab"}
ALLOWED["regression"] = ALLOWED["search"] | {"search", "selection"}
ALLOWED["equations"] = ALLOWED["regression"] | {"regression"}
ALLOWED["applications"] = set(ALLOWED) - {"lab"}
ALLOWED["experiments"] = set(ALLOWED) - {"lab"}
ALLOWED["cli"] = set(ALLOWED)
# Those that bring dependencies of their own.
EXTRAS = {"design", "equations", "regression", "search", "selection", "stats", "applications", "experiments", "lab"}
EXTRAS |= {"cli"}
LONGEST = 400


def modules(source: Path) -> dict[str, Path]:
    """Dotted names of all modules of a package, and their files."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def graph(source: Path) -> dict[str, frozenset[str]]:
    """What each module of a package imports."""
    known = modules(source)
    return {
        module: _imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py", frozenset(known))
        for module, path in known.items()
    }


@functools.cache
def _imports(text: str, module: str, is_package: bool, known: frozenset[str]) -> frozenset[str]:
    """Dotted names of all that a module imports: anywhere in it, relatively, by attribute, or by name in a string."""
    package = module if is_package else module.rpartition(".")[0]
    root = module.partition(".")[0]

    def found(node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=base, names=aliases, level=level):
                base = importlib.util.resolve_name("." * level + (base or ""), package)
                for alias in aliases:
                    yield submodule if (submodule := f"{base}.{alias.name}") in known else base
            case ast.Attribute(value=ast.Name() | ast.Attribute()) if (name := ast.unparse(node)) in known:
                yield name
            # The bare name of the package says little, as caches are called so, and the packages that a module is in
            # are there before it.
            case ast.Constant(value=str(name)) if name in known - {root} and not f"{package}.".startswith(f"{name}."):
                yield name
            case ast.Constant(value=str(name)) if name.startswith(".") and name.strip("."):
                candidates = {f"{root}{name}"}
                with contextlib.suppress(ImportError):  # more dots than there are packages
                    candidates.add(importlib.util.resolve_name(name, package))
                yield from candidates & known

    return frozenset(name for node in ast.walk(ast.parse(text)) for name in found(node))


def part(module: str) -> str:
    """The part of the package that a dotted name belongs to; the empty string for the package itself."""
    return ".".join(module.split(".")[1:2])


def upward_imports(source: Path) -> list[str]:
    """Imports of anything that is not on a floor below, and modules that are on no floor."""
    used = graph(source)
    homeless = [f"{module}: on no floor" for module in used if part(module) not in ALLOWED]
    return homeless + [
        f"{module}: imports {name}"
        for module, names in used.items()
        for name in sorted(names)
        if name.split(".")[0] == source.name and part(name) not in {part(module), *ALLOWED.get(part(module), ALLOWED)}
    ]


def circle(source: Path) -> list[str]:
    """Modules that import each other in a circle; none if there is no such."""
    used = graph(source)
    try:
        graphlib.TopologicalSorter({name: names & used.keys() - {name} for name, names in used.items()}).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def foreign_imports(source: Path) -> list[str]:
    """Imports of the core that are neither torch nor of the standard library, nor what compiles its loops."""
    compiled = f"{source.name}.numerics.compiled"
    return [
        f"{module}: imports {name}"
        for module, names in graph(source).items()
        if part(module) not in EXTRAS
        for name in sorted(names)
        if name.split(".")[0] not in {"torch", source.name, *sys.stdlib_module_names}
        if not (module.startswith(f"{compiled}.") and name.split(".")[0] in {"numba", "numpy"})
    ]


def sideward_imports(source: Path) -> list[str]:
    """Imports of one estimator by another one."""
    package = f"{source.name}.estimators"
    return [
        f"{module}: imports {name}"
        for module, names in graph(source).items()
        if module.startswith(f"{package}.")
        for name in sorted(names)
        if name.startswith(package) and name != f"{package}.base"
    ]


def long_files(source: Path) -> list[str]:
    """Files of more lines than one reads in a sitting."""
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(source).items()}
    return [f"{name}: {count} lines" for name, count in lines.items() if count > LONGEST]


@pytest.mark.parametrize("check", [upward_imports, circle, foreign_imports, sideward_imports, long_files])
def test_the_tree(check: Callable[[Path], list[str]]) -> None:
    assert check(SOURCE) == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the source tree, to be spoiled."""
    return shutil.copytree(SOURCE, tmp_path / SOURCE.name, ignore=shutil.ignore_patterns("__pycache__"))


def insert(path: Path, line: str) -> None:
    path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{line}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from ksubset import cli", "ksubset.cli"),
        ("from ksubset import nn, cli as other", "ksubset.cli"),
        ("from ksubset import KSubset", "ksubset"),
        ("from ksubset import *", "ksubset"),
        ("import ksubset.cli.console as console", "ksubset.cli.console"),
        ("import ksubset\nksubset.cli.main()", "ksubset.cli"),
        ("from ksubset.cli import main", "ksubset.cli"),
        ("from .. import cli", "ksubset.cli"),
        ("from ..cli.console import app", "ksubset.cli.console"),
        ("def f():\n    from ksubset import cli", "ksubset.cli"),
        ("class A:\n    def f(self):\n        from ..cli import console", "ksubset.cli.console"),
        ("if TYPE_CHECKING:\n    from ksubset.cli.console import Command", "ksubset.cli.console"),
        ("try:\n    import ksubset.cli\nexcept ImportError:\n    pass", "ksubset.cli"),
        ('importlib.import_module("ksubset.cli")', "ksubset.cli"),
        ('importlib.import_module(".cli", "ksubset")', "ksubset.cli"),
        ('importlib.import_module("..cli", __package__)', "ksubset.cli"),
        ('require("ksubset.selection.plotting")', "ksubset.selection.plotting"),
        ('__import__("ksubset.cli")', "ksubset.cli"),
        ('load(extra="cli", module="ksubset.cli.console")', "ksubset.cli.console"),
        ('NAME = "ksubset.cli"\n__import__(NAME)', "ksubset.cli"),
    ],
)
def test_an_import_that_points_upwards_is_seen(copy: Path, line: str, name: str) -> None:
    assert upward_imports(copy) == []
    insert(copy / "estimators" / "base.py", line)
    assert f"ksubset.estimators.base: imports {name}" in upward_imports(copy)


@pytest.mark.parametrize(("floor", "allowed"), ALLOWED.items(), ids=ALLOWED)
def test_every_floor_is_guarded(copy: Path, floor: str, allowed: set[str]) -> None:
    rooms = {part(module) for module in modules(copy)}
    assert floor in rooms
    path = next(path for module, path in modules(copy).items() if part(module) == floor)
    others = sorted(rooms - allowed - {floor, ""})
    insert(path, "\n".join(f"import ksubset.{other}" for other in others))
    assert [line.rpartition(".")[2] for line in upward_imports(copy)] == others


def test_other_faults_of_a_tree_are_seen(copy: Path) -> None:
    insert(copy / "estimators" / "base.py", "def f():\n    from ksubset.estimators import SIMPLE")
    assert set(circle(copy)) >= {"ksubset.estimators", "ksubset.estimators.base"}
    assert sideward_imports(copy) == ["ksubset.estimators.base: imports ksubset.estimators"]
    insert(copy / "schedules.py", "import json, numpy.random")
    assert foreign_imports(copy) == ["ksubset.schedules: imports numpy.random"]
    (copy / "room.py").write_text("\n" * LONGEST)
    assert not [line for line in long_files(copy) if "room" in line]
    insert(copy / "room.py", "")
    assert f"ksubset.room: {LONGEST + 3} lines" in long_files(copy)
    assert "ksubset.room: on no floor" in upward_imports(copy)
