"""The base of the offset index and the time index: sorted entries of fixed width, a floor look-up, a file.

Entries are pairs (key, value) with increasing keys. The **active** segment's index is in memory, and each `flush`
appends the new entries to the file. A **sealed** one is loaded when it is first used, and an `IndexCache` may drop it
again. Nothing is preallocated, so the file's length is the number of entries times their width. The zero tail of a
preallocated file, which Kafka leaves when it is killed, is truncated when the index is loaded. Stored numbers are
big-endian, offsets are relative to the segment's base offset.

An index is derived from its `.log`: an invalid one raises `CorruptIndex`, and the caller that opened it rebuilds it.
One thread writes an index; any thread may look up.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from itertools import chain, islice
from operator import le, lt
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from ottla.storage.files.files import File, Files, write_all

if TYPE_CHECKING:
    from ottla.storage.index.index_cache import IndexCache

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1
DEFAULT_MAX_INDEX_BYTES: Final = 10 * 1024 * 1024


class CorruptIndex(ValueError):
    """An index file with impossible entries; the message names the file and the entry."""


class Entries:
    """The loaded entries of an index: two columns of equal length.

    `firsts` is a third one, in memory only, that the writer provides: the relative first offset of the batch to which
    each entry points, for the entries from number `firsts_from` on (offset index only; empty if the entries are from a
    file).
    """

    __slots__ = ("firsts", "firsts_from", "keys", "values")

    def __init__(self, keys: array[int], values: array[int]) -> None:
        self.keys = keys
        self.values = values
        self.firsts = array("i")
        self.firsts_from = 0

    @property
    def memory_bytes(self) -> int:
        """The size of the columns in memory."""
        return sum(len(column) * column.itemsize for column in (self.keys, self.values, self.firsts))

    def __len__(self) -> int:
        return len(self.keys)


class SparseIndex(ABC):
    """One index file of one segment. Made by `create` (empty, for a new or rebuilt segment) or `open`.

    `base_offset` is the segment's; `max_bytes` is `segment.index.bytes`, which limits the number of entries
    (`is_full`).
    """

    ENTRY_BYTES: ClassVar[int]
    KEY_BYTES: ClassVar[int]

    def __init__(self, files: Files, path: Path, base_offset: int, max_bytes: int, cache: IndexCache | None) -> None:
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY_BYTES
        self._files = files
        self._cache = cache
        self._file: File | None = None
        self._path = path
        self._entries: Entries | None = None
        self._sealed = False
        self._may_write = True
        self._flushed = 0
        self._changes = 0
        self._synced_changes = 0

    @classmethod
    def create(
        cls,
        files: Files,
        path: Path,
        base_offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_INDEX_BYTES,
        cache: IndexCache | None = None,
    ) -> Self:
        """Create an empty index; an existing file is emptied."""
        index = cls(files, path, base_offset, max_bytes, cache)
        index._file = files.open(path, create=True, derived=True)
        if index._file.size():
            index._cut_file(0)
        index._entries = index._no_entries()
        return index

    @classmethod
    def open(
        cls,
        files: Files,
        path: Path,
        base_offset: int,
        *,
        sealed: bool,
        is_unsure: bool = False,
        read_only: bool = False,
        max_bytes: int = DEFAULT_MAX_INDEX_BYTES,
        cache: IndexCache | None = None,
    ) -> Self:
        """Open the index in an existing file.

        A `sealed` one is only checked by its size here, and loaded when it is first used, so any method may raise
        CorruptIndex. One for further appends is loaded and checked now. One that `is_unsure` is not read, and the
        caller must call `keep_before` or `reset` next. A `read_only` one is never written, and a zero tail stays in its
        file: for tools on a directory that another process owns. Raises FileNotFoundError, CorruptIndex.
        """
        index = cls(files, path, base_offset, max_bytes, cache)
        size = files.size(path)
        if size % cls.ENTRY_BYTES and not is_unsure:
            raise CorruptIndex(f"{path}: {size} bytes are not a multiple of the {cls.ENTRY_BYTES} bytes of an entry")
        index._file = files.open(path, writable=not read_only, derived=True)
        index._may_write = not read_only
        index._sealed = sealed
        if not sealed and not is_unsure:
            try:
                index.check()
            except CorruptIndex:
                index.abandon()
                raise
        return index

    # -- looking

    @property
    def path(self) -> Path:
        """The current path of the file, also after renames."""
        return self._file.path if self._file is not None else self._path

    @property
    def is_sealed(self) -> bool:
        """Whether the segment gets no more records."""
        return self._sealed

    @property
    def is_loaded(self) -> bool:
        """Whether a look-up needs no reading of the file now."""
        return self._entries is not None

    @property
    def is_full(self) -> bool:
        """Whether another entry would exceed `max_bytes`; the segment rolls then."""
        return len(self.entries()) >= self.max_entries

    @property
    def size_bytes(self) -> int:
        """The length of the file after a flush."""
        return len(self.entries()) * self.ENTRY_BYTES

    def __len__(self) -> int:
        return len(self.entries())

    def entries(self) -> Entries:
        """The columns, loaded when they are not. Raises CorruptIndex."""
        entries = self._entries
        if entries is None:
            entries = self._entries = self._load()
        cache = self._cache
        if self._sealed and cache is not None:
            cache.used(self, entries.memory_bytes)
            if self._cache is None:  # abandoned by another thread meanwhile
                cache.forget(self)
        return entries

    def entries_if_loaded(self) -> Entries | None:
        """The columns if a look-up needs no reading of the file now, otherwise None."""
        return self._entries if self._entries is None or not self._sealed else self.entries()

    def check(self) -> None:
        """Load and check the file. Raises CorruptIndex."""
        self.entries()

    # -- changing

    @property
    def unwritten(self) -> int:
        """The number of entries that the file does not have yet."""
        return 0 if self._entries is None else len(self._entries.keys) - self._flushed

    def flush(self) -> None:
        """Append the missing entries to the file. Raises OSError; a later flush writes the same bytes again."""
        entries = self._entries
        if entries is None or self._flushed == len(entries):
            return
        data = self._encode(entries, self._flushed)
        try:
            write_all(self._open_file(), [data], self._flushed * self.ENTRY_BYTES)
        finally:
            self._changes += 1  # after the write: a sync in another thread that sees this count has covered it
        self._flushed = len(entries)

    def sync(self) -> None:
        """Flush and sync the file."""
        self.flush()
        self.sync_written()

    def sync_changes(self) -> None:
        """As `sync`, but only if there were changes since the last one, or since the index was opened: only for an
        index that was on the disk then.
        """
        self.flush()
        if self._changes != self._synced_changes:
            self.sync_written()

    def sync_written(self) -> None:
        """Sync the file, during appends and in any thread; entries that are only in memory are not flushed."""
        changes = self._changes
        self._open_file().fdatasync()
        self._synced_changes = changes

    @property
    def written_end(self) -> int:
        """The offset after the last entry in the file; the base offset when it has none."""
        entries, count = self._entries, self._flushed
        if entries is None or not count:
            return self.base_offset
        return self.base_offset + self._offsets(entries)[count - 1] + 1

    def truncate_to(self, offset: int) -> None:
        """Drop every entry for `offset` and later ones, in the file too."""
        entries = self.entries()
        self._truncate_entries(bisect_left(self._offsets(entries), offset - self.base_offset))

    def keep_before(self, offset: int) -> None:
        """Load the entries for batches that end before `offset`, as far as they are valid, and truncate the file after
        them: later entries were never synced, and a crash may have left any bytes in their place.
        """
        file = self._open_file()
        size = file.size()
        entries = self._decode(file.pread(size - size % self.ENTRY_BYTES, 0))
        offsets, least = self._offsets(entries), offset - self.base_offset
        grows = zip(offsets, chain((-1,), offsets), strict=False)
        count = next((n for n, (now, last) in enumerate(grows) if now >= least or now < last), len(offsets))
        if self._cache is not None:
            self._cache.forget(self)
        self._sealed = False
        self._entries = entries
        self._flushed = len(offsets)
        self._truncate_entries(count)
        self._check_entries(entries)
        if size > count * self.ENTRY_BYTES:
            self._cut_file(count)

    def reset(self) -> None:
        """Drop all entries, for any content of the file; the first step to rebuild a corrupt index."""
        self._entries = self._no_entries()
        self._flushed = 0
        self._cut_file(0)

    def seal(self) -> None:
        """Seal the index of a segment that gets no more records: flush, and let the cache drop the entries when
        unused.
        """
        self.flush()
        self._sealed = True
        self.entries()

    def unseal(self) -> None:
        """Unseal the index of a segment that gets records again (the log was truncated within it)."""
        self.entries()
        self._sealed = False
        if self._cache is not None:
            self._cache.forget(self)

    def unload(self) -> None:
        """Drop the entries of a sealed index; the next use loads them again."""
        if self._sealed and self._flushed == len(self._entries or ()):
            self._entries = None
            self._flushed = 0

    def close(self) -> None:
        """Flush and close; no method may be called afterwards."""
        if self._file is None:
            return
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing: the file is about to be deleted, or its directory failed."""
        cache, self._cache = self._cache, None  # a look-up that still runs must not put it back, where it would stay
        if cache is not None:
            cache.forget(self)
        if self._file is not None:
            self._path = self._file.path
            self._file.close()
            self._file = None

    def _open_to_append(self, count: int) -> Entries:
        """The columns, to which `count` more entries can be added. Raises ValueError."""
        entries = self._entries
        if self._sealed or entries is None:
            raise ValueError(f"{self.path}: the index of a sealed segment takes no entries")
        if len(entries.keys) + count > self.max_entries:
            raise ValueError(f"{self.path}: the index is full ({self.max_entries} entries)")
        return entries

    def _append(self, key: int, value: int) -> None:
        entries = self._open_to_append(1)
        entries.keys.append(key)
        entries.values.append(value)

    def _truncate_entries(self, keep: int) -> None:
        entries = self.entries()
        if keep >= len(entries):
            return
        del entries.keys[keep:]
        del entries.values[keep:]
        del entries.firsts[max(keep - entries.firsts_from, 0) :]
        if self._flushed > keep:
            self._flushed = keep
            self._cut_file(keep)

    def _cut_file(self, entries: int) -> None:
        """Truncate the file to `entries` entries. The new length is not on the disk before a sync."""
        try:
            self._open_file().truncate(entries * self.ENTRY_BYTES)
        finally:
            self._changes += 1

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise ValueError(f"{self.path}: offset {offset} cannot be in the segment at {self.base_offset}")
        return relative

    def _open_file(self) -> File:
        if self._file is None:
            raise ValueError(f"the index is closed: {self._path}")
        return self._file

    # -- the file's bytes

    def _load(self) -> Entries:
        file = self._open_file()
        size = file.size()
        if size % self.ENTRY_BYTES:
            raise CorruptIndex(
                f"{self.path}: {size} bytes are not a multiple of the {self.ENTRY_BYTES} bytes of an entry"
            )
        data = file.pread(size, 0)
        kept = size
        if size > self.ENTRY_BYTES:
            # No real entry is all zeros, except a time index's first: a single record at the base offset, of time 0.
            kept = -(-len(data.rstrip(b"\0")) // self.ENTRY_BYTES) * self.ENTRY_BYTES
        entries = self._decode(data[:kept])
        self._check_entries(entries)
        if kept < size and self._may_write:
            self._cut_file(kept // self.ENTRY_BYTES)
        self._flushed = len(entries)
        return entries

    def _decode(self, data: bytes) -> Entries:
        count = len(data) // self.ENTRY_BYTES
        entries = self._no_entries()
        for column, begin in ((entries.keys, 0), (entries.values, self.KEY_BYTES)):
            width = column.itemsize
            # Columns are extracted by strided copies, one for each byte of an entry, instead of a loop over entries.
            raw = bytearray(count * width)
            for byte in range(width):
                raw[byte::width] = data[begin + byte :: self.ENTRY_BYTES]
            column.frombytes(raw)
            if sys.byteorder == "little":
                column.byteswap()
        return entries

    def _encode(self, entries: Entries, first: int) -> bytearray:
        data = bytearray((len(entries) - first) * self.ENTRY_BYTES)
        for column, begin in ((entries.keys[first:], 0), (entries.values[first:], self.KEY_BYTES)):
            if sys.byteorder == "little":
                column.byteswap()
            raw = column.tobytes()
            width = column.itemsize
            for byte in range(width):
                data[begin + byte :: self.ENTRY_BYTES] = raw[byte::width]
        return data

    @staticmethod
    def _grow(column: array[int], least: int, *, strictly: bool) -> bool:
        """Whether a column begins at `least` or above and increases; without a Python loop, which would take a million
        steps for a full index.
        """
        if not len(column):
            return True
        return column[0] >= least and all(map(lt if strictly else le, column, islice(column, 1, None)))

    def _corrupt(self, number: int, reason: str) -> CorruptIndex:
        return CorruptIndex(f"{self.path}: entry {number}: {reason}")

    @abstractmethod
    def _no_entries(self) -> Entries:
        """Two empty columns with the widths of this index."""

    @abstractmethod
    def _offsets(self, entries: Entries) -> array[int]:
        """The column of relative offsets."""

    @abstractmethod
    def _check_entries(self, entries: Entries) -> None:
        """Raise CorruptIndex for impossible entries."""
