"""Every public name says what it takes, in which shapes, what it raises and where it comes from, and shows its use."""

import dataclasses
import doctest
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

import ksubset
from ksubset.stats.results import Results

PACKAGES = [
    "ksubset", "ksubset.numerics", "ksubset.distributions", "ksubset.estimators", "ksubset.nn", "ksubset.schedules",
    "ksubset.training", "ksubset.search", "ksubset.selection", "ksubset.regression", "ksubset.equations",
    "ksubset.design", "ksubset.stats", "ksubset.experiments", "ksubset.lab",
    "ksubset.applications.explain", "ksubset.applications.vae", "ksubset.applications.neighbours",
]  # fmt: skip
REFERENCE = Path(__file__).parents[1] / "docs" / "api.md"
# What somebody published: the reader is told where.
PUBLISHED = {
    "KSubset", "AtMostKSubset", "PartitionedKSubset", "log_poisson_binomial", "logits_from_marginals",
    "ScoreFunction", "LeaveOneOut", "UnorderedSet", "GumbelTopK", "IMLE", "SIMPLE", "NCPSS", "ReinMax", "DPS",
    "StochasticGates", "ConcreteSelector", "Hybrid", "SlopeAtMean", "SlopeAtSamples",
    "ReplayedSlope", "ExponentialSchedule", "KSubsetSelector", "NeuralSubsetSelector", "stability",
    "minimize", "SensorSelector", "optimal_design", "BestSubsetRegressor", "BestSubsetClassifier",
    "discover_equations", "ConditionalLogit", "CoxPH", "SamplingDesign",
    "pps_sample", "conditional_logit_loss", "cox_exact_loss", "SubsetExplainer", "synthetic", "true_positive_rate",
    "false_discovery_rate", "median_rank", "posthoc_accuracy", "SubsetAutoencoder", "binarize", "NeighborSelector",
    "SubsetNeighborsClassifier", "RunConfig",
}  # fmt: skip
SECTION = re.compile(r"^([A-Z][a-z]+):\n((?:(?:    .*)?(?:\n|\Z))+)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): \S", re.MULTILINE)
SHAPE = re.compile(r"`\([^`]*\)`")  # such as `()`, `(N)`, `(*B, n)` and `(N, ...)`
# Any is what takes whatever NumPy makes an array of.
ARRAY = re.compile(r"Tensor|ndarray|ArrayLike|^(typing\.)?Any$")


def public_names() -> dict[str, Any]:
    """Classes and functions that a package exports, or that the reference lists, by where they are defined."""
    listed = re.findall(r"^\.\. auto(?:class|function):: ([\w.]+)\.(\w+)$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    exported = [(package, name) for package in PACKAGES for name in importlib.import_module(package).__all__]
    values = [getattr(importlib.import_module(package), name) for package, name in (*exported, *listed)]
    return {f"{value.__module__}.{value.__qualname__}": value for value in values if callable(value)}


def faults(value: Any) -> list[str]:
    """What the docstring of a class or function lacks."""
    text = inspect.cleandoc(value.__doc__ or "")
    sections = dict(SECTION.findall(text))
    parameters = _parameters(value)
    described = {name for key in ("Arguments", "Attributes") for name in _entries(sections.get(key, ""))}
    lacking = [f"the argument {name}" for name in parameters if name not in described]
    if not text.partition("\n")[0]:
        lacking.append("a first line")
    if "Example" not in sections or not _examples(value):
        lacking.append("an example that is run")
    if _has_arrays(value, parameters) and not SHAPE.search(text):
        lacking.append("shapes")
    if parameters and not _is_record(value) and "Raises" not in sections:
        lacking.append("errors")
    if value.__name__ in PUBLISHED and "References" not in sections:
        lacking.append("references")
    return lacking + [f"a docstring of {name}" for name in _methods(value) if not inspect.getdoc(getattr(value, name))]


def _entries(section: str) -> Iterator[str]:
    for names in ENTRY.findall(section):
        yield from names.split(", ")


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == ksubset.__name__


def _parameters(value: Any) -> list[str]:
    """Names of the parameters; none of a constructor that is torch's or Python's own."""
    if inspect.isclass(value) and not issubclass(value, tuple):
        owner = next(base for base in value.__mro__ if "__init__" in vars(base))
        if not _is_ours(owner):
            return []
    return list(inspect.signature(value).parameters)


def _methods(value: Any) -> list[str]:
    """Public methods and properties of a class."""
    if not inspect.isclass(value):
        return []
    return [
        name
        for base in value.__mro__
        if _is_ours(base)
        for name, member in vars(base).items()
        if not name.startswith("_") and hasattr(member, "__get__")
    ]


def _has_arrays(value: Any, parameters: list[str]) -> bool:
    signature = inspect.signature(value)
    kinds = [signature.parameters[name].annotation for name in parameters]
    return any(ARRAY.search(inspect.formatannotation(kind)) for kind in (*kinds, signature.return_annotation))


def _is_record(value: Any) -> bool:
    """Whether it only holds what was found, so that it has no errors of its own."""
    if not inspect.isclass(value) or hasattr(value, "__post_init__"):
        return False
    return dataclasses.is_dataclass(value) or issubclass(value, tuple | Results)


def _examples(value: Any) -> list[doctest.Example]:
    found = _collected(importlib.import_module(value.__module__)).get(value.__qualname__, [])
    return [example for example in found if not example.options.get(doctest.SKIP)]


@functools.cache
def _collected(module: ModuleType) -> dict[str, list[doctest.Example]]:
    """Examples by name, as pytest's --doctest-modules collects them from a module."""
    found = doctest.DocTestFinder().find(module)
    return {test.name.removeprefix(f"{module.__name__}."): test.examples for test in found}


NAMES = public_names()


@pytest.mark.parametrize("place", NAMES)
def test_every_public_name_is_documented(place: str) -> None:
    assert faults(NAMES[place]) == []


def test_faults_are_found() -> None:
    def stability(x: Tensor, *, y: int = 0) -> Tensor:
        """Nothing.

        Arguments:
            x: A tensor.
        """
        return x + y

    lacking = ["the argument y", "an example that is run", "shapes", "errors", "references"]
    assert faults(stability) == lacking
    stability.__doc__ = None
    assert faults(stability) == ["the argument x", "the argument y", "a first line", *lacking[1:]]


def test_what_is_published_is_public() -> None:
    assert {value.__name__ for value in NAMES.values()} >= PUBLISHED


def test_doctests_are_a_part_of_the_suite(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("doctestmodules")
    assert "src" in pytestconfig.getini("testpaths")
