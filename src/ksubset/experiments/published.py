"""The paper's numbers, as printed."""

import functools
import tomllib
from importlib import resources
from typing import Any

__all__ = ["load", "protocol", "results"]


@functools.cache
def load(name: str = "paper") -> dict[str, Any]:
    """Everything in ``paper.toml``, or in ``best.toml`` or ``published.toml``."""
    return tomllib.loads(resources.files("ksubset.experiments").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def protocol() -> str:
    """How the published values were measured, in words."""
    return "{epochs} epochs, M = {samples} subsets per batch, k = {k}, {seeds} seeds".format_map(load())


def results(metric: str, dataset: str, k: int | None) -> dict[str, tuple[float, float]]:
    """Mean and two standard deviations by the method's label; empty where the paper has no values."""
    paper = load()
    values = paper["results"].get(metric, {}).get(dataset, []) if k == paper["k"] else []
    return {method: (mean, spread) for method, (mean, spread) in zip(paper["methods"], values, strict=False)}
