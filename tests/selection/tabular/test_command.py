"""`ksubset select`, from a file to the report."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import kstest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import get_scorer
from typer.testing import CliRunner

from ksubset import cli
from ksubset.selection.tabular import chance, types
from ksubset.selection.tabular.models import MODELS

ROWS = 100
QUICK = ["--cv", "3", "--max-evaluations", "60", "--model", "linear"]


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.app, ["select", *map(str, arguments)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two columns of six decide about the target, one of them by its text."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{place}": rng.standard_normal(ROWS) for place in range(5)})
    frame["colour"] = rng.choice(["red", "green", "blue"], ROWS)
    signal = 2 * frame["x1"] + 3 * (frame["colour"] == "red")
    frame["y"] = np.where(signal > 1, "good", "bad")
    frame["price"] = signal
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


def scores(report: str) -> list[float]:
    """With all columns, those kept, and random ones."""
    found = [re.search(rf"{what}.*: (-?[\d.]+)", report) for what in ("  all", "  the", "random columns")]
    return [float(match[1]) for match in found if match]


def test_a_report_and_a_file(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "selected.csv"
    options = [data, "--target", "y", "--k", "2", "--exclude", "price", "--exclude", "x4", *QUICK, "--out", out]
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    assert f"{data}: 100 rows, 5 columns to choose from" in result.stdout
    assert "target y: classification, 2 classes: bad, good" in result.stdout
    assert "kept 2 of 5 columns, " in result.stdout
    kept = result.stdout.partition("inclusion probability\n")[2].splitlines()[:2]
    assert {line.split()[0] for line in kept} == {"x1", "colour"}
    assert all(0.5 < float(line.split()[1]) <= 1 for line in kept)
    assert "accuracy on the 20 rows held out" in result.stdout
    _, score, random = scores(result.stdout)
    assert score > random + 0.05
    assert "fit" in result.stderr
    assert result.stdout.endswith(f"{out}: 2 columns and the target, 100 rows\n")
    pd.testing.assert_frame_equal(pd.read_csv(out), pd.read_csv(data)[["x1", "colour", "y"]])
    assert invoke(*options).stdout == result.stdout


def test_signal_is_better_than_chance(data: Path) -> None:
    options = [data, "--target", "y", "--k", "2", "--exclude", "price", *QUICK]
    result = invoke(*options, "--permutations", "3", "--stability", "4")
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(data)
    (most,) = re.findall(r"no column: (\S+)", result.stdout)
    assert float(most) == pytest.approx(frame["y"].value_counts(normalize=True).max(), abs=0.03)
    assert re.search(r"the 2 kept: \S+, better than chance \(p = 0\.005\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^3 searches with shuffled targets: 0\.\d+, at most 0\.\d+ \(p = 0\.25\)$", result.stdout, re.M)
    assert re.search(r"^x1 +\d\.\d\d +1\.00$", result.stdout, re.MULTILINE)
    assert re.search(r"^stability \d\.\d\d \(95 %: ", result.stdout, re.MULTILINE)
    assert "permutation 3 of 3\nhalf of the rows" in result.stderr


def test_a_score_that_is_not_defined_is_no_better_than_anything(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((100, 4))).add_prefix("c")
    frame["day"], frame["y"] = np.arange(100), rng.integers(0, 2, 100) * (np.arange(100) < 70)
    frame.to_csv(tmp_path / "data.csv", index=False)
    options = ["--target", "y", "--k", "1", "--time", "day", "--scoring", "roc_auc", *QUICK]
    result = invoke(tmp_path / "data.csv", *options)
    assert result.exit_code == 0, result.output
    assert "the 1 kept: nan, as this score is not defined on these rows" in result.stdout
    assert "than chance" not in result.stdout


@pytest.mark.parametrize("kind", ["classes", "numbers", "groups", "time"])
def test_noise_is_no_better_than_chance(tmp_path: Path, kind: str) -> None:
    """The held-out rows of noise pass for signal one time in twenty; those of this seed do not."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((80, 30))).add_prefix("c")
    frame["y"] = rng.standard_normal(80) if kind == "numbers" else rng.permutation(np.arange(80) % 2)
    frame["group"], frame["day"] = np.arange(80) // 2, np.arange(80)
    if kind == "groups":
        frame["y"] = (frame["group"] % 2).to_numpy()
    path = tmp_path / "noise.csv"
    frame.to_csv(path, index=False)
    named = {"groups": ["--groups", "group", "--exclude", "day"], "time": ["--time", "day", "--exclude", "group"]}
    more = named.get(kind, ["--exclude", "group", "--exclude", "day"])
    result = invoke(path, "--target", "y", "--k", "3", *more, *QUICK)
    assert result.exit_code == 0, result.output
    found = re.search(r"the 3 kept: \S+, no better than chance \(p = (\S+)\)", result.stdout)
    assert found
    assert 0.05 < float(found[1]) <= 1


