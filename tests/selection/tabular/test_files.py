"""Files as people have them: what is written in other ways is read right, and what is strange is named."""

import gzip
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ksubset import cli
from ksubset.selection.tabular.files import CsvFormat, Source, check_out
from ksubset.selection.tabular.leaks import leaks
from ksubset.selection.tabular.models import make_model
from ksubset.selection.tabular.notation import parse
from ksubset.selection.tabular.select import select
from ksubset.selection.tabular.types import Table, tabulate

ROWS = 300
RNG = np.random.default_rng(0)
SIGNAL = RNG.uniform(-5000, 5000, ROWS)
NOISE = RNG.standard_normal((ROWS, 3))
LABEL = np.where(SIGNAL > 0, "above", "below")


def text(signal: list[str], separator: str = ",", decimal: str = ".") -> str:
    """A column that decides about the target, three of noise, and the target."""
    lines = [separator.join(["signal", "a", "b", "c", "y"])]
    for cell, row, label in zip(signal, NOISE, LABEL, strict=True):
        noise = [f"{value:.3f}".replace(".", decimal) for value in row]
        lines.append(separator.join([f'"{cell}"' if separator in cell else cell, *noise, label]))
    return "\n".join(lines) + "\n"


def plain() -> list[str]:
    return [f"{value:.3f}" for value in SIGNAL]


def with_marks(mark: str) -> list[str]:
    return [mark if place % 38 == 5 else cell for place, cell in enumerate(plain())]  # 8 of 300


def run(path: Path, *options: str) -> Any:
    arguments = [path, "--target", "y", "--k", 1, "--cv", 3, "--max-evaluations", 30, "--model", "k-nearest-neighbors"]
    result = CliRunner().invoke(cli.app, ["select", *map(str, arguments), *options])
    assert result.exit_code == 0, result.output
    return result


def tabulated(path: Path, content: str | bytes, format: CsvFormat | None = None) -> Table:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = Source(path, format)
    return tabulate(source.read(), "y", format=source.format)


def accuracy_of_kept(result: Any) -> float:
    found = re.search(r"the 1 kept: ([\d.]+)", result.stdout)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (text([cell.replace(".", ",") for cell in plain()], ";", ","), "decimal commas"),
        (text([f"{value:,.2f}" for value in SIGNAL]), "commas between thousands"),
        (text([f"{value:,.2f}".replace(",", " ") for value in SIGNAL]), "spaces between thousands"),
        (
            text([f"{value:,.2f}".translate(str.maketrans(",.", ".,")) for value in SIGNAL], ";", ","),
            "points between thousands, decimal commas",
        ),
        (text([f"${value:,.2f}".replace("$-", "-$") for value in SIGNAL]), "currencies"),
        (text([f"{value / 50:.1f}%" for value in SIGNAL]), "percents"),
        (text([f"({-value:,.0f})" if value < 0 else f"{value:,.0f}" for value in SIGNAL]), "commas between thousands"),
    ],
    ids=["decimal commas", "thousands", "spaces", "points", "dollars", "percents", "brackets"],
)
def test_numbers_in_other_notations(tmp_path: Path, content: str, said: str) -> None:
    table = tabulated(tmp_path / "data.csv", content)
    scale = 5000 if said == "percents" else 1
    np.testing.assert_allclose(scale * table.features["signal"], SIGNAL, atol=5.1 if scale > 1 else 0.51)
    assert all(table.features.dtypes == np.float64)
    assert said in table.notes["signal"]
    assert table.suspects == {}


def test_what_is_read_in_other_ways_is_said(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text([cell.replace(".", ",") for cell in plain()], ";", ","))
    result = run(path)
    assert accuracy_of_kept(result) == 1.0
    assert "guessed: separator ';'\n" in result.stdout
    assert "read as numbers: 'signal', 'a', 'b', 'c' (decimal commas)\n" in result.stdout


@pytest.mark.parametrize("mark", ["?", "-", "--", "n.a.", "missing", ""])
def test_marks_of_what_is_missing(tmp_path: Path, mark: str) -> None:
    table = tabulated(tmp_path / "data.csv", text(with_marks(mark)))
    assert table.features["signal"].isna().sum() == 8
    np.testing.assert_allclose(
        table.features["signal"].fillna(0), np.where(np.arange(ROWS) % 38 == 5, 0, SIGNAL), atol=1e-3
    )
    assert table.notes == ({"signal": f"{mark!r} as missing"} if mark else {})
    assert table.suspects == {}


def test_marks_that_nobody_knows_are_named(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text(with_marks("LOST")))
    result = run(tmp_path / "data.csv")
    warning = "warning: 'signal' is text, as not all of it are numbers: 'LOST'; where that means missing, --na makes"
    assert warning in result.stderr
    table = tabulated(tmp_path / "data.csv", text(with_marks("LOST")), CsvFormat(na=("LOST",)))
    assert table.features["signal"].isna().sum() == 8


@pytest.mark.parametrize(
    ("cells", "separator", "values"),
    [
        (["1,234", "2,345"], ",", [1234, 2345]),
        (["1,234", "2,345"], ";", [1.234, 2.345]),
        (["1,234", "2,34"], ",", [1.234, 2.34]),
        (["0,123", "2,345"], ",", [0.123, 2.345]),
        (["1.234,5", "2"], ",", [1234.5, 2]),
        (["\u22121\u2009234.5", "2"], ",", [-1234.5, 2]),
        (["-1.5e3", "2"], ",", [-1500, 2]),
        (["1'234.5", "2\u2019345"], ",", [1234.5, 2345]),
        (["12 %", "5.5%"], ",", [0.12, 0.055]),
        (["-$5", "€ 2", "3 £"], ",", [-5, 2, 3]),
        (["00123", "00045"], ",", None),
        (["red", "5"], ",", None),
        (["192.168.0.1", "10.0.0.1"], ",", None),
        (["2026-01-02", "5"], ",", None),
        ([None, None], ",", None),
        (["\uff11\uff12", "\uff13"], ",", None),
        (["\u0661\u0662", "\u0663"], ",", None),
        (["1,234", "2,\uff1345"], ",", None),
    ],
)
def test_notations(cells: list[str | None], separator: str, values: list[float] | None) -> None:
    found = parse(pd.Series(cells, dtype=object), CsvFormat(sep=separator))
    assert (None if found is None else found.values.tolist()) == values


def test_marks_that_are_given_hold() -> None:
    column = pd.Series(["1.234", "2.345"])
    for given, values in (
        (CsvFormat(), [1.234, 2.345]),
        (CsvFormat(thousands="."), [1234, 2345]),
        (CsvFormat(decimal=","), [1234, 2345]),
    ):
        found = parse(column, given)
        assert found is not None
        assert found.values.tolist() == values
    with pytest.raises(ValueError, match=r"thousands: expected another mark than decimal, got '\.'"):
        CsvFormat(decimal=".", thousands=".")
    assert parse(column, CsvFormat(decimal=";")) is None
    with pytest.raises(ValueError, match="sep: expected a single character, got ', '"):
        CsvFormat(sep=", ")


@pytest.mark.parametrize(
    ("name", "encode", "options", "guessed"),
    [
        ("data.csv", lambda t: t.encode("latin-1"), {}, "encoding"),
        ("data.csv", lambda t: t.encode("latin-1"), {"encoding": "latin-1"}, None),
        ("data.csv", lambda t: t.encode("utf-16"), {}, "encoding utf-16"),
        ("data.csv", lambda t: t.encode("utf-8-sig"), {}, None),
        ("data.tsv", lambda t: t.replace(",", "\t").encode(), {}, None),
        ("data.txt", lambda t: t.replace(",", "|").encode(), {}, r"separator '\|'"),
        ("data.csv.gz", lambda t: gzip.compress(t.encode(), mtime=0), {}, None),
        ("data.csv", lambda t: ("# made by hand\n" + t).encode(), {"comment": "#"}, None),
        ("data.csv", lambda t: t.replace(",", " ").encode(), {"sep": " "}, None),
    ],
    ids=["latin-1", "latin-1 given", "utf-16", "mark", "tabs", "bars", "gzip", "comment", "spaces"],
)
def test_files_in_other_forms(
    tmp_path: Path, name: str, encode: Any, options: dict[str, str], guessed: str | None
) -> None:
    (tmp_path / name).write_bytes(encode(text(plain()).replace("signal", "größe")))
    source = Source(tmp_path / name, CsvFormat(**options))  # type: ignore[arg-type]
    np.testing.assert_allclose(source.read()["größe"].astype(float), SIGNAL, atol=1e-3)
    (note,) = source.notes or ("",)
    assert re.match(guessed or "$", note)
    out = tmp_path / "out.csv"
    source.save({"größe", "y"}, out)
    assert out.read_text(encoding="utf-8").splitlines()[:2] == ["größe,y", f"{plain()[0]},{LABEL[0]}"]


def test_cells_without_a_name_are_refused_but_not_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('"a","y"\n"1",0.5,3\n"2",0.25,4\n')
    with pytest.raises(ValueError, match="its rows have more cells than the header has names"):
        Source(path).read()
    path.write_text("a,y\n0.5,3,\n0.25,4,\n")
    assert Source(path).read()["y"].tolist() == [3, 4]


def test_without_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text(plain()).partition("\n")[2])
    frame = Source(tmp_path / "data.csv", CsvFormat(header=False)).read()
    assert list(frame.columns) == ["x0", "x1", "x2", "x3", "x4"]
    assert len(frame) == ROWS


@pytest.mark.parametrize("ending", ["xlsx", "feather"])
def test_other_kinds_of_files(tmp_path: Path, ending: str) -> None:
    frame = pd.DataFrame(NOISE, columns=list("abc")).assign(signal=SIGNAL, y=LABEL)
    path = tmp_path / f"data.{ending}"
    if ending == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_feather(path)
    np.testing.assert_allclose(Source(path).read()["signal"].astype(float), SIGNAL)
    with pytest.raises(ValueError, match="data: expected a file of text, as its format is given"):
        Source(path, CsvFormat(sep=";"))


def test_a_sheet_as_people_write_it(tmp_path: Path) -> None:
    path = tmp_path / "data.xlsx"
    seen = pd.Timestamp("2020-05-17")
    frame = pd.DataFrame(
        {
            2001: [0.5, 1, 2],
            2002: [True, 0, 1.5],
            "code": [7, "x7", None],
            "seen": [seen, "unknown", seen],
            "y": [1, 0, 1],
        }
    )
    frame.to_excel(path, index=False, startrow=2, startcol=1)
    read = Source(path).read()
    assert list(read.columns) == ["2001", "2002", "code", "seen", "y"]
    assert read["2002"].tolist() == [1, 0, 1.5]
    assert read["code"].tolist()[:2] == ["7", "x7"]
    assert read["seen"].tolist() == ["2020-05-17 00:00:00", "unknown", "2020-05-17 00:00:00"]
    assert tabulate(read, "2001").features.dtypes[["2002", "y"]].eq(float).all()
    Source(path).save({"2002", "y"}, tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").to_dict("list") == {"2002": [1, 0, 1.5], "y": [1, 0, 1]}
    frame.set_axis(["a", "a", "c", "d", "y"], axis=1).to_excel(path, index=False)
    with pytest.raises(ValueError, match="data: expected columns of different names, got 'a' more than once"):
        Source(path).read()


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_numbers_for_names(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"data.{ending}"
    getattr(pd.DataFrame(np.arange(12.0).reshape(4, 3)), f"to_{ending}")(path)
    assert list(Source(path).read().columns) == ["0", "1", "2"]
    Source(path).save({"0", "2"}, tmp_path / "out.parquet")
    assert pd.read_parquet(tmp_path / "out.parquet").to_dict("list") == {"0": [0, 3, 6, 9], "2": [2, 5, 8, 11]}


@pytest.mark.parametrize(
    ("name", "cells", "encoding"),
    [
        ("größe", "£ 1", "cp1252"),
        ("ville", "Orléans", "latin-1"),
        ("nazwa", "łódź", "cp1250"),
        ("город", "Казань", "cp1251"),
        ("πόλη", "Αθήνα", "cp1253"),
        ("性别", "男", "gb18030"),
        ("テスト", "アカ", "shift_jis"),
        ("성별", "여", "euc_kr"),
    ],
)
def test_an_encoding_is_told_by_few_letters(tmp_path: Path, name: str, cells: str, encoding: str) -> None:
    (tmp_path / "data.csv").write_text(f"{name},x,y\n" + f"{cells},1.5,2\nnone,3,4\n" * 300, encoding=encoding)
    frame = Source(tmp_path / "data.csv").read()
    assert list(frame.columns) == [name, "x", "y"]
    assert frame[name][0] == cells


def test_a_wrong_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    for name in ("utf-8", "klingon"):
        with pytest.raises(ValueError, match=r"encoding: expected one that .* is written in, got "):
            Source(tmp_path / "data.csv", CsvFormat(encoding=name))


def titanic() -> pd.DataFrame:
    """Like the passengers' list: who has a boat has survived, with few exceptions."""
    rng = np.random.default_rng(1)
    survived = rng.random(600) < 0.38
    boat = np.where(survived != (rng.random(600) < 0.02), rng.integers(1, 16, 600).astype(str), None)
    fare = rng.gamma(2, 15, 600) + 15 * survived
    return pd.DataFrame({"boat": boat, "fare": fare, "deck": 1, "y": np.where(survived, "yes", "no")})


def test_a_leak_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    titanic().to_csv(path, index=False)
    result = run(path)
    assert re.search(r"warning: 'boat' alone predicts 'y' \(accuracy 0\.9\d+\); if it is known only", result.stderr)
    assert "'fare' alone" not in result.stderr
    assert "warning: 'deck' has the same value in all rows" in result.stderr
    numbers = pd.DataFrame({"x": SIGNAL, "z": NOISE[:, 0], "y": 3 * SIGNAL + 1}).convert_dtypes(dtype_backend="pyarrow")
    assert list(leaks(tabulate(numbers, "y"))) == ["x"]
    assert leaks(tabulate(numbers.assign(y=NOISE[:, 1]), "y")) == {}


@pytest.mark.parametrize("ones", [2, 3, 4])
@pytest.mark.parametrize("seed", [5, 6])
def test_no_leak_of_a_rare_class(ones: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(100) < ones)
    noise = pd.DataFrame(rng.standard_normal((100, 20))).add_prefix("c")
    assert leaks(tabulate(noise.assign(y=label), "y"), seed) == {}
    # The same as numbers: all but a few are zero.
    assert leaks(tabulate(noise.assign(y=label * 1.5), "y", "regression"), seed) == {}


def test_no_leak_where_the_rows_looked_at_have_one_target() -> None:
    frame = pd.DataFrame({"x": np.arange(5000) % 17, "y": np.where(np.arange(5000) == 7, 1.5, 0)})
    assert leaks(tabulate(frame, "y", "regression")) == {}


def test_no_leak_by_chance_in_few_rows() -> None:
    noise = pd.DataFrame(np.random.default_rng(2).standard_normal((12, 300))).add_prefix("c")
    assert leaks(tabulate(noise.assign(y=np.arange(12) % 2), "y", "classification"), 2) == {}


def test_a_leak_of_a_class_that_is_not_common_is_named() -> None:
    rare = RNG.permutation(np.arange(600) < 30)
    columns = {"paid": rare * RNG.uniform(1, 2, 600), "noise": RNG.standard_normal(600), "y": rare}
    assert list(leaks(tabulate(pd.DataFrame(columns), "y"))) == ["paid"]


@pytest.mark.parametrize("unit", [1e-20, 1e50, 1e200])
def test_leaks_in_any_unit(unit: float) -> None:
    columns = {"x": unit * SIGNAL, "z": unit * NOISE[:, 0], "y": unit * (3 * SIGNAL + 1)}
    assert list(leaks(tabulate(pd.DataFrame(columns), "y", "regression"))) == ["x"]


def test_groups_stay_together() -> None:
    # Each patient has one label and a column that tells who it is: with mixed folds that column wins.
    rng = np.random.default_rng(2)
    patient = np.repeat(np.arange(40), 8)
    label = rng.permutation(40)[patient] % 2
    who = rng.standard_normal(40)[patient] + 0.01 * rng.standard_normal(320)
    columns = {"patient": patient, "who": who, "weak": label + rng.standard_normal(320), "y": label}
    frame = pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow")
    model = make_model("k-nearest-neighbors", classify=True)
    kept = {}
    for groups in (None, "patient"):
        table = tabulate(frame, "y", exclude=[] if groups else ["patient"], groups=groups)
        found = select(table, model, [1], cv=4, max_evaluations=20)
        kept[groups] = found.selector.get_feature_names_out().tolist()
    assert kept == {None: ["who"], "patient": ["weak"]}
    with pytest.raises(ValueError, match="groups: expected 55 or more, for 50 folds and the rows held out, got 40"):
        select(table, model, [1], cv=50)


def test_rows_in_the_order_of_time() -> None:
    # A block number predicts its neighbours in time, and nothing that comes after them.
    day = np.arange(400)
    later = np.random.default_rng(3).standard_normal(400)
    y = 2.5 * np.random.default_rng(4).standard_normal(80)[day // 5] + later
    frame = pd.DataFrame({"day": day, "block": day // 5, "later": later, "y": y})
    frame = frame.sample(frac=1, random_state=0).convert_dtypes(dtype_backend="pyarrow")
    model = make_model("k-nearest-neighbors", classify=False)
    kept = {}
    for time in (None, "day"):
        table = tabulate(frame, "y", exclude=[] if time else ["day"], time=time)
        found = select(table, model, [1], cv=4, max_evaluations=20)
        kept[time] = found.selector.get_feature_names_out().tolist()
    assert kept == {None: ["block"], "day": ["later"]}
    np.testing.assert_array_equal(table.features["later"], later)
    options: Any
    for options, message in (
        ({"time": "day", "groups": "block"}, "time: expected None, as groups are given, got both"),
        ({"time": "hour"}, "time: expected one of 'day', 'block', 'later', got 'hour'"),
    ):
        with pytest.raises(ValueError, match=message):
            tabulate(frame, "y", **options)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2026-01-02", None, "2026-01-01"], "a column without missing values, got 'when'"),
        (["3", "?", "1"], "a column without missing values, got 'when'"),
        (["noon", "eve", "morning"], "a column of dates or numbers, got 'when', which is text"),
    ],
)
def test_an_order_of_time_that_is_not_known(cells: list[str | None], expected: str) -> None:
    frame = pd.DataFrame({"when": cells, "x": [1.0, 2, 3], "y": [1.0, 2, 4]}).convert_dtypes(dtype_backend="pyarrow")
    with pytest.raises(ValueError, match=f"time: expected {expected}"):
        tabulate(frame, "y", time="when")


@pytest.mark.parametrize("far", ["9999-12-31", "1500-01-01 12:30", "0001-01-01T00:00:00Z"])
def test_dates_far_from_today(tmp_path: Path, far: str) -> None:
    days = [far if place % 5 == 0 else f"2020-01-{1 + place % 28:02d}" for place in range(60)]
    lines = [f"{day},{place % 7}" for place, day in enumerate(days)]
    found = tabulated(tmp_path / "data.csv", "\n".join(["when,y", *lines])).features["when"]
    expected = [datetime.fromisoformat(day).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) for day in days]
    assert found.tolist() == [difference / timedelta(days=1) for difference in expected]


def test_whole_numbers_that_no_integer_holds(tmp_path: Path) -> None:
    values = [10**21 * (1 + place % 9) for place in range(60)]
    lines = [f"{value},{place},{place % 7}" for place, value in enumerate(values)]
    table = tabulated(tmp_path / "data.csv", "\n".join(["long,short,y", *lines]))
    assert table.features["long"].tolist() == [float(value) for value in values]
    assert table.features["short"].tolist() == list(range(60))


def test_whole_numbers_that_floats_merge_are_said(tmp_path: Path) -> None:
    lines = [f"{2**60 + place * place},{2**53 - place},{place % 7}" for place in range(60)]
    table = tabulated(tmp_path / "data.csv", "\n".join(["id,exact,y", *lines]))
    assert list(table.suspects) == ["id"]
    assert "not all can be told apart" in table.suspects["id"]


@pytest.mark.parametrize("values", [[2**53 + 1] * 60, [10**16 + place for place in range(59)] + [10**21]])
def test_whole_numbers_that_floats_merge_are_said_of_text_too(tmp_path: Path, values: list[int]) -> None:
    lines = [f"{value},{2**52 + place % 9},{place % 7}" for place, value in enumerate(values)]
    table = tabulated(tmp_path / "data.csv", "\n".join(["id,exact,y", *lines]))
    assert list(table.suspects) == ["id"]
    assert "not all can be told apart" in table.suspects["id"]


def test_decimal_commas_with_exponents(tmp_path: Path) -> None:
    lines = [f"{place},5e+05;{place % 7}" for place in range(60)]
    table = tabulated(tmp_path / "data.csv", "\n".join(["x;y", *lines]))
    assert table.features["x"].tolist() == [(place + 0.5) * 1e5 for place in range(60)]


@pytest.mark.parametrize("large", ["1e400", "-1,5e400", "9" * 400])
def test_numbers_in_text_beyond_all_floats_are_missing(large: str) -> None:
    frame = pd.DataFrame({"x": [large, *["1,5", "2,5"] * 5], "y": range(11)})
    found = tabulate(frame, "y", "regression").features["x"]
    assert np.isnan(found[0])
    assert found[1:].tolist() == [1.5, 2.5] * 5


def test_names_with_line_breaks_are_compared(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"columns of different names, got 'a' more than once"):
        tabulated(tmp_path / "data.csv", '"in\nmm",a,a,y\n' + "1,2,3,4\n" * 5)
    lines = [f"{place},{-place},{place % 7}" for place in range(60)]
    table = tabulated(tmp_path / "data.csv", '"in\nmm",a,y\n' + "\n".join(lines))
    assert list(table.features) == ["in\nmm", "a"]


def test_where_columns_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError, match=r"out: expected a file, got the folder .*folder\.csv"):
        check_out(tmp_path / "folder.csv", tmp_path / "data.csv")
    with pytest.raises(OSError, match=r"out: expected a folder to write into, got /proc"):
        check_out(Path("/proc/kept.csv"), tmp_path / "data.csv")


def test_thousands_in_quotes_have_the_mark_of_the_separator(tmp_path: Path) -> None:
    lines = [f'"{1 + place},234",{place % 7}' for place in range(60)]
    for written in (CsvFormat(thousands=","), CsvFormat(thousands=",", sep=",")):
        table = tabulated(tmp_path / "data.csv", "\n".join(["pay,y", *lines]), written)
        assert table.features["pay"].tolist() == [1000 * (1 + place) + 234 for place in range(60)]


def test_far_dates_with_more_digits_than_microseconds(tmp_path: Path) -> None:
    days = ["9999-12-31 23:59:59.9999999" if place % 5 == 0 else "2020-01-01 10:00:00.0000000" for place in range(60)]
    lines = [f"{day},{place % 7}" for place, day in enumerate(days)]
    found = tabulated(tmp_path / "data.csv", "\n".join(["when,y", *lines])).features["when"]
    assert found[1] == 18262 + 10 / 24
    assert found[0] == pytest.approx(2932897)


def test_floats_with_many_digits_are_no_whole_numbers(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(1e30, 1e29, 60)
    lines = [f"{number:.18e};{place % 7}".replace(".", ",") for place, number in enumerate(numbers)]
    table = tabulated(tmp_path / "data.csv", "\n".join(["mass;y", *lines]))
    assert table.suspects == {}
    np.testing.assert_array_equal(table.features["mass"], numbers)
