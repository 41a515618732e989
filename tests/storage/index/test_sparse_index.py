"""What both indexes share: when the file is written, what is cut, what memory may forget."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from kit.simulated_files import SimulatedFiles

from ottla.storage.index.index_cache import IndexCache
from ottla.storage.index.offset_index import OffsetIndex
from ottla.storage.index.sparse_index import CorruptIndex, SparseIndex

PATH = Path("/00000000000000000000.index")
ENTRY = bytes.fromhex("00000007 00000010")


def sealed_index(files: SimulatedFiles, path: Path, count: int, cache: IndexCache) -> OffsetIndex:
    index = OffsetIndex.create(files, path, 0, cache=cache)
    for number in range(1, count + 1):
        index.append(number, number)
    index.seal()
    return index


@pytest.mark.parametrize("zeros", [8, 80, 10_485_752])
def test_a_zero_tail_of_a_killed_kafka_is_cut(zeros: int) -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, ENTRY + bytes(zeros))
    index = OffsetIndex.open(files, PATH, 0, sealed=True)
    assert list(index) == [(7, 16)]
    assert files.read_bytes(PATH) == ENTRY


def test_a_wholly_preallocated_file_is_an_empty_index() -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, bytes(4096))
    index = OffsetIndex.open(files, PATH, 0, sealed=False)
    assert len(index) == 0
    index.append(7, 16)
    index.flush()
    assert files.read_bytes(PATH) == ENTRY


def test_an_entry_that_ends_in_zero_bytes_is_not_cut() -> None:
    files = SimulatedFiles()
    content = bytes.fromhex("00000007 01000000")
    files.write_atomically(PATH, content + bytes(8))
    assert list(OffsetIndex.open(files, PATH, 0, sealed=True)) == [(7, 1 << 24)]
    assert files.read_bytes(PATH) == content


def test_a_read_only_index_leaves_the_file_as_it_is() -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, ENTRY + bytes(80))
    assert list(OffsetIndex.open(files, PATH, 0, sealed=True, read_only=True)) == [(7, 16)]
    assert files.read_bytes(PATH) == ENTRY + bytes(80)


def test_entries_reach_the_file_at_the_flush_and_only_new_ones_are_written() -> None:
    files = SimulatedFiles()
    index = OffsetIndex.create(files, PATH, 0)
    index.append(7, 16)
    assert files.read_bytes(PATH) == b""
    index.flush()
    writes = files.history.count(("pwritev", PATH))
    index.flush()
    assert files.history.count(("pwritev", PATH)) == writes
    index.append(8, 32)
    index.flush()
    assert files.read_bytes(PATH) == ENTRY + bytes.fromhex("00000008 00000020")


def test_a_flush_that_found_no_room_is_made_good_by_the_next() -> None:
    files = SimulatedFiles()
    index = OffsetIndex.create(files, PATH, 0)
    index.append(7, 16)
    index.append(8, 32)
    full = files.fail("pwritev", "*.index", errno.ENOSPC, after_bytes=5)
    with pytest.raises(OSError, match="No space"):
        index.flush()
    files.heal(full)
    index.flush()
    assert files.read_bytes(PATH) == ENTRY + bytes.fromhex("00000008 00000020")


def test_a_sealed_index_takes_no_entries_until_it_is_unsealed() -> None:
    files = SimulatedFiles()
    index = sealed_index(files, PATH, 2, IndexCache())
    with pytest.raises(ValueError, match="sealed"):
        index.append(9, 9)
    index.unseal()
    index.append(9, 9)
    index.flush()
    assert len(files.read_bytes(PATH)) == 24


def test_a_sealed_index_is_loaded_only_when_looked_at() -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, ENTRY)
    index = OffsetIndex.open(files, PATH, 0, sealed=True)
    assert ("pread", PATH) not in files.history
    assert index.lookup(9) == (7, 16)
    assert ("pread", PATH) in files.history


def test_the_cache_forgets_the_index_looked_at_longest_ago() -> None:
    files, cache = SimulatedFiles(), IndexCache(max_bytes=2 * 8 * 10)
    paths = [Path(f"/{name}.index") for name in "abc"]
    indexes = [sealed_index(files, path, 10, cache) for path in paths]
    assert cache.bytes == 160
    assert len(cache) == 2
    files.history.clear()
    assert [index.lookup(5) for index in (indexes[1], indexes[2])] == [(5, 5), (5, 5)]
    assert not files.history
    assert indexes[0].lookup(5) == (5, 5)
    assert ("pread", paths[0]) in files.history
    assert cache.bytes == 160


def test_a_closed_index_gives_its_place_in_the_cache_back() -> None:
    cache = IndexCache()
    index = sealed_index(SimulatedFiles(), PATH, 10, cache)
    index.close()
    assert (cache.bytes, len(cache)) == (0, 0)


def test_an_active_index_is_never_forgotten() -> None:
    files, cache = SimulatedFiles(), IndexCache(max_bytes=1)
    active = OffsetIndex.create(files, PATH, 0, cache=cache)
    active.append(7, 16)
    sealed_index(files, Path("/b.index"), 10, cache)
    sealed_index(files, Path("/c.index"), 10, cache)
    assert list(active) == [(7, 16)]


def test_a_corrupt_index_is_rebuilt_by_reset() -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, ENTRY + ENTRY)
    index = OffsetIndex.open(files, PATH, 0, sealed=True)
    with pytest.raises(CorruptIndex):
        index.lookup(3)
    index.reset()
    index.unseal()
    index.append(7, 16)
    index.close()
    assert files.read_bytes(PATH) == ENTRY


def test_an_index_follows_its_file_when_that_is_renamed() -> None:
    files = SimulatedFiles()
    index = OffsetIndex.create(files, PATH, 0)
    files.rename(PATH, Path("/x.index.deleted"))
    assert index.path == Path("/x.index.deleted")
    index.close()
    assert index.path == Path("/x.index.deleted")


def test_an_abandoned_index_writes_nothing() -> None:
    files = SimulatedFiles()
    index = OffsetIndex.create(files, PATH, 0)
    index.append(7, 16)
    index.abandon()
    index.close()
    assert files.read_bytes(PATH) == b""
    with pytest.raises(ValueError, match="closed"):
        index.sync()


def test_an_index_that_is_looked_at_after_its_end_is_not_kept_by_the_cache() -> None:
    """A reader, a sync or the cleaner may be at it still. Its few bytes would never be what the cache has to drop."""
    files, cache = SimulatedFiles(), IndexCache()
    for number in range(10):
        index = sealed_index(files, PATH.with_name(f"{number}.index"), 3, cache)
        index.abandon()
        assert len(index.entries()) == 3
        assert index.entries_if_loaded() is not None
    assert (len(cache), cache.bytes) == (0, 0)


def test_an_index_that_ends_while_somebody_looks_at_it_is_not_kept_by_the_cache() -> None:
    files = SimulatedFiles()

    class Barging(IndexCache):
        """The index is closed by another thread just before its look is noted."""

        def used(self, index: SparseIndex, size_bytes: int) -> None:
            index.abandon()
            super().used(index, size_bytes)

    cache = Barging()
    index = sealed_index(files, PATH, 3, cache)
    assert len(index.entries()) == 3
    assert (len(cache), cache.bytes) == (0, 0)
