"""Keys on their way to OpenSSL."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ottla.pem_file import pem_file


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory")
def test_no_disk_gets_to_see_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pem_file("a key") as path:
        assert Path(path).read_text() == "a key"
        assert list(tmp_path.iterdir()) == []
    assert not Path(path).exists()


def test_without_files_in_memory_it_is_this_users_and_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr("os.memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pem_file("a key") as path:
        assert Path(path).read_text() == "a key"
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []
