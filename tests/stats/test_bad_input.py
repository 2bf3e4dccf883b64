"""Bad input is named, and what only looks bad is computed."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ksubset.stats import ConditionalLogit, CoxPH, SamplingDesign

ROWS = 30


@pytest.fixture
def made() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "y": np.tile([1, 0, 0, 1, 0], ROWS // 5),
        "x": pd.DataFrame({"dose": rng.normal(size=ROWS), "age": rng.normal(60, 9, ROWS)}),
        "group": np.repeat(np.arange(ROWS // 5), 5),
        "time": rng.integers(1, 6, ROWS).astype(float),
        "event": rng.random(ROWS) < 0.8,
    }


def logit(made: dict[str, Any], **changes: Any) -> ConditionalLogit:
    made = made | changes
    return ConditionalLogit(
        made["y"], made["x"], made["group"], weights=made.get("weights"), offset=made.get("offset")
    )  # fmt: skip


def cox(made: dict[str, Any], **changes: Any) -> CoxPH:
    made = made | changes
    names = ("entry", "strata", "weights", "offset")
    return CoxPH(
        made["time"], made["event"], made["x"], made.get("ties", "exact"), **{name: made.get(name) for name in names}
    )


def test_strata_of_strings_in_any_order(made: dict[str, Any]) -> None:
    expected = logit(made).fit()
    order = np.random.default_rng(0).permutation(ROWS)
    named = np.array([f"town {g}" for g in made["group"]])[order]
    results = logit({"y": made["y"][order], "x": made["x"].iloc[order], "group": named}).fit()
    np.testing.assert_allclose(results.params, expected.params, rtol=1e-10)
    np.testing.assert_allclose(results.predict().sort_index(), expected.predict(), rtol=1e-10)


@pytest.mark.parametrize("library", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "arrow"])
def test_tables_of_other_libraries_keep_the_names_of_their_columns(made: dict[str, Any], library: Any) -> None:
    table, swapped = library(made["x"]), library(made["x"][["age", "dose"]])
    for model in (logit, cox):
        expected, found = model(made).fit(), model(made, x=table).fit()
        pd.testing.assert_series_equal(found.params, expected.params)
        of_rows = {"groups": made["group"]} if model is logit else {}
        new = expected.predict(table, **of_rows)
        np.testing.assert_array_equal(new, expected.predict(made["x"], **of_rows))
        pd.testing.assert_series_equal(found.predict(swapped, **of_rows), new)
        with pytest.raises(ValueError, match=r"must have the columns \['dose', 'age'\], got \['dose', 'years'\]"):
            found.predict(library(made["x"].rename(columns={"age": "years"})), **of_rows)
    dates = pd.DataFrame({"visit": pd.date_range("2020-01-01", periods=ROWS)})
    with pytest.raises(TypeError, match="exog column 'visit' must be numeric, got"):
        logit(made, x=library(dates))
    missing = made["x"].mask(made["x"]["dose"] > 0)
    with pytest.raises(ValueError, match=r"exog column 'dose' has \d+ missing values"):
        logit(made, x=library(missing))


def test_rows_in_another_order_are_refused(made: dict[str, Any]) -> None:
    made["x"].index = pd.Index([f"person {i}" for i in range(ROWS)])
    for model, names in ((logit, ("y", "group", "weights", "offset")), (cox, ("time", "event", "entry", "strata"))):
        expected = model(made).fit()
        for name in names:
            values = made.get(name, np.zeros(ROWS) if name in {"entry", "offset"} else np.ones(ROWS, int))
            rows = pd.Series(values, index=made["x"].index)
            assert np.isfinite(model(made, **{name: rows}).fit().llf)
            with pytest.raises(ValueError, match=r"must have the index of exog, got another one; \w+\.to_numpy\(\)"):
                model(made, **{name: rows[::-1]})
        clusters = pd.Series(made["group"], index=made["x"].index)
        assert np.isfinite(model(made, ties="efron").fit("clustered", clusters=clusters).bse).all()
        with pytest.raises(ValueError, match="clusters must have the index of exog"):
            model(made, ties="efron").fit("clustered", clusters=clusters[::-1])
        # Without an index, or where the covariates have none, there is nothing to compare.
        model(made, x=made["x"].to_numpy(), **{names[0]: pd.Series(made[names[0]], index=made["x"].index)})
        of_rows = {"groups": made["group"]} if model is logit else {}
        with pytest.raises(ValueError, match="offset must have the index of exog"):
            expected.predict(made["x"], offset=pd.Series(np.zeros(ROWS), made["x"].index[::-1]), **of_rows)


def test_series_in_another_order_beside_an_array_are_refused(made: dict[str, Any]) -> None:
    values = made["x"].to_numpy()
    for model, first, second, of_model in (
        (logit, "y", "group", {}), (cox, "time", "event", {"ties": "efron"})
    ):  # fmt: skip
        rows = {name: pd.Series(made[name]) for name in (first, second)}
        fitted = model(made, x=values, **rows, **of_model)
        clusters = pd.Series(made["group"])
        fitted.fit("clustered", clusters=clusters)
        with pytest.raises(ValueError, match=rf"{second}s? must have the index of (endog|{first}), got another one"):
            model(made, x=values, **rows | {second: rows[second][::-1]})
        with pytest.raises(ValueError, match=rf"clusters must have the index of (endog|{first}), got another one"):
            fitted.fit("clustered", clusters=clusters[::-1])


def test_a_series_of_new_rows_goes_by_its_name(made: dict[str, Any]) -> None:
    for model, of_rows in ((logit, {"groups": made["group"]}), (cox, {})):
        found = model(made, x=made["x"]["dose"]).fit()
        expected = found.predict(made["x"][["dose"]], **of_rows)
        for same in (made["x"]["dose"], made["x"]["dose"].rename(None)):
            pd.testing.assert_series_equal(found.predict(same, **of_rows), expected)
        with pytest.raises(ValueError, match=r"exog must have the columns \['dose'\], got \['age'\]"):
            found.predict(made["x"]["age"], **of_rows)


def test_one_stratum(made: dict[str, Any]) -> None:
    model = logit(made, group=np.zeros(ROWS))
    assert np.isfinite(model.fit().bse).all()
    with pytest.raises(ValueError, match="more independent units than columns, got 1 units"):
        model.fit("robust")


def test_scores_that_do_not_span_the_columns() -> None:
    rng = np.random.default_rng(0)
    group, y = np.repeat([0, 1], 6), [1, 0, 1, 0, 1, 0] * 2
    for _ in range(3):
        copied = ConditionalLogit(y, rng.normal(size=(12, 2)), group, weights=[2] * 12)
        with pytest.raises(ValueError, match=r"got 4 units, and their scores have rank 1 for 2 columns"):
            copied.fit("robust")
    symmetric = CoxPH([1, 1, 1], [1, 1, 1], [1, 0, 2], "breslow")
    with pytest.raises(ValueError, match=r"got 3 units, and their scores have rank 0 for 1 columns"):
        symmetric.fit("robust")
    with pytest.raises(ValueError, match=r"covariance='clustered' needs .* got 2 units, .* rank 0"):
        CoxPH([1, 1], [1, 1], [1.0, 0], "breslow").fit("clustered", clusters=[3, 4])
    # As many scores as they need, and no more.
    group, y = np.repeat(np.arange(3), 6), [1, 0, 1, 0, 1, 0] * 3
    results = ConditionalLogit(y, rng.normal(size=(18, 2)), group).fit("robust")
    assert np.linalg.matrix_rank(results.cov_params()) == 2


@pytest.mark.parametrize(("value", "kind"), [(0, "case"), (1, "control")])
def test_no_or_all_cases(made: dict[str, Any], value: int, kind: str) -> None:
    with pytest.raises(ValueError, match=f"no stratum of groups .* endog has no {kind} at all"):
        logit(made, y=np.full(ROWS, value))
    with pytest.raises(ValueError, match="each of the 6 is all cases or all controls"):
        logit(made, y=(made["group"] > 2) * 1)


def test_strata_without_choice_are_dropped_and_counted(made: dict[str, Any]) -> None:
    y = made["y"].copy()
    y[:5], y[5:10] = 0, 1
    model = logit(made, y=y)
    results = model.fit()
    assert (model.dropped_strata, model.dropped_rows, results.nobs) == (2, 10, ROWS - 10)
    assert "Dropped groups:" in str(results.summary())
    assert "2 (10 rows)" in str(results.summary())
    np.testing.assert_array_equal(results.predict()[:10], y[:10])
    np.testing.assert_array_equal(results.residuals("pearson")[:10], 0)
    rest = {"y": y[10:], "x": made["x"][10:], "group": made["group"][10:]}
    np.testing.assert_allclose(results.params, logit(rest).fit().params, rtol=1e-10)


def test_constant_columns_are_named(made: dict[str, Any]) -> None:
    for name, values in (("site", made["group"] / 3), ("one", 1.0)):
        with pytest.raises(ValueError, match=f"constant within every stratum: '{name}'"):
            logit(made, x=made["x"].assign(**{name: values}))
    with pytest.raises(ValueError, match="constant within every stratum: 'one'"):
        cox(made, x=made["x"].assign(one=1.0))
    # It varies, but only among rows that are never at risk with an event.
    first = made["time"] == 1
    late = made["x"].assign(late=np.where(first, np.arange(ROWS), 0.0))
    with pytest.raises(ValueError, match="constant wherever an event is compared with others: 'late'"):
        cox(made, x=late, event=made["event"] & ~first).fit()


def test_collinear_columns_are_named(made: dict[str, Any]) -> None:
    x = made["x"].assign(noise=np.arange(ROWS) % 7, double=lambda frame: 2 * frame["dose"] - frame["age"])
    for model in (logit(made, x=x), cox(made, x=x)):
        with pytest.raises(ValueError, match=r"'double' is a linear combination of 'dose', 'age'$"):
            model.fit()


@pytest.mark.parametrize("quasi", [False, True])
def test_separation_is_named(made: dict[str, Any], quasi: bool) -> None:
    exposed = made["y"] * 1.0
    if quasi:
        exposed[made["group"] > 2] = 0.0
    with pytest.raises(ValueError, match=r"separation: .* infinity along .*'exposed'; leave"):
        logit(made, x=made["x"].assign(exposed=exposed)).fit()


@pytest.mark.parametrize("ties", ["exact", "marginal", "efron", "breslow"])
def test_monotone_likelihood_is_named(made: dict[str, Any], ties: str) -> None:
    spared = (np.arange(ROWS) % 4 == 0) * 1.0
    event = made["event"] & (spared == 0)
    with pytest.raises(ValueError, match=r"separation: .* along 'spared'"):
        cox(made, ties=ties, event=event, x=made["x"].assign(spared=spared)).fit()


@pytest.mark.parametrize("fit", [logit, cox])
def test_covariates_that_are_no_numbers(made: dict[str, Any], fit: Any) -> None:
    for value, text in ((np.inf, "'dose' has 1 infinite values"), (np.nan, "'dose' has 1 missing values")):
        x = made["x"].copy()
        x.iloc[3, 0] = value
        with pytest.raises(ValueError, match=text):
            fit(made, x=x)
    with pytest.raises(TypeError, match="exog column 'dose' must be numeric"):
        fit(made, x=made["x"].assign(dose="high"))
    with pytest.raises(ValueError, match=r"exog must have shape \(rows, columns\), got \(2, 2, 2\)"):
        fit(made, x=np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="different names"):
        fit(made, x=made["x"].set_axis(["a", "a"], axis=1))


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.5, "2", *range(ROWS - 2)], dtype=object),
        np.array([1.5, b"2", *range(ROWS - 2)], dtype=object),
        pd.Series([*map(str, range(ROWS))], dtype="category"),
        pd.Series(range(ROWS), dtype="category"),
        np.arange(ROWS) * (1 + 1j),
        np.arange(ROWS).astype("datetime64[D]"),
        np.arange(ROWS).astype("timedelta64[s]"),
        pd.Series(pd.date_range("2020-01-01", periods=ROWS, tz="UTC")),
    ],
)
def test_what_converts_to_a_number_and_is_none(made: dict[str, Any], values: Any) -> None:
    with pytest.raises(TypeError, match="exog column 'x1' must be numeric, got "):
        logit(made, x=values if isinstance(values, np.ndarray) else values.rename("x1"))
    with pytest.raises(TypeError, match="time must be numeric, got "):
        cox(made, time=values)


def test_integers_that_floats_do_not_tell_apart() -> None:
    event, x, time = [1, 1, 0, 1, 1, 1], [1, 0, 2, 3, 0, 1], np.arange(6)
    for later in (2**53 + time, pd.Series(2**60 + time, dtype="Int64"), (2**63 + time.astype(np.uint64))):
        with pytest.raises(ValueError, match=r"time has different integers beyond 2\*\*53 .* subtract their smallest"):
            CoxPH(later, event, x)
    expected = CoxPH(time, event, x).fit().params.item()
    for same in (2**53 + 2 * time, 2**60 * time, 2**53 - 6 + time):
        assert CoxPH(same, event, x).fit().params.item() == pytest.approx(expected, rel=1e-12)


def test_arrays_of_swapped_bytes(made: dict[str, Any]) -> None:
    expected = logit(made).fit().params.to_numpy()
    swapped = {name: made[name].astype(made[name].dtype.newbyteorder(">")) for name in ("y", "group")}
    found = logit(made, **swapped, x=made["x"].to_numpy().astype(">f8")).fit().params
    np.testing.assert_allclose(found, expected)


def test_labels_of_several_parts(made: dict[str, Any]) -> None:
    expected = logit(made).fit().params
    parts = [(g // 2, "ab"[g % 2]) for g in made["group"]]
    frame = pd.DataFrame(parts, columns=["town", "house"])
    for labels in (parts, tuple(parts), pd.Series(parts), pd.MultiIndex.from_frame(frame)):
        np.testing.assert_array_equal(logit(made, group=labels).fit().params, expected)
    frame.loc[3, "house"] = None
    with pytest.raises(ValueError, match="groups has 1 missing values"):
        logit(made, group=pd.MultiIndex.from_frame(frame))
    with pytest.raises(ValueError, match=r"groups must have one label .* got shape \(30, 2\)"):
        logit(made, group=[list(pair) for pair in parts])


def test_other_values_that_do_not_fit(made: dict[str, Any]) -> None:
    missing = made["group"].astype(float)
    missing[2] = np.nan
    for change, text in (
        ({"group": missing}, "groups has 1 missing values"),
        ({"group": made["group"][1:]}, "groups must have one label for each of the 30 rows"),
        ({"y": made["y"] * 2}, "endog must be 0 or 1 .* got 2"),
        ({"y": made["y"][1:]}, "endog must have one value for each of the 30 rows"),
        ({"offset": np.full(ROWS, np.inf)}, "offset has 30 infinite values"),
        ({"weights": np.full(ROWS, -1)}, "weights must be positive integers .* got -1"),
        ({"weights": np.full(ROWS, 0.5)}, "weights must be positive integers .* got 0.5"),
        (
            {"weights": np.full(ROWS, 1e19)},
            r"weights must be at most 300239975158033 where there are 30 rows, got 1e\+19",
        ),
        ({"weights": np.full(ROWS, 1e308)}, r"weights must be at most .* got 1e\+308"),
        ({"weights": 1 + np.arange(ROWS)}, "weights must be the same in all rows of a stratum, and differ in 0"),
    ):
        with pytest.raises(ValueError, match=text):
            logit(made, **change)
    for change, text in (
        ({"weights": np.full(ROWS, -2)}, "weights must be positive integers .* got -2"),
        ({"entry": made["time"]}, "entry must be before time in every row"),
        ({"event": np.zeros(ROWS)}, "no row has an event"),
        ({"time": np.full(ROWS, np.nan)}, "time has 30 missing values"),
        ({"ties": "discrete"}, "ties must be one of .* got 'discrete'"),
    ):
        with pytest.raises(ValueError, match=text):
            cox(made, **change)


def test_arguments_of_fit_and_predict(made: dict[str, Any]) -> None:
    model = logit(made)
    with pytest.raises(ValueError, match="covariance must be"):
        model.fit("HC3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clusters must be given"):
        model.fit("clustered")
    with pytest.raises(ValueError, match="clusters must be the same in all rows of a stratum"):
        model.fit("clustered", np.arange(ROWS))
    with pytest.raises(ValueError, match="not defined with ties='exact'"):
        cox(made).fit("robust")
    results = model.fit()
    with pytest.raises(ValueError, match=r"columns \['dose', 'age'\], got \['age'\]"):
        results.predict(made["x"][["age"]], made["group"])
    with pytest.raises(ValueError, match=r"columns \['dose', 'age'\], got \['dose', 'age', 'name'\]"):
        results.predict(made["x"].assign(name="Ann"), made["group"])
    with pytest.raises(ValueError, match="cases must be an integer between 0 and a stratum's rows, got"):
        results.predict(made["x"], made["group"], cases=6)
    with pytest.raises(ValueError, match="groups must be given with exog"):
        results.predict(made["x"])
    with pytest.raises(ValueError, match="alpha"):
        results.conf_int(1.5)


def test_formulas(made: dict[str, Any]) -> None:
    data = made["x"].assign(y=made["y"], g=made["group"], time=made["time"], event=made["event"])
    results = ConditionalLogit.from_formula("y ~ dose + age", "g", data).fit()
    np.testing.assert_allclose(results.params, logit(made).fit().params, rtol=1e-10)
    with pytest.raises(ValueError, match="groups: the data has no column 'h'"):
        ConditionalLogit.from_formula("y ~ dose", "h", data)
    with pytest.raises(ValueError, match="one outcome of 0 and 1"):
        ConditionalLogit.from_formula("~ dose", "g", data)
    numbered = CoxPH.from_formula("time ~ dose", 0, data.rename(columns={"event": 0}))
    np.testing.assert_array_equal(numbered.fit().params, CoxPH.from_formula("time ~ dose", "event", data).fit().params)
    with pytest.raises(ValueError, match="event: the data has no column 7"):
        CoxPH.from_formula("time ~ dose", 7, data)
    for formula in ("time ~ nothing", "time ~ dose +", "3 ~"):
        with pytest.raises(ValueError, match=r"the formula .* cannot be read, or not with this data"):
            CoxPH.from_formula(formula, "event", data)
    for formula in ("time ~ dose | age", "time | dose ~ age"):
        with pytest.raises(ValueError, match="one outcome of 0 and 1"):
            CoxPH.from_formula(formula, "event", data)
    data.loc[4, "dose"] = np.nan
    with pytest.raises(ValueError, match=r"`dose` contains null values after evaluation; leave rows .* \(dropna\)$"):
        CoxPH.from_formula("time ~ dose", "event", data)
    with pytest.raises(TypeError, match="data must be a pandas DataFrame, got polars DataFrame"):
        CoxPH.from_formula("time ~ dose", "event", pl.DataFrame({"time": [1]}))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data must be a pandas DataFrame"):
        ConditionalLogit.from_formula("y ~ dose", "g", {"y": [1]})  # type: ignore[arg-type]


@pytest.mark.parametrize("constant", [1e3, 1e12, 1e300])
def test_a_constant_offset_changes_nothing(made: dict[str, Any], constant: float) -> None:
    offset = np.full(len(made["x"]), constant)
    cox = CoxPH(made["time"], made["event"], made["x"], offset=offset).fit()
    without = CoxPH(made["time"], made["event"], made["x"]).fit()
    assert (cox.llf, *cox.params) == (without.llf, *without.params)
    strata = logit({**made, "offset": offset + made["group"]}).fit()
    np.testing.assert_allclose([strata.llf, *strata.params], [(fit := logit(made).fit()).llf, *fit.params], rtol=1e-9)
    with pytest.raises(ValueError, match=r"hazards relative to a row of zeros .* less their means"):
        cox.predict()


def test_a_summary_is_readable_in_any_unit(made: dict[str, Any]) -> None:
    x = made["x"].assign(dose=made["x"]["dose"] * 1e9, age=made["x"]["age"] * 1e-9)
    results = CoxPH(made["time"], made["event"], x).fit()
    lines = str(results.summary()).splitlines()
    cells = {name: next(line for line in lines if line.startswith(name)).split()[1:] for name in ("dose", "age")}
    for name, found in cells.items():
        expected = [results.params[name], results.bse[name], results.zvalues[name], results.pvalues[name]]
        np.testing.assert_allclose(
            [*map(float, found)], [*expected, *results.conf_int().loc[name]], rtol=5e-3, atol=1e-3
        )
        assert float(found[0]) == pytest.approx(results.params[name], rel=5e-3)


def test_half_of_two_hundred_thousand() -> None:
    rng = np.random.default_rng(0)
    n = 200_000
    x = rng.normal(size=(n, 2))
    y = np.zeros(n)
    y[np.argsort(x @ [0.5, -0.25] + rng.logistic(size=n))[n // 2 :]] = 1
    results = ConditionalLogit(y, x, np.zeros(n)).fit()
    # Five standard errors: one false alarm in a million.
    assert (np.abs(results.params - [0.5, -0.25]) < 5 * results.bse).all()
    assert results.predict().sum() == pytest.approx(n // 2, rel=1e-10)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-100, 1e100, 1e160, 1e306])
@pytest.mark.parametrize("covariance", ["hessian", "robust"])
def test_units_do_not_matter(made: dict[str, Any], scale: float, covariance: Any) -> None:
    expected = logit(made).fit(covariance)
    results = logit(made, x=made["x"] * scale).fit(covariance)
    np.testing.assert_allclose(results.params * scale, expected.params, rtol=1e-9)
    np.testing.assert_allclose(results.bse * scale, expected.bse, rtol=1e-9)
    np.testing.assert_allclose(results.pvalues, expected.pvalues, rtol=1e-9)
    np.testing.assert_allclose(results.wald_test, expected.wald_test, rtol=1e-9)


@pytest.mark.parametrize("fit", [logit, cox])
def test_a_common_shift_costs_no_digits(made: dict[str, Any], fit: Any) -> None:
    shifted = made["x"].round(3) + 1e9
    expected = fit(made, x=shifted - 1e9).fit()
    results = fit(made, x=shifted).fit()
    assert results.llf == pytest.approx(expected.llf, rel=1e-13)
    np.testing.assert_allclose(results.bse, expected.bse, rtol=1e-12)


def test_masked_values_are_missing() -> None:
    x = np.ma.masked_greater(np.arange(12.0).reshape(6, 2), 10)
    with pytest.raises(ValueError, match="exog column 'x2' has 1 missing values"):
        ConditionalLogit([0, 1, 0, 1, 1, 0], x, [0, 0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="sizes has 1 missing values"):
        SamplingDesign.from_sizes(np.ma.masked_greater([1.0, 2.0, 3.0], 2), 1)
    with pytest.raises(ValueError, match="inclusion_probabilities has 1 missing values"):
        SamplingDesign(np.ma.masked_less([0.5, 0.5, 0.2], 0.3))
