"""What only the real files do: bounded descriptors and maps, page-cache questions, locks between processes."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.storage.files import device
from ottla.storage.files.files import NotOpened, OsFiles
from ottla.storage.files.open_files import Handle, OpenFiles
from ottla.storage.files.residency import PAGE_BYTES, ResidencyProbe, address_of, c_library

LINUX = sys.platform == "linux"
on_linux = pytest.mark.skipif(not LINUX, reason="asks the Linux page cache")


DROPS = 100


def open_descriptors(top: Path) -> list[str]:
    """What this process has open below `top`: the clients of other tests come and go with theirs at any time."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
    return [target for target in targets if target.startswith(f"{top}/")]


# -- bounds


def test_a_write_that_a_sync_overtakes_keeps_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed before the next sync, it could take the news of a failed write-back with it."""
    files = OsFiles(max_descriptors=1)
    file = files.open(tmp_path / "log", create=True)
    real = os.pwritev

    def overtaken(fd: int, buffers: list[bytes], position: int) -> int:
        monkeypatch.setattr(os, "pwritev", real)
        file.fdatasync()
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", overtaken)
    file.pwritev([b"abc"], 0)
    handle = file.open_descriptor
    for number in range(4):
        files.open(tmp_path / str(number), create=True)
    assert file.open_descriptor is handle is not None
    file.fdatasync()
    for number in range(4, 8):
        files.open(tmp_path / str(number), create=True)
    assert file.open_descriptor is None


def test_descriptors_beyond_the_bound_are_closed_and_opened_again(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=3)
    opened = [files.open(tmp_path / str(number), create=True) for number in range(10)]
    assert [file.is_open for file in opened] == [file.open_descriptor is not None for file in opened]
    assert sum(file.is_open for file in opened) <= 3
    for number, file in enumerate(opened):
        file.pwritev([b"%d" % number], 0)
        file.fdatasync()
    for _ in range(2):
        assert [file.pread(1, 0) for file in opened] == [b"%d" % number for number in range(10)]
    assert len(files.descriptors) <= 3


def test_a_file_with_unsynced_writes_keeps_its_descriptor(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=2)
    opened = [files.open(tmp_path / str(number), create=True) for number in range(6)]
    for file in opened:
        file.pwritev([b"x"], 0)
    files.open(tmp_path / "last", create=True)
    assert len(files.descriptors) >= 6
    for file in opened:
        file.fdatasync()
    files.descriptors.sweep(2)
    assert len(files.descriptors) == 2


def test_derived_files_may_be_closed_unsynced(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=2)
    opened = [files.open(tmp_path / str(number), create=True, derived=True) for number in range(6)]
    for file in opened:
        file.pwritev([b"x"], 0)
    files.descriptors.sweep(2)
    assert len(files.descriptors) == 2
    assert [file.pread(1, 0) for file in opened] == [b"x"] * 6


def test_a_renamed_file_is_opened_again_by_its_new_name(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=1)
    file = files.open(tmp_path / "a", create=True, derived=True)
    file.pwritev([b"abc"], 0)
    others = [files.open(tmp_path / name, create=True, derived=True) for name in "bcd"]
    files.rename(tmp_path / "a", tmp_path / "a.deleted")
    assert file.pread(3, 0) == b"abc"
    del others


@on_linux
@pytest.mark.parametrize("takes_the_old_name", [False, True])
def test_a_file_that_is_renamed_while_another_thread_opens_it_again_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_the_old_name: bool
) -> None:
    """The sync thread opens an index whose descriptor had to go, while retention or the cleaner renames it.

    Opened by the old name there is nothing, and the directory would go offline; or there is the file that took its
    place, which is worse.
    """
    files = OsFiles()
    path, other, target = tmp_path / "index", tmp_path / "index.swap", tmp_path / "index.deleted"
    other.write_bytes(b"other")
    file = files.open(path, create=True, derived=True)
    file.pwritev([b"bytes"], 0)
    assert file.open_descriptor is not None
    file.forget(file.open_descriptor)
    was_renamed, was_opened = threading.Event(), threading.Event()
    real_open, real_rename = os.open, os.rename
    found: list[bytes] = []

    def open_late(name: Path, flags: int, mode: int = 0o777) -> int:
        assert was_renamed.wait(60)
        try:
            return real_open(name, flags, mode)
        finally:
            was_opened.set()

    def rename_and_wait(old: Path, new: Path) -> None:
        real_rename(old, new)
        if takes_the_old_name:
            real_rename(other, path)
        was_renamed.set()
        assert was_opened.wait(60)

    monkeypatch.setattr(os, "open", open_late)
    monkeypatch.setattr(os, "rename", rename_and_wait)
    thread = threading.Thread(target=lambda: found.append(file.pread(5, 0)))
    thread.start()
    files.rename(path, target)
    thread.join()
    assert found == [b"bytes"]


def test_renaming_a_directory_renames_what_is_open_below_it(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=1)
    (tmp_path / "orders-0" / "inner").mkdir(parents=True)
    opened = [files.open(tmp_path / "orders-0" / name, create=True) for name in ("log", "inner/log")]
    opened[0].pwritev([b"outer"], 0)
    opened[1].pwritev([b"inner"], 0)
    files.rename(tmp_path / "orders-0", tmp_path / "orders-0-delete")
    files.rename(tmp_path / "orders-0-delete" / "log", tmp_path / "orders-0-delete" / "log.deleted")
    for file in opened:
        file.fdatasync()
    files.open(tmp_path / "other", create=True)
    assert [file.pread(5, 0) for file in opened] == [b"outer", b"inner"]
    assert opened[0].path == tmp_path / "orders-0-delete" / "log.deleted"


def test_closing_gives_every_descriptor_back(tmp_path: Path) -> None:
    files = OsFiles()
    for number in range(5):
        file = files.open(tmp_path / str(number), create=True)
        file.pwritev([b"abc"], 0)
        file.map(3)
        assert open_descriptors(tmp_path)
        file.close()
        assert open_descriptors(tmp_path) == []


@on_linux
def test_maps_beyond_the_bound_are_dropped_and_views_of_them_stay(tmp_path: Path) -> None:
    files = OsFiles(max_maps=2)
    opened = [files.open(tmp_path / str(number), create=True) for number in range(8)]
    views = []
    for number, file in enumerate(opened):
        file.pwritev([b"%d" % number], 0)
        views.append(file.map(1))
    assert [bytes(view) for view in views] == [b"%d" % number for number in range(8)]
    views.clear()
    files.maps.sweep(2)
    assert len(files.maps) <= 2


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    dropped: list[Handle] = []
    bound = OpenFiles(3)
    handles = [Handle(dropped.append) for _ in range(3)]
    for handle in handles:
        bound.admit(handle)
        handle.used = False
    handles[0].used = True
    newest = Handle(dropped.append)
    bound.admit(newest)
    assert dropped == [handles[1]]


def test_running_out_of_descriptors_closes_some_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    opened = [files.open(tmp_path / str(number), create=True) for number in range(8)]
    really_open = os.open
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def refuse_once(*args: object, **kwargs: object) -> int:
        if failures:
            raise failures.pop()
        return really_open(*args, **kwargs)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(os, "open", refuse_once)
    files.open(tmp_path / "one more", create=True)
    assert len(files.descriptors) <= 5
    del opened


def test_without_a_descriptor_nothing_is_opened_or_mapped_and_one_line_says_what_to_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = OsFiles()
    file = files.open(tmp_path / "known", create=True)
    file.pwritev([b"abc"], 0)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as lacking:
        lacking.setattr(os, "open", refuse)
        lacking.setattr(mmap, "mmap", refuse)
        with pytest.raises(NotOpened, match="other"):
            files.open(tmp_path / "other", create=True)
        with pytest.raises(NotOpened):
            files.sync_directory(tmp_path)
        with pytest.raises(NotOpened):
            files.write_atomically(tmp_path / "third", b"")
        assert file.resident_view(0, 3) is None
        assert file.pread(3, 0) == b"abc"
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    (line,) = caplog.messages
    assert f"this process may have {limit} open (RLIMIT_NOFILE); `ulimit -n`" in line
    files.sync_directory(tmp_path)


def test_threads_may_read_while_descriptors_come_and_go(tmp_path: Path) -> None:
    files = OsFiles(max_descriptors=1)
    opened = [files.open(tmp_path / str(number), create=True) for number in range(4)]
    for number, file in enumerate(opened):
        file.pwritev([b"%d" % number * 100], 0)
        file.fdatasync()
    wrong: list[bytes] = []

    def read() -> None:
        for _ in range(200):
            for number, file in enumerate(opened):
                data = file.pread(100, 0)
                if data != b"%d" % number * 100:
                    wrong.append(data)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- the page cache


def lives_in_memory(path: Path) -> bool:
    return device.file_system_type(path.stat().st_dev) in {"tmpfs", "ramfs"}


def resident_file(path: Path, size: int) -> int:
    path.write_bytes(b"x" * size)
    return os.open(path, os.O_RDWR)


def drop_from_page_cache(path: Path) -> None:
    """Advise the kernel to have none of the file in memory. That binds nobody, so who relies on it asks `DROPS` times.

    What the kernel has in hand stays, for which its moving pages together to make large free ones is enough; and a
    read that may not wait starts reading ahead, which may come true before it has looked again. Beside `echo 1 >
    /proc/sys/vm/compact_memory` all of the file was there after 3 of 1,500 drops, and some of it after 5 more.
    """
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@on_linux
@pytest.mark.parametrize("method", ["cachestat", "mincore", "sample"])
@pytest.mark.parametrize(("position", "length"), [(0, 1), (0, 1 << 20), (4095, 2), (5000, 300_000), (7, 0)])
def test_what_was_just_written_is_resident(tmp_path: Path, method: str, position: int, length: int) -> None:
    import mmap

    if method == "sample" and lives_in_memory(tmp_path):
        pytest.skip("this file system cannot be asked for single bytes")
    fd = resident_file(tmp_path / "a", 1 << 20)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        os.pread(fd, 1 << 20, 0)
        assert ResidencyProbe(method).is_resident(fd, address_of(mapped), position, length)
    os.close(fd)


@on_linux
@pytest.mark.parametrize("method", ["cachestat", "mincore", "sample"])
def test_what_was_dropped_from_the_page_cache_is_not_resident(tmp_path: Path, method: str) -> None:
    import mmap

    if lives_in_memory(tmp_path):
        pytest.skip("what lives in memory cannot be dropped from it")
    path = tmp_path / "a"
    path.write_bytes(b"x" * (1 << 20))

    def reported() -> tuple[bool, bool, bool]:
        """Of all of the dropped file, of the page that was read since, and of all of it again."""
        drop_from_page_cache(path)
        fd = os.open(path, os.O_RDONLY)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            probe = ResidencyProbe(method)
            address = address_of(mapped)
            before = probe.is_resident(fd, address, 0, 1 << 20)
            os.posix_fadvise(fd, 0, PAGE_BYTES, os.POSIX_FADV_RANDOM)
            os.pread(fd, 1, 0)
            answers = before, probe.is_resident(fd, address, 0, PAGE_BYTES), probe.is_resident(fd, address, 0, 1 << 20)
        os.close(fd)
        return answers

    # Each of them in some drop: where the disk is quick and the processors are busy, reads ahead come true at once.
    missing = {0, 1, 2}
    for _ in range(DROPS):
        missing -= {number for number, answer in enumerate(reported()) if answer == (number == 1)}
        if not missing:
            break
    assert not missing


@on_linux
def test_a_cold_file_has_no_resident_view_until_it_was_read(tmp_path: Path) -> None:
    if lives_in_memory(tmp_path):
        pytest.skip("what lives in memory cannot be dropped from it")
    file = OsFiles().open(tmp_path / "a", create=True)
    file.pwritev([b"x" * 300_000], 0)

    def is_cold() -> bool:
        drop_from_page_cache(tmp_path / "a")
        return file.resident_view(0, 300_000) is None and file.pread_nowait(100, 200_000) is None

    assert any(is_cold() for _ in range(DROPS))
    file.pread(300_000, 0)
    view = file.resident_view(100, 200_000)
    assert view is not None
    assert len(view) == 200_000


@on_linux
def test_a_kernel_without_cachestat_is_asked_otherwise(tmp_path: Path) -> None:
    if lives_in_memory(tmp_path):
        pytest.skip("this file system cannot be asked for single bytes")
    fd = resident_file(tmp_path / "a", 10_000)

    class OldKernel:
        mincore = c_library().mincore

        @staticmethod
        def syscall(*_: object) -> int:
            return -1

    probe = ResidencyProbe("cachestat", OldKernel())
    assert probe.is_resident(fd, 0, 0, 10_000)
    assert probe.method == "mincore"
    os.close(fd)


def no_nowait(*_: object) -> int:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


@on_linux
@pytest.mark.parametrize(("file_system", "direct"), [("tmpfs", True), ("nfs4", False)])
def test_a_file_system_without_nowait_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_system: str, direct: bool
) -> None:
    files = OsFiles()
    monkeypatch.setattr(device, "file_system_type", lambda number: file_system)
    file = files.open(tmp_path / "a", create=True)
    file.pwritev([b"abc"], 0)
    monkeypatch.setattr(os, "preadv", no_nowait)
    assert file.pread_nowait(3, 0) == (b"abc" if direct else None)
    assert file.pread_nowait(4, 0) is None
    monkeypatch.undo()
    # Remembered: not asked again, though it would work now.
    assert file.pread_nowait(3, 0) == (b"abc" if direct else None)
    assert files.open(tmp_path / "a").pread_nowait(3, 0) == (b"abc" if direct else None)


@on_linux
def test_the_file_system_of_a_device_is_found() -> None:
    assert device.file_system_type(os.stat("/proc").st_dev) == "proc"
    assert device.file_system_type(os.makedev(4095, 7)) == ""


# -- locks

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_keeps_the_lock_from_us_and_its_death_gives_it_back(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match="locked by another process"):
            OsFiles().lock(tmp_path / ".lock")
        holder.kill()
        holder.wait()
    OsFiles().lock(tmp_path / ".lock").release()


def test_a_lock_of_another_process_is_seen_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    files = OsFiles()
    assert not files.is_locked_elsewhere(path)
    own = files.lock(path)
    assert not files.is_locked_elsewhere(path)
    own.release()
    assert not files.is_locked_elsewhere(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert files.is_locked_elsewhere(path)
        process.kill()
    assert not files.is_locked_elsewhere(path)


def test_we_keep_the_lock_from_another_process(tmp_path: Path) -> None:
    lock = OsFiles().lock(tmp_path / ".lock")
    command = [sys.executable, "-c", HOLDER, str(tmp_path / ".lock")]
    refused = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "held" not in refused.stdout
    lock.release()
    assert subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout == "held\n"


def test_one_directory_by_two_names_is_locked_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    lock = OsFiles().lock(tmp_path / "real" / ".lock")
    with pytest.raises(BlockingIOError, match="by this process"):
        OsFiles().lock(tmp_path / "link" / ".lock")
    lock.release()


def test_a_volume_has_a_size_and_what_does_not_exist_has_none(tmp_path: Path) -> None:
    volume = OsFiles().volume_bytes(tmp_path)
    assert volume is not None
    assert 0 <= volume[1] <= volume[0]
    assert OsFiles().volume_bytes(tmp_path / "nowhere") is None
    inodes = OsFiles().volume_inodes(tmp_path)
    assert inodes is None or 0 <= inodes[1] <= inodes[0]
    assert OsFiles().volume_inodes(tmp_path / "nowhere") is None
