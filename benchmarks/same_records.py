"""Compare two folders of records field by field: what `ksubset run` made before and after a change of the code.

Times, and where and with what version a run was made, do not count; everything else must be the same to the last bit.

Usage: python benchmarks/same_records.py FOLDER_A FOLDER_B

Prints what differs, in which record; the exit code is 1 if anything does, or a record is in one folder only.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ELSEWHERE = {"seconds", "seconds_total", "seconds_per_epoch", "timestamp", "commit", "versions", "device"}


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Where two values differ, as paths like `history[3].loss`, with both."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in sorted((a.keys() | b.keys()) - _ELSEWHERE):
            inner = f"{path}.{name}".lstrip(".")
            if name in a and name in b:
                yield from differences(a[name], b[name], inner)
            else:
                yield f"{inner}: only in the {'first' if name in a else 'second'}"
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif json.dumps(a) != json.dumps(b):  # so that NaN is NaN
        yield f"{path}: {json.dumps(a)[:60]} and {json.dumps(b)[:60]}"


def main(first: str, second: str) -> int:
    """Compare; gives the exit code."""
    folders = [{path.name: path for path in Path(folder).glob("*.json")} for folder in (first, second)]
    found = [f"{name}: only in one folder" for name in sorted(folders[0].keys() ^ folders[1].keys())]
    both = sorted(folders[0].keys() & folders[1].keys())
    for name in both:
        one, other = (json.loads(folder[name].read_text()) for folder in folders)
        found += [f"{name}: {line}" for line in differences(one, other)]
    print(*found, f"{len(both)} records compared, {len(found)} differences", sep="\n")
    return 1 if found or not both else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
