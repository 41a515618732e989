"""A segment that the cleaner writes, to replace one or more old ones.

Its files are named by the base offset of the first of those, and by their state:

    00000000000000000042.log.cleaned    being written, not valid: a start unlinks it
    00000000000000000042.log.swap       complete and on disk: a start lets it replace the segments that it covers
    00000000000000000042.log            in its place

and likewise `.index`, `.timeindex` and, if one of the old ones had one, `.txnindex`. `segment_swap.py` has the order.
Names change on the log owner's thread; a worker writes and syncs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.protocol.records.formats import parse_any_header
from ottla.storage.files.files import File, Files, write_all
from ottla.storage.formats import layout
from ottla.storage.index.index_cache import IndexCache
from ottla.storage.producers.transaction_index import AbortedTransaction, encode_transaction_index
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_indexes import UNKNOWN

MAX_SEGMENT_BYTES: Final = (1 << 31) - 1
"""An index entry has 31 bits for a position."""
WRITE_BYTES: Final = 1024 * 1024
"""The number of bytes that are written at a time."""


class SegmentTooLarge(ValueError):
    """The rest of the segments does not fit one file; tombstones that got their horizon may have made it longer."""


class CleanedSegment:
    """See the module.

    Attributes:
        segment: the segment that `segment_swap.begin` puts into the log.
        changes: whether it differs from the segments that it replaces; set by the writer.
        aborted: the entries of its `.txnindex`, once it is complete.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        replaces: Sequence[Segment],
        *,
        now_ms: int,
        index_interval_bytes: int,
        max_index_bytes: int,
        cache: IndexCache | None,
    ) -> None:
        """Create the empty `.cleaned` files. Raises OSError."""
        self._files = files
        self._replaces = replaces
        self.changes = False
        self.aborted: Sequence[AbortedTransaction] = ()
        base_offset = replaces[0].base_offset
        self.segment = Segment.create(
            files,
            directory,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=index_interval_bytes,
            max_index_bytes=max_index_bytes,
            cache=cache,
            suffix=layout.CLEANED_SUFFIX,
        )
        self._txn_index: File | None = None
        self._waiting: list[bytes | bytearray] = []
        self._waiting_bytes = 0
        self._directory = directory

    def append(self, batch: bytes | bytearray) -> None:
        """Append a batch. Raises OSError, SegmentTooLarge."""
        segment = self.segment
        if segment.size_bytes + len(batch) > MAX_SEGMENT_BYTES:
            raise SegmentTooLarge(f"{segment.path.name}: more than {MAX_SEGMENT_BYTES} bytes stay")
        segment.index(parse_any_header(batch), segment.size_bytes)
        segment.size_bytes += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        write_all(self.segment.file, self._waiting, self.segment.size_bytes - self._waiting_bytes)
        self._waiting, self._waiting_bytes = [], 0

    def complete(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Write the waiting bytes and the indexes. `aborted`: transactions with a needed marker in it. Raises
        OSError.
        """
        self._write()
        self.segment.seal()
        self.segment.first_timestamp_ms = UNKNOWN
        # An empty one is written, too: it replaces the old index.
        replaced = (layout.txn_index_file(self._directory, one.base_offset) for one in self._replaces)
        if aborted or any(self._files.exists(path) for path in replaced):
            path = layout.txn_index_file(self._directory, self.segment.base_offset, layout.CLEANED_SUFFIX)
            self._txn_index = self._files.open(path, create=True)
            self._txn_index.truncate(0)
            write_all(self._txn_index, [encode_transaction_index(aborted)], 0)
        self.aborted = aborted
        # If records have no timestamps, retention counts from the time when the file was written.
        modified_ms = self._files.modified_ms(self._replaces[-1].file.path)
        self._files.set_modified_ms(self.segment.file.path, modified_ms)

    def sync(self) -> None:
        """Bring every byte to the disk. Raises OSError: the directory must not be written to any more."""
        self.segment.sync()
        if self._txn_index is not None:
            self._txn_index.fdatasync()
        self.segment.synced_bytes = self.segment.size_bytes

    def rename(self, suffix: str) -> None:
        """Change the suffix of all names to `suffix`; empty for the names that they have in a log.

        Raises:
            OSError: some may have been renamed.
        """
        for path in self._paths():
            bare = path.name.removesuffix(layout.CLEANED_SUFFIX).removesuffix(layout.SWAP_SUFFIX)
            self._files.rename(path, path.with_name(bare + suffix))
        self.segment.path = self.segment.file.path
        if not suffix and self._txn_index is not None:
            self._txn_index.close()
            self._txn_index = None

    def discard(self) -> None:
        """Close and unlink the files, as far as that works: a start unlinks or finishes the rest."""
        paths = self._paths()
        self.segment.abandon()
        if self._txn_index is not None:
            self._txn_index.close()
        for path in paths:
            try:
                self._files.unlink(path)
            except OSError:  # its topic was deleted, or the disk failed
                continue

    def _paths(self) -> list[Path]:
        paths = self.segment.paths()
        return paths if self._txn_index is None else [*paths, self._txn_index.path]
