"""What all benchmarks share: timing, and naming the machine."""

import platform
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

import ksubset

__all__ = ["device", "machine", "seconds"]


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
