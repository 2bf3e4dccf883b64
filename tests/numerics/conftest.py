"""Numba's loops and eager torch do the same: tests of both take the fixture `way`."""

import pytest

from ksubset.numerics import compiled


@pytest.fixture(params=["compiled", "eager"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(compiled, "usable", lambda logits: False)
    return str(request.param)
