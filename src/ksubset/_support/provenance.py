"""Where a number comes from: the commit, the versions and the device behind it."""

import platform
import subprocess
from pathlib import Path
from types import ModuleType

import torch

from ksubset._support.markdown import quantity

__all__ = ["commit", "device_name", "versions"]


def commit() -> str | None:
    """The commit of this source tree, ``-dirty`` appended if it was changed; None if it is not under version control,
    or git is missing.
    """
    file = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installed copy may lie inside somebody else's repository.
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def versions(*modules: ModuleType) -> dict[str, str]:
    """Versions of Python and of some modules, by name."""
    return {"python": platform.python_version(), **{module.__name__: module.__version__ for module in modules}}


def device_name(device: torch.device) -> str:
    """The GPU, or the CPU and the number of threads: ``Abacus 3, 2 threads``."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {quantity(torch.get_num_threads(), 'thread')}"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():  # Linux, where platform.processor() knows the architecture at best
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown CPU"
