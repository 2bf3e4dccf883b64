"""What all tests of the wrapper share."""

from typing import Any

import numpy as np
import pytest


@pytest.fixture
def numbers() -> tuple[Any, Any]:
    """120 rows of 20 columns, of which 3 and 7 matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 20))
    return X, (X[:, 3] + X[:, 7] > 0).astype(int)
