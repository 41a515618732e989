"""The simulator keeps what was synced, may lose or tear everything else, and fails where a test says so."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.simulated_disk import PAGE_BYTES, SECTOR_BYTES
from kit.simulated_files import CrashPoint, SimulatedFile, SimulatedFiles, SimulatedVolume

A = Path("/a")
SEEDS = range(60)


def survivors(make: Callable[[], SimulatedFiles]) -> list[SimulatedFiles]:
    return [make().crash(random.Random(seed)) for seed in SEEDS]


def durable_file(files: SimulatedFiles, path: Path, content: bytes) -> None:
    file = files.open(path, create=True)
    file.pwritev([content], 0)
    file.fdatasync()
    files.sync_directory(path.parent)


def test_what_was_synced_survives_every_crash() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"kept" * 5000)
        return files

    assert {files.read_bytes(A) for files in survivors(make)} == {b"kept" * 5000}


def test_a_file_whose_name_was_not_synced_may_be_gone() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        file = files.open(A, create=True)
        file.pwritev([b"x"], 0)
        file.fdatasync()
        return files

    assert {files.exists(A) for files in survivors(make)} == {True, False}


def test_an_unsynced_append_may_be_kept_lost_or_torn_and_the_synced_part_stays() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"s" * 100)
        files.open(A, writable=True).pwritev([b"n" * 2 * PAGE_BYTES], 100)
        return files

    contents = {files.read_bytes(A) for files in survivors(make)}
    assert all(content[:100] == b"s" * 100 for content in contents)
    assert b"s" * 100 in contents
    assert b"s" * 100 + b"n" * 2 * PAGE_BYTES in contents
    torn = [content for content in contents if 0 < content.count(b"n") < 2 * PAGE_BYTES]
    assert any(content.count(b"\0") for content in torn)


def test_a_later_page_may_be_kept_where_an_earlier_one_is_lost() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"o" * 3 * PAGE_BYTES)
        file = files.open(A, writable=True)
        for page in range(3):
            file.pwritev([b"n" * PAGE_BYTES], page * PAGE_BYTES)
        return files

    contents = [files.read_bytes(A) for files in survivors(make)]
    assert any(content[:PAGE_BYTES] == b"o" * PAGE_BYTES and content[-1:] == b"n" for content in contents)


def test_pages_tear_at_sectors() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"o" * PAGE_BYTES)
        files.open(A, writable=True).pwritev([b"n" * PAGE_BYTES], 0)
        return files

    for files in survivors(make):
        content = files.read_bytes(A)
        for start in range(0, PAGE_BYTES, SECTOR_BYTES):
            assert len(set(content[start : start + SECTOR_BYTES])) == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 20_000), st.integers(1, 9_000)),
            st.tuples(st.just("truncate"), st.integers(0, 20_000), st.just(0)),
            st.tuples(st.just("sync"), st.just(0), st.just(0)),
        ),
        max_size=12,
    )
)
def test_a_sync_makes_the_disk_equal_to_what_was_written(steps: list[tuple[str, int, int]]) -> None:
    files = SimulatedFiles()
    file = files.open(A, create=True)
    model = bytearray()
    for number, (what, position, length) in enumerate(steps):
        if what == "write":
            data = bytes([number + 1]) * length
            file.pwritev([data], position)
            model.extend(bytes(max(0, position + length - len(model))))
            model[position : position + length] = data
        elif what == "truncate":
            file.truncate(position)
            del model[position:]
            model.extend(bytes(position - len(model)))
        else:
            file.fdatasync()
    assert files.read_bytes(A) == model
    file.fdatasync()
    files.sync_directory(A.parent)
    assert files.synced_state() == {"/a": bytes(model)}
    assert files.crash(random.Random(1)).read_bytes(A) == model


def test_a_rename_is_never_half_done() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"old")
        durable_file(files, Path("/new"), b"new")
        files.rename(Path("/new"), A)
        return files

    states = [(files.list_directory(Path("/")), files.read_bytes(A)) for files in survivors(make)]
    assert all(state in ((["a"], b"new"), (["a", "new"], b"old")) for state in states)
    assert len({content for _, content in states}) == 2


def test_a_chain_of_renames_loses_no_file() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"one")
        files.rename(A, Path("/b"))
        file = files.open(A, create=True)
        file.pwritev([b"two"], 0)
        file.fdatasync()
        return files

    for files in survivors(make):
        assert b"one" in files.written_state().values()


def test_an_unlinked_file_may_come_back() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        durable_file(files, A, b"x")
        files.unlink(A)
        return files

    assert {files.exists(A) for files in survivors(make)} == {True, False}


def test_an_atomic_write_leaves_the_old_or_the_new_at_every_crash_point() -> None:
    def make(crash_at: int | None = None) -> SimulatedFiles:
        files = SimulatedFiles()
        files.write_atomically(A, b"old")
        files.crash_at = None if crash_at is None else files.calls + crash_at
        return files

    whole = make()
    before = whole.calls
    whole.write_atomically(A, b"new")
    for point in range(1, whole.calls - before + 1):
        for seed in range(10):
            files = make(point)
            with pytest.raises(CrashPoint):
                files.write_atomically(A, b"new")
            assert files.crash(random.Random(seed)).read_bytes(A) in {b"old", b"new"}
    assert whole.crash(random.Random(0)).read_bytes(A) == b"new"


def test_a_failed_sync_loses_the_pages_though_a_second_one_succeeds() -> None:
    files = SimulatedFiles()
    durable_file(files, A, b"o" * 10)
    file = files.open(A, writable=True)
    file.pwritev([b"n" * 10], 0)
    files.fail("fdatasync", "/a", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.fdatasync()
    file.fdatasync()
    assert file.pread(10, 0) == b"n" * 10
    assert files.crash(random.Random(0)).read_bytes(A) == b"o" * 10


def test_pages_written_again_after_a_failed_sync_are_saved() -> None:
    files = SimulatedFiles()
    durable_file(files, A, b"o" * 10)
    file = files.open(A, writable=True)
    file.pwritev([b"n" * 10], 0)
    files.fail("fdatasync", "/a")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.fdatasync()
    file.pwritev([b"n" * 10], 0)
    file.fdatasync()
    assert files.crash(random.Random(0)).read_bytes(A) == b"n" * 10


def test_the_nth_call_of_a_kind_on_a_path_fails_and_no_other() -> None:
    files = SimulatedFiles()
    a, b = files.open(A, create=True), files.open(Path("/b"), create=True)
    files.fail("pwritev", "/a", errno.EDQUOT, skip=1, times=2)
    a.pwritev([b"1"], 0)
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)) as caught:
            a.pwritev([b"2"], 1)
        assert (caught.value.errno, caught.value.filename) == (errno.EDQUOT, "/a")
    b.pwritev([b"1"], 0)
    a.pwritev([b"3"], 1)
    assert files.read_bytes(A) == b"13"


def test_a_full_disk_takes_what_fits_and_then_nothing() -> None:
    files = SimulatedFiles()
    files.capacity_bytes = 10
    file = files.open(A, create=True)
    assert file.pwritev([b"x" * 8], 0) == 8
    assert file.pwritev([b"y" * 8], 8) == 2
    with pytest.raises(OSError, match="No space"):
        file.pwritev([b"z"], 10)
    assert file.pwritev([b"w" * 4], 0) == 4
    files.capacity_bytes = None
    assert file.pwritev([b"z"], 10) == 1


def test_a_cold_file_is_not_read_without_waiting() -> None:
    files = SimulatedFiles()
    durable_file(files, A, b"abc")
    files.cold.append("/a")
    file = files.open(A)
    assert file.pread_nowait(3, 0) is None
    assert file.resident_view(0, 3) is None
    assert file.pread(3, 0) == b"abc"


def test_the_same_seed_gives_the_same_disk() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        for name in "abc":
            file = files.open(Path("/") / name, create=True)
            for page in range(5):
                file.pwritev([name.encode() * PAGE_BYTES], page * PAGE_BYTES)
        files.sync_directory(Path("/"))
        return files

    disks = [make().crash(random.Random(seed)).written_state() for seed in (7, 7, 8)]
    assert disks[0] == disks[1]
    assert disks[0] != disks[2]


def test_a_crash_gives_the_locks_back() -> None:
    files = SimulatedFiles()
    files.lock(Path("/.lock"))
    files.crash(random.Random(0)).lock(Path("/.lock"))


# -- the volume


def test_a_sync_of_the_volume_keeps_the_content_of_all_files_and_all_names() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        files.has_volume_sync = True
        durable_file(files, A, b"s")
        files.open(A, writable=True).pwritev([b"n"], 1)
        files.open(Path("/b"), create=True).pwritev([b"x"], 0)
        volume = files.open_volume(A)
        assert volume is not None
        volume.sync()
        return files

    found = survivors(make)
    assert {files.read_bytes(A) for files in found} == {b"sn"}
    assert {files.read_bytes(Path("/b")) for files in found} == {b"x"}


def test_a_failed_sync_of_the_volume_loses_what_was_not_synced_and_another_one_does_not_save_it() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        files.has_volume_sync = True
        durable_file(files, A, b"s" * PAGE_BYTES)
        files.open(A, writable=True).pwritev([b"n" * PAGE_BYTES], 0)
        volume = files.open_volume(A)
        assert volume is not None
        files.fail("sync_volume")
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            volume.sync()
        volume.sync()
        return files

    assert {files.read_bytes(A) for files in survivors(make)} == {b"s" * PAGE_BYTES}


def test_a_closed_volume_syncs_nothing() -> None:
    files = SimulatedFiles()
    files.has_volume_sync = True
    durable_file(files, A, b"s")
    volume = files.open_volume(A)
    assert volume is not None
    volume.close()
    with pytest.raises(OSError, match="closed"):
        volume.sync()


def volume_of(files: SimulatedFiles) -> SimulatedVolume:
    files.has_volume_sync = True
    volume = files.open_volume(A)
    assert volume is not None
    return volume


def written(files: SimulatedFiles) -> SimulatedFile:
    """An open file with a page that was written anew and not synced."""
    durable_file(files, A, b"s" * PAGE_BYTES)
    file = files.open(A, writable=True)
    file.pwritev([b"n" * PAGE_BYTES], 0)
    return file


def test_pages_that_the_kernel_could_not_write_are_gone_after_a_crash_and_the_next_sync_says_so_once() -> None:
    def make() -> SimulatedFiles:
        files = SimulatedFiles()
        files.fail("write_back", skip=1)
        file = written(files)
        assert file.pread(1, 0) == b"n"
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.fdatasync()
        file.fdatasync()
        return files

    assert {files.read_bytes(A) for files in survivors(make)} == {b"s" * PAGE_BYTES}


def test_each_descriptor_and_each_volume_that_was_open_reports_a_lost_page_and_no_later_one() -> None:
    files = SimulatedFiles()
    first = written(files)
    second, volume = files.open(A), volume_of(files)
    files.fail("write_back")
    first.pwritev([b"l"], 0)
    late_file, late_volume = files.open(A), volume_of(files)
    for held in (first.fdatasync, second.fdatasync, volume.sync):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            held()
        held()
    late_file.fdatasync()
    late_volume.sync()


def test_a_failed_sync_of_a_file_is_one_of_its_volume_too() -> None:
    files = SimulatedFiles()
    file, volume = written(files), volume_of(files)
    files.fail("fdatasync")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.fdatasync()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        volume.sync()
    volume.sync()


def test_a_sync_of_a_closed_file_is_refused_and_loses_nothing() -> None:
    """The simulator's seed 216134697992: work that the cleaner had left to a worker, after the broker's stop."""
    files = SimulatedFiles()
    file, volume = written(files), volume_of(files)
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.fdatasync()
    volume.sync()


def test_an_error_of_another_programs_file_fails_the_volumes_sync_and_no_files() -> None:
    files = SimulatedFiles()
    file, volume = written(files), volume_of(files)
    files.fail_elsewhere()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        volume.sync()
    file.fdatasync()
    volume.sync()
