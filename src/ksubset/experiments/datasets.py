"""Data sets by name, as tensors.

A new set is one entry of :data:`SETS`, or a file of one's own, as of :func:`find`.
"""

import functools
import gzip
import hashlib
import itertools
import math
import os
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ksubset._support.extras import require
from ksubset.experiments import own_images

__all__ = ["SETS", "DataSet", "DataSplit", "IdxFile", "IdxSet", "Source", "find", "load", "load_idx"]

_TRAINING, _VALIDATION = 40_000, 10_000


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set before it is loaded.

    Arguments:
        label: name for tables and figures.
        side: pixels along an edge of the square images, ``n = side ** 2``.
        num_classes: number of classes.
        k: number of selected pixels unless a run says otherwise.
    """

    label: str
    side: int
    num_classes: int
    k: int
    items: ClassVar[str] = "pixels"

    @property
    def n(self) -> int:
        return self.side**2


@dataclass(frozen=True)
class DataSplit(DataSet):
    """Images and labels of the three parts, on the CPU.

    Arguments:
        train_images, validation_images, test_images: float32 in [0, 1].
        train_labels, validation_labels, test_labels: int64 in ``[0, num_classes)``.

    Shapes:
        images `(N, n)`, labels `(N,)`.

    Raises:
        ValueError: images or labels are of another kind; the message says which.
    """

    train_images: Tensor
    train_labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def __post_init__(self) -> None:
        for part in ("train", "validation", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.dtype != torch.float32 or images.ndim != 2 or images.shape[1] != self.n:
                raise ValueError(
                    f"{part}_images: expected float32 of shape (N, {self.n}), the pixels of square images of "
                    f"{self.side} x {self.side}, got {images.dtype} of shape {tuple(images.shape)}"
                )
            if len(images) and not (images.min() >= 0 and images.max() <= 1):
                raise ValueError(
                    f"{part}_images: expected grey levels from 0 to 1, got {images.min():.4g} to {images.max():.4g}"
                )
            if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
                raise ValueError(
                    f"{part}_labels: expected int64 of shape ({len(images)},), one for each image, "
                    f"got {labels.dtype} of shape {tuple(labels.shape)}"
                )
            if len(labels) and not (labels.min() >= 0 and labels.max() < self.num_classes):
                raise ValueError(
                    f"{part}_labels: expected classes from 0 to {self.num_classes - 1}, "
                    f"got {int(labels.min())} to {int(labels.max())}"
                )


@dataclass(frozen=True)
class IdxFile:
    """One file of an idx data set.

    Arguments:
        name: file name, the same in a local folder and at every mirror.
        md5: the official checksum of the compressed file.
        content: the checksum of what it holds, for files that were unpacked, or packed anew; None if it is not known.
    """

    name: str
    md5: str
    content: str | None = None


@dataclass(frozen=True)
class IdxSet:
    """A data set published as four gzipped idx files, as MNIST is.

    Arguments:
        folder: sub-folder of the folder that ``KSUBSET_DATA`` names, and of the download cache.
        mirrors: base addresses, tried in this order.
        train_images, train_labels, test_images, test_labels: the files.
        train: number of leading training examples to train on.
        validation: number of training examples after these to validate on.
    """

    folder: str
    mirrors: tuple[str, ...]
    train_images: IdxFile
    train_labels: IdxFile
    test_images: IdxFile
    test_labels: IdxFile
    train: int = _TRAINING
    validation: int = _VALIDATION


@dataclass(frozen=True)
class Source(DataSet):
    """An entry of :data:`SETS`.

    Arguments:
        parts: gives (images, labels) for training, validation and test; its argument is the folder to look in first.
        images: what tells the content of a file of one's own from any other's; None for published sets.
    """

    parts: Callable[[Path | None], list[tuple[Tensor, Tensor]]]
    images: str | None = None


def find(name: str) -> Source:
    """What is known of the data set of this name; the images of published ones are not loaded for it.

    Besides :data:`SETS`, a name may be that of a file of one's own: ``NAME.npz`` in the folder that ``KSUBSET_DATA``
    names, with the arrays ``train_images``, ``train_labels``, and the same for ``validation`` and ``test``. Images
    `(N, side, side)` are of grey levels, unsigned bytes or floats from 0 to 1; labels `(N,)` are integers from 0.
    Subsets have 4 % of the pixels unless a run says otherwise.

    Raises:
        ValueError: the name is unknown, or the file is of another kind; the message says how.
        OSError: ``KSUBSET_DATA`` names no folder.
    """
    if name in SETS:
        return SETS[name]
    folder = _folder()
    if folder is None or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or not (folder / f"{name}.npz").exists():
        raise ValueError(
            f"dataset: expected one of {', '.join(SETS)}, or the name of a file NAME.npz in the folder that "
            f"KSUBSET_DATA names, of letters, digits, '.', '_' and '-', got {name!r}"
        )
    path = folder / f"{name}.npz"
    _check_name(path)
    status = path.stat()
    return _own(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1)
def _own(path: Path, *_version: int) -> Source:
    """The data set of a file; one that has changed since, as its time or size tells, is read anew."""
    parts = own_images.read(path)
    num_classes = 1 + max(int(labels.max(initial=0)) for _, labels in parts)
    side = parts[0][0].shape[1]
    return Source(
        path.stem,
        side,
        num_classes,
        math.ceil(0.04 * side**2),
        lambda _: [_tensors(*part) for part in parts],
        own_images.digest(parts),
    )


def _folder() -> Path | None:
    """The folder that the environment variable names."""
    name = os.environ.get("KSUBSET_DATA")
    if name and not Path(name).is_dir():
        raise NotADirectoryError(f"KSUBSET_DATA: expected a folder with data, got {name}")
    return Path(name) if name else None


def load(name: str, root: str | os.PathLike[str] | None = None) -> DataSplit:
    """Load a data set.

    Files are looked for in ``root``, by default the folder that the environment variable ``KSUBSET_DATA`` names, and
    downloaded into the user's cache if they are not there.

    Raises:
        ValueError: the name is unknown, or a file is damaged.
        ImportError: a download is needed and pooch is missing, or scikit-learn for the digits.
        OSError: ``KSUBSET_DATA`` names no folder, or a download is needed and fails.
    """
    source = find(name)
    folder = _folder() if root is None else Path(root)
    if folder is not None and (folder / f"{name}.npz").exists():
        _check_name(folder / f"{name}.npz")
    parts = source.parts(folder)
    try:
        return DataSplit(source.label, source.side, source.num_classes, source.k, *itertools.chain(*parts))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _check_name(path: Path) -> None:
    """Refuse a file of one's own that has the name of another data set."""
    if path.stem.lower() in (source.label.lower() for source in SETS.values()):
        raise ValueError(
            f"dataset: expected a name that tables and figures do not have for another data set, got {path.stem!r}; "
            f"rename {path}"
        )


