"""The content of a compressed message of format v0 or v1: the codecs of those formats, and the broken LZ4 of v0.

The codecs are gzip, snappy (with xerial's framing, or one raw block) and lz4; zstd came with format v2. The bytes are
those of `compression.py`, except for one: the Java clients of Kafka before 0.10 computed the checksum in the header of
an LZ4 frame over the frame's magic number too, which it must not cover (KAFKA-3160). Format v0 has kept that: a writer
must write the wrong byte, and a reader must ignore the byte. Format v1 has the right one.

Worked example: the frame header `04 22 4d 18 60 40` has the checksum byte `82`, and `1a` in format v0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.records.compression import Compression, compress, decompress, package
from ottla.protocol.records.errors import CorruptBatch

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR_AT: Final = len(_LZ4_MAGIC)
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_DICTIONARY_FLAG: Final = 0x01
_FIRST_MAGIC_WITH_RIGHT_LZ4: Final = 1


def compress_messages(codec: Compression, data: Buffer, magic: int) -> bytes:
    """`data` as the value of a compressed message of format `magic`. Raises ValueError for zstd."""
    if codec is Compression.ZSTD:
        raise ValueError("there is no zstd in message formats v0 and v1")
    compressed = compress(codec, data)
    if codec is Compression.LZ4 and magic < _FIRST_MAGIC_WITH_RIGHT_LZ4:
        return _with_header_checksum(compressed, covers_magic_number=True)
    return compressed


def decompress_messages(codec: Compression, data: Buffer, magic: int, max_bytes: int) -> bytes:
    """The messages in the value of a compressed one.

    Raises CorruptBatch for broken data and for zstd, DecompressedTooLarge for more than `max_bytes` of output.
    """
    if codec is Compression.ZSTD:
        raise CorruptBatch("there is no zstd in message formats v0 and v1")
    if codec is Compression.LZ4 and magic < _FIRST_MAGIC_WITH_RIGHT_LZ4:
        data = _with_header_checksum(bytes(data), covers_magic_number=False)
    return decompress(codec, data, max_bytes)


def _with_header_checksum(frame: bytes, *, covers_magic_number: bool) -> bytes:
    """The frame with the correct last byte of its header, or with the one of format v0."""
    if len(frame) <= _LZ4_DESCRIPTOR_AT or not frame.startswith(_LZ4_MAGIC):
        raise CorruptBatch("lz4 data does not begin as a frame")
    flags = frame[_LZ4_DESCRIPTOR_AT]
    end = _LZ4_DESCRIPTOR_AT + 2
    end += 8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0
    end += 4 if flags & _LZ4_DICTIONARY_FLAG else 0
    if len(frame) <= end:
        raise CorruptBatch("lz4 data is cut short")
    covered = frame[0 if covers_magic_number else _LZ4_DESCRIPTOR_AT : end]
    digest = package("xxhash", "lz4 in message format v0").xxh32_intdigest(covered)
    return frame[:end] + bytes((digest >> 8 & 0xFF,)) + frame[end + 1 :]
