"""Records made by hand, and small idx files."""

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ksubset.experiments import protocols
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import IdxFile, IdxSet
from ksubset.experiments.methods import METHODS
from ksubset.experiments.records import Record

LABELS = {
    "digits": "Digits",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "kmnist": "KMNIST",
}


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """All experiments here are tiny."""


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A finished record of a configuration; keywords are fields of the record or of the configuration."""

    def make(test: dict[str, float] | None = None, **fields: object) -> Record:
        own = {name: fields.pop(name) for name in Record.__dataclass_fields__ if name in fields}
        config = RunConfig(**{"k": 30, **fields})
        names = ("accuracy",) if config.task == "classification" else ("psnr", "ssim")
        values = test or dict.fromkeys(names, 0.5)
        pixels = [list(range(64))] * 3 if config.task == "reconstruction" else []
        history = [
            {
                "epoch": epoch,
                "loss": 1.0 / epoch,
                "train": values,
                "validation": values,
                "evaluations": 100 * config.samples,
                "seconds": 2.0,
            }
            for epoch in (1, 2, 3)
        ]
        return Record(
            **{
                "config": config,
                "labels": {
                    "task": config.task.capitalize(),
                    "dataset": LABELS[config.dataset],
                    "method": METHODS[config.method].label,
                },
                "status": "finished",
                "history": history,
                "test": values,
                "seconds_total": 90.0,
                "seconds_per_epoch": 2.0,
                "side": 8,
                "selected": list(range(30)),
                "inclusion": [30 / 64] * 64,
                "originals": pixels,
                "reconstructions": pixels,
                "versions": {"python": "3.11"},
                "device": "Abacus, 2 threads",
                "commit": None,
                "timestamp": "2026-01-01T00:00:00+00:00",
                **own,
            }
        )

    return make


@pytest.fixture
def best(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, object]]:
    """Settings of the protocol best by method, the same for both tasks."""
    settings: dict[str, dict[str, object]] = {
        "gs": {"network_lr": 1e-3},
        "sfess-v": {"subsets_per": "example", "lr_schedule": "cosine"},
    }
    monkeypatch.setattr(protocols, "_best", lambda: {"classification": settings, "reconstruction": settings})
    return settings


def pack(values: np.ndarray, magic: int | None = None) -> bytes:
    """Unsigned bytes in the format of MNIST's files."""
    head = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim if magic is None else magic, *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def idx_set(tmp_path: Path) -> Callable[..., tuple[IdxSet, Path]]:
    """Writes a small data set of 28x28 images under a folder and gives its description, checksums included."""

    def make(**replaced: bytes) -> tuple[IdxSet, Path]:
        generator = np.random.default_rng(0)
        contents = {
            "train_images": pack(generator.integers(0, 256, (12, 28, 28))),
            "train_labels": pack(np.arange(12) % 10),
            "test_images": pack(generator.integers(0, 256, (5, 28, 28))),
            "test_labels": pack(np.arange(5)),
        } | replaced
        folder = tmp_path / "data" / "kmnist"
        folder.mkdir(parents=True)
        files = {}
        for name, content in contents.items():
            (folder / f"{name}.gz").write_bytes(content)
            files[name] = IdxFile(f"{name}.gz", hashlib.md5(content, usedforsecurity=False).hexdigest())
        spec = IdxSet("kmnist", ("http://first.invalid/", "http://second.invalid/"), **files, train=8, validation=3)
        return spec, folder.parent

    return make
