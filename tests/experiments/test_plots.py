import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ksubset.experiments import plots
from ksubset.experiments.methods import METHODS
from ksubset.experiments.plots import convergence, quality, reconstruction, scores, studies, style
from ksubset.experiments.records import Record

Factory = Callable[..., Record]
Best = dict[str, dict[str, object]]
PNG = b"\x89PNG\r\n\x1a\n"


def curve(metric: str, values: list[float], *, samples: int = 5, seconds: float = 2.0) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "loss": 1.0,
            "train": {metric: value},
            "validation": {metric: value},
            "evaluations": 100 * samples,
            "seconds": seconds,
        }
        for epoch, value in enumerate(values, 1)
    ]


def lines(panel: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in panel.get_lines()}


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_figures_from_records_alone(make_record: Factory, best: Best, tmp_path: Path) -> None:
    records = [
        make_record(task=task, dataset="mnist", method=method, seed=seed, **knobs)
        for task in ("classification", "reconstruction")
        for method in ("gs", "sfess-v")
        for seed in (0, 1)
        for knobs in ({}, best[method], {"subsets_per": "example"}, {"k_start": 60}, {"samples": 10})
    ]
    records.append(make_record(task="reconstruction", dataset="kmnist"))
    paths = plots.plot(records, tmp_path / "figures")
    settings = ("paper-500-epochs-k-30", "best-500-epochs-k-30", "500-epochs-m-5-subsets-per-example-k-30")
    names = {"scores", "reconstruction-kmnist-paper-500-epochs-k-30", "time-to-psnr-kmnist-paper-500-epochs-k-30"}
    names |= {"reconstruction-mnist-paper-and-best-500-epochs-k-30"}
    for setting in settings:
        figures = ("convergence-training", "convergence-validation", "reconstruction-mnist")
        names |= {f"{figure}-{setting}" for figure in figures}
    for metric in ("accuracy", "psnr"):
        names |= {f"time-to-{metric}-mnist-{protocol}-500-epochs-k-30" for protocol in ("paper", "best")}
        names.add(f"samples-{metric}-mnist-paper-500-epochs-k-30")
        names |= {f"annealing-{metric}-mnist-{method}-paper-500-epochs-k-30" for method in ("gs", "sfess-v")}
    assert {path.stem for path in paths} == names
    for kind, begin in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        others = plots.plot(records[:2], tmp_path / kind, kind)
        assert all(path.suffix == f".{kind}" and path.read_bytes().startswith(begin) for path in others)
    with pytest.raises(ValueError, match="format: expected one of png, svg, pdf, got 'gif'"):
        plots.plot(records[:2], tmp_path, "gif")
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(PNG)
        assert len(content) < 300_000


def test_every_method_has_a_marker_of_its_own_and_the_first_a_colour() -> None:
    colours = [style.colour(method.label) for method in METHODS.values()]
    assert len(set(colours)) == len(set(colours[:8])) == 8
    assert len({style.marker(method.label) for method in METHODS.values()}) == len(METHODS)


def test_bands_of_shares_end_at_0_and_1(make_record: Factory) -> None:
    records = [make_record(seed=seed, test={"accuracy": value}) for seed, value in enumerate((0.05, 0.95))]
    (_, figure) = convergence.draw(records).values()
    (band,) = figure.axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0, 1)


def test_markers_of_lines_are_apart() -> None:
    assert style.some([1]) == style.some([1], 5) == [0]
    for place in range(4):
        marks = style.some(range(500), place)
        assert 8 <= len(marks) <= 9
        assert all(not set(marks) & set(style.some(range(500), other)) for other in range(4) if other != place)


