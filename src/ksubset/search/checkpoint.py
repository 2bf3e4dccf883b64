"""Every value of a search in a file, written as it comes."""

import inspect
import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ksubset._support.files import write
from ksubset._support.identity import differences

__all__ = ["Checkpoint", "identity_of"]


class Checkpoint:
    """Values by subset, in a file that is whole at all times but for a torn last line, which counts as not written.

    The file is a line of JSON for what the values depend on, and one for each value.

    Arguments:
        path: The file; it need not exist.
        identity: Named digests of everything that the search depends on.
        limit: Evaluations that are planned; None if that is not known.

    Attributes:
        plan: Limits of the calls that wrote the file, ascending, and of this one if it is larger: a search goes the way
            that its first limit set, and only then on to another, or values in the file would be of no use. Empty if
            the first call had none.

    Raises:
        ValueError: The file is none of this kind, or of another problem; the message says what differs.
        OSError: It cannot be read or written.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], limit: int | None) -> None:
        self._known: defaultdict[tuple[int, ...], deque[float]] = defaultdict(deque)
        self.plan = [] if limit is None else [limit]
        lines: list[bytes] = []
        if path.exists():
            # What follows the last line break is nothing, or torn.
            lines = path.read_bytes().split(b"\n")[:-1]
            try:
                head = json.loads(lines[0])
                found, plan = dict(head["search"]), [int(end) for end in head["plan"]]
                for subset, value in map(json.loads, lines[1:]):
                    self._known[tuple(subset)].append(float(value))
            # A file of another kind fails in one of these ways: no JSON, not a mapping, missing or malformed fields.
            except (IndexError, ValueError, TypeError, KeyError) as error:
                raise ValueError(f"checkpoint: expected a file of a search, got {path} ({error!r})") from error
            if other := differences(identity, found):
                raise ValueError(
                    f"checkpoint: expected a file of the same problem, got {path}, which differs in "
                    f"{', '.join(other)}; delete it, or give another path"
                )
            self.plan = plan + [end for end in self.plan if plan and end > plan[-1]]
        lines[:1] = [json.dumps({"search": dict(identity), "plan": self.plan}).encode()]
        write(path, b"".join(line + b"\n" for line in lines))
        self._file = path.open("ab")

    def take(self, subset: NDArray[np.int64]) -> float | None:
        """The next value of a subset in the file that was not taken yet; None if there is none."""
        known = self._known.get(tuple(subset.tolist()))
        return known.popleft() if known else None

    def add(self, subset: NDArray[np.int64], value: float) -> None:
        """Write a value."""
        self._file.write(json.dumps([subset.tolist(), value], separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """End writing."""
        self._file.close()


def identity_of(f: Callable[..., Any]) -> dict[str, Any]:
    """What tells a function from others: its name, of a lambda what it does, and what it holds beside its arguments."""
    if not isinstance(f, FunctionType):
        return {"what f holds": f}
    if not _is_local(f):
        return {"f": f}
    return {"f": _description(f), "what f holds": _held(f, [])}


def _is_local(value: Any) -> bool:
    """Whether it is a function that cannot be pickled, as no module has it by its name."""
    return isinstance(value, FunctionType) and ("<locals>" in value.__qualname__ or value.__name__ == "<lambda>")


def _description(f: FunctionType) -> Any:
    name = f"{f.__module__}.{f.__qualname__}"
    # All lambdas have the same name.
    return (name, _instructions(f.__code__)) if f.__name__ == "<lambda>" else name


def _instructions(code: CodeType) -> list[Any]:
    """What a function does, wherever it stands in its file."""
    return [code.co_code, code.co_names, [_constant(one) for one in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _instructions(value)
    # The order of a set is another one in each process.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def _held(f: FunctionType, above: list[FunctionType]) -> dict[str, Any]:
    """Variables of the functions around this one that it uses, by name, and defaults of its arguments."""
    defaults = f.__defaults__, f.__kwdefaults__
    held: dict[str, Any] = {"defaults": defaults} if any(defaults) else {}
    for name, value in inspect.getclosurevars(f).nonlocals.items():
        if _is_local(value):
            held[name] = _description(value), {} if value in [*above, f] else _held(value, [*above, f])
        else:
            held[name] = value.__name__ if inspect.ismodule(value) else value
    return held
