"""The five codecs of a record batch, with an upper bound on the decompressed size.

A compressed batch comes from outside, and a few hundred bytes can claim gigabytes. So `decompress` compares a claimed
size with `max_bytes` before it allocates, and stops as soon as the output exceeds it.

The framing of each codec inside a batch (Ottla writes the same as Kafka's Java clients):

- gzip: RFC 1952; several members in a row are read as one.
- snappy: the framing of xerial's snappy-java: `82 "SNAPPY" 00`, version int32, compatible version int32, then blocks of
  int32 length and a raw snappy block (at most 32 KiB of input each when Ottla writes). librdkafka writes one raw block
  without framing, which is read too.
- lz4: the LZ4 frame format with independent blocks (Kafka's Java reader refuses linked ones), no content size.
- zstd: RFC 8878 frames; several in a row, and skippable ones, are read as one.

Snappy, lz4 and zstd need packages, each of which is imported for the first batch that needs it.
"""

from __future__ import annotations

import struct
import threading
import zlib
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.protocol.records.errors import CorruptBatch, DecompressedTooLarge

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer


class Compression(IntEnum):
    """The codec in the three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Compression:
        """Return the codec of a configuration value: none, gzip, snappy, lz4 or zstd; raises ValueError for others."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"{name!r} is not one of none, gzip, snappy, lz4, zstd") from None


_PACKAGES = {"snappy": "cramjam", "lz4": "lz4", "zstd": "zstandard"}


def missing() -> dict[str, str]:
    """Codecs without their package, as in a Spark executor that has only numpy and pyarrow: package name by codec.

    Reading or writing batches with such a codec raises ImportError. A broker reports them at its start.
    """
    return {codec: package for codec, package in _PACKAGES.items() if not _is_installed(package)}


def _is_installed(package: str) -> bool:
    """Whether a package is installed, without importing it."""
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ImportError:
        return False


