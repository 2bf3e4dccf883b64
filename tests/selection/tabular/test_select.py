"""Files, models for columns of any kind, and the comparison on rows held out."""

import datetime
import decimal
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ksubset.selection.tabular.files import Source
from ksubset.selection.tabular.models import MODELS, make_model
from ksubset.selection.tabular.select import select
from ksubset.selection.tabular.types import tabulate
from ksubset.selection.wrapper.selector import KSubsetSelector

ROWS = 120


def mixed(rows: int = ROWS) -> pd.DataFrame:
    """Columns of every kind with missing values; `size` and `colour` decide about the targets."""
    rng = np.random.default_rng(0)
    size = rng.standard_normal(rows)
    colour = rng.choice(["red", "green", "blue"], rows)
    signal = 2 * size + 3 * (colour == "red")
    frame = pd.DataFrame(
        {
            "size": size,
            "colour": colour,
            "flag": rng.random(rows) < 0.5,
            "count": rng.integers(0, 9, rows),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 500, rows), unit="D"),
            "word": [f"word {number}" for number in rng.integers(0, 60, rows)],
            "constant": 1.0,
            "label": np.where(signal > 1, "yes", "no"),
            "price": signal + 0.1 * rng.standard_normal(rows),
        }
    )
    for place, name in enumerate(["colour", "count", "day", "word", "flag"]):
        frame[name] = frame[name].astype(object).where(np.arange(rows) % 20 != place)
    frame["day"] = pd.to_datetime(frame["day"])
    return frame


def written(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.convert_dtypes().to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_of_every_kind(tmp_path: Path, ending: str) -> None:
    frame = mixed()
    frame.loc[3, "size"] = np.inf
    table = tabulate(Source(written(frame, tmp_path / f"data.{ending}")).read(), "label", exclude=["price", "constant"])
    assert list(table.features.columns) == ["size", "colour", "flag", "count", "day", "word"]
    kinds = {name: str(dtype) for name, dtype in table.features.dtypes.items()}
    assert kinds == dict.fromkeys(["size", "flag", "count", "day"], "float64") | {
        "colour": "category",
        "word": "category",
    }
    assert table.features.isna().sum().tolist() == [1, 6, 6, 6, 6, 6]
    days = (frame["day"] - pd.Timestamp(0)).dt.days
    np.testing.assert_array_equal(table.features["day"], days)
    assert table.classes == ["no", "yes"]
    np.testing.assert_array_equal(table.target, frame["label"] == "yes")
    assert (table.dropped, table.suspects) == (0, {})


def test_types_of_arrow(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 1, 2, 12)
    columns = {
        "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2)]),
        "date": pa.array([moment.date(), None, moment.date()]),
        "zone": pa.array([moment, None, moment], pa.timestamp("ns", "Europe/Berlin")),
        "span": pa.array([datetime.timedelta(hours=6), None, None]),
        "time": pa.array([datetime.time(12), None, None]),
        "levels": pa.array(["b", None, "a"]).dictionary_encode(),
        "nothing": pa.array([None, None, None]),
        "large": pa.array([2**63, None, 0], pa.uint64()),
        "y": pa.array([0.5, 1.5, 2.5]),
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    table = tabulate(Source(tmp_path / "data.parquet").read(), "y")
    found = table.features
    start = (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
    assert found["decimal"].tolist()[::2] == [1.5, 2.0]
    assert found["date"][0] == int(start)
    assert found["zone"][0] == start
    assert (found["span"][0], found["time"][0], found["large"][0]) == (0.25, 0.5, 2.0**63)
    assert found["levels"].tolist()[::2] == ["b", "a"]
    assert found.iloc[1].isna().all()
    pq.write_table(pa.table({"list": [[1], [2]], "y": [1, 2]}), tmp_path / "data.parquet")
    with pytest.raises(ValueError, match="data: expected columns of numbers, text or dates, got 'list' of list"):
        tabulate(Source(tmp_path / "data.parquet").read(), "y")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (["2026-01-31", "2026-02-01"], True),
        (["2026-01-31 10:00", "2026-01-31T10:00:00.5Z"], True),
        (["2026-01-31", "never"], False),
        (["2026-13-31", "2026-01-01"], False),
        (["1.5 m", "2 m"], False),
    ],
)
def test_dates_in_text(text: list[str], numbers: bool) -> None:
    frame = pd.DataFrame({"x": [*text, None], "y": [1.5, 2.5, 3.5]}).convert_dtypes(dtype_backend="pyarrow")
    assert (tabulate(frame, "y").features["x"].dtype == np.float64) == numbers


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a"] * 20, ["a", "b"]),
        ([True, False] * 20, ["False", "True"]),
        ([0, 1, 2] * 20, ["0", "1", "2"]),
        ([0.0, 1.0] * 20, ["0", "1"]),
        ([1234567, 1234568] * 20, ["1234567", "1234568"]),
        ([0.5, 1.5] * 20, None),
        (list(range(30)) * 20, None),
        (list(range(12)) * 5, None),
    ],
)
def test_the_task_is_what_the_target_looks_like(values: list[Any], classes: list[str] | None) -> None:
    frame = pd.DataFrame({"x": range(0, 2 * len(values), 2), "y": values}).convert_dtypes(dtype_backend="pyarrow")
    assert tabulate(frame, "y").classes == classes
    if not isinstance(values[0], str):
        assert tabulate(frame, "y", "regression").classes is None
    assert tabulate(frame, "y", "classification").classes is not None


