"""From a clone to a first result for each door of the documentation's front page, timed.

Usage: python tests/release/time_doors.py > benchmarks/results/doors-cpu.md

Each door has an environment of its own, into which a fresh clone is installed with what its section says, and then
runs the section's example. Wall-clock seconds; downloads are as fast as the network, or the disk, that pip has.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALLED = {
    "A subset layer in a network": ".", "The best k columns for any model": ".[selection]",
    "Explain a model": ".[selection]", "Conditional logistic regression": ".[stats]",
}  # fmt: skip


def timed(*command: str, folder: Path) -> float:
    start = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def main() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    print(
        f"# From a clone to a first result\n\n{os.cpu_count()} cores, Python {sys.version.split()[0]}; wall seconds\n"
    )
    print("| door | clone | environment and install | example | in all |\n| --- | --- | --- | --- | --- |")
    for door, package in INSTALLED.items():
        (example,) = re.findall(rf"### {door}\n.*?```python\n(.*?)```", page, re.DOTALL)
        # The last door goes on with what the one before has imported and seeded.
        if door == "Conditional logistic regression":
            example = f"import numpy as np\nrng = np.random.default_rng(0)\n{example}"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cloned = timed("git", "clone", "--quiet", str(ROOT), "clone", folder=folder)
            clone = folder / "clone"
            installed = timed(sys.executable, "-m", "venv", ".venv", folder=clone)
            constraints = ("--constraint", "constraints.txt", "--quiet")
            installed += timed(".venv/bin/pip", "install", *constraints, package, folder=clone)
            ran = timed(".venv/bin/python", "-c", example, folder=clone)
        total = cloned + installed + ran
        print(f"| {door} | {cloned:.0f} | {installed:.0f} | {ran:.0f} | {total:.0f} |", flush=True)


if __name__ == "__main__":
    main()
