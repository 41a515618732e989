"""Where one sync of a whole file system may be trusted, and what becomes of its errors."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.storage.files import volume as volume_module
from ottla.storage.files.files import OsFiles
from ottla.storage.files.volume import OsVolume, is_sure, open_volume


class Library:
    """A C library whose `syncfs` gives `error` (0: it succeeds)."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.synced: list[int] = []
        self.meanwhile: Callable[[], None] | None = None

    def syncfs(self, fd: int) -> int:
        self.synced.append(fd)
        if self.meanwhile is not None:
            self.meanwhile()
        ctypes.set_errno(self.error)
        return -1 if self.error else 0


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file where `syncfs` counts as sure."""
    monkeypatch.setattr(volume_module, "file_system_type", lambda device: "ext4")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", release="6.1.0-13-amd64"))
    path = tmp_path / "meta.properties"
    path.write_text("version=1\n")
    return path


def opened(file: Path, library: Library) -> OsVolume:
    volume = open_volume(file, library)
    assert volume is not None
    return volume


@pytest.mark.parametrize(
    ("system", "release", "file_system", "expected"),
    [
        ("Linux", "5.17.0", "ext4", True),
        ("Linux", "5.16.20", "ext4", False),
        ("Linux", "5.8.0-generic", "xfs", False),
        ("Linux", "6.1.0-13-amd64", "xfs", True),
        ("Linux", "10.2", "ext4", True),
        ("Linux", "4.19.0", "ext4", False),
        ("Linux", "6.18.44", "btrfs", False),
        ("Linux", "6.18.44", "overlay", False),
        ("Linux", "6.18.44", "tmpfs", False),
        ("Linux", "6.18.44", "ext3", False),
        ("Linux", "6.18.44", "", False),
        ("Linux", "unknown", "ext4", False),
        ("Darwin", "23.1.0", "ext4", False),
    ],
)
def test_only_where_the_kernel_reports_all_errors_is_it_sure(
    system: str, release: str, file_system: str, expected: bool
) -> None:
    assert is_sure(system, release, file_system) is expected


def test_a_kernel_or_a_c_library_that_is_not_sure_gives_no_volume(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_volume(file, SimpleNamespace()) is None
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", release="5.15.0"))
    assert open_volume(file, Library()) is None


def test_a_success_is_one_syncfs_of_the_same_descriptor_each_time_and_empties_the_disks_cache(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    volume = opened(file, library)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    volume.sync()
    volume.sync()
    assert len(library.synced) == 2
    assert len(set(library.synced)) == 1
    assert flushed == library.synced


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_an_error_of_syncfs_is_raised_with_the_path(file: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = opened(file, Library(error))
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    with pytest.raises(OSError, match=os.strerror(error)) as caught:
        volume.sync()
    assert (caught.value.errno, caught.value.filename) == (error, str(file))
    assert flushed == []


def test_a_cache_that_cannot_be_emptied_is_a_failed_sync(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", lost)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        opened(file, Library()).sync()


def test_a_file_system_that_has_become_read_only_is_a_failed_sync(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel skips the sync then, and reports success."""
    monkeypatch.setattr(os, "fstatvfs", lambda fd: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(OSError, match="read-only") as caught:
        opened(file, Library()).sync()
    assert caught.value.errno == errno.EROFS


def test_a_volume_that_is_closed_during_its_sync_ends_it_on_its_own_descriptor(file: Path) -> None:
    """A number that another file has got meanwhile would be asked in its place."""
    library = Library()
    volume = opened(file, library)
    open_at_the_end: list[str] = []

    def close() -> None:
        volume.close()
        open_at_the_end.append(os.readlink(f"/proc/self/fd/{library.synced[0]}"))

    library.meanwhile = close
    volume.sync()
    assert open_at_the_end == [str(file)]
    with pytest.raises(OSError, match="closed"):
        volume.sync()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(library.synced[0])


def test_the_real_one_syncs_where_it_is_sure_and_files_know_what_it_covered(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=1)
    file = files.open(tmp_path / "log", create=True)
    volume = files.open_volume(tmp_path / "log")
    if volume is None:  # another file system, or an old kernel: `fdatasync` it is
        file.fdatasync()
        return
    file.pwritev([b"abc"], 0)
    writes = file.writes
    volume.sync()
    file.note_synced(writes)
    handle = file._descriptor
    assert handle is not None
    assert not handle.pinned
    volume.close()


def test_a_write_behind_the_sync_of_the_volume_keeps_the_descriptor(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=1)
    file = files.open(tmp_path / "log", create=True)
    file.pwritev([b"abc"], 0)
    writes = file.writes
    file.pwritev([b"d"], 3)
    file.note_synced(writes)
    handle = file._descriptor
    assert handle is not None
    assert handle.pinned
    file.note_synced(file.writes)
    assert not handle.pinned


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no second file system to link to")
def test_a_file_behind_a_link_to_another_disk_is_not_of_the_volume(file: Path) -> None:
    elsewhere = Path(tempfile.mkdtemp(prefix="ottla-test-", dir="/dev/shm"))
    try:
        (file.parent / "t-0").symlink_to(elsewhere)
        (file.parent / "t-1").mkdir()
        files = OsFiles()
        volume = opened(file, Library())
        linked, own = (
            files.open(file.parent / directory / "00000000000000000000.log", create=True)
            for directory in ("t-0", "t-1")
        )
        assert own.device == volume.device
        assert linked.device == os.stat(elsewhere).st_dev
        linked.close()
        own.close()
    finally:
        shutil.rmtree(elsewhere)
