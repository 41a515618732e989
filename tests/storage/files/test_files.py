"""The same promises hold for the operating system's files and for the simulated ones that stand in for them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from kit.simulated_files import SimulatedFiles

from ottla.storage.files.files import IOV_MAX, Files, OsFiles, PartialWrite, write_all


@pytest.fixture(params=["os", "simulated"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles() if request.param == "os" else SimulatedFiles()


@pytest.fixture
def root(files: Files, tmp_path: Path) -> Path:
    files.make_directory(tmp_path, parents=True)
    return tmp_path


def test_what_is_written_is_read(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    assert file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"ef")], 0) == 6
    assert file.pread(4, 1) == b"bcde"
    assert file.pread(100, 4) == b"ef"
    assert file.pread(1, 6) == b""
    assert file.size() == 6
    assert bytes(file.pread_nowait(6, 0) or b"") == b"abcdef"
    assert bytes(file.map(5)) == b"abcde"
    assert bytes(file.resident_view(2, 3) or b"") == b"cde"


def test_a_small_file_is_written_anew(files: Files, root: Path) -> None:
    files.write_new(root / "a", b"abcdef")
    files.write_new(root / "a", b"xy")
    assert files.read_bytes(root / "a") == b"xy"
    with pytest.raises(OSError, match="missing"):
        files.write_new(root / "missing" / "a", b"x")


def test_a_hole_reads_as_zeros(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwritev([b"x"], 5)
    assert file.pread(6, 0) == bytes(5) + b"x"


def test_a_read_beyond_the_end_is_not_in_memory(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwritev([b"abc"], 0)
    assert file.pread_nowait(4, 0) is None


def test_write_all_takes_more_buffers_than_one_call(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    buffers = [b"%04d" % number for number in range(2 * IOV_MAX + 1)]
    assert write_all(file, [*buffers, b""], 3) == 4 * len(buffers)
    assert file.pread(file.size(), 3) == b"".join(buffers)


def test_truncate_cuts_and_grows_with_zeros(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwritev([b"abcdef"], 0)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(9, 0) == b"ab\0\0"


def test_a_map_must_not_reach_beyond_the_end(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    assert bytes(file.map(0)) == b""
    with pytest.raises(ValueError, match="0 bytes, a map of 1"):
        file.map(1)
    file.pwritev([b"abc"], 0)
    assert bytes(file.map(3)) == b"abc"


def test_a_map_stays_when_the_file_grows_is_closed_and_unlinked(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwritev([b"abc"], 0)
    view = file.map(3)
    file.pwritev([b"defg"], 3)
    assert bytes(file.map(7)) == b"abcdefg"
    file.close()
    files.unlink(root / "a")
    assert bytes(view) == b"abc"
    assert view.readonly


def test_a_closed_file_refuses(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.close()
    file.close()
    for call in (
        file.size,
        file.fdatasync,
        lambda: file.pread(1, 0),
        lambda: file.pwritev([b"a"], 0),
        lambda: file.map(0),
    ):
        with pytest.raises(OSError, match="closed"):
            call()


def test_a_file_for_reading_refuses_writes(files: Files, root: Path) -> None:
    files.open(root / "a", create=True).close()
    file = files.open(root / "a")
    with pytest.raises(OSError, match="a") as caught:
        file.pwritev([b"a"], 0)
    assert caught.value.errno == errno.EBADF
    assert caught.value.filename == str(root / "a")


def test_a_missing_file_is_not_found(files: Files, root: Path) -> None:
    for call in (files.open, files.read_bytes, files.unlink, files.size, files.list_directory, files.modified_ms):
        with pytest.raises(FileNotFoundError):
            call(root / "missing")
    assert not files.exists(root / "missing")
    assert not files.is_directory(root / "missing")


def test_an_open_file_follows_its_name_and_its_directorys(files: Files, root: Path) -> None:
    files.make_directory(root / "d")
    file = files.open(root / "d" / "a", create=True)
    files.rename(root / "d" / "a", root / "d" / "b")
    files.rename(root / "d", root / "e")
    assert file.path == root / "e" / "b"
    file.pwritev([b"abc"], 0)
    assert files.read_bytes(root / "e" / "b") == b"abc"
    assert files.list_directory(root) == ["e"]


def test_a_small_file_is_replaced_whole_and_leaves_nothing_behind(files: Files, root: Path) -> None:
    files.write_atomically(root / "c", b"a longer content")
    files.write_atomically(root / "c", b"short")
    assert files.read_bytes(root / "c") == b"short"
    assert files.list_directory(root) == ["c"]


def test_directories_are_made_listed_and_removed(files: Files, root: Path) -> None:
    files.make_directory(root / "x" / "y", parents=True)
    files.make_directory(root / "x" / "y", parents=True)
    files.open(root / "x" / "b", create=True).close()
    files.open(root / "x" / "a", create=True).close()
    assert files.list_directory(root / "x") == ["a", "b", "y"]
    assert files.is_directory(root / "x" / "y")
    assert not files.is_directory(root / "x" / "a")
    with pytest.raises(FileExistsError):
        files.make_directory(root / "x")
    with pytest.raises(OSError, match=r"[Nn]ot empty"):
        files.remove_directory(root / "x")
    files.remove_directory(root / "x" / "y")
    files.sync_directory(root / "x")
    assert files.list_directory(root / "x") == ["a", "b"]


def test_a_lock_is_exclusive_until_it_is_released(files: Files, root: Path) -> None:
    lock = files.lock(root / ".lock")
    with pytest.raises(BlockingIOError):
        files.lock(root / ".lock")
    lock.release()
    lock.release()
    files.lock(root / ".lock").release()
    assert files.exists(root / ".lock")


def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = OsFiles().open(tmp_path / "a", create=True)
    whole = file.pwritev
    monkeypatch.setattr(file, "pwritev", lambda buffers, position: whole([bytes(buffers[0])[:3]], position))
    assert write_all(file, [b"abcdefgh", b"", b"ij"], 0) == 10
    assert file.pread(10, 0) == b"abcdefghij"


def test_a_full_disk_says_how_much_was_written() -> None:
    files = SimulatedFiles()
    file = files.open(Path("/a"), create=True)
    files.fail("pwritev", "/a", errno.ENOSPC, after_bytes=5)
    with pytest.raises(PartialWrite) as caught:
        write_all(file, [b"abc", b"def"], 0)
    assert (caught.value.written, caught.value.errno) == (5, errno.ENOSPC)
    assert caught.value.filename == "/a"


def test_a_file_that_takes_nothing_ends_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    file = SimulatedFiles().open(Path("/a"), create=True)
    monkeypatch.setattr(file, "pwritev", lambda buffers, position: 0)
    with pytest.raises(PartialWrite, match="took no bytes"):
        write_all(file, [b"abc"], 0)