def load_idx(spec: IdxSet, root: Path | None) -> list[tuple[Tensor, Tensor]]:
    """Images `(N, n)` and labels `(N,)` of training, validation and test, from the four files of ``spec``.

    The training file is split by order, as the paper gives the sizes but not the choice; what is left is not used.

    Raises:
        ValueError: a file is damaged, or the files do not belong together.
        ImportError: a download is needed and pooch is missing.
        OSError: a download is needed and fails.
    """
    images, labels = _pair(spec, spec.train_images, spec.train_labels, root)
    cut, stop = spec.train, spec.train + spec.validation
    if len(images) < stop:
        raise ValueError(f"{spec.train_images.name}: expected at least {stop} images, got {len(images)}")
    return [
        (images[:cut], labels[:cut]),
        (images[cut:stop], labels[cut:stop]),
        _pair(spec, spec.test_images, spec.test_labels, root),
    ]


def _pair(spec: IdxSet, image_file: IdxFile, label_file: IdxFile, root: Path | None) -> tuple[Tensor, Tensor]:
    image_path, label_path = _locate(spec, image_file, root), _locate(spec, label_file, root)
    images = _parse(image_path, _read(image_path, image_file), dims=3)
    labels = _parse(label_path, _read(label_path, label_file), dims=1)
    if len(images) != len(labels):
        raise ValueError(
            f"{label_path}: expected one label for each of the {len(images)} images of {image_path.name}, "
            f"got {len(labels)}; {_way_out(label_path)}"
        )
    return _tensors(images, labels)


