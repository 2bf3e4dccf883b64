import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ksubset._support import provenance


def test_the_commit_of_a_source_tree_without_git_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "copy.py"
    copy.touch()
    monkeypatch.setattr(provenance, "__file__", str(copy))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert provenance.commit() is None  # within a repository that does not know it
    subprocess.run(["git", "-C", str(tmp_path), "add", copy.name], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    subprocess.run(["git", "-C", str(tmp_path), *who, "commit", "--quiet", "--message", "first"], check=True)
    commit = provenance.commit()
    assert commit is not None
    assert len(commit) == 40
    copy.write_text("changed")
    assert provenance.commit() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() is None


def test_versions_and_device() -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    assert provenance.versions(torch) == {"python": python, "torch": torch.__version__}
    threads = torch.get_num_threads()
    assert provenance.device_name(torch.device("cpu")).endswith(f", {threads} thread{'s' * (threads > 1)}")