def test_suspects_and_rows_without_a_target() -> None:
    frame = pd.DataFrame(
        {"": range(5), "name": list("abcde"), "x": [1, 1, 2, 2, 5], "y": [1.5, None, 2.5, float("inf"), 3.5]}
    )
    table = tabulate(frame.convert_dtypes(dtype_backend="pyarrow"), "y")
    assert (len(table.features), len(table.target), table.dropped) == (3, 3, 2)
    assert table.suspects == {"name": "has another text in each row, as an id has"}
    frame["y"] = [1.5, 2.5, 3.5, 4.5, 5.5]
    suspects = tabulate(frame.convert_dtypes(dtype_backend="pyarrow"), "y").suspects
    assert suspects == {"": "counts the rows, as an id does", "name": "has another text in each row, as an id has"}


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "data.CSV"
    path.write_text(f"\ufeffa{separator}y\n1{separator}x, z\n".replace("x, z", '"x, z"'), encoding="utf-8")
    frame = Source(path).read()
    assert frame.to_dict("list") == {"a": [1], "y": ["x, z"]}


CELLS = "id,zip,amount,flag,when,y\na,00123,1.10,true,2026-01-01,0\nb,NA,,,,1\nc,00045,3e2,false,2026-01-03,\n"


def test_cells_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(CELLS)
    Source(tmp_path / "data.csv").save({"y", "zip", "amount", "flag"}, tmp_path / "out.csv")
    lines = [line.split(",") for line in CELLS.splitlines()]
    assert (tmp_path / "out.csv").read_text().splitlines() == [",".join([*line[1:4], line[5]]) for line in lines]
    Source(tmp_path / "data.csv").save({"y", "flag", "when"}, tmp_path / "out.parquet")
    written = pl.read_parquet(tmp_path / "out.parquet")
    assert written.schema == {"flag": pl.Boolean, "when": pl.String, "y": pl.Int64}
    assert written["y"].to_list() == [0, 1, None]


