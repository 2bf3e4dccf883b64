"""Importances in a forest, which a search starts from where there are more columns than rows."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.naive_bayes import GaussianNB

from ksubset.selection import KSubsetSelector
from ksubset.selection.wrapper import problem
from ksubset.selection.wrapper.forest import forest_scores


def together(rows: int = 80) -> tuple[Any, Any]:
    """Columns 3 and 7 say something only together."""
    x = np.random.default_rng(0).standard_normal((rows, 10))
    return x, (x[:, 3] * x[:, 7] > 0).astype(int)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array, sp.csc_array, pd.DataFrame, pl.DataFrame])
def test_columns_that_count_together_in_any_container(container: Any) -> None:
    x, y = together(400)
    scores = forest_scores(container(x), y, classify=True, seed=0)
    assert set(np.argsort(scores)[-2:]) == {3, 7}
    np.testing.assert_allclose(scores, forest_scores(x, y, classify=True, seed=0))
    assert (scores >= 0).all()


def test_numbers_several_targets_text_and_gaps() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2_000, 6)) * [1, 1e200, 1, 1, 1, 0]
    y = np.stack([x[:, 2], (x[:, 1] > 0) * 1.0], 1)
    assert set(np.argsort(forest_scores(x, y, classify=False, seed=0))[-2:]) == {1, 2}
    table = pd.DataFrame(x).assign(text=np.where(x[:, 2] > 0, "yes", "no"), none=np.nan)
    table.iloc[::3, 0], table.iloc[::4, 3] = np.nan, np.inf
    table.columns = table.columns.astype(str)
    scores = forest_scores(table, table["text"].to_numpy(dtype=object), classify=False, seed=0)
    assert set(np.argsort(scores)[-2:]) == {2, 6}
    assert scores[[5, 7]].tolist() == [0, 0]
    assert forest_scores(x[:, 5:], y[:, 0], classify=False, seed=0).tolist() == [0]


def test_it_is_asked_where_columns_are_more_than_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def noted(data: Any, target: Any, *, classify: bool, seed: int) -> Any:
        asked.append(data.shape)
        return forest_scores(data, target, classify=classify, seed=seed)

    monkeypatch.setattr(problem, "forest_scores", noted)
    x, y = together()
    wide = np.hstack([x, np.random.default_rng(1).standard_normal((80, 90))])
    for data in (x, wide):
        KSubsetSelector(GaussianNB(), n_features_to_select=2, max_evaluations=20, random_state=0).fit(data, y)
    assert asked == [(80, 100)]
