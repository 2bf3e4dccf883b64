"""Tables in Markdown, and what stands in them."""

from collections.abc import Iterable, Sequence

__all__ = ["quantity", "table"]


def quantity(number: int, noun: str) -> str:
    """A number of things in words: ``1 seed``, ``3 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells, without a line break at its end."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
