import re
from collections.abc import Callable

import pytest

from ksubset.experiments import tables
from ksubset.experiments.records import Record

Factory = Callable[..., Record]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_results_beside_the_papers(make_record: Factory) -> None:
    accuracies = {"gs": [0.70, 0.72], "sfess": [0.60], "sfess-v": [0.80, 0.82, 0.84]}
    records = [
        make_record(dataset="fashion-mnist", method=method, seed=seed, test={"accuracy": value})
        for method, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    text = tables.results(records)
    head, _, ours, paper = rows(text)
    assert head == ["Metric", "Dataset", "Source", "GS", "STGS", "SFESS", "SFESS-V"]
    # 2 * 0.01 * sqrt(2) for two seeds 0.02 apart, 2 * 0.02 for three in steps of 0.02.
    assert ours == [
        "Accuracy ↑",
        "Fashion-MNIST",
        "ours",
        "<u>0.710 ± 0.028 (2 seeds)</u>",
        "–",
        "0.600 (1 seed)",
        "**0.820 ± 0.040 (3 seeds)**",
    ]
    assert paper[2:] == ["paper", "<u>0.777 ± 0.012</u>", "0.774 ± 0.027", "0.643 ± 0.112", "**0.809 ± 0.009**"]
    assert "**protocol paper: 500 epochs, M = 5 subsets per batch, k = 30**" in text


def test_the_published_table_is_marked_as_in_print(make_record: Factory) -> None:
    names = ("mnist", "fashion-mnist", "kmnist")
    records = [make_record(task=task, dataset=name) for name in names for task in ("reconstruction", "classification")]
    text = tables.results(records)
    paper = [row[3:] for row in rows(text) if row[2].startswith("paper")]
    bold = [[cell.startswith("**") for cell in row].index(True) for row in paper]
    underlined = [[cell.startswith("<u>") for cell in row].index(True) for row in paper]
    # Rows: PSNR, SSIM, accuracy, each over the three sets; columns: GS, STGS, SFESS, SFESS-V.
    assert bold == [3, 3, 3, 3, 3, 1, 3, 3, 3]
    assert underlined == [0, 0, 0, 0, 0, 3, 0, 0, 0]
    assert paper[0] == ["<u>17.402 ± 0.194</u>", "17.186 ± 0.319", "13.686 ± 0.412", "**17.775 ± 0.209**"]
    assert [row[2] for row in rows(text) if row[2].startswith("paper [")] == ["paper [1]"]
    assert "[1] The paper's spreads of SSIM on MNIST" in text


def test_similarities_of_two_definitions_are_two_rows(make_record: Factory) -> None:
    values = {"psnr": 20.0, "ssim": 0.9}
    old = make_record(task="reconstruction", dataset="mnist", test=values)
    new = make_record(task="reconstruction", dataset="mnist", seed=1, format=2, test={"psnr": 22.0, "ssim": 0.7})
    ours = {row[0]: row[6] for row in rows(tables.results([old, new])) if row[2] == "ours"}
    assert ours == {
        "PSNR (dB) ↑": "21.000 ± 2.828 (2 seeds)",
        "SSIM ↑ (with the border)": "0.900 (1 seed)",
        "SSIM ↑": "0.700 (1 seed)",
    }


def test_sets_that_the_paper_lacks_stand_alone(make_record: Factory) -> None:
    text = tables.results([make_record(dataset="digits", k=10)])
    assert [row[2] for row in rows(text)[2:]] == ["ours"]


def test_protocols_are_never_mixed(make_record: Factory) -> None:
    records = [
        make_record(dataset="mnist", test={"accuracy": 0.9}),
        make_record(dataset="mnist", subsets_per="example", test={"accuracy": 0.5}),
        make_record(dataset="mnist", network_lr=1e-3, test={"accuracy": 0.3}),
    ]
    text = tables.results(records)
    assert [row[6] for row in rows(text) if row[2] == "ours"] == ["0.900 (1 seed)", "0.300 (1 seed)", "0.500 (1 seed)"]
    assert "**500 epochs, M = 5 subsets per example, k = 30**" in text
    assert "**500 epochs, M = 5 subsets per batch, k = 30, network_lr = 0.001**" in text


def test_interrupted_runs_are_left_out_and_named(make_record: Factory) -> None:
    interrupted = make_record(seed=1, status="interrupted", test={"accuracy": 0.1})
    for table in (tables.results, tables.runtime):
        text = table([make_record(test={"accuracy": 0.5}), interrupted])
        assert f"Left out, as they were interrupted: {interrupted.config.name()}." in text
    assert "0.500 (1 seed)" in tables.results([make_record(test={"accuracy": 0.5}), interrupted])
    with pytest.raises(ValueError, match="at least one finished run, got 1 interrupted"):
        tables.results([interrupted])


def test_a_new_method_gets_a_column(make_record: Factory) -> None:
    labels = {"task": "Classification", "dataset": "MNIST", "method": "Hybrid"}
    head, _, ours, paper = rows(tables.results([make_record(method="gs", dataset="mnist", labels=labels)]))
    assert head[-2:] == ["SFESS-V", "Hybrid"]
    assert (ours[-1], paper[-1]) == ("0.500 (1 seed)", "–")


def test_runtime_beside_the_papers(make_record: Factory) -> None:
    runs = [
        ("gs", 0, "classification", 120.0, 4.0),
        ("gs", 1, "classification", 180.0, 6.0),
        ("sfess-v", 0, "classification", 30.0, 1.0),
        ("sfess-v", 0, "reconstruction", 50.0, 2.0),
    ]
    records = [
        make_record(
            method=method,
            seed=seed,
            task=task,
            seconds_total=total,
            seconds_per_epoch=epoch,
            device="AMD EPYC, 1 thread, bfloat16",
        )
        for method, seed, task, total, epoch in runs
    ]
    table = rows(tables.runtime(records))[2:]
    device = "ours: AMD EPYC, 1 thread, bfloat16"
    assert table[0] == [
        "Total time ↓",
        "Classification",
        device,
        "<u>2.5 min (2 runs)</u>",
        "–",
        "–",
        "**30.0 s (1 run)**",
    ]
    assert table[1][1:] == ["Reconstruction", device, "–", "–", "–", "50.0 s (1 run)"]
    assert table[2][1:] == ["all", device, "<u>2.5 min (2 runs)</u>", "–", "–", "**40.0 s (2 runs)**"]
    assert table[3][1:] == ["all", "paper: Nvidia A100", "28.7 min", "29.1 min", "**17.0 min**", "<u>17.4 min</u>"]
    assert table[4][3] == "<u>5.00 s (2 runs)</u>"
    assert table[7][3:] == ["3.45 s", "3.49 s", "**2.04 s**", "<u>2.09 s</u>"]


def test_devices_are_never_averaged(make_record: Factory) -> None:
    # The same run on two machines is two times, though one result.
    records = [make_record(), make_record(device="Other machine", seconds_total=10.0)]
    table = rows(tables.runtime(records))
    assert [row[6] for row in table if row[0] == "Total time ↓"] == ["1.5 min (1 run)", "10.0 s (1 run)"]


def test_an_epoch_that_was_held_up_counts_as_the_median_one(make_record: Factory) -> None:
    history = make_record().history[:1]
    epochs = [history[0] | {"epoch": i + 1, "seconds": each} for i, each in enumerate([5.0, 2.0, 500.0, 2.0, 2.0, 1.0])]
    record = make_record(history=epochs, seconds_total=520.0, seconds_per_epoch=512.0 / 6)
    assert record.epoch_seconds == [5.0, 2.0, 2.0, 2.0, 2.0, 1.0]
    table = rows(tables.runtime([record]))
    assert [row[6] for row in table if row[2].startswith("ours")] == ["22.0 s (1 run)", "2.33 s (1 run)"]


def test_protocols_beside_each_other(make_record: Factory, best: dict[str, dict[str, object]]) -> None:
    def runs(accuracies: dict[str, list[float]], epochs: int, protocol: dict[str, dict[str, object]]) -> list[Record]:
        return [
            make_record(
                dataset="mnist", method=method, epochs=epochs, seed=seed, test={"accuracy": value}, **protocol[method]
            )
            for method, values in accuracies.items()
            for seed, value in enumerate(values)
        ]

    paper: dict[str, dict[str, object]] = {"gs": {}, "sfess-v": {}}
    records = [
        *runs({"gs": [0.90], "sfess-v": [0.92]}, 500, paper),
        *runs({"gs": [0.95, 0.97], "sfess-v": [0.96, 0.98]}, 100, best),
        *runs({"gs": [0.70, 0.72, 0.74], "sfess-v": [0.80]}, 100, paper),
        make_record(dataset="mnist", weight_decay=0.0, test={"accuracy": 0.1}),
    ]
    text = tables.results(records)
    head, _, *table = rows(text)
    assert head == ["Metric", "Dataset", "Source", "Epochs", "Seeds", "GS", "STGS", "SFESS", "SFESS-V"]
    assert table[:4] == [
        [
            "Accuracy ↑",
            "MNIST",
            "ours, protocol paper",
            "100",
            "1 to 3",
            "<u>0.720 ± 0.040 (3 seeds)</u>",
            "–",
            "–",
            "**0.800 (1 seed)**",
        ],
        ["", "", "ours, protocol paper", "500", "1", "<u>0.900</u>", "–", "–", "**0.920**"],
        ["", "", "ours, protocol best", "100", "2", "<u>0.960 ± 0.028</u>", "–", "–", "**0.970 ± 0.028**"],
        ["", "", "paper", "500", "5", "<u>0.898 ± 0.014</u>", "0.898 ± 0.019", "0.627 ± 0.077", "**0.921 ± 0.015**"],
    ]
    assert re.findall(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE) == [
        "Protocols beside each other, k = 30",
        "protocol paper: 100 epochs, M = 5 subsets per batch, k = 30",
        "protocol paper: 500 epochs, M = 5 subsets per batch, k = 30",
        "protocol best: 100 epochs, k = 30",
        "500 epochs, M = 5 subsets per batch, k = 30, weight_decay = 0",
    ]
    # The block of a protocol holds all its methods, whose knobs differ.
    (block,) = [part for part in text.split("\n\n**") if part.startswith("protocol best")]
    assert rows(block)[2][3:] == ["<u>0.960 ± 0.028 (2 seeds)</u>", "–", "–", "**0.970 ± 0.028 (2 seeds)**"]


def test_one_protocol_needs_no_comparison(make_record: Factory) -> None:
    records = [make_record(), make_record(subsets_per="example"), make_record(dataset="digits", k=10)]
    assert "beside each other" not in tables.results(records)


def test_footnotes_are_given_once(make_record: Factory) -> None:
    records = [make_record(task="reconstruction", dataset="mnist", epochs=epochs) for epochs in (50, 500)]
    text = tables.results(records)
    assert [row[2] for row in rows(text) if "paper [" in row[2]] == ["paper [1]"] * 3
    assert text.count("[1] The paper's spreads") == 1


def test_published_values_are_those_of_the_same_k(make_record: Factory) -> None:
    assert [row[2] for row in rows(tables.results([make_record(dataset="mnist", k=10)]))[2:]] == ["ours"]


def test_blocks_of_a_study_are_in_order(make_record: Factory) -> None:
    text = tables.results([make_record(samples=samples) for samples in (20, 3, 10)])
    assert re.findall(r"M = (\d+) subsets per batch, k = 30\*\*", text) == ["3", "10", "20"]
