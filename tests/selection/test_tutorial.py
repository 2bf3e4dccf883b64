"""The tutorial finds what its text says; whatever its pages show is the output of these very cells."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from ksubset import cli

DOCS = Path(__file__).parents[2] / "docs"
CELLS = json.loads((DOCS / "tutorial.ipynb").read_text())["cells"]
TRUE = ["since", "income", "language", "newsletter", "orders"]


def test_what_the_text_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(DOCS)
    names: dict[str, Any] = {}
    for cell in CELLS:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    printed = capsys.readouterr().out
    assert names["kept"].tolist() == TRUE
    assert names["X"].columns[names["again"].support_].tolist() == TRUE
    sizes, scores = (names["selector"].path_[name].tolist() for name in ("n_features_to_select", "mean_test_score"))
    assert sizes[scores.index(max(scores))] == 5
    # Orders and parcels have other probabilities.
    shares = names["sure"].loc[["orders", "parcels"], ["probability", "its probability"]]
    assert (shares.sum() > 0.9).all()
    assert shares.min().min() > 0.1
    assert (shares.diff().abs().max() > 0.3).any()

    together = names["selector"].co_inclusion()
    assert together.num_subsets == 2
    assert set(together.names) == {*TRUE, "parcels"}
    shares = pd.DataFrame(together.shares, together.names, together.names)
    assert shares.loc["orders", "parcels"] == 0
    assert all(shares.loc[name, name] == 1 for name in TRUE if name != "orders")

    # Behind the selected columns, in standard errors of the difference.
    comparison = names["comparison"]
    behind = comparison["behind selected"] / comparison["error of that"]
    assert behind["all"] > 5
    assert behind["forward selection"] > 5
    assert not {"language", "newsletter"} & set(names["forward"])
    assert names["forward_fits"] < names["selector"].n_fits_
    forest = names["r2"]["forest, selected"] - names["r2"]["forest, all"]
    assert abs(forest[0]) < 2 * forest[1:].std()
    assert names["random"].max() < comparison.loc["selected", "R²"]

    assert names["grouped"].get_feature_names_out().tolist() == ["since", "age", *TRUE[1:]]
    assert names["grouped"].best_score_ < names["selector"].best_score_
    assert "same predictions: True" in printed
    assert re.search(r"ended after 1\d\d fits.*\ngone on to 200 fits", printed)
    assert not {"language", "newsletter"} <= set(names["search"].get_feature_names_out())
    assert 0.02 < float(printed.split()[-1]) - comparison.loc["selected", "R²"] < 0.1


def test_the_command_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    (command,) = re.findall(r"^ksubset (select .*)$", text, re.MULTILINE)
    monkeypatch.chdir(DOCS.parent)
    quick = re.sub(r"--k \S+", "--k 2 --max-evaluations 20", command)
    result = CliRunner().invoke(cli.app, shlex.split(quick))
    assert result.exit_code == 0, result.output
    assert "600 rows, 18 columns to choose from" in result.stdout
    assert "target spent: regression" in result.stdout


def test_the_data_are_what_the_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from customers import customers

    written = pd.read_csv(DOCS / "customers.csv", parse_dates=["since", "last_visit"])
    pd.testing.assert_frame_equal(written, customers(), check_dtype=False)


def test_no_outputs_are_committed() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in CELLS if cell["cell_type"] == "code")
