"""Minimize a function of k of n items: a search, with calls, limits, a checkpoint and callbacks."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset._support.identity import digests
from ksubset._support.interrupts import Interrupt
from ksubset.search.arguments import check_integer, check_positive, is_integer, listed, listed_callbacks, notify
from ksubset.search.checkpoint import Checkpoint, identity_of
from ksubset.search.constraints import Constraint
from ksubset.search.objective import Objective
from ksubset.search.results import SearchResult
from ksubset.search.search import Search

__all__ = ["minimize"]

# Subsets in a call of a vectorized function: more cost less each, but are chosen knowing less.
_BATCH = 16
# Of the time, after which finalists are confirmed.
_CONFIRM_AFTER = 0.9
_SECONDS_BETWEEN_LINES = 2.0


def minimize(
    f: Callable[..., Any],
    n: int,
    k: int,
    *,
    vectorized: bool = False,
    encoding: str = "indices",
    noisy: bool = False,
    max_evaluations: int | None = 10_000,
    max_seconds: float | None = None,
    patience: int | None = None,
    n_jobs: int | None = None,
    always: Iterable[int] = (),
    exclude: Iterable[int] = (),
    groups: Sequence[Iterable[int]] | None = None,
    constraints: Sequence[Constraint] = (),
    initial: Iterable[Iterable[int]] | Mapping[tuple[int, ...], float | None] | None = None,
    checkpoint: str | Path | None = None,
    callbacks: Any = None,
    verbose: int = 0,
    random_state: int | np.random.Generator | None = None,
) -> SearchResult:
    """The k of n items for which a function is least; any function, of which nothing is known but its values.

    All subsets are evaluated, and the result is optimal, where the constraints leave at most `max_evaluations` (and at
    most five million), there is no noise, and nothing ends the search before. Otherwise it is the best that was found.
    Without noise no subset is evaluated twice.

    Arguments:
        f: What is minimized; maps a subset, as `encoding` says, to a number. NaN and infinite values, of either sign,
            count as the worst; with noise they are left out of the mean of a subset that has finite ones, too.
        n: Items there are.
        k: Items to choose; with `groups` the number of groups, where an item in none is a group of its own.
        vectorized: Whether f takes subsets as rows `(S, k)` and returns values `(S)`, instead of one at a time.
        encoding: "indices": f gets ascending indices `(k)`, int64. "mask": it gets a k-hot row `(n)`, boolean.
        noisy: Whether f returns another value each time. Then the few best subsets are evaluated again, with a tenth
            of the evaluations, and compared by these fresh values, whose mean is the `value` of the result. Of fewer
            than 20 a tenth is too few; then those that are left once every subset was evaluated, if any, serve instead.
        max_evaluations: Calls of f at most, each subset of a vectorized call counted; None for no limit. Worse subsets
            are accepted ever more rarely towards it; in cycles, where `max_seconds` or `patience` may end the search
            before.
        max_seconds: After these no call is begun.
        patience: Ends after so many evaluations without improvement.
        n_jobs: Calls at a time, as joblib has it; within `joblib.parallel_config` also on Dask and Ray.
        always: Items that are in every subset, with their groups.
        exclude: Items that are in no subset, nor are their groups.
        groups: Sequences of items that are kept or dropped together, without overlap.
        constraints: What else subsets have to fulfil: `AtMost`, `AtLeast`, `Exactly`, `Budget`, `Apart`. Only subsets
            that do are evaluated.
        initial: Subsets to begin with, as sequences of indices; or a mapping from tuples of indices to their values,
            as far as these are known, else None.
        checkpoint: Path of a file to which every value is written as it comes. Another call with the same arguments
            takes what is there instead of calling f again, and so resumes; the limits may change, and more evaluations
            go on from where fewer ended, unless they now reach a good part of all subsets, which is another search. A
            file of another problem is an error, which says what differs. Functions are told apart by their names,
            lambdas by what they do; those within other functions also by the variables of these that they use, methods
            and other objects by what they hold, none of which calls of f may change.
        callbacks: A function or several, called with a `SearchProgress` after each batch of evaluations; if one
            returns True, the search ends with the best so far. So it does, with a warning, on KeyboardInterrupt.
        verbose: Above 0, prints a line every two seconds.
        random_state: Seed, or generator; None for another search each time, or the one in the checkpoint.

    Returns:
        A `SearchResult`: `subset`, `value`, `num_evaluations`, `inclusion` and more.

    Raises:
        TypeError, ValueError: An argument is of a wrong kind or out of range; constraints leave no subset, and the
            message names some of them, no more than needed, that cannot be fulfilled together; f returns something of a
            wrong kind or shape, or nothing finite at all.

    References:
        Kirkpatrick, Gelatt and Vecchi (1983), Optimization by simulated annealing, Science 220.
        Russo, Van Roy, Kazerouni, Osband and Wen (2018), https://arxiv.org/abs/1707.02038, for Thompson sampling.

    Example:
        >>> import numpy as np
        >>> points = np.random.default_rng(0).random((50, 2))
        >>> def distance_to_the_nearest(chosen):
        ...     return np.linalg.norm(points[:, None] - points[chosen], axis=2).min(1).sum()
        >>> minimize(distance_to_the_nearest, 50, 2, random_state=0).optimal
        True
    """
    limit = None if max_evaluations is None else check_integer("max_evaluations", max_evaluations, 1)
    seconds = math.inf if max_seconds is None else check_positive("max_seconds", max_seconds)
    patient = math.inf if patience is None else check_integer("patience", patience, 1)
    if limit is None and max_seconds is None and patience is None:
        raise ValueError("max_evaluations: expected a number where neither max_seconds nor patience is given, got None")
    called = listed_callbacks(callbacks)
    problem = (
        n,
        k,
        noisy,
        listed("always", always),
        listed("exclude", exclude),
        groups,
        listed("constraints", constraints),
        initial,
    )
    seed: Any = random_state
    keep = None
    if checkpoint is not None:
        if not (random_state is None or is_integer(random_state)):
            raise TypeError(f"random_state: expected an integer or None with a checkpoint, got {random_state!r}")
        # To resume, a search without a seed has to be the same again, too.
        seed = 0 if random_state is None else random_state
    search = Search(
        n, k, encoding=encoding, noisy=noisy, max_evaluations=limit, always=problem[3], exclude=problem[4],
        groups=groups, constraints=constraints, initial=initial, random_state=seed,
    )  # fmt: skip
    search.check_encoding(vectorized=vectorized)
    # What may end at any time cannot be planned by the number of evaluations.
    planned = limit if max_seconds is None and patience is None else None
    plan = [] if planned is None else [planned]
    if checkpoint is not None:
        names = ("n", "k", "noisy", "always", "exclude", "groups", "constraints", "initial")
        keep = Checkpoint(
            Path(checkpoint),
            digests(identity_of(f) | dict(zip(names, problem, strict=True)) | {"random_state": seed}),
            planned,
        )
        plan = keep.plan
    search.state.plan(plan)
    evaluate = Objective(f, n, encoding, vectorized=vectorized, n_jobs=n_jobs)
    size = _BATCH * evaluate.num_workers if vectorized else evaluate.num_workers
    start = shown = time.monotonic()
    ended = False
    try:
        with evaluate.workers, Interrupt() as interrupt:
            while not ended and not interrupt.requested:
                in_vain = search.in_vain >= patient
                if in_vain and not noisy:
                    break
                if in_vain or time.monotonic() - start > _CONFIRM_AFTER * seconds:
                    search.confirm()
                left = size if limit is None else min(size, limit - search.num_evaluations)
                points = search.ask_points(left)
                if not points or time.monotonic() - start > seconds:
                    break
                values: list[float] = []
                try:
                    # One by one, so that an interrupt leaves those that are there.
                    with interrupt.at_once():
                        values.extend(_values(evaluate, keep, [search.space.items(point) for point in points]))
                except KeyboardInterrupt:
                    interrupt.requested = True
                    if not search.num_evaluations and not values:
                        raise
                for point, value in zip(points, values, strict=False):
                    search.state.record(point, value)
                now = time.monotonic()
                progress = search.progress(limit, now - start)
                if verbose > 0 and now - shown > _SECONDS_BETWEEN_LINES:
                    shown = now
                    print(f"[minimize] {progress.num_evaluations} evaluations, best value {progress.value:.6g}")
                ended = notify(called, progress) or ended
    finally:
        if keep is not None:
            keep.close()
    if interrupt.requested:
        if not search.num_evaluations:
            raise KeyboardInterrupt
        warnings.warn("interrupted: the result is the best found so far", stacklevel=2)
    return search.result()


def _values(evaluate: Objective, keep: Checkpoint | None, subsets: list[NDArray[np.int64]]) -> Iterator[float]:
    """Values of subsets, from the checkpoint as far as they are there."""
    known = [None if keep is None else keep.take(subset) for subset in subsets]
    results = evaluate([subset for subset, value in zip(subsets, known, strict=True) if value is None])
    for subset, value in zip(subsets, known, strict=True):
        if value is not None:
            yield value
            continue
        found = next(results)
        if keep is not None:
            keep.add(subset, found)
        yield found
