from collections.abc import Callable
from pathlib import Path

import pytest

from ksubset.experiments import plots
from ksubset.experiments.records import Record

Factory = Callable[..., Record]
PNG = b"\x89PNG\r\n\x1a\n"


def test_figures_from_records_alone(make_record: Factory, tmp_path: Path) -> None:
    records = [
        make_record(task=task, dataset=dataset, method=method, seed=seed, subsets_per=subsets_per)
        for task in ("classification", "reconstruction")
        for dataset in ("mnist", "kmnist")
        for method in ("gs", "sfess-v")
        for seed in (0, 1)
        for subsets_per in ("batch", "example")
    ]
    paths = plots.plot(records, tmp_path / "figures")
    protocols = [f"500-epochs-m-5-subsets-per-{per}-k-30" for per in ("batch", "example")]
    names = {"scores"} | {
        f"{figure}-{protocol}"
        for protocol in protocols
        for figure in (
            "convergence-training",
            "convergence-validation",
            "reconstruction-mnist",
            "reconstruction-kmnist",
        )
    }
    assert {path.stem for path in paths} == names
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(PNG)
        assert len(content) < 300_000


def test_panels_of_convergence(make_record: Factory) -> None:
    records = [
        make_record(dataset="mnist", method="gs", seed=0, test={"accuracy": 0.5}),
        make_record(dataset="mnist", method="gs", seed=1, test={"accuracy": 0.7}),
        make_record(dataset="kmnist", method="sfess-v", task="reconstruction", test={"psnr": 12.0}),
    ]
    figure = plots._convergence(records, "validation", "protocol")
    panels = [panel for panel in figure.axes if panel.axison]
    assert [(panel.get_title(), panel.get_ylabel(), panel.get_xlabel()) for panel in panels] == [
        ("KMNIST", "validation PSNR (dB)", "epoch"),
        ("MNIST", "validation accuracy", "epoch"),
    ]
    (line,) = panels[1].get_lines()
    assert line.get_label() == "GS"
    assert list(line.get_ydata()) == pytest.approx([0.6] * 3)
    (band,) = panels[1].collections
    # Two standard deviations of {0.5, 0.7}: 0.2 * sqrt(2).
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.6 - 0.2828, 0.6 + 0.2828), abs=1e-4)


def test_reconstructions_show_the_mask_first(make_record: Factory) -> None:
    record = make_record(task="reconstruction", dataset="digits", k=2, selected=[3, 9])
    figure = plots._reconstruction([record], "Digits", "protocol")
    assert len(figure.axes) == 8
    mask = figure.axes[1].images[0].get_array()
    assert mask.shape == (8, 8)
    assert {(int(row), int(column)) for row, column in zip(*mask.nonzero(), strict=True)} == {(0, 3), (1, 1)}


def test_scores_are_positive_for_the_included() -> None:
    left, right = plots._scores().axes
    assert len(left.patches) == len(right.patches) == 10
    assert sum(bar.get_height() > 0 for bar in right.patches) == 4


def test_protocols_with_other_knobs_have_their_own_files() -> None:
    slugs = {plots._slug(f"2 epochs, M = 5 subsets per batch, k = 10{rest}") for rest in ("", ", a = 1", ", a = 2")}
    assert len(slugs) == 3
    assert "2-epochs-m-5-subsets-per-batch-k-10" in slugs
