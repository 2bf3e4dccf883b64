"""What benchmarks share: timing, naming the machine, and going on where they were ended."""

import json
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer

import ksubset
from ksubset._support.files import write

__all__ = ["device", "machine", "resumed", "seconds"]


def device() -> torch.device:
    """CUDA if it is there."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds(work: Callable[[], object], min_run_time: float = 1.0) -> float:
    """Median wall-clock seconds of one call, after a warm-up, on all threads; waits for the device."""
    work()
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=min_run_time).median


def machine() -> str:
    """One line that says what the numbers were measured on."""
    if device().type == "cuda":
        name = torch.cuda.get_device_name()
    else:
        info = Path("/proc/cpuinfo")
        lines = info.read_text().splitlines() if info.exists() else []
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), None)
        threads = torch.get_num_threads()
        name = f"{model or platform.processor()}, {threads} thread{'' if threads == 1 else 's'}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, ksubset {ksubset.__version__}"
    return f"{name}; {versions}"


def resumed(path: Path, keys: Iterable[tuple[str, int]], run: Callable[[str, int], dict[str, Any]]) -> None:
    """Run each row and seed that the file does not have yet, by "row/seed"; it is written after each."""
    results = json.loads(path.read_text()) if path.exists() else {}
    for row, seed in keys:
        if (key := f"{row}/{seed}") not in results:
            results[key] = run(row, seed)
            write(path, json.dumps(results, indent=1).encode())
            print(key, {name: round(value, 3) for name, value in results[key].items()}, flush=True)
