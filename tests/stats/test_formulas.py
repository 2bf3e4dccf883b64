"""New rows of models that were fitted by a formula."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ksubset.stats import ConditionalLogit, CoxPH

ROWS = 60


@pytest.fixture
def data() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame({
        "ill": np.tile([1, 0, 0, 1, 0], ROWS // 5),
        "town": np.repeat(np.arange(ROWS // 5), 5),
        "time": rng.integers(1, 9, ROWS) * 1.0,
        "event": rng.random(ROWS) < 0.8,
        "dose": rng.gamma(2.0, size=ROWS),
        "site": rng.choice(["a", "b", "c"], ROWS),
        "my dose": rng.normal(size=ROWS),
    })  # fmt: skip


def cox(data: pd.DataFrame, covariates: str) -> Any:
    # Names in a formula are those of whoever calls, and here they are no columns.
    factor, twice = 2.0, lambda values: 2 * values  # noqa: F841
    return CoxPH.from_formula(f"time ~ {covariates}", "event", data).fit()


@pytest.mark.parametrize(
    "covariates",
    [
        "dose + site",
        "dose:site",
        "C(site, contr.treatment('b'))",
        "center(dose) + poly(`my dose`, 2)",
        "np.log1p(dose * factor)",
        "twice(dose)",
        "dose.map(np.sqrt)",
        "`my dose` + Q('dose')",
    ],
)
def test_new_rows_have_the_columns_of_the_fit(data: pd.DataFrame, covariates: str) -> None:
    results = cox(data, covariates)
    expected = results.predict()
    # Of a few rows alone, neither the categories nor the state of transforms would be the same; names that were no
    # columns at the fit do not become some.
    few = data.drop(columns=["ill", "town", "time", "event"])[::-7].assign(factor=5.0)
    pd.testing.assert_series_equal(results.predict(few), expected[::-7])
    found = results.predict(pl.from_pandas(few))
    np.testing.assert_allclose(found, expected[::-7])
    assert found.index.equals(pd.RangeIndex(len(few)))
    # What a prediction is asked for leaves no trace.
    pd.testing.assert_series_equal(results.predict(data), expected)


def test_columns_that_other_arguments_are_in(data: pd.DataFrame) -> None:
    results = ConditionalLogit.from_formula("ill ~ dose + site", "town", data).fit()
    new = data[["town", "dose", "site"]].assign(extra=np.arange(ROWS) / 9)
    for rows in (new, pl.from_pandas(new)):
        expected = results.predict(new, groups=data["town"].to_numpy(), cases=2, offset=new["extra"].to_numpy())
        np.testing.assert_array_equal(results.predict(rows, groups="town", cases=2, offset="extra"), expected)
    np.testing.assert_allclose(results.predict(new, groups="town", cases=2), results.predict())
    hazards = cox(data, "dose")
    np.testing.assert_allclose(hazards.predict(new, offset="extra"), hazards.predict() * np.exp(new["extra"]))
    with pytest.raises(ValueError, match="groups: the data has no column 'village'; it has"):
        results.predict(new, groups="village")
    with pytest.raises(ValueError, match="groups must be given with exog"):
        results.predict(new)
    with pytest.raises(ValueError, match="offset must have the index of exog"):
        results.predict(new, groups="town", offset=new["extra"][::-1])


def test_values_of_rows_that_were_no_column(data: pd.DataFrame) -> None:
    mass = np.arange(ROWS) % 7 * 1.0
    results = CoxPH.from_formula("time ~ dose + mass", "event", data).fit()
    pd.testing.assert_series_equal(results.predict(data.assign(mass=mass)[:4]), results.predict()[:4])
    with pytest.raises(ValueError, match=r"the columns \['dose', 'mass'\] .* has no \['mass'\]"):
        results.predict(data)


def test_arrays_are_of_the_columns_of_the_model(data: pd.DataFrame) -> None:
    results = cox(data, "dose + site")
    row = results.predict([[1.5, 0.0, 1.0]]).item()
    assert row == pytest.approx(results.predict(pd.DataFrame({"dose": [1.5], "site": ["c"]})).item())


@pytest.mark.parametrize(
    ("covariates", "change", "message"),
    [
        ("dose + site", {"site": "d"}, r"exog: .* not seen in original dataset\): \{'d'\}$"),
        ("C(site)", {"site": "d"}, r"exog: .* not seen in original dataset\): \{'d'\}$"),
        ("dose + site", {"site": None}, r"exog: .*`site` contains null values .*; leave rows"),
        ("dose + site", {"dose": np.nan}, r"exog: .*`dose` contains null values .*; leave rows"),
        ("dose + site", {"dose": "high"}, r"exog does not fit the formula 'time ~ dose \+ site': .*`dose`"),
        ("dose:site", {"site": 1}, "exog: 'site' must be categorical as in the fit, got numerical values"),
    ],
)
def test_new_rows_that_do_not_fit(data: pd.DataFrame, covariates: str, change: dict[str, Any], message: str) -> None:
    results = cox(data, covariates)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            results.predict(data.assign(**change))
    with pytest.raises(ValueError, match=r"exog must have the columns .*'site'\] of the formula .* has no \['site'\]"):
        results.predict(data.drop(columns="site"))


def test_a_fit_of_a_formula_is_pickled(data: pd.DataFrame) -> None:
    results = CoxPH.from_formula("time ~ np.sqrt(dose) + site", "event", data).fit()
    copied = pickle.loads(pickle.dumps(results))
    pd.testing.assert_series_equal(copied.predict(data), results.predict(data))


def test_a_fit_of_a_local_function_is_pickled_but_for_new_rows(data: pd.DataFrame) -> None:
    def double(values: Any) -> Any:
        return 2 * values

    results = CoxPH.from_formula("time ~ double(dose)", "event", data).fit()
    copied = pickle.loads(pickle.dumps(results))
    pd.testing.assert_series_equal(copied.predict(), results.predict())
    with pytest.raises(ValueError, match=r"exog does not fit the formula 'time ~ double\(dose\)'"):
        copied.predict(data)


@pytest.mark.parametrize("dtype", ["string", object, "category"])
def test_text_of_any_kind(data: pd.DataFrame, dtype: Any) -> None:
    expected = cox(data, "site")
    found = cox(data.astype({"site": dtype}), "site")
    pd.testing.assert_series_equal(found.params, expected.params)
    pd.testing.assert_series_equal(expected.predict(data.astype({"site": dtype})), expected.predict(data))


def test_models_and_results_are_shown_in_a_line(data: pd.DataFrame) -> None:
    results = ConditionalLogit.from_formula(
        "ill ~ dose + site", "town", data.assign(ill=data["ill"] * (data["town"] > 1))
    ).fit()
    assert repr(results.model) == "ConditionalLogit(rows=60, strata=12, covariates=3)"
    assert repr(results) == f"ConditionalLogitResults(nobs=50, covariates=3, llf={results.llf:.4f})"
    hazards = CoxPH.from_formula("time ~ dose", "event", data, "exact", strata="site").fit()
    assert repr(hazards.model) == "CoxPH(rows=60, strata=3, covariates=1, ties='exact')"
    assert repr(hazards) == f"CoxPHResults(nobs=60, covariates=1, llf={hazards.llf:.4f})"


def test_numbers_of_cases_by_stratum(data: pd.DataFrame) -> None:
    results = ConditionalLogit.from_formula("ill ~ dose + site", "town", data).fit()
    cases = data.groupby("town")["ill"].sum()
    for given in (cases, cases.to_dict()):
        found = results.predict(data, groups="town", cases=given)
        np.testing.assert_allclose(found, results.predict(), atol=1e-12)
    with pytest.raises(ValueError, match=r"cases must have a number for each stratum, and has none for \[0\]"):
        results.predict(data, groups="town", cases=cases.drop(0))
    with pytest.raises(ValueError, match="cases must have one number for each stratum, got labels that occur twice"):
        results.predict(data, groups="town", cases=pd.concat([cases, cases]))
    with pytest.raises(TypeError, match="cases must be an integer, or a mapping or series by stratum, got list"):
        results.predict(data, groups="town", cases=cases.tolist())
    with pytest.raises(ValueError, match=r"cases must be an integer between 0 and a stratum's rows, got 6 for 0 of 5"):
        results.predict(data, groups="town", cases=cases.where(cases.index != 0, 6))
