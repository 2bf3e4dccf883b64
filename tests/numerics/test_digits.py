"""Any input against 60-digit arithmetic: 500 random batches, or 10,000 by `make fuzz`."""

import math
from typing import Any
from unittest.mock import patch

import mpmath
import torch
from hypothesis import given
from hypothesis import strategies as st

from ksubset.numerics import compiled, exclusion_probabilities, inclusion_probabilities, log_normalizer

SCALES = [0.0, 1e-6, 1.0, 5.0, 50.0, 1e3, 1e6]
SHIFTS = [0.0, 3.0, -1e3, 1e6]


@st.composite
def problems(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor | int]:
    """Logits `(*B, n)` of either dtype with ties and infinities, and a feasible k, an int or one for each row."""
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    n = draw(st.integers(1, 24))
    scale, shift = draw(st.sampled_from(SCALES)), draw(st.sampled_from(SHIFTS))
    coarse = draw(st.booleans())
    infinities = draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randn(*batch, n, generator=generator, dtype=torch.float64)
    if coarse:  # ties
        logits = logits.round()
    logits = (shift + scale * logits).to(dtype)
    if infinities:
        kind = torch.rand(*batch, n, generator=generator)
        logits = torch.where(kind < 0.15, -math.inf, torch.where(kind > 0.85, math.inf, logits))
    least, most = logits.isposinf().sum(-1), (logits > -math.inf).sum(-1)
    if least.max() <= most.min() and draw(st.booleans()):
        return logits, draw(st.integers(int(least.max()), int(most.min())))
    share = torch.rand(batch, generator=generator)
    return logits, least + (share * (most - least + 1)).floor().long().clamp(max=most - least)


def exact(logits: list[float], k: int) -> tuple[float, list[float], list[float]]:
    """Log normaliser (of the finite items), inclusion and exclusion probabilities, in 60 digits."""
    finite = [i for i, w in enumerate(logits) if math.isfinite(w)]
    k -= sum(w == math.inf for w in logits)
    with mpmath.workdps(60):
        origin = max((logits[i] for i in finite), default=0.0)
        weights = [mpmath.exp(mpmath.mpf(logits[i]) - mpmath.mpf(origin)) for i in finite]

        def sweep(items: list[mpmath.mpf]) -> list[list[mpmath.mpf]]:
            rows = [[mpmath.mpf(1)] + [mpmath.mpf(0)] * k]
            for item in items:
                last = rows[-1]
                rows.append([last[0]] + [last[j] + item * last[j - 1] for j in range(1, k + 1)])
            return rows

        before, after = sweep(weights), sweep(weights[::-1])[::-1]
        total = before[-1][k]
        normalizer = float(mpmath.log(total) + k * mpmath.mpf(origin))
        inside = [float(w == math.inf) for w in logits]
        outside = [float(w == -math.inf) for w in logits]
        for place, i in enumerate(finite):
            a, b = before[place], after[place + 1]
            without = sum(a[j] * b[k - j] for j in range(k + 1))
            outside[i] = float(without / total)
            inside[i] = float(weights[place] * sum(a[j] * b[k - 1 - j] for j in range(k)) / total)
    return normalizer, inside, outside


def measured(logits: torch.Tensor, k: torch.Tensor | int) -> list[Any]:
    """Ours: the same, for each row."""
    normalizer = log_normalizer(logits, k).reshape(-1)
    functions = inclusion_probabilities, exclusion_probabilities
    return [normalizer.tolist(), *(f(logits, k).reshape(-1, logits.shape[-1]).tolist() for f in functions)]


@given(problems())
def test_relative_accuracy(problem: tuple[torch.Tensor, torch.Tensor | int]) -> None:
    logits, k = problem
    single = logits.dtype == torch.float32
    limit = 2e-6 if single else 1e-12
    # What a float32 cannot hold, and what the rounding of float64 makes of probabilities at its own end.
    tiny = torch.finfo(logits.dtype).tiny
    rows = logits.reshape(-1, logits.shape[-1]).tolist()
    sizes = torch.as_tensor(k).expand(logits.shape[:-1]).reshape(-1).tolist()
    loops = measured(logits, k)
    with patch.object(compiled, "usable", return_value=False):
        eager = measured(logits, k)
    for row, (weights, size) in enumerate(zip(rows, sizes, strict=True)):
        expected, *probabilities = exact(weights, size)
        for normalizer, inside, outside in (loops, eager):
            if any(w == math.inf for w in weights):
                assert normalizer[row] == math.inf
            else:
                # Terms of the sum may cancel: its rounding error is that of its largest terms.
                terms = sum(abs(w) for w in sorted(weights, reverse=True)[:size] if math.isfinite(w))
                allowed = limit * max(1.0, abs(expected)) + 4 * torch.finfo(torch.float64).eps * terms
                assert abs(normalizer[row] - expected) <= allowed
            for mine, true in zip((inside[row], outside[row]), probabilities, strict=True):
                for p, q in zip(mine, true, strict=True):
                    assert abs(p - q) <= limit * q + tiny