def test_types_stay_as_they_are(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "a": [1, None, 3],
            "b": pl.Series(["x", "y", None], dtype=pl.Categorical),
            "c": [datetime.date(2026, 1, 1)] * 3,
            "d": pl.Series([1.5, None, 0.1], dtype=pl.Float32),
            "e": [[1], [2], None],
            "f": [True, None, False],
        }
    )
    frame.write_parquet(tmp_path / "data.parquet")
    Source(tmp_path / "data.parquet").save(set("fdecba"), tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet").equals(frame)
    Source(tmp_path / "data.parquet").save({"f", "a", "b"}, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a,b,f\n1,x,True\n,y,\n3,,False\n"


@pytest.mark.parametrize("classify", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_models_take_any_columns(name: str, classify: bool) -> None:
    frame = mixed(80).convert_dtypes(dtype_backend="pyarrow")
    frame["void"] = pd.Series([None] * len(frame), dtype=pd.ArrowDtype(pa.float64()))
    frame["rare"] = pd.Series([None] * 50 + ["x", "y"] * 15, dtype=pd.ArrowDtype(pa.string()))
    target, other = ("label", "price") if classify else ("price", "label")
    table = tabulate(frame, target, exclude=[other])
    model = make_model(name, classify=classify)
    for columns in (
        table.features.columns,
        ["size", "void"],
        ["colour", "word"],
        ["word"],
        ["day"],
        ["void"],
        ["rare"],
        ["void", "rare", "day"],
    ):
        features = table.features[columns]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # The other rows have words that are new.
            predicted = model.fit(features[:40], table.target[:40]).predict(features[40:])
        assert predicted.shape == (40,)
        assert np.isfinite(predicted).all()
    assert model.fit(table.features, table.target).score(table.features, table.target) > 0.5


def test_boosting_takes_more_categories_than_its_bins() -> None:
    text = pd.Categorical([str(number) for number in range(600)])
    y = np.arange(600) % 2
    model = make_model("hist-gradient-boosting", classify=True).fit(pd.DataFrame({"x": text}), y)
    assert model.predict(pd.DataFrame({"x": text})).shape == (600,)


def test_an_unknown_model() -> None:
    with pytest.raises(ValueError, match=r"model: expected one of hist-gradient-boosting, .*, linear, got 'tree'"):
        make_model("tree", classify=True)


@pytest.mark.parametrize("target", ["label", "price"])
def test_informative_columns_beat_random_ones(target: str) -> None:
    other = {"label": "price", "price": "label"}[target]
    frame = mixed().convert_dtypes(dtype_backend="pyarrow")
    table = tabulate(frame, target, exclude=[other])
    model = make_model("linear", classify=target == "label")
    seen = []
    found = select(table, model, [2], cv=3, max_evaluations=60, callback=seen.append)
    assert set(found.selector.get_feature_names_out()) == {"size", "colour"}
    assert found.num_test == round(0.2 * ROWS)
    assert len(found.random) == 10
    assert found.kept > np.mean(found.random) + 0.1
    assert found.selector.n_fits_ == seen[-1].n_fits <= 60
    again = select(table, model, [2], cv=3, max_evaluations=60)
    assert (again.everything, again.kept, again.random) == (found.everything, found.kept, found.random)


def test_columns_that_are_always_kept_are_part_of_random_ones() -> None:
    frame = mixed().convert_dtypes(dtype_backend="pyarrow")
    table = tabulate(frame, "price", exclude=["label"])
    options = {"cv": 3, "max_evaluations": 30, "always_include": ["colour", "size"]}
    found = select(table, make_model("linear", classify=False), [3], **options)
    assert {"colour", "size"} < set(found.selector.get_feature_names_out())
    assert min(found.random) > 0.9
    assert not select(table, make_model("linear", classify=False), [7], **options).random
    with pytest.raises(ValueError, match="k: expected 2 to 7, the number of columns, got 1"):
        select(table, make_model("linear", classify=False), [1], **options)


def test_held_out_rows_have_no_part_in_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    fit = KSubsetSelector.fit
    monkeypatch.setattr(KSubsetSelector, "fit", lambda self, X, y: (seen.append((X, y)), fit(self, X, y))[1])
    table = tabulate(mixed().convert_dtypes(dtype_backend="pyarrow"), "label", exclude=["price"])
    model = make_model("linear", classify=True)
    found = select(table, model, [1], cv=3, max_evaluations=21, test_share=0.25)
    ((features, target),) = seen
    assert (len(features), len(target), found.num_test) == (90, 90, 30)
    rest = table.features.index.difference(features.index)
    columns = table.features.loc[:, found.selector.support_]
    fitted = model.fit(columns.loc[features.index], table.target[features.index])
    assert found.kept == fitted.score(columns.loc[rest], table.target[rest])
    share = table.target[features.index].mean()
    assert abs(share - table.target.mean()) < 0.02


def test_features_hash_alike_in_every_process() -> None:
    """A checkpoint knows its data by this."""
    first, second = (tabulate(mixed().convert_dtypes(dtype_backend="pyarrow"), "label").features for _ in range(2))
    assert joblib.hash(first) == joblib.hash(second)
