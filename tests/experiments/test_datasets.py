import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ksubset.experiments import datasets

from .conftest import pack

IdxFactory = Callable[..., tuple[datasets.IdxSet, Path]]


def test_digits() -> None:
    data = datasets.load("digits")
    parts = [data.train_images, data.validation_images, data.test_images]
    labels = [data.train_labels, data.validation_labels, data.test_labels]
    assert [len(part) for part in parts] == [len(part) for part in labels] == [1198, 299, 300]
    assert (data.side, data.num_classes, data.k) == (8, 10, 10)
    every = torch.cat(parts)
    assert every.shape == (1797, 64)
    assert every.dtype == torch.float32
    assert (every.min(), every.max()) == (0, 1)
    assert torch.cat(labels).unique().tolist() == list(range(10))
    # scikit-learn's set has no two equal images, so equal rows across parts would be a leak.
    assert len(every.unique(dim=0)) == 1797


def test_digits_are_the_same_every_time() -> None:
    assert torch.equal(datasets.load("digits").test_images, datasets.load("digits").test_images)


def test_idx_files(idx_set: IdxFactory) -> None:
    spec, root = idx_set()
    (train_x, train_y), (validation_x, validation_y), (test_x, test_y) = datasets.load_idx(spec, root)
    raw = np.random.default_rng(0).integers(0, 256, (12, 28, 28))
    assert train_x.shape == (8, 784)
    assert train_x.dtype == torch.float32
    torch.testing.assert_close(train_x, torch.tensor(raw[:8].reshape(8, 784) / 255, dtype=torch.float32))
    torch.testing.assert_close(validation_x, torch.tensor(raw[8:11].reshape(3, 784) / 255, dtype=torch.float32))
    assert train_y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert validation_y.tolist() == [8, 9, 0]
    assert test_x.shape == (5, 784)
    assert test_y.tolist() == [0, 1, 2, 3, 4]
    assert test_y.dtype == torch.int64


def test_kmnist_goes_the_same_way(idx_set: IdxFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, root = idx_set()
    entry = datasets.Source("KMNIST", 28, 10, 30, lambda folder: datasets.load_idx(spec, folder))
    monkeypatch.setitem(datasets.SETS, "kmnist", entry)
    monkeypatch.setenv("KSUBSET_DATA", str(root))
    data = datasets.load("kmnist")
    assert (data.label, data.side, data.k) == ("KMNIST", 28, 30)
    assert [len(data.train_labels), len(data.validation_labels), len(data.test_labels)] == [8, 3, 5]


def test_a_truncated_file_fails_its_checksum(idx_set: IdxFactory) -> None:
    spec, root = idx_set()
    path = root / spec.folder / "train_images.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="md5 checksum") as caught:
        datasets.load_idx(spec, root)
    message = str(caught.value)
    assert str(path) in message
    assert spec.train_images.md5 in message
    assert "fetch it anew" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not gzip at all", "expected a gzip file"),
        (pack(np.zeros((12, 28, 28)))[:-30], "expected a gzip file"),
        (pack(np.zeros((12, 28, 28)), magic=2049), "expected the idx magic number 2051, got 2049"),
        (gzip.compress(b"\0\0\10", mtime=0), "expected an idx header of 16 bytes, got 3"),
        (gzip.compress(gzip.decompress(pack(np.zeros((12, 28, 28))))[:-1], mtime=0), "expected 9408 values .*got 9407"),
    ],
)
def test_a_wrong_content_is_named(idx_set: IdxFactory, content: bytes, message: str) -> None:
    spec, root = idx_set(train_images=content)
    with pytest.raises(ValueError, match=message) as caught:
        datasets.load_idx(spec, root)
    assert "train_images.gz" in str(caught.value)


def test_labels_must_match_images(idx_set: IdxFactory) -> None:
    spec, root = idx_set(test_labels=pack(np.arange(4)))
    with pytest.raises(ValueError, match=r"one label for each of the 5 images of test_images\.gz, got 4"):
        datasets.load_idx(spec, root)


def test_too_few_images_for_the_split(idx_set: IdxFactory) -> None:
    spec, root = idx_set(train_images=pack(np.zeros((10, 28, 28))), train_labels=pack(np.arange(10)))
    with pytest.raises(ValueError, match="expected at least 11 images, got 10"):
        datasets.load_idx(spec, root)


def test_without_network(idx_set: IdxFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, root = idx_set()
    (root / spec.folder / "test_labels.gz").unlink()

    def retrieve(url: str, **_: object) -> str:
        raise ConnectionError(f"no route to {url}")

    monkeypatch.setattr("pooch.retrieve", retrieve)
    with pytest.raises(OSError, match=r"cannot download test_labels\.gz") as caught:
        datasets.load_idx(spec, root)
    message = str(caught.value)
    assert "http://first.invalid/test_labels.gz" in message
    assert "http://second.invalid/test_labels.gz" in message
    assert "KSUBSET_DATA" in message


def test_the_second_mirror_helps(idx_set: IdxFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, root = idx_set()

    def retrieve(url: str, known_hash: str, fname: str, **_: object) -> str:
        if "first" in url:
            raise ValueError("checksum")
        assert known_hash.startswith("md5:")
        return str(root / spec.folder / fname)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    assert len(datasets.load_idx(spec, None)[2][0]) == 5


def test_pooch_is_needed_for_downloads_only(idx_set: IdxFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, root = idx_set()
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert len(datasets.load_idx(spec, root)) == 3
    with pytest.raises(ImportError, match=r"pooch is not installed.*ksubset\[experiments\]"):
        datasets.load_idx(spec, None)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="expected one of digits, mnist, fashion-mnist, kmnist, got 'cifar'"):
        datasets.load("cifar")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_official_files(data_folder: Path, name: str) -> None:
    data = datasets.load(name, data_folder)
    assert [len(data.train_images), len(data.validation_images), len(data.test_images)] == [40_000, 10_000, 10_000]
    assert data.test_labels[:4].tolist() == {"mnist": [7, 2, 1, 0], "fashion-mnist": [9, 2, 1, 1]}[name]
    assert (data.train_images.min(), data.train_images.max()) == (0, 1)