def test_panels_of_convergence(make_record: Factory) -> None:
    records = [
        make_record(dataset="mnist", method="gs", seed=0, test={"accuracy": 0.5}),
        make_record(dataset="mnist", method="gs", seed=1, test={"accuracy": 0.7}),
        make_record(dataset="kmnist", method="sfess-v", task="reconstruction", test={"psnr": 12.0}),
    ]
    figures = convergence.draw(records)
    assert list(figures) == [f"convergence-{part}-paper-500-epochs-k-30" for part in ("training", "validation")]
    figure = figures["convergence-validation-paper-500-epochs-k-30"]
    panels = [panel for panel in figure.axes if panel.axison]
    assert [(panel.get_title(), panel.get_ylabel(), panel.get_xlabel()) for panel in panels] == [
        ("KMNIST", "validation PSNR (dB)", "epoch"),
        ("MNIST", "validation accuracy", "epoch"),
    ]
    assert lines(panels[1]) == {"GS": ([1, 2, 3], pytest.approx([0.6] * 3))}
    (band,) = panels[1].collections
    # Two standard deviations of {0.5, 0.7}: 0.2 * sqrt(2).
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.6 - 0.2828, 0.6 + 0.2828), abs=1e-4)
    assert legend(figure) == ["GS", "SFESS-V"]


def test_convergence_of_the_best_of_all_methods(make_record: Factory, best: Best) -> None:
    figures = convergence.draw([make_record(method=method, **knobs) for method, knobs in best.items()])
    assert len(figures) == 2
    assert legend(figures["convergence-validation-best-500-epochs-k-30"]) == ["GS", "SFESS-V"]


def test_reconstructions_show_the_mask_first(make_record: Factory) -> None:
    record = make_record(task="reconstruction", dataset="digits", k=2, selected=[3, 9])
    (figure,) = reconstruction.draw([record]).values()
    assert len(figure.axes) == 8
    mask = figure.axes[1].images[0].get_array()
    assert mask.shape == (8, 8)
    assert {(int(row), int(column)) for row, column in zip(*mask.nonzero(), strict=True)} == {(0, 3), (1, 1)}


def test_reconstructions_of_both_protocols(make_record: Factory, best: Best) -> None:
    def records(method: str, epochs: int, **knobs: object) -> list[Record]:
        # The seeds tell by their mask which of them was drawn.
        return [
            make_record(
                task="reconstruction",
                method=method,
                epochs=epochs,
                seed=seed,
                k=1,
                selected=[seed + len(knobs)],
                **knobs,
            )
            for seed in (2, 0)
        ]

    paper = [record for method in ("gs", "stgs", "sfess", "sfess-v") for record in records(method, 50)]
    title = "reconstruction-digits-paper-and-best-50-epochs-k-1"
    assert title not in reconstruction.draw(paper + records("sfess-v", 60, **best["sfess-v"]))
    figure = reconstruction.draw(paper + records("sfess-v", 50, **best["sfess-v"]))[title]
    columns = figure.axes[1:5]
    assert [panel.get_title() for panel in columns] == ["GS", "SFESS", "SFESS-V", "SFESS-V, best"]
    assert [int(panel.images[0].get_array().argmax()) for panel in columns] == [0, 0, 0, 2]
    assert len(figure.axes) == 4 * 5


def test_quality_against_time_and_evaluations(make_record: Factory, best: Best) -> None:
    runs = [
        make_record(dataset="mnist", method="gs", epochs=2, history=curve("accuracy", [0.4, 0.6])),
        make_record(dataset="mnist", method="gs", epochs=2, seed=1, history=curve("accuracy", [0.6, 0.8], seconds=4.0)),
        make_record(dataset="mnist", method="sfess-v", epochs=1, history=curve("accuracy", [0.3])),
        make_record(dataset="mnist", method="sfess-v", epochs=2, history=curve("accuracy", [0.2, 0.3])),
        make_record(dataset="mnist", epochs=2, history=curve("accuracy", [0.5, 0.9]), **best["sfess-v"]),
        # Left out: no protocol, and no end.
        make_record(dataset="mnist", method="stgs", weight_decay=0.0, history=curve("accuracy", [0.1])),
        make_record(dataset="mnist", method="sfess", status="interrupted", history=curve("accuracy", [0.1])),
    ]
    figures = quality.draw(runs)
    names = [f"time-to-accuracy-mnist-{stem}-k-30" for stem in ("paper-2-epochs", "paper-1-epoch", "best-2-epochs")]
    assert list(figures) == names
    figure, _, of_best = figures.values()
    seconds, evaluations = figure.axes
    assert (seconds.get_title(), seconds.get_xlabel()) == ("Abacus, 2 threads", "seconds, validation included")
    assert (evaluations.get_title(), evaluations.get_xlabel()) == ("", "network evaluations in training")
    assert seconds.get_ylabel() == "validation accuracy"
    assert seconds.get_xscale() == evaluations.get_xscale() == "log"
    assert lines(seconds) == {"GS": ([3.0, 6.0], pytest.approx([0.5, 0.7])), "SFESS-V": ([2.0, 4.0], [0.2, 0.3])}
    assert lines(of_best.axes[0]) == {"SFESS-V": ([2.0, 4.0], [0.5, 0.9])}
    assert lines(evaluations)["SFESS-V"][0] == [500, 1000]
    assert legend(figure) == ["GS", "SFESS-V"]
    assert figure.get_suptitle() == "MNIST, k = 30; protocol paper, 2 epochs\nmeans over 1 to 2 seeds"


