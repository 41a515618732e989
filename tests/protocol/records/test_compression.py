"""Each codec is bounded, whatever the compressed bytes claim of themselves."""

from __future__ import annotations

import contextlib
import errno
import gzip
import random
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.protocol.records import compression
from ottla.protocol.records.compression import Compression, compress, decompress
from ottla.protocol.records.errors import CorruptBatch, DecompressedTooLarge

ALL = list(Compression)
CODECS = ALL[1:]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@given(data=st.binary(max_size=5000), codec=st.sampled_from(ALL))
def test_what_went_in_comes_out_at_exactly_its_size(data, codec):
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("size", [1, 1000, 65536, 65537, 3_000_000])
def test_one_byte_over_the_limit_is_too_large(codec, size):
    compressed = compress(codec, random.Random(size).randbytes(size // 2) + bytes(size - size // 2))
    assert len(decompress(codec, compressed, size)) == size
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, compressed, size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_memory_worth_mentioning(codec):
    bomb = compress(codec, bytes(40_000_000))
    tracemalloc.start()
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, 100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_cut_data_is_corrupt(codec):
    compressed = compress(codec, b"some words that repeat, some words that repeat " * 20)
    for size in range(len(compressed)):
        if codec is Compression.SNAPPY and size == len(XERIAL):
            continue  # the framing without a block holds nothing, and says so truthfully
        with pytest.raises(CorruptBatch):
            decompress(codec, compressed[:size], 100_000)


@settings(max_examples=examples(200))
@given(data=st.binary(max_size=120), codec=st.sampled_from(CODECS), prefix=st.booleans())
def test_noise_is_corrupt_or_small(data, codec, prefix):
    start = {
        Compression.GZIP: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        Compression.SNAPPY: XERIAL,
        Compression.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }[codec]
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, start + data if prefix else data, 10_000)) <= 10_000


def test_gzip_members_in_a_row_are_one():
    joined = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, joined, 7) == b"one two"
    with pytest.raises(DecompressedTooLarge):
        decompress(Compression.GZIP, joined, 6)
    with pytest.raises(CorruptBatch):
        decompress(Compression.GZIP, joined + b"\x1f", 100)


def test_snappy_without_framing_is_read():
    raw = bytes(cramjam.snappy.compress_raw(b"plain " * 100))
    assert decompress(Compression.SNAPPY, raw, 600) == b"plain " * 100


def test_snappy_blocks_count_together():
    data = random.Random(3).randbytes(100_000)
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(XERIAL)
    assert decompress(Compression.SNAPPY, framed, 100_000) == data
    with pytest.raises(DecompressedTooLarge):
        decompress(Compression.SNAPPY, framed, 99_999)


@pytest.mark.parametrize(
    "block",
    [
        b"\xff\xff\xff\xff\x0f" + b"\x00" * 10,  # a raw block that claims 4 GiB
        b"\xff\xff\xff\xff\xff\xff",  # a length that never ends
        XERIAL[:12],
        XERIAL + b"\x00\x00",
        XERIAL + struct.pack(">i", 0),
        XERIAL + struct.pack(">i", -1) + b"abc",
        XERIAL + struct.pack(">i", 4) + b"abc",
        b"",
    ],
)
def test_snappy_lengths_that_cannot_be_are_corrupt_before_memory_is_taken(block):
    with pytest.raises(CorruptBatch) as refused:
        decompress(Compression.SNAPPY, block, 2**33)
    assert not isinstance(refused.value, DecompressedTooLarge)


def test_lz4_blocks_are_independent_as_javas_reader_demands():
    compressed = compress(Compression.LZ4, bytes(1_000_000))
    information = lz4.frame.get_frame_info(compressed)
    assert information["block_linked"] is False
    assert decompress(Compression.LZ4, lz4.frame.compress(b"linked " * 50_000), 350_000) == b"linked " * 50_000


def test_bytes_behind_an_lz4_frame_are_corrupt():
    with pytest.raises(CorruptBatch):
        decompress(Compression.LZ4, compress(Compression.LZ4, b"abc") + b"x", 100)


def zstd_streamed(data: bytes) -> bytes:
    """Compress as Java's stream does: without the content's size."""
    return zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(data)


def test_zstd_frames_with_and_without_a_size_in_a_row_are_one():
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"any"
    joined = zstd_streamed(b"one ") + skippable + zstandard.compress(b"two")
    assert decompress(Compression.ZSTD, joined, 7) == b"one two"
    with pytest.raises(DecompressedTooLarge):
        decompress(Compression.ZSTD, joined, 6)
    for size in range(len(joined)):
        if size in (len(zstd_streamed(b"one ")), len(zstd_streamed(b"one ") + skippable)):
            continue
        with pytest.raises(CorruptBatch):
            decompress(Compression.ZSTD, joined[:size], 100)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 300_000, 2_000_000])
def test_zstd_sizes_in_every_field_width(size):
    data = random.Random(size).randbytes(size)
    for compressed in (zstandard.compress(data), zstd_streamed(data)):
        assert decompress(Compression.ZSTD, compressed, size) == data


def test_a_zstd_frame_that_declares_more_than_its_blocks_hold_is_corrupt():
    liar = bytearray(zstandard.compress(bytes(70_000)))
    assert liar[4] >> 6 == 2  # the size has four bytes
    width = 6 if not liar[4] >> 5 & 1 else 5
    struct.pack_into("<I", liar, width, 2**31)
    with pytest.raises(CorruptBatch) as refused:
        decompress(Compression.ZSTD, liar, 2**33)
    assert not isinstance(refused.value, DecompressedTooLarge)


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_levels_are_taken(codec, level):
    chance = random.Random(4)
    words = [chance.randbytes(chance.randrange(3, 12)) for _ in range(500)]
    data = b" ".join(chance.choices(words, k=20_000))
    assert decompress(codec, compress(codec, data, level), 400_000) == data
    assert len(compress(codec, data, 9)) < len(compress(codec, data, 1))


def test_codecs_are_found_by_their_configuration_names():
    assert [Compression.named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == ALL
    with pytest.raises(ValueError, match="brotli"):
        Compression.named("brotli")


def test_a_package_that_no_descriptor_is_left_for_is_a_lack_of_memory_and_found_the_next_time(monkeypatch):
    compression.package.cache_clear()

    def no_descriptor(name):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(compression, "import_module", no_descriptor)
        with pytest.raises(MemoryError, match=r"lz4.frame cannot be loaded: .*Too many open files"):
            compress(Compression.LZ4, b"x")
    assert decompress(Compression.LZ4, compress(Compression.LZ4, b"x"), 1) == b"x"
