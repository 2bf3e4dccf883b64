"""Wheel and sdist, each installed alone in an empty environment, one after the other: `make release`.

Usage: python tests/release/check_archives.py DIST [--extras]

The core must import torch and nothing else that torch has not brought, say in one line what its command lacks, and be
typed for a type checker outside. `--extras` installs each extra of the wheel in an environment of its own, too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTS = """
import sys, warnings
warnings.simplefilter("ignore")  # torch warns where there is no NumPy
import torch
before = set(sys.modules)
warnings.simplefilter("error")
import ksubset
brought = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(brought - {"ksubset"} - set(sys.stdlib_module_names)))
"""
TYPED = """
import torch
from ksubset import KSubset
reveal_type(KSubset(2, torch.zeros(4)).mean)
reveal_type(KSubset(2, torch.zeros(4)).sample())
"""
EXTRAS = {
    "fast": "from ksubset import KSubset; import numba, torch; KSubset(2, torch.zeros(9)).sample((3,))",
    "search": "from ksubset.search import minimize; minimize(lambda s: s.sum(), 9, 2, max_evaluations=50)",
    "selection": "import ksubset.selection, ksubset.regression, ksubset.design, ksubset.equations",
    "stats": "import ksubset.stats",
    "experiments": "import ksubset.experiments.records, ksubset.lab",
}


def call(*command: object, code: int = 0) -> str:
    """What a command prints; an error with it if it ends otherwise than it should."""
    # With PYTHONPATH the source might be found in place of what is installed.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=variables)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def environment(folder: Path, package: str) -> Path:
    """A new environment with a package and what it needs; returns its Python."""
    call(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", package)
    return python


def check_core(python: Path, folder: Path) -> None:
    if brought := call(python, "-c", IMPORTS).strip():
        raise SystemExit(f"import ksubset also imports {brought}")
    example = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    seed = "import torch; torch.manual_seed(0); torch.set_num_threads(1)"
    if "tensor([ 3,  7, 11])" not in (printed := call(python, "-c", f"{seed}\n{example}")):
        raise SystemExit(f"the example of the README printed {printed}")
    command = python.with_name("ksubset")
    *_, line = call(command, code=1).splitlines()
    print(f"{call(command, '--version').splitlines()[0]}; without extras: {line}")
    outside = folder / "outside.py"
    outside.write_text(TYPED, encoding="utf-8")
    options = ["--strict", "--cache-dir", folder / "mypy", "--python-executable", python]
    types = call(sys.executable, "-m", "mypy", *options, outside)
    if types.count('Revealed type is "torch._tensor.Tensor"') != 2:
        raise SystemExit(f"types from outside: {types}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--extras", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (wheel,), (sdist,) = arguments.dist.glob("*.whl"), arguments.dist.glob("*.tar.gz")
        python = environment(folder / "core", str(wheel))
        for archive in (wheel, sdist):
            call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", archive)
            check_core(python, folder)
            print(f"{archive.name}: {archive.stat().st_size / 1e3:,.0f} kB, the core works alone", flush=True)
        for extra, code in EXTRAS.items() if arguments.extras else ():
            call(environment(folder / extra, f"{wheel}[{extra}]"), "-W", "error", "-c", code)
            print(f"{wheel.name}[{extra}] works alone", flush=True)


if __name__ == "__main__":
    main()