@cache
def package(name: str, codec: str) -> Any:
    """A module of the package that a codec needs, imported by its first use.

    Raises ImportError if it is not installed or built for another system, and MemoryError if no file descriptor is free
    to read it: like a lack of memory, that is neither damage in the batch nor a failing disk.
    """
    try:
        return import_module(name)
    except ImportError as error:
        needed = name.partition(".")[0]
        why = f"cannot be loaded: {error}" if _is_installed(needed) else f"is not installed: `pip install {needed}`"
        raise ImportError(f"{codec} needs the package {needed}, which {why}") from error
    except OSError as error:
        raise MemoryError(f"{name} cannot be loaded: {error}") from error


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed as it is in a batch.

    `level` is the codec's own (gzip 1..9, lz4 1..17, zstd -131072..22), None its default; snappy has none.
    """
    if codec == Compression.GZIP:
        return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WBITS)
    if codec == Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Compression.LZ4:
        compressed: bytes = package("lz4.frame", "lz4").compress(
            data, compression_level=0 if level is None else level, block_linked=False, store_size=False
        )
        return compressed
    if codec == Compression.ZSTD:
        compressor = package("zstandard", "zstd").ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level)
        packed: bytes = compressor.compress(memoryview(data))
        return packed
    return bytes(data)


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """Return the decompressed `data`, at most `max_bytes`.

    Raises CorruptBatch when the data is broken or truncated, DecompressedTooLarge for more than `max_bytes` of output.
    """
    view = memoryview(data)
    if codec == Compression.GZIP:
        return _decompress_gzip(view, max_bytes)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(view, max_bytes)
    if codec == Compression.LZ4:
        return _decompress_lz4(view, max_bytes)
    if codec == Compression.ZSTD:
        return _decompress_zstd(view, max_bytes)
    if len(view) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(view)


def _too_large(max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"the records take more than {max_bytes} bytes after decompression")


# gzip ---------------------------------------------------------------------------------------------------------------

_GZIP_WBITS = 31  # a 32 KiB window, with gzip's header and trailer


def _decompress_gzip(view: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    rest: Buffer = view
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = member.decompress(rest, room + 1)
        except zlib.error as broken:
            raise CorruptBatch(f"broken gzip data: {broken}") from None
        if len(part) > room:
            raise _too_large(max_bytes)
        if not member.eof:
            raise CorruptBatch("gzip data is cut short")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy -------------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")

_SNAPPY_BEST_RATIO = 22
"""A snappy element of 3 bytes copies at most 64: no valid block expands further than 64 / 3."""


def _compress_xerial(view: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    snappy = package("cramjam", "snappy").snappy
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, max_bytes: int) -> bytes:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptBatch("snappy data ends inside its framing's header")
    parts: list[bytes] = []
    room = max_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + 4 > len(view):
            raise CorruptBatch("snappy data ends inside a block's length")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if length < 1 or length > len(view) - position:
            raise CorruptBatch(f"a snappy block of {length} bytes where {len(view) - position} remain")
        part = _decompress_snappy_block(view[position : position + length], room, max_bytes)
        parts.append(part)
        room -= len(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    declared = _snappy_declared_bytes(block)
    if declared > len(block) * _SNAPPY_BEST_RATIO:
        raise CorruptBatch(f"a snappy block of {len(block)} bytes claims to hold {declared}")
    if declared > room:
        raise _too_large(max_bytes)
    cramjam = package("cramjam", "snappy")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as broken:
        raise CorruptBatch(f"broken snappy data: {broken}") from None


def _snappy_declared_bytes(block: memoryview) -> int:
    """Return the uncompressed length that opens a raw snappy block (an unsigned varint of at most 5 bytes)."""
    declared = 0
    for place, byte in enumerate(block[:5]):
        declared |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return declared
    raise CorruptBatch("a snappy block does not begin with its length")


# lz4 ----------------------------------------------------------------------------------------------------------------

_LZ4_FIRST_BYTES = 64 * 1024
_LZ4_LARGEST_STEP_BYTES = 4 * 1024 * 1024


def _decompress_lz4(view: memoryview, max_bytes: int) -> bytes:
    """Decompress one LZ4 frame in growing steps, since the library allocates the limit of a step in advance."""
    frame = package("lz4.frame", "lz4").LZ4FrameDecompressor()
    parts: list[bytes] = []
    room = max_bytes
    step = max(_LZ4_FIRST_BYTES, 4 * len(view))
    rest: Buffer = view
    while True:
        wanted = min(step, room + 1, _LZ4_LARGEST_STEP_BYTES)
        try:
            part = frame.decompress(rest, wanted)
        except (RuntimeError, EOFError) as broken:
            raise CorruptBatch(f"broken lz4 data: {broken}") from None
        if len(part) > room:
            raise _too_large(max_bytes)
        parts.append(part)
        room -= len(part)
        if frame.eof:
            break
        if len(part) < wanted and frame.needs_input:
            raise CorruptBatch("lz4 data is cut short")
        rest = b""
        step *= 2
    if frame.unused_data:
        raise CorruptBatch("bytes follow the end of the lz4 frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


# zstd ---------------------------------------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_UINT32 = struct.Struct("<I")
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RLE_BLOCK = 1
_ZSTD_COMPRESSED_BLOCK = 2
_ZSTD_RESERVED_BLOCK = 3
_threads = threading.local()


def _decompress_zstd(view: memoryview, max_bytes: int) -> bytes:
    zstandard = package("zstandard", "zstd")
    decompressor = getattr(_threads, "zstd", None)
    if decompressor is None:
        decompressor = _threads.zstd = zstandard.ZstdDecompressor()
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    while position < len(view):
        end, largest, is_declared = _measure_zstd_frame(view, position)
        if largest is not None:
            if is_declared and largest > room:
                raise _too_large(max_bytes)
            try:
                part = decompressor.decompress(view[position:end], max_output_size=max(1, min(largest, room + 1)))
            except zstandard.ZstdError as broken:
                if largest > room:
                    raise _too_large(max_bytes) from None
                raise CorruptBatch(f"broken zstd data: {broken}") from None
            if len(part) > room:
                raise _too_large(max_bytes)
            parts.append(part)
            room -= len(part)
        position = end
    if not parts:
        raise CorruptBatch("zstd data holds no frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _measure_zstd_frame(view: memoryview, position: int) -> tuple[int, int | None, bool]:
    """Walk one frame's headers and return (its end, its maximum size, whether that is its declared size).

    The maximum is None for a skippable frame. The walk detects truncated data, which the library's streams silently
    accept, and declared sizes that the blocks cannot fill, for which the library would allocate.
    """
    try:
        (magic,) = _ZSTD_UINT32.unpack_from(view, position)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
            end = position + 8 + _ZSTD_UINT32.unpack_from(view, position + 4)[0]
            if end > len(view):
                raise CorruptBatch("zstd data is cut short")
            return end, None, False
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch(f"a zstd frame begins with {magic:#010x}")
        declared, has_checksum, block = _parse_zstd_frame_header(view, position + 4)
        largest = 0
        is_last = 0
        while not is_last:
            header = view[block] | view[block + 1] << 8 | view[block + 2] << 16
            is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
            if kind == _ZSTD_RESERVED_BLOCK or size > _ZSTD_BLOCK_BYTES:
                raise CorruptBatch(f"a zstd block of type {kind} and {size} bytes")
            largest += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED_BLOCK else size
            block += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
    except (IndexError, struct.error):
        raise CorruptBatch("zstd data is cut short") from None
    end = block + (4 if has_checksum else 0)
    if end > len(view):
        raise CorruptBatch("zstd data is cut short")
    if declared is None:
        return end, largest, False
    if declared > largest:
        raise CorruptBatch(f"a zstd frame declares {declared} bytes and its blocks hold at most {largest}")
    return end, declared, True


def _parse_zstd_frame_header(view: memoryview, position: int) -> tuple[int | None, bool, int]:
    """Return (declared content size or None, whether a checksum follows the blocks, position of the first block)."""
    descriptor = view[position]
    is_single_segment = descriptor >> 5 & 1
    size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    position += 1 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    field = view[position : position + size_bytes]
    if len(field) < size_bytes:
        raise IndexError
    declared = int.from_bytes(field, "little") + (256 if size_bytes == 2 else 0) if size_bytes else None
    return declared, bool(descriptor & 4), position + size_bytes
