"""The scores known so far, and what they depend on, in memory and in a file."""

import json
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ksubset._support.files import write
from ksubset._support.identity import differences, digests

__all__ = ["ScoreCache", "identity"]


def identity(
    data: Any, target: Any, estimator: Any, scoring: Any, splitter: Any, folds: Any, metadata: Mapping[str, Any]
) -> dict[str, str]:
    """Digests of all that a score depends on, the seed aside; "part.name" for the names within a part.

    The estimator is one that is not fitted.

    Raises:
        TypeError: A part cannot be pickled; the message names it.
    """
    # The whole estimator, because more than its parameters may count; each parameter, to name what differs.
    parts = {"data": data, "target": target, "estimator": estimator, "estimator.class": type(estimator)}
    parts |= {f"estimator.{name}": _own(value) for name, value in sorted(estimator.get_params(deep=True).items())}
    # The kind of splitter decides what fresh folds there are.
    parts |= {"scoring": scoring, "folds": (type(splitter).__qualname__, folds)}
    return digests(parts | {f"metadata.{name}": value for name, value in metadata.items()})


def _own(value: Any) -> Any:
    """A parameter without the parameters of estimators in it, which have digests of their own."""
    if hasattr(value, "get_params"):
        return type(value)
    return [_own(one) for one in value] if isinstance(value, list | tuple) else value


def _described(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What differs, as in "estimator (max_depth), folds"."""
    parts: dict[str, list[str]] = {}
    for name in differences(mine, theirs):
        part, _, inner = name.partition(".")
        # Names that only one of two kinds of estimators has say nothing.
        parts.setdefault(part, []).extend([inner] if inner and name in mine and name in theirs else [])
    return ", ".join(f"{part} ({', '.join(inner)})" if inner else part for part, inner in parts.items())


class ScoreCache:
    """The scores known so far, in memory and, if there is a path, in a file that is whole at all times.

    The file is a line of JSON for what the scores depend on and one for each score, so that a batch costs its own
    scores only. A process that is killed can leave no more than a torn last line, which counts as not written.

    Arguments:
        path: The file; it need not exist. None keeps scores in memory alone.
        identity: Named digests of everything that the scores depend on, the seed aside.
        seed: Of the search; None takes the one in the file.

    Raises:
        ValueError: The file is none of this kind, or of something else, which the message names.
    """

    def __init__(self, path: Path | None, identity: Mapping[str, str], seed: int | None) -> None:
        self._path, self._identity = path, dict(identity)
        self.seed = seed
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}
        # How many of them the file has; None if it has to be written from its beginning.
        self._written: int | None = None
        if path is None or not path.exists():
            return
        try:
            # What follows the last line break is nothing, or torn.
            first, *others = path.read_bytes().split(b"\n")[:-1]
            header = json.loads(first)
            found, self.seed = dict(header["identity"]), int(header["seed"])
            self.known = {(fold, tuple(columns)): score for fold, columns, score in map(json.loads, others)}
        # A file of another kind fails in one of these ways: no JSON, not a mapping, missing or malformed fields.
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"checkpoint: expected a file of a selector, got {path} ({error!r})") from error
        mine = self._identity | {"random_state": str(self.seed if seed is None else seed)}
        if other := _described(mine, found | {"random_state": str(self.seed)}):
            raise ValueError(
                f"checkpoint: expected a file of the same data, target, estimator, scoring, folds, metadata and "
                f"random_state, got {path}, which differs in {other}; delete it, or give another path"
            )

    def take(self, earlier: "ScoreCache") -> None:
        """Take over scores of an earlier search, and its seed where none is given, unless they are of other things."""
        if earlier._identity == self._identity and self.seed in (None, earlier.seed):
            self.seed = earlier.seed
            self.known |= earlier.known

    def save(self) -> None:
        """Write what is new; on an OSError what was there stays."""
        if self._path is None:
            return
        # Whatever ends this early, the next time nothing is appended to a torn line.
        written, self._written = self._written if self._path.exists() else None, None
        lines = [
            json.dumps([fold, columns, score], separators=(",", ":"))
            for (fold, columns), score in islice(self.known.items(), written, None)
        ]
        if written is None:
            lines.insert(0, json.dumps({"identity": self._identity, "seed": self.seed}))
        content = "".join(f"{line}\n" for line in lines).encode()
        if written is None:
            write(self._path, content)
        else:
            with self._path.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._written = len(self.known)
