"""The scores known so far, and what they depend on, in memory and in a file."""

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from ksubset._support.identity import digests

__all__ = ["ScoreCache", "ScoreStore", "identity"]

_APPLICATION = 0x6B537562  # "kSub", by which SQLite tells files of one program from those of another
_TABLES = """
CREATE TABLE IF NOT EXISTS searches (number INTEGER PRIMARY KEY, identity TEXT, seed INTEGER, UNIQUE (identity, seed));
CREATE TABLE IF NOT EXISTS scores (
    search INTEGER, fold INTEGER, columns TEXT, score REAL, PRIMARY KEY (search, fold, columns)
) WITHOUT ROWID;
"""
_WAIT = 60.0
"""Seconds for which another process may hold the file, which it does for milliseconds."""


def identity(
    data: Any, target: Any, estimator: Any, scoring: Any, splitter: Any, folds: Any, metadata: Mapping[str, Any]
) -> dict[str, str]:
    """Digests of all that a score depends on, the seed aside.

    The estimator is one that is not fitted.

    Raises:
        TypeError: A part cannot be pickled; the message names it.
    """
    parts = {"data": data, "target": target, "estimator": estimator, "scoring": scoring, "metadata": dict(metadata)}
    # The kind of splitter decides what fresh folds there are.
    return digests(parts | {"folds": (type(splitter).__qualname__, folds)})


class ScoreStore:
    """The scores of all searches of a fit, in memory and, if there is a path, in an SQLite file.

    The file may have searches of other fits, too, also of processes that write at the same time. One that is killed
    leaves the file as it was after its last commit.

    Arguments:
        path: The file; it need not exist. None keeps scores in memory alone.
        earlier: The store of the fit before, from which scores are taken.

    Raises:
        OSError: The file cannot be written.
        ValueError: It is none of this kind.
    """

    def __init__(self, path: Path | None, earlier: "ScoreStore | None" = None) -> None:
        self._path = path
        self.argument = "warm_start" if path is None else "checkpoint"
        """Of the selector, for messages."""
        self._earlier: dict[str, ScoreCache] = {} if earlier is None else earlier._earlier | earlier._searches
        self._searches: dict[str, ScoreCache] = {}
        self.seed: int | None = None if earlier is None else earlier.seed
        """Of the latest search, None before the first one."""
        if path is not None:
            try:
                path.open("ab").close()
            except OSError as error:
                raise OSError(f"{path}: cannot be written ({error})") from error
            with _connected(path):
                pass

    def search(self, identity: Mapping[str, str], seed: int | None, drawn: int) -> "ScoreCache":
        """The scores of a search, those of earlier ones of the same things included.

        Arguments:
            identity: Named digests of everything that the scores depend on, the seed aside.
            seed: Of the search; None takes the one of the latest search of the same things.
            drawn: The seed if there is none.
        """
        name = json.dumps(dict(identity), sort_keys=True)
        earlier = self._earlier.get(name)
        if seed is None:
            seed = self._latest(name)
        if seed is None:
            seed = drawn if earlier is None else earlier.seed
        cache = ScoreCache(self._path, name, seed)
        if earlier is not None and earlier.seed == seed:
            cache.known |= earlier.known
        cache.save()
        self._searches[name], self.seed = cache, seed
        return cache

    def forget_earlier(self) -> None:
        """Forget the scores of earlier fits that this one, which has come to its end, had no use for."""
        self._earlier = {}

    def _latest(self, name: str) -> int | None:
        if self._path is None:
            return None
        with _connected(self._path) as file:
            found = file.execute(
                "SELECT seed FROM searches WHERE identity = ? ORDER BY number DESC", (name,)
            ).fetchone()
        return None if found is None else int(found[0])


class ScoreCache:
    """The scores of one search.

    Arguments:
        path: The file; None keeps scores in memory alone.
        identity: What the scores depend on, the seed aside.
        seed: Of the search.
    """

    def __init__(self, path: Path | None, identity: str, seed: int) -> None:
        self._path, self._identity, self.seed = path, identity, seed
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}
        """By fold and columns."""
        self._written = 0
        if path is None:
            return
        with _connected(path) as file:
            rows = file.execute(
                "SELECT fold, columns, score FROM scores JOIN searches ON search = number"
                " WHERE identity = ? AND seed = ? ORDER BY fold",
                (identity, seed),
            )
            # SQLite has no NaN, and stores NULL.
            self.known = {
                (fold, tuple(json.loads(columns))): math.nan if score is None else score
                for fold, columns, score in rows
            }
        self._written = len(self.known)

    def save(self) -> None:
        """Write what is new; on an error what was there stays."""
        if self._path is None:
            return
        if not self._path.exists():
            self._written = 0
        with _connected(self._path) as file:
            key = (self._identity, self.seed)
            file.execute("INSERT OR IGNORE INTO searches (identity, seed) VALUES (?, ?)", key)
            ((number,),) = file.execute("SELECT number FROM searches WHERE identity = ? AND seed = ?", key)
            file.executemany(
                "INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?)",
                (
                    (number, fold, json.dumps(columns), score)
                    for (fold, columns), score in islice(self.known.items(), self._written, None)
                ),
            )
        self._written = len(self.known)


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, of which all that is done to it is committed at the end or not at all."""
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT)) as file, file:
            # In this order, as another process may write them, in the other order, at the same time.
            ((tables,),) = file.execute("SELECT count(*) FROM sqlite_master")
            ((application,),) = file.execute("PRAGMA application_id")
            if not tables:
                file.execute(f"PRAGMA application_id = {_APPLICATION}")
                file.executescript(_TABLES)
            elif application != _APPLICATION:
                raise ValueError(f"checkpoint: expected a file of a selector, got {path}, of another program")
            yield file
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise ValueError(f"checkpoint: expected a file of a selector, got {path} ({error})") from error
