"""Iteration over the batches of a `.log` by their headers; a message of format v0 or v1 counts as a batch
(`formats.py`).

A reader is `File.pread`, which may wait for the disk, or `nowait(file)`, which raises NotResident instead. Mapped
memory is never read here: a page that the disk has lost would be SIGBUS (docs/decisions/maps-are-for-the-kernel.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from ottla.protocol.records.formats import header_of_whole, hides_offsets, parse_any_header
from ottla.storage.files.files import File

Reader = Callable[[int, int], bytes | bytearray | memoryview]
"""(length, position) -> exactly `length` bytes, or fewer at the end of the file."""

LOOKUP_CHUNK_BYTES: Final = 8 * 1024
"""One read of this size covers the default index interval, and wastes little on large batches."""
SEQUENTIAL_CHUNK_BYTES: Final = 1024 * 1024


class NotResident(Exception):
    """The bytes are not in memory: a thread must read them."""


def nowait(file: File) -> Reader:
    """A reader that never waits for a disk."""

    def read(length: int, position: int) -> bytes | bytearray:
        data = file.pread_nowait(length, position)
        if data is None:
            raise NotResident
        return data

    return read


def walk(
    read: Reader, position: int, limit: int, chunk_bytes: int = LOOKUP_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch that begins at or after `position`, where one begins, and ends by `limit`.

    The base offset of a compressed message of an old format is its last offset; `with_inner_offsets` finds the first.

    Raises:
        CorruptBatch: no batch is where one should be, or `limit` truncates it; the message has the position.
    """
    chunk: bytes | bytearray | memoryview = b""
    chunk_position = position
    while position < limit:
        inside = position - chunk_position
        if inside + HEADER_BYTES > len(chunk):
            chunk = read(min(chunk_bytes, limit - position), position)
            chunk_position, inside = position, 0
        try:
            header = parse_any_header(chunk, inside)
        except CorruptBatch as error:
            raise _no_batch(chunk, inside, position, error) from None
        end = position + header.batch_length + 12
        if end > limit:
            raise CorruptBatch(
                f"at position {position}: a batch of {header.size_bytes} bytes, {limit - position} remain"
            )
        yield position, header
        position = end


def _no_batch(chunk: bytes | bytearray | memoryview, inside: int, position: int, error: CorruptBatch) -> CorruptBatch:
    """The error for the bytes at `position`. Zeros are reported as such, and not as a wrong header: a file system
    leaves them where it kept a file's length but not its content.
    """
    header = chunk[inside : inside + HEADER_BYTES]
    problem = "zeros where a batch was expected" if header and not any(header) else str(error)
    return CorruptBatch(f"at position {position}: {problem}")


def with_inner_offsets(read: Reader, position: int, header: BatchHeader) -> BatchHeader:
    """The header, for a compressed message with the offsets and the count of the messages inside.

    The header of one that cannot be decompressed is unchanged, too: readers will get the error.
    """
    if not hides_offsets(header):
        return header
    try:
        return header_of_whole(read(header.size_bytes, position), header)
    except CorruptBatch:
        return header


def batches(read: Reader, position: int, limit: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """(position, header, bytes) of each batch, as found by `walk`, for callers that read a whole segment.

    Raises:
        CorruptBatch: as `walk`.
    """
    chunk = b""
    chunk_position = position
    while position < limit:
        inside = position - chunk_position
        wanted = HEADER_BYTES
        while True:
            if inside + wanted > len(chunk):
                chunk = bytes(read(min(max(SEQUENTIAL_CHUNK_BYTES, wanted), limit - position), position))
                chunk_position, inside = position, 0
            try:
                header = parse_any_header(chunk, inside)
            except CorruptBatch as error:
                raise _no_batch(chunk, inside, position, error) from None
            if inside + header.size_bytes <= len(chunk):
                break
            if header.size_bytes > limit - position or wanted == header.size_bytes:
                raise CorruptBatch(
                    f"at position {position}: a batch of {header.size_bytes} bytes, {limit - position} remain"
                )
            wanted = header.size_bytes
        yield position, header, chunk[inside : inside + header.size_bytes]
        position += header.size_bytes
