"""Real data: right values, which R's survival gives as well wherever it computes the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ksubset.stats import ConditionalLogit, CoxPH

# Half a unit of the last digit of values with six decimals.
LAST = 5.5e-7


@pytest.fixture(scope="module")
def read(data_folder: Path) -> Any:
    return lambda name: pd.read_csv(data_folder / "statistics" / f"{name}.csv")


def close(series: Any, expected: list[float], tolerance: float = LAST) -> None:
    np.testing.assert_allclose(np.asarray(series), expected, rtol=0, atol=tolerance)


def test_infert(read: Any) -> None:
    data = read("infert")
    results = ConditionalLogit.from_formula("case ~ spontaneous + induced", "stratum", data).fit()
    close(results.params, [1.985876, 1.409012])
    close(results.bse, [0.352444, 0.360712])
    close([results.llf, results.llnull], [-64.202237, -90.779355])
    close([test.statistic for test in (results.lr_test, results.wald_test, results.score_test)],
          [53.15, 31.84, 48.44], 0.006)  # fmt: skip
    results = ConditionalLogit.from_formula("case ~ spontaneous + induced", "pooled.stratum", data).fit()
    close(results.params, [2.027885, 1.426510])
    close(results.bse, [0.346010, 0.350275])
    close(results.llf, [-74.155494])


def test_infert_with_robust_errors(read: Any) -> None:
    model = ConditionalLogit.from_formula("case ~ spontaneous + induced", "stratum", read("infert"))
    close(model.fit("robust").bse, [0.4019714612, 0.3846150548], 1e-8)


def test_birthwt(read: Any) -> None:
    data = read("birthwt").query("16 <= age <= 32")
    results = ConditionalLogit.from_formula("low ~ lwt + smoke + ht + ui", "age", data).fit()
    assert results.nobs == 174
    close(results.params, [-0.014985, 0.808047, 1.751430, 0.883410])
    close(results.bse, [0.007064, 0.367973, 0.739323, 0.480323])
    close(results.llf, [-70.554085])


def test_logan(read: Any) -> None:
    people = read("logan")
    jobs = sorted(people["focc"].unique())
    rows = people.loc[people.index.repeat(len(jobs))]
    job = pd.Series(jobs * len(people), index=rows.index)
    exog = pd.DataFrame({name: (job == name) * 1.0 for name in ("farm", "operatives", "professional", "sales")})
    for name in ("craftsmen", "farm", "operatives", "professional"):
        exog[f"education of {name}"] = (job == name) * rows["education"]
    assert len(rows) == 4190
    results = ConditionalLogit(rows["occupation"] == job, exog, rows["rownames"]).fit()
    close(results.params, [-1.896463, 1.166750, -8.100549, -5.029230, -0.332284, -0.370286, -0.422219, 0.278247])
    close(results.llf, [-1015.953725])


def test_wagepan(read: Any) -> None:
    model = ConditionalLogit.from_formula("union ~ married + exper + expersq + hours", "nr", read("wagepan"))
    results = model.fit()
    close(results.params, [0.267342, 0.058134, -0.006789, -0.000268])
    close(results.llf, [-735.942796])
    assert (model.dropped_strata, model.dropped_rows) == (299, 2392)
    assert "Dropped groups:        299 (2392 rows)" in str(results.summary())


@pytest.mark.parametrize(
    ("ties", "coefficient", "error"),
    [("breslow", 1.509191, None), ("efron", 1.572125, None), ("exact", 1.628244, 0.433131),
     ("marginal", 1.598191, 0.421647)],
)  # fmt: skip
def test_gehan(read: Any, ties: Any, coefficient: float, error: float | None) -> None:
    data = read("gehan")
    results = CoxPH(data["time"], data["cens"], data["treat"] == "control", ties).fit()
    close(results.params, [coefficient])
    if error is not None:
        close(results.bse, [error])


def test_veteran(read: Any) -> None:
    data = read("veteran").assign(month=lambda frame: np.ceil(frame["time"] / 30))
    results = CoxPH.from_formula("month ~ I(trt == 2) + karno + age", "status", data, "exact").fit()
    close(results.params, [0.2244, -0.0390, 0.0004], 5.5e-5)
    close(results.bse, [0.2173, 0.0065, 0.0108], 5.5e-5)
    close(results.llf, [-250.947737])


def test_flchain(read: Any) -> None:
    data = read("flchain").query("futime > 0")
    data = data.assign(years=np.ceil(data["futime"] / 365.25), male=(data["sex"] == "M") * 1.0)
    results = CoxPH.from_formula("years ~ age + male + kappa + `lambda`", "death", data, "exact").fit()
    close(results.params, [0.109833, 0.344896, 0.088681, 0.202946])
    close(results.bse, [0.002429, 0.046182, 0.032739, 0.029544])
    close(results.llf, [-8523.042656])


@pytest.mark.parametrize(
    ("ties", "coefficients", "errors", "robust", "clustered", "likelihoods"),
    [
        ("breslow", [-0.33078774003, 0.11002105082, -0.01305425653], [0.17525171027, 0.03849342848, 0.04556898371],
         [0.19082052318, 0.05537900839, 0.05447271222], [0.19690988586, 0.05334918274, 0.05251057448],
         [-702.63473139670, -697.46657376262]),
        ("efron", [-0.33743779092, 0.11035706450, -0.01335762183], [0.17501147621, 0.03824661958, 0.04556248736],
         [0.19646365137, 0.05701429719, 0.05671679549], [0.20528582043, 0.05518007518, 0.05512623258],
         [-695.70282570244, -690.36158282284]),
    ],
)  # fmt: skip
def test_bladder_with_left_truncation_strata_and_clusters(
    read: Any,
    ties: Any,
    coefficients: list[float],
    errors: list[float],
    robust: list[float],
    clustered: list[float],
    likelihoods: list[float],
) -> None:
    """Computed by R's survival 3.5.3: Surv(start, stop, status == 1) ~ ... + strata(enum > 1)."""
    data = read("bladder1").query("stop > start")
    data = data.assign(event=data["status"] == 1, thiotepa=data["treatment"] == "thiotepa", later=data["enum"] > 1)
    model = CoxPH.from_formula(
        "stop ~ thiotepa + number + size", "event", data, ties, entry="start", strata="later"
    )  # fmt: skip
    results = model.fit()
    close(results.params, coefficients, 1e-8)
    close(results.bse, errors, 1e-8)
    close([results.llnull, results.llf], likelihoods, 1e-8)
    close(model.fit("robust").bse, robust, 1e-8)
    close(model.fit("clustered", data["id"]).bse, clustered, 1e-8)
