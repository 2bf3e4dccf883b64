"""Arguments that selectors share: seeds and targets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, check_random_state

__all__ = ["check_target", "seed_of"]


def check_target(target: Any, data: Any) -> NDArray[Any]:
    """Targets `(N)` or `(N, m)` of data `(N, n)` as an array; a ValueError if they are not as many, or not finite."""
    checked: NDArray[Any] = check_array(target, ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(data, checked)
    return checked


def seed_of(random_state: Any) -> int:
    """A seed as of scikit-learn's `random_state`; of None a new one each time."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))
