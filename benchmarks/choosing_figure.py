"""Figure of docs/explanation/choosing.md: which estimator when, as a tree of questions.

Usage: python benchmarks/choosing_figure.py [FOLDER]
"""

import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from ksubset._support import palette

# Column and row of each box, its text, and where its answers lead.
QUESTIONS = {
    "gradients": (0, 0, "Is something trained by gradients\nbeside the subset, or does it\ndiffer by example?"),
    "derivative": (1, 0, "Can f be differentiated\nin the subset?"),
    "bias": (2, 0, "Is noise what ends your training:\nhundreds of items, few samples,\na bias is no harm?"),
    "between": (2, 1, "Does f make sense\nbetween subsets?"),
    "settled": (1, 2, "Is f a fixed function, and are few\nsubsets likely, about as many\nas you draw?"),
    "slowly": (1, 3, "Does f change slowly,\nand nearly add up over items?"),
}
ANSWERS = {
    "search": (0, 1, "no gradient: minimize,\nKSubsetSelector"),
    "SIMPLE": (3, 0, "SIMPLE()\nSubsetLayer(k, SIMPLE())"),
    "mean": (3, 1, "Hybrid(SlopeAtMean())"),
    "unordered": (2, 2, "UnorderedSet()"),
    "hybrid": (2, 3, "Hybrid()"),
    "first": (1, 4, "LeaveOneOut()\nthe one to try first"),
}
ARROWS = [
    ("gradients", "search", "no"), ("gradients", "derivative", "yes"), ("derivative", "settled", "no"),
    ("derivative", "bias", "yes"), ("bias", "SIMPLE", "yes"), ("bias", "between", "no"), ("between", "mean", "yes"),
    ("between", "settled", "no"), ("settled", "unordered", "yes"), ("settled", "slowly", "no"),
    ("slowly", "hybrid", "yes"), ("slowly", "first", "no"),
]  # fmt: skip
WIDTH, HEIGHT = 3.1, 1.35


def box(axes: Axes, place: tuple[float, float, str], *, answer: bool) -> Text:
    column, row, text = place
    style = {"boxstyle": "round,pad=0.5" if answer else "square,pad=0.5", "linewidth": 1.2}
    colours = {"facecolor": "#DDEFFB" if answer else "white", "edgecolor": palette.BLUE if answer else palette.BLACK}
    weight = "bold" if answer else "normal"
    where = {"ha": "center", "va": "center", "weight": weight, "fontsize": 9, "zorder": 2}
    return axes.text(column * WIDTH, -row * HEIGHT, text, bbox=style | colours, **where)


def arrow(axes: Axes, start: Text, end: Text, word: str) -> None:
    (x, y), (to_x, to_y) = start.get_position(), end.get_position()
    ends = {"patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch(), "shrinkA": 0, "shrinkB": 2}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "-|>", "color": palette.BLACK, **ends})
    blank = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text((x + to_x) / 2, (y + to_y) / 2, word, fontsize=9, ha="center", va="center", bbox=blank)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures")
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-1.45, 3 * WIDTH + 1.3), ylim=(-4.4 * HEIGHT, 0.4 * HEIGHT))
    axes.axis("off")
    boxes = {name: box(axes, place, answer=name in ANSWERS) for name, place in (QUESTIONS | ANSWERS).items()}
    figure.draw_without_rendering()  # after which boxes have their sizes
    for start, end, word in ARROWS:
        arrow(axes, boxes[start], boxes[end], word)
    figure.savefig(folder / "choosing.png", dpi=110)


if __name__ == "__main__":
    main()