def test_p_values_are_uniform_where_there_is_nothing() -> None:
    """A model that guesses: the predictions have nothing to do with the truth; 0.001 is the false-alarm rate."""
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(25):
        frame = pd.DataFrame({"a": rng.standard_normal(40), "y": rng.permutation(np.arange(40) % 2)})
        table = types.tabulate(frame, "y")
        model = Guess(rng.integers(2, size=40)).fit(None, [0, 1])
        p_values.append(chance.p_value(table, get_scorer("accuracy"), model, np.arange(40), [0], 0))
    # Scores tie, and a tie counts as as good: p-values are no smaller than uniform ones.
    assert kstest(p_values, "uniform", alternative="greater").pvalue > 0.001
    assert np.mean(p_values) < 0.75


class Guess(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def fit(self, X: Any, y: Any) -> "Guess":
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return self.answers


def test_regression_from_parquet_to_parquet(data: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "data.parquet", tmp_path / "selected.parquet"
    frame = pl.read_csv(data).with_columns(pl.col("colour").cast(pl.Categorical))
    frame = frame.with_columns(price=pl.when(pl.col("x0") > 1.5).then(None).otherwise("price"))
    frame.write_parquet(source)
    result = invoke(source, "--target", "price", "--k", "2", "--exclude", "y", *QUICK, "--out", out)
    assert result.exit_code == 0, result.output
    dropped = frame["price"].null_count()
    assert f"dropped: {dropped} rows without a target" in result.stdout
    assert f"{ROWS - dropped} rows" in result.stdout
    assert "target price: regression" in result.stdout
    everything, kept, random = scores(result.stdout)
    assert everything > 0.9
    assert kept > random + 0.2
    assert pl.read_parquet(out).equals(frame.select("x1", "colour", "price"))


def test_sizes(data: Path) -> None:
    options = [data, "--target", "y", "--exclude", "price", "--cv", "3", "--max-evaluations", "20", "--model", "linear"]
    result = invoke(*options, "--k", "auto")
    assert result.exit_code == 0, result.output
    assert "   k  accuracy, cross-validated, and nested" in result.stdout
    rows = r"^ +(\d+)  \S+ \(standard error \S+\), \d\.\d+$"
    assert re.findall(rows, result.stdout, re.MULTILINE) == ["1", "2", "4", "6"]
    assert re.search(r"^nested accuracy \S+, of searches on rows they had not seen$", result.stdout, re.MULTILINE)
    result = invoke(*options, "--k", "6,2")
    assert re.findall(r"^ +(\d+)  \S+ \(standard error", result.stdout, re.MULTILINE) == ["2", "6"]
    result = invoke(*options, "--k", "6")
    assert "random" not in result.stdout
    result = invoke(*options, "--k", "1", "--always-include", "x0", "--scoring", "roc_auc")
    assert re.search(r"kept 1 of 6 columns.*roc_auc.*x0 +1\.00", result.stdout, re.DOTALL)


def test_a_checkpoint_is_gone_on_from(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [data, "--target", "y", "--k", "3", *QUICK, "--checkpoint", tmp_path / "scores.json"]
    first = invoke(*options, "--exclude", "price")
    assert first.exit_code == 0, first.output
    fits = []
    module = sys.modules["ksubset.selection.wrapper.evaluation"]
    fit = module._fit_and_score
    monkeypatch.setattr(module, "_fit_and_score", lambda *arguments: (fits.append(1), fit(*arguments))[1])
    assert invoke(*options, "--exclude", "price").stdout == first.stdout
    assert not fits
    # With another column to choose from, it is another search in the same file.
    assert invoke(*options).exit_code == 0
    assert fits


def test_ctrl_c_keeps_the_best_so_far(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["ksubset.selection.wrapper.evaluation"]
    fit, fits = module._fit_and_score, []

    def interrupted(*arguments: Any) -> Any:
        fits.append(1)
        if len(fits) == 50:
            raise KeyboardInterrupt
        return fit(*arguments)

    monkeypatch.setattr(module, "_fit_and_score", interrupted)
    result = invoke(data, "--target", "price", "--k", "3", "--exclude", "y", *QUICK)
    assert result.exit_code == 0, result.output
    assert "warning: interrupted: the selector keeps the best columns found so far" in result.stderr
    assert "kept 3 of 6 columns" in result.stdout
    assert len(scores(result.stdout)) == 3


def test_what_looks_like_an_id_is_named(data: Path) -> None:
    frame = pd.read_csv(data)
    frame["name"] = [f"person {place}" for place in range(ROWS)]
    frame.to_csv(data)  # with the index, as happens
    result = invoke(data, "--target", "price", "--k", "1", *QUICK)
    assert result.exit_code == 0, result.output
    assert "warning: 'Unnamed: 0' counts the rows, as an id does; --exclude leaves a column out" in result.stderr
    assert "warning: 'name' has another text in each row, as an id has" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "9"], "k: expected 1 to 7, the number of columns, got 9"),
        (["--k", "ten"], "k: expected an integer, several as 5,10,20, or auto, got 'ten'"),
        (["--k", "1", "--k", "2"], "--k: expected one value, got 2"),
        (
            ["--target", "z"],
            "target: expected one of 'x0', 'x1', 'x2', 'x3', 'x4', 'colour', 'y', 'price', got 'z'",
        ),
        (["--exclude", "z"], "exclude: expected one of 'x0', "),
        (["--exclude", "y"], "exclude: expected one of 'x0', 'x1', 'x2', 'x3', 'x4', 'colour', 'price', got 'y'"),
        (["--always-include", "z"], "always_include: expected one of 'x0', "),
        (["--model", "tree"], "model: expected one of hist-gradient-boosting, "),
        (["--task", "ranking"], "task: expected one of classification, regression, got 'ranking'"),
        (["--task", "regression"], "task: expected classification, as 'y' is text, got regression"),
        (["--scoring", "magic"], "scoring: expected a scorer of scikit-learn, such as 'roc_auc' or 'r2', got 'magic'"),
        (["--scoring", "r2"], "scoring: expected a scorer of classes, such as 'roc_auc', as the target has"),
        (
            ["--target", "price", "--scoring", "accuracy"],
            "scoring: expected a scorer of numbers, such as 'r2', as the t",
        ),
        (["--jobs", "0"], "jobs: expected 1 or more, or -1 for as many as there are cores, got 0"),
        (["--test-share", "0"], "test_share: expected a number above 0 and below 1, got 0.0"),
        (["--test-share", "0.001"], "test_share: expected a fraction that holds out as many rows as there are classes"),
        (["--cv", "60"], "cv: expected at most as many folds as there are rows of each class to search with, got 60"),
        (["--target", "price", "--cv", "60"], "cv: expected two rows in each fold, got 60 folds of 80 rows"),
        (["--max-evaluations", "2"], "max_evaluations: expected 3 or more"),
        (["--out", "selected.xlsx"], "out: expected a file that ends in .csv or .parquet, got selected.xlsx"),
        (["--out", "nowhere/selected.csv"], "out: expected a file in a folder that exists, got "),
        (["--checkpoint", "nowhere/scores.json"], "nowhere/scores.json: cannot be written"),
    ],
)
def test_errors_are_one_line(data: Path, arguments: list[str], message: str) -> None:
    options = {"--target": "y", "--k": "2"} | dict(zip(QUICK[::2], QUICK[1::2], strict=True))
    given = [word for name, value in options.items() if name not in arguments for word in (name, value)]
    result = invoke(data, *given, *arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.ods", "a,y\n", "data: expected a file that ends in .csv, .tsv, .txt, .parquet, .feather, .xlsx, .xls, "),
        ("data.xlsx", "a,y\n", "data: expected a xlsx file that can be read, got "),
        ("data.csv", "", "data: expected a csv file that can be read, got "),
        ("data.csv", "a,y\n", "data: expected columns and rows, got none in "),
        ("data.csv", "a,y,a\n1,2,3\n", "data: expected columns of different names, got 'a' more than once"),
        ("data.parquet", "a,y\n", "data: expected a parquet file that can be read, got "),
        ("data.csv", "y\n1\n2\n", "data: expected columns besides the target and the excluded ones, got none"),
        ("data.csv", "a,y\n1,x\n2,x\n", "target: expected two classes or more, got 'y', which has only x"),
        (
            "data.csv",
            "a,y\n1,0.5\n2,0.5\n",
            "target: expected a column with different values, got 'y', which has only 0.5",
        ),
        ("data.csv", "a,y\n1,\n2,\n", "target: expected a column with values, got 'y', which has none"),
        ("data.csv", "a,y\n1,b\n" + "1,c\n2,d\n" * 9, "cv: expected at most as many folds as there are rows of each"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = invoke(path, "--target", "y", "--k", "1", *QUICK)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")


def test_no_file_and_the_same_file(data: Path) -> None:
    for arguments in (["nowhere.csv"], [data, "--out", data]):
        result = invoke(*arguments, "--target", "y", "--k", "1", *QUICK)
        assert result.exit_code == 2
        assert result.stderr.startswith(("error: data: expected a file, got nowhere", "error: out: expected another"))


def test_duplicated_columns_of_parquet(tmp_path: Path) -> None:
    table = pa.table([[1, 2], [1, 2]], names=["a", "a"])
    pq.write_table(table, tmp_path / "data.parquet")
    result = invoke(tmp_path / "data.parquet", "--target", "a", "--k", "1")
    assert result.exit_code == 2
    assert "columns of different names, got 'a' more than once" in result.stderr


def test_a_missing_package() -> None:
    code = "import sys; sys.modules['pandas'] = None; import ksubset.cli, ksubset.selection; print('so far'); "
    code += "import ksubset.selection.tabular.select"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pandas is not installed; get it by: pip install 'ksubset[selection]'" in done.stderr
    assert "so far" in done.stdout


def test_help() -> None:
    result = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert "select columns of a data set" in result.output
    assert "Keep the k columns of a file" in result.output
    result = CliRunner().invoke(cli.app, ["select", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert all(name in result.output for name in MODELS)
