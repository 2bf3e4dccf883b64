"""How much worse a walk may become: simulated annealing in the units of the function."""

import math
from collections.abc import Sequence

__all__ = ["Cooling"]

# Temperatures in units of the mean difference of a swap, at the beginning and the end of a cycle.
_HOT, _COLD = 0.3, 0.01
# Evaluations of the first cycle where their number is not known beforehand; each one is twice as long as the last.
_CYCLE = 500
# Weight of the last difference in the mean, and times the mean at which it is cut off, as a penalty is no difference.
_MEMORY, _OUTLIER = 0.02, 5.0


class Cooling:
    """A temperature that falls geometrically, in cycles.

    Arguments:
        ends: Numbers of evaluations at which cycles end, ascending; after the last they double in length.
    """

    def __init__(self, ends: Sequence[int]) -> None:
        self._ends = ends
        self._scale, self._observed = 0.0, 0

    def observe(self, difference: float, swapped: int) -> None:
        """Take the difference in value that so many swaps have made."""
        self._observed += 1
        size = abs(difference) / math.sqrt(swapped)
        if self._scale > 0:
            size = min(size, _OUTLIER * self._scale)
        self._scale += max(_MEMORY, 1 / self._observed) * (size - self._scale)

    def temperature(self, evaluations: int) -> float:
        """Of Metropolis' rule, after so many evaluations."""
        start = 0
        for end in self._ends:
            if evaluations < end:
                break
            start = end
        else:
            doublings = int(math.log2((evaluations - start) / _CYCLE + 1))
            start, end = (start + _CYCLE * (2**power - 1) for power in (doublings, doublings + 1))
        progress = (evaluations - start) / (end - start)
        return self._scale * _HOT * math.pow(_COLD / _HOT, progress)
