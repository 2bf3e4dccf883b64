import io
from typing import Any

import numpy as np
import pytest

from ksubset.applications.explain import plot_images, plot_inclusion, plot_text

WORDS = [["good", "$film"], ["not", "a", "good", "one"]]


def test_figures_show_what_was_chosen() -> None:
    mask = np.zeros((2, 8, 8), dtype=bool)
    mask[:, :4] = True
    images = np.random.default_rng(0).random((2, 8, 8))
    figures = [
        plot_images(images, mask, ["3", "8"]),
        plot_images(images[:, None].repeat(3, 1), mask[:, None].repeat(3, 1)),
    ]
    overlay = figures[0].axes[0].images[1].get_array()
    assert (overlay[..., 3] == 0).tolist() == mask[0].tolist()
    bars = plot_inclusion([0.9, 0.1], [True, False], ["first", "second"])
    assert [bar.get_width() for bar in bars.axes[0].patches] == [0.9, 0.1]
    text = plot_text(WORDS, np.full((2, 4), 0.5), np.eye(2, 4) > 0, width=12)
    assert [word.get_text() for word in text.axes[0].texts] == [word for sentence in WORDS for word in sentence]
    framed = [word.get_text() for word in text.axes[0].texts if word.get_bbox_patch().get_edgecolor()[3] > 0]
    assert framed == ["good", "a"]
    for figure in (*figures, bars, text):
        content = io.BytesIO()
        figure.savefig(content, format="png")
        assert content.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (plot_images, (np.zeros((2, 4, 4)), np.zeros((2, 4))), "images, columns: expected one shape"),
        (plot_images, (np.zeros((2, 2, 4, 4)), np.zeros((2, 2, 4, 4))), "images, columns: expected one shape"),
        (plot_images, (np.zeros((2, 4, 4)), np.zeros((2, 4, 4)), ["one"]), "titles: expected one for each of 2"),
        (plot_inclusion, ([0.5], [True], ["a", "b"]), r"expected shape \(2,\)"),
        (plot_text, (WORDS, np.zeros((1, 4)), np.zeros((1, 4))), r"expected shape \(N, L\) with N = 2"),
        (plot_text, (WORDS, np.zeros((2, 3)), np.zeros((2, 3))), "words: expected at most 3"),
    ],
)
def test_what_does_not_fit_is_said(call: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*arguments)
