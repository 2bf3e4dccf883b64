import dataclasses
import functools
import gzip
import hashlib
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
    with pytest.raises(ValueError, match=r"expected one of digits, mnist, fashion-mnist, kmnist, or .*, got 'cifar'"):
        datasets.load("cifar")


@pytest.mark.parametrize("how", ["unpacked", "packed anew"])
def test_the_content_counts(idx_set: IdxFactory, how: str) -> None:
    spec, root = idx_set()
    expected = datasets.load_idx(spec, root)
    files = {}
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        file, path = getattr(spec, name), root / spec.folder / f"{name}.gz"
        content = gzip.decompress(path.read_bytes())
        files[name] = dataclasses.replace(file, content=hashlib.md5(content, usedforsecurity=False).hexdigest())
        path.unlink()
        if how == "unpacked":
            path.with_suffix("").write_bytes(content)
        else:
            path.write_bytes(gzip.compress(content, compresslevel=1, mtime=7))
    found = datasets.load_idx(dataclasses.replace(spec, **files), root)
    for part, right in zip(found, expected, strict=True):
        assert all(map(torch.equal, part, right))
    # Without a checksum of the content nobody can tell, and another content is another file.
    with pytest.raises(ValueError, match="md5 checksum"):
        datasets.load_idx(spec, root)
    wrong = dataclasses.replace(files["test_labels"], content="0" * 32)
    with pytest.raises(ValueError, match="md5 checksum"):
        datasets.load_idx(dataclasses.replace(spec, **files | {"test_labels": wrong}), root)


@pytest.mark.parametrize("name", ["digits", "mnist", "own"])
def test_a_variable_that_names_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for path in (tmp_path / "nowhere", tmp_path / "file"):
        (tmp_path / "file").touch()
        monkeypatch.setenv("KSUBSET_DATA", str(path))
        with pytest.raises(OSError, match=f"KSUBSET_DATA: expected a folder with data, got .*{path.name}"):
            datasets.load(name)


def test_addresses_begin_with_encrypted_ones() -> None:
    for source in datasets.SETS.values():
        if isinstance(source.parts, functools.partial):
            assert source.parts.args[0].mirrors[0].startswith("https://")


def own(**replaced: np.ndarray) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    sizes = {"train": 20, "validation": 6, "test": 5}
    arrays = {f"{part}_images": generator.integers(0, 256, (size, 9, 9), np.uint8) for part, size in sizes.items()}
    return arrays | {f"{part}_labels": np.arange(size) % 3 for part, size in sizes.items()} | replaced


@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    arrays = own()
    if kind == "floats":
        arrays |= {name: array / 255 for name, array in arrays.items() if name.endswith("images")}
    np.savez(tmp_path / "mine.npz", **arrays)
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    assert (datasets.find("mine").n, datasets.find("mine").k) == (81, 4)
    data = datasets.load("mine")
    assert (data.label, data.side, data.num_classes, data.k) == ("mine", 9, 3, 4)
    expected = torch.from_numpy(own()["test_images"]).flatten(1).float() / 255
    torch.testing.assert_close(data.test_images, expected)
    assert data.train_labels.tolist() == [number % 3 for number in range(20)]


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"test_images": np.zeros((5, 9, 8), np.uint8)}, r"test_images: expected unsigned bytes or floats of shape"),
        ({"train_images": np.zeros((20, 81), np.uint8)}, r"train_images: .* got uint8 of shape \(20, 81\)"),
        ({"train_images": np.zeros((20, 9, 9), np.int64)}, r"train_images: .* got int64"),
        (
            {"train_images": np.full((20, 9, 9), 255.0)},
            r"train_images: expected grey levels from 0 to 1, got 255 to 255",
        ),
        (
            {"train_images": np.ones((20, 9, 9), np.uint8)},
            r"train_images: expected unsigned bytes .* got none above 1;",
        ),
        (
            {"test_images": np.ones((5, 9, 9), np.uint8)},
            r"test_images: expected unsigned bytes .* got none above 1;",
        ),
        ({"train_images": np.full((20, 9, 9), np.nan)}, r"train_images: expected grey levels from 0 to 1, got nan"),
        ({"test_labels": np.array([0, 1, 2, 0, -1])}, r"test_labels: expected classes from 0 to 2, got -1 to 2"),
        ({"test_labels": np.arange(4)}, r"test_labels: expected int64 of shape \(5,\), .* got .* \(4,\)"),
        ({"test_labels": np.linspace(0, 1, 5)}, r"test_labels: expected integers of shape \(N,\), got float64"),
        ({"test_labels": np.array(["a"] * 5, dtype=object)}, r"expected a file of numpy\.savez"),
    ],
)
def test_a_wrong_file_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "mine.npz", **own(**replaced))
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=message) as caught:
        datasets.load("mine")
    assert "mine" in str(caught.value)


def test_a_file_of_ones_own_that_lacks_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = own()
    del arrays["validation_labels"]
    np.savez(tmp_path / "mine.npz", **arrays)
    (tmp_path / "text.npz").write_text("no archive")
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, arrays["train_images"])
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    for name in ("mine", "text", "single"):
        with pytest.raises(ValueError, match=rf"{name}\.npz: expected a file of numpy\.savez"):
            datasets.find(name)
    with pytest.raises(ValueError, match=r"dataset: expected one of .* got '\.\./mine'"):
        datasets.find("../mine")


def test_a_file_of_ones_own_is_told_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    known = []
    for replaced in ({}, {"test_labels": np.array([1, 1, 2, 0, 1])}, {}):
        np.savez(tmp_path / "mine.npz", **own(**replaced))
        known.append(datasets.find("mine").images)
    assert known[0] == known[2] != known[1]
    assert datasets.find("digits").images is None


def test_a_file_of_ones_own_has_no_published_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    for name in ("MNIST", "KMNIST", "Digits", "digits", "fashion-mnist"):
        np.savez(tmp_path / f"{name}.npz", **own())
        with pytest.raises(ValueError, match=rf"dataset: expected a name that .* got '{name}'; rename .*{name}\.npz"):
            datasets.load(name)


@pytest.mark.parametrize("dtype", [np.longdouble, np.dtype(">f4"), np.float16])
def test_images_of_any_floating_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: np.dtype) -> None:
    arrays = {name: array / 255 if name.endswith("images") else array for name, array in own().items()}
    wide = {name: array.astype(dtype) if name.endswith("images") else array for name, array in arrays.items()}
    np.savez(tmp_path / "mine.npz", **wide)
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    expected = torch.from_numpy(arrays["train_images"].astype(dtype).astype(np.float32)).flatten(1)
    torch.testing.assert_close(datasets.load("mine").train_images, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_official_files(data_folder: Path, name: str) -> None:
    data = datasets.load(name, data_folder)
    assert [len(data.train_images), len(data.validation_images), len(data.test_images)] == [40_000, 10_000, 10_000]
    assert data.test_labels[:4].tolist() == {"mnist": [7, 2, 1, 0], "fashion-mnist": [9, 2, 1, 1]}[name]
    assert (data.train_images.min(), data.train_images.max()) == (0, 1)