def test_lines_are_named_beside_their_ends_none_over_another(make_record: Factory) -> None:
    history = curve("accuracy", [0.1, 0.2, 0.5, 0.9, 0.9])
    runs = [make_record(method=method, history=history) for method in METHODS]
    (figure,) = quality.draw(runs).values()
    panel = figure.axes[-1]
    assert panel.get_ylim()[0] == pytest.approx(0.2, abs=0.02)
    assert {text.get_text() for text in panel.texts} == {method.label for method in METHODS.values()}
    heights = sorted(text.xyann[1] for text in panel.texts)
    assert all(above - below > 0.044 for below, above in itertools.pairwise(heights))
    assert heights[0] >= 0
    assert heights[-1] <= 1
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in panel.get_lines()}
    assert len(looks) == len(METHODS)


def test_seconds_of_devices_are_never_in_one_panel(make_record: Factory) -> None:
    slow = make_record(history=curve("accuracy", [0.5], seconds=9.0))
    fast = make_record(
        history=curve("accuracy", [0.6], seconds=1.0), device="GPU", timestamp="2026-02-01T00:00:00+00:00"
    )
    (figure,) = quality.draw([slow, fast]).values()
    assert [panel.get_title() for panel in figure.axes] == ["Abacus, 2 threads", "GPU", "all devices"]
    assert [lines(panel)["SFESS-V"] for panel in figure.axes] == [
        ([9.0], [0.5]),
        ([1.0], [0.6]),
        ([500], [0.6]),
    ]
    alone = make_record(method="gs", history=curve("accuracy", [0.5]), device="GPU")
    (figure,) = quality.draw([slow, fast, alone]).values()
    assert legend(figure) == ["GS", "SFESS-V"]


def test_an_epoch_that_was_held_up_takes_the_median_time(make_record: Factory) -> None:
    history = curve("accuracy", [0.5, 0.6, 0.7, 0.8])
    history[2]["seconds"] = 900.0
    (figure,) = quality.draw([make_record(history=history)]).values()
    assert lines(figure.axes[0])["SFESS-V"][0] == [2.0, 4.0, 6.0, 8.0]


def test_records_that_count_no_evaluations_are_drawn_against_seconds(make_record: Factory) -> None:
    history = curve("accuracy", [0.5, 0.6])
    for entry in history:
        del entry["evaluations"]
    runs = [make_record(history=history, samples=samples) for samples in (5, 10)]
    (figure,) = quality.draw(runs).values()
    assert [panel.get_xlabel() for panel in figure.axes] == ["seconds, validation included"]
    (figure,) = studies.draw(runs).values()
    assert [panel.get_xlabel() for panel in figure.axes] == ["subsets M"]


