import os
import tempfile
from pathlib import Path

import pytest

from ksubset._support import files


class Killed(BaseException):
    """The end of the process, as far as a test can stage it: no handler of errors sees it."""


def test_a_folder_is_made(tmp_path: Path) -> None:
    folder = files.prepare(tmp_path / "new" / "folder")
    assert folder.is_dir()
    assert not list(folder.iterdir())
    assert files.prepare(str(folder)) == folder


def test_a_file_is_no_folder_for_records(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(OSError, match=r"out: expected a folder to write into, got .*file"):
        files.prepare(path)


def test_a_read_only_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=r"out: expected a folder .*read-only"):
        files.prepare(tmp_path)


def test_a_file_is_written_over_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"long content", b"short", b""):
        files.write(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), Killed()], ids=repr)
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failed_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    files.write(path, b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(*((os, "fsync") if where == "fsync" else (Path, "replace")), fail)
    with pytest.raises(type(error)) as caught:
        files.write(path, b"new")
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert str(caught.value) == f"{path}: cannot be written, what was there is kept (disk full)"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"missing/file: cannot be written"):
        files.write(tmp_path / "missing" / "file", b"")


def test_nobody_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write(path, b"old")
    seen = []
    original = os.fsync

    def look(descriptor: int) -> None:
        seen.append(path.read_bytes())
        original(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    files.write(path, b"new")
    assert (seen, path.read_bytes()) == ([b"old"], b"new")
