"""What is saved and told while a search runs, and what ends it."""

import math
import time
from collections.abc import Callable
from typing import Any

from ksubset.search.arguments import notify
from ksubset.selection.groups import SubsetSpace
from ksubset.selection.wrapper.cache import ScoreCache
from ksubset.selection.wrapper.racing import RacingSearch
from ksubset.selection.wrapper.results import Progress, progress_of

__all__ = ["EndedByCallbackError", "OutOfTimeError", "Reporter"]

_SAVED_EVERY, _TOLD_EVERY = 0.5, 0.1  # seconds


class EndedByCallbackError(Exception):
    """A callback has ended the search."""


class OutOfTimeError(Exception):
    """`max_seconds` are over."""


class Reporter:
    """Saves scores and tells of progress while a search runs, in the midst of its batches, too."""

    def __init__(
        self,
        space: SubsetSpace,
        part: str,
        cache: ScoreCache | None,
        callbacks: list[Callable[[Progress], Any]],
        verbose: int,
        max_seconds: float | None,
    ) -> None:
        self._space, self._part, self._cache = space, part, cache
        self._callbacks, self._verbose = callbacks, verbose
        self._start = self._saved = self._told = time.monotonic()
        self._told_at = 0
        self._end = math.inf if max_seconds is None else self._start + max_seconds
        self.search: RacingSearch
        """Set before the first score, as the search is made with `after_score`."""

    def after_score(self) -> None:
        now = time.monotonic()
        if now - self._saved >= _SAVED_EVERY:
            self.save()
        if now - self._told >= _TOLD_EVERY:
            self.report()
        if now >= self._end:
            raise OutOfTimeError

    def save(self) -> None:
        if self._cache is not None:
            self._cache.save()
        self._saved = time.monotonic()

    def report(self) -> None:
        """Tell where the search stands, unless that was told already."""
        if self.search.evaluations == self._told_at:
            return
        self.save()
        progress = progress_of(self.search, self._space, self._part, time.monotonic() - self._start)
        if self._verbose > 0:
            print(
                f"[KSubsetSelector] {self._part}, k = {self._space.total}: "
                f"{progress.n_fits} of at most {self.search.budget} fits, "
                f"{progress.n_subsets} subsets, best score {progress.best_score:.4g}, "
                f"{progress.seconds_left:.0f} s left"
            )
        self._told, self._told_at = time.monotonic(), self.search.evaluations
        if notify(self._callbacks, progress):
            raise EndedByCallbackError