def _tensors(images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    is_bytes = images.dtype == np.uint8
    # Not every floating dtype of numpy has one of torch.
    pixels = torch.from_numpy(images if is_bytes else images.astype(np.float32)).flatten(1).float()
    return pixels / 255 if is_bytes else pixels, torch.from_numpy(labels.astype(np.int64))


def _locate(spec: IdxSet, file: IdxFile, root: Path | None) -> Path:
    """Path of a file: in ``root`` if it lies there, packed or not, else in the cache, downloaded where necessary."""
    if root is not None:
        path = root / spec.folder / file.name
        for found in (path, path.with_suffix("")):
            if found.exists():
                return found
    pooch = require("pooch")
    cache = pooch.os_cache("ksubset") / spec.folder
    failures = []
    for mirror in spec.mirrors:
        url = mirror + file.name
        try:
            path = pooch.retrieve(url, known_hash=f"md5:{file.md5}", fname=file.name, path=cache, progressbar=False)
            return Path(path)
        # pooch lets the errors of its transport through: OSError covers those of requests and urllib, ValueError is
        # a checksum that does not fit (a mirror may answer with a page that says sorry).
        except (OSError, ValueError) as error:
            failures.append(f"{url} ({type(error).__name__}: {error})")
    looked = "" if root is None else f"; nor is it at {root / spec.folder / file.name}"
    raise OSError(
        f"cannot download {file.name}: {'; '.join(failures)}{looked}. Without a network, put the file into the folder "
        f"{spec.folder}/ of a folder of your choice and name the latter in the environment variable KSUBSET_DATA"
    )


def _way_out(path: Path) -> str:
    return f"delete {path} and fetch it anew"


def _read(path: Path, file: IdxFile) -> bytes:
    """The uncompressed content; its checksum is verified, or that of the file."""
    packed = path.read_bytes()
    md5 = _md5(packed)
    try:
        content = gzip.decompress(packed) if path.suffix == ".gz" else packed
    except (OSError, EOFError, zlib.error) as error:
        if md5 == file.md5:
            raise ValueError(f"{path}: expected a gzip file, got {error}; {_way_out(path)}") from error
        content = b""
    if md5 != file.md5 and (file.content is None or _md5(content) != file.content):
        raise ValueError(
            f"{path}: expected the md5 checksum {file.md5}, or {file.content} of the content, got {md5} "
            f"({len(packed)} bytes): the file is damaged, incomplete or another one; {_way_out(path)}"
        )
    return content


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _parse(path: Path, content: bytes, dims: int) -> np.ndarray:
    """The array of an idx file of unsigned bytes: magic number 0x08 and ``dims``, the sizes, then the values."""
    head = 4 + 4 * dims
    magic = 0x0800 + dims
    if len(content) < head:
        raise ValueError(f"{path}: expected an idx header of {head} bytes, got {len(content)}; {_way_out(path)}")
    found, *shape = struct.unpack(f">{1 + dims}I", content[:head])
    if found != magic:
        raise ValueError(f"{path}: expected the idx magic number {magic}, got {found}; {_way_out(path)}")
    if len(content) - head != math.prod(shape):
        raise ValueError(
            f"{path}: expected {math.prod(shape)} values after the header (shape {tuple(shape)}), "
            f"got {len(content) - head}; {_way_out(path)}"
        )
    # A copy, because torch warns of arrays it may not write to.
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape).copy()


def _digits(_: Path | None) -> list[tuple[Tensor, Tensor]]:
    """scikit-learn's 1,797 digits: two thirds, one sixth, one sixth, after a fixed permutation."""
    bunch = require("sklearn.datasets").load_digits()
    images = torch.from_numpy(bunch.data).float() / 16
    labels = torch.from_numpy(bunch.target).long()
    # The file is ordered by writer: without a permutation the test set would hold writers never seen in training.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    third, sixth = len(images) // 3, len(images) // 6
    sizes = [len(images) - third, sixth, third - sixth]
    return [(images[part], labels[part]) for part in order.split(sizes)]


def _like_mnist(
    label: str,
    folder: str,
    mirrors: tuple[str, ...],
    md5s: tuple[str, ...],
    contents: tuple[str | None, ...] = (None,) * 4,
) -> Source:
    """A set of 28x28 images in ten classes under MNIST's file names; checksums in the order of the fields of IdxSet."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    a, b, c, d = map(IdxFile, [f"{name}-ubyte.gz" for name in names], md5s, contents)
    spec = IdxSet(folder, mirrors, train_images=a, train_labels=b, test_images=c, test_labels=d)
    return Source(label, 28, 10, 30, functools.partial(load_idx, spec))


SETS = {
    "digits": Source("Digits", 8, 10, 10, _digits),
    "mnist": _like_mnist(
        "MNIST", "mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
         "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
        ("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
         "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
    ),
    "fashion-mnist": _like_mnist(
        "Fashion-MNIST", "fashion_mnist",
        ("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
         "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
         "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
        ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
         "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
    ),
    "kmnist": _like_mnist(
        "KMNIST", "kmnist",
        ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
        ("bdb82020997e1d708af4cf47b453dcf7", "e144d726b3acfaa3e44228e80efcd344",
         "5c965bf0a639b31b8f53240b1b52f4d7", "7320c461ea6c1c855c0b718fb2a4b134"),
    ),
}  # fmt: skip
