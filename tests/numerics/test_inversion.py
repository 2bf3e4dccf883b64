"""The table of elementary symmetric polynomials."""

import math

import pytest
import torch

from ksubset.numerics import inversion


def test_the_table_holds_elementary_symmetric_polynomials() -> None:
    logits = torch.tensor([0.0, math.log(2.0), math.log(3.0), math.log(4.0)])
    table = inversion.sampling_table(logits, 2)
    ratio = torch.exp(table.kept[2][0] - table.kept[2][0, -1])
    torch.testing.assert_close(ratio, torch.tensor([0, 0, 2, 11, 35], dtype=torch.float64) / 35)
    assert inversion.draw_indices(table, 4).shape == (4, 1, 2)


@pytest.mark.parametrize("k", [1, 2, 7, 9, 10, 12, 15, 23])
def test_a_table_of_few_kept_rows_gives_the_same_samples(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(2, 24)
    logits[0, 3] = math.inf
    draws = []
    for whole in (2**26, 0):
        monkeypatch.setattr("ksubset.numerics.inversion._WHOLE", whole)
        table = inversion.sampling_table(logits, k)
        draws.append(inversion.draw_indices(table, 500, torch.Generator().manual_seed(0)))
    drawn = min(k, 24 - k)
    assert len(table.kept) == drawn // math.isqrt(drawn) + 1
    assert torch.equal(*draws)