def test_study_of_annealing(make_record: Factory) -> None:
    results = {None: [0.5, 0.7], 200: [0.8, 0.9], 60: [0.75]}
    runs = [
        make_record(
            dataset="mnist",
            k_start=start,
            seed=seed,
            history=curve("accuracy", [value / 2, value]),
            test={"accuracy": value},
        )
        for start, values in results.items()
        for seed, value in enumerate(values)
    ]
    figures = studies.draw([*runs, make_record(dataset="mnist", method="gs", k_start=200)])
    assert list(figures) == ["annealing-accuracy-mnist-sfess-v-paper-500-epochs-k-30"]
    (figure,) = figures.values()
    left, right = figure.axes
    assert (left.get_xlabel(), left.get_ylabel(), right.get_ylabel()) == (
        "epoch",
        "validation accuracy",
        "test accuracy",
    )
    assert lines(left) == {
        "30": ([1, 2], pytest.approx([0.3, 0.6])),
        "60": ([1, 2], pytest.approx([0.375, 0.75])),
        "200": ([1, 2], pytest.approx([0.425, 0.85])),
    }
    assert [label.get_text() for label in right.get_xticklabels()] == ["30", "60", "200"]
    assert [bar.lines[0].get_ydata()[0] for bar in right.containers] == pytest.approx([0.6, 0.75, 0.85])
    segments = [bar.lines[2][0].get_segments()[0] for bar in right.containers]
    assert [segment[:, 1].tolist() for segment in (segments[0], segments[2])] == [
        pytest.approx([0.6 - 0.2828, 0.6 + 0.2828], abs=1e-4),
        pytest.approx([0.85 - 0.1414, 0.85 + 0.1414], abs=1e-4),
    ]
    assert not len(segments[1]), "a single seed has no spread"
    assert len({line.get_color() for line in left.get_lines()}) == 3
    assert figure.get_suptitle().splitlines() == [
        "MNIST, SFESS-V; protocol paper: 500 epochs, M = 5 subsets per batch, k = 30, "
        "k reached after 50% of the epochs",
        "means over 1 to 2 seeds; bands and bars: two standard deviations",
    ]


def test_annealings_of_several_lengths(make_record: Factory) -> None:
    runs = [make_record(k_start=60, k_until=until) for until in (1.0, 0.5)]
    (figure,) = studies.draw([*runs, make_record(k_start=30)]).values()
    assert legend(figure) == ["30", "60, 50%", "60, 100%"]


def test_study_of_samples(make_record: Factory) -> None:
    results = {("gs", 1): [0.5], ("gs", 4): [0.6, 0.8], ("sfess-v", 4): [0.9], ("sfess-v", 16): [0.95]}
    runs = [
        make_record(dataset="mnist", method=method, samples=samples, seed=seed, test={"accuracy": value})
        for (method, samples), values in results.items()
        for seed, value in enumerate(values)
    ]
    others = [make_record(dataset="mnist", **knobs) for knobs in ({"subsets_per": "example"}, {"method": "stgs"})]
    figures = studies.draw([*runs, *others])
    assert list(figures) == ["samples-accuracy-mnist-paper-500-epochs-k-30"]
    (figure,) = figures.values()
    for panel, title, unit in zip(figure.axes, ("subsets M", "network evaluations in training"), (1, 300), strict=True):
        assert panel.get_xlabel() == title
        assert panel.get_xscale() == "log"
        drawn = {bar.get_label(): bar.lines[0] for bar in panel.containers}
        assert {method: (list(line.get_xdata()), list(line.get_ydata())) for method, line in drawn.items()} == {
            "GS": ([1 * unit, 4 * unit], pytest.approx([0.5, 0.7])),
            "SFESS-V": ([4 * unit, 16 * unit], [0.9, 0.95]),
        }
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1", "4", "16"]
    assert figure.axes[0].get_ylabel() == "test accuracy"
    assert legend(figure) == ["GS", "SFESS-V"]
    assert figure.get_suptitle().startswith("MNIST; protocol paper: 500 epochs, M subsets per batch, k = 30\n")


def test_a_study_needs_two_values(make_record: Factory) -> None:
    runs = [
        make_record(k_start=start, seed=seed, method=method)
        for seed, method in enumerate(("gs", "sfess-v"))
        for start in (None, 30)
    ]
    interrupted = [make_record(k_start=60, status="interrupted"), make_record(samples=9, status="interrupted")]
    assert studies.draw([*runs, *interrupted]) == {}
    assert studies.members([*runs, *interrupted]) == set()


def test_scores_are_positive_for_the_included() -> None:
    left, right = scores.draw().axes
    assert len(left.patches) == len(right.patches) == 10
    assert sum(bar.get_height() > 0 for bar in right.patches) == 4
