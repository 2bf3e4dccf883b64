"""What `import ksubset` costs beside `import zuko`: processor seconds, modules and bytes, both on top of torch.

Usage: python benchmarks/imports.py [--repeats 10] (with zuko installed: pip install --no-deps zuko)
"""

import argparse
import importlib.metadata
import statistics
import subprocess
import sys

from timing import machine

CODE = """
import sys, time
import torch
before, start = set(sys.modules), time.process_time()
import {name}
print(time.process_time() - start, len(set(sys.modules) - before))
"""


def imported(name: str) -> tuple[float, int]:
    """Seconds, and modules that torch had not brought."""
    done = subprocess.run([sys.executable, "-c", CODE.format(name=name)], capture_output=True, text=True, check=True)
    seconds, modules = done.stdout.split()
    return float(seconds), int(modules)


def size(name: str) -> int:
    """Bytes of the source files of a package."""
    module = __import__(name)
    folder = module.__path__[0]
    command = "import pathlib, sys; print(sum(p.stat().st_size for p in pathlib.Path(sys.argv[1]).rglob('*.py')))"
    return int(subprocess.run([sys.executable, "-c", command, folder], capture_output=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    names = ("ksubset", "zuko")
    # In turn, so that what else the machine does meets both.
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            found[name].append(imported(name))
    print(f"# Import\n\n{machine()}, zuko {importlib.metadata.version('zuko')}\n")
    print(f"Medians of {repeats} processes in turn, after torch was imported.\n")
    print("| | processor ms | modules | source files, kB |\n| --- | --- | --- | --- |")
    for name in names:
        seconds = statistics.median(one[0] for one in found[name])
        print(f"| import {name} | {1e3 * seconds:.0f} | {found[name][0][1]} | {size(name) / 1e3:.0f} |")


if __name__ == "__main__":
    main()
