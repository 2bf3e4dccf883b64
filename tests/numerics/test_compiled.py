"""When compiled loops are taken, and what they share with eager torch."""

import math
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
from oracle import subsets
from torch import Tensor
from torch.func import vmap

from ksubset.numerics import Sampler, compiled, thinning


def test_the_choice_of_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
    row = torch.zeros(784)
    if compiled.usable(row):
        assert Sampler(row, 30)._way(1) == "thinning"
    monkeypatch.setattr(compiled, "usable", lambda logits: False)
    assert Sampler(row, 30)._way(1) == "splitting"
    assert Sampler(row, 30)._way(1000) == "inversion"
    assert Sampler(row, 392)._way(1000) == "splitting"
    assert Sampler(row.expand(0, 784), 30)._way(1) == "inversion"
    assert vmap(lambda w: w + (Sampler(w, 30)._way(1) == "inversion"))(row[None]).all()


class TestArrangement:
    pytestmark = pytest.mark.skipif(not compiled.usable(torch.zeros(1)), reason="numba is not installed")

    @pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
    @pytest.mark.parametrize("k", [1, 30, 200, 299, 300])
    def test_the_tilt_is_a_shift_to_a_likely_size(self, scale: float, k: int) -> None:
        logits = scale * torch.randn(5, 300, dtype=torch.float64)
        state = thinning.arranged(logits, k)
        signed = torch.empty_like(logits).scatter_(
            -1, torch.from_numpy(state.order).long(), torch.from_numpy(state.flip)
        )
        chance = torch.where(signed < 0, 1 + signed, signed)
        spread = (chance * (1 - chance)).sum(-1).sqrt()
        assert ((chance.sum(-1) - (k - 0.5)).abs() <= torch.maximum(torch.tensor(0.51), 0.26 * spread)).all()
        odds = torch.log1p(-signed.abs()) - signed.abs().log()
        shift = torch.where(signed < 0, odds, -odds) - logits
        for row in range(5):
            clear = (signed[row].abs() > 1e-30) & (signed[row].abs() < 1)
            if clear.any():
                one = shift[row][clear]
                torch.testing.assert_close(one, one[:1].expand_as(one), rtol=1e-12, atol=1e-12)

    def test_those_likeliest_to_flip_come_first(self) -> None:
        state = thinning.arranged(3 * torch.randn(4, 500), 30)
        rarity = (-torch.frexp(torch.from_numpy(state.flip)).exponent).clamp(0, state.ends.shape[-1] - 1)
        for row in range(4):
            assert (rarity[row, : state.cuts[row, 0]].diff() >= 0).all()
        assert (np.sort(state.order) == np.arange(500)).all()
        assert (state.cuts[:, 0] >= (np.abs(state.flip) > 1e-20).sum(-1)).all()

    @pytest.mark.parametrize(
        "flip",
        [
            torch.tensor([0.5, -0.4, 0.3, 0.25, -0.1, 0.01, 1e-5]),
            torch.full((60,), 0.05),
            torch.full((300,), -0.01),
            torch.full((5000,), 1e-4),
            *(sign * torch.linspace(0.5, low, n) for sign in (1, -1) for low in (0.5, 0.01) for n in (64, 300, 3000)),
            torch.linspace(-0.4, 0.5, 400),
        ],
        ids=lambda flip: f"{len(flip)} from {flip[0]:.2g} to {flip[-1]:.2g}",
    )
    def test_probabilities_of_numbers(self, flip: Tensor) -> None:
        """All that are possible, also those that are a period away from the mode."""
        from ksubset.numerics.compiled.arrangement import LAW, _characteristic, number_probability

        flips = flip.double().numpy()
        negative = int((flips < 0).sum())
        expected = np.zeros(len(flips) + 1)
        expected[negative] = 1.0
        for signed in flips:
            moved = np.roll(expected, 1 if signed > 0 else -1)
            expected = (1 - abs(signed)) * expected + abs(signed) * moved
        law = np.empty(LAW)
        _characteristic(flips, law)
        found = [number_probability(law, number - negative) for number in range(len(flips) + 1)]
        # Both round each item.
        np.testing.assert_allclose(found, expected, rtol=0, atol=(len(flips) + 20) * 1e-17)
        assert law[-3] == pytest.approx(expected.max(), rel=1e-12)
        assert expected[int(law[-2]) + negative] == pytest.approx(expected.max(), rel=1e-12)

    def test_shares_of_sizes(self) -> None:
        logits = torch.tensor([[2.0, -1.0, 0.5, 1.0, math.inf, -math.inf]] * 2, dtype=torch.float64)
        state = thinning.arranged(logits, torch.tensor([1, 2]), torch.tensor([2, 6]))
        # One item is certain.
        esp = [float((subsets(4, k).double() @ logits[0, :4]).exp().sum()) for k in range(5)]
        for row, (low, high) in enumerate([(1, 2), (2, 6)]):
            share = torch.from_numpy(np.diff(state.share[row], prepend=0.0))
            sizes = range(low, low + len(share))
            expected = torch.tensor([esp[k - 1] if k <= min(high, 5) else 0.0 for k in sizes], dtype=torch.float64)
            torch.testing.assert_close(share / share.sum(), expected / expected.sum(), rtol=1e-12, atol=1e-15)

    @pytest.mark.parametrize("n", [40, 64, 65, 300])
    @pytest.mark.parametrize("logit", [-3.0, -1.0, 0.0, 2.2])
    def test_shares_of_all_sizes(self, n: int, logit: float) -> None:
        state = thinning.arranged(torch.full((1, n), logit, dtype=torch.float64), 0, n)
        share = torch.from_numpy(np.diff(state.share[0], prepend=0.0))
        expected = torch.distributions.Binomial(n, logits=torch.tensor(logit, dtype=torch.float64))
        sizes = torch.arange(n + 1, dtype=torch.float64)
        torch.testing.assert_close(share, expected.log_prob(sizes).exp(), rtol=1e-12, atol=(n + 20) * 1e-17)


def test_selection_of_the_kth_smallest_in_any_order() -> None:
    quadrature = pytest.importorskip("ksubset.numerics.compiled.quadrature", reason="numba is not installed")
    rng = np.random.default_rng(0)
    for _ in range(300):
        values = rng.integers(-4, 4, rng.integers(1, 20)).astype(float)
        values[values == -4] = -np.inf
        found = [quadrature._kth_smallest(values.copy(), place) for place in range(len(values))]
        assert found == np.sort(values).tolist()
    places = np.arange(1_000_000.0)
    for values in (places, -places, 0 * places, -np.abs(places - 500_000), np.abs(places - 500_000), places % 1000):
        start = time.process_time()
        assert quadrature._kth_smallest(values.copy(), 300_000) == np.partition(values, 300_000)[300_000]
        assert time.process_time() - start < 2  # n^2 steps take minutes


def test_nothing_is_asked_of_numpy_and_numba_where_they_are_missing() -> None:
    code = """
import sys
sys.modules["numpy"] = sys.modules["numba"] = None
import torch
from ksubset import KSubset
dist = KSubset(3, torch.randn(700, 20, requires_grad=True))
assert (dist.sample().sum(-1) == 3).all()
dist.log_normalizer.sum().backward()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_where_compiled_code_cannot_be_kept() -> None:
    options = pytest.importorskip("ksubset.numerics.compiled.options", reason="numba is not installed")
    names: dict[str, Any] = {}
    exec(compile("def double(x):\n    return 2 * x", "<no file>", "exec"), names)
    assert options.exact(names["double"])(3) == 6
