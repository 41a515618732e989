"""What a dead letter says, how many make a batch, and what is copied."""

from __future__ import annotations

import pytest

from ottla.broker.share.dead_letter import MOST_LETTERS_PER_BATCH, About, copies_of, encode_letters
from ottla.broker.share.deliveries import Cause, DeadLetters
from ottla.protocol.records.batch import decode_batch, encode_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record

ABOUT = About("grüppe", "t", 3)
NOW_MS = 1_800_000_000_000


def letters(first: int, last: int) -> DeadLetters:
    return DeadLetters(first, last, 4, Cause.REJECTED)


def encoded(first: int, last: int, most_bytes: int = 1 << 20, **options: object) -> tuple[list[Record], int, int]:
    """The records, the bytes, and the next offset."""
    copies = options.pop("copies", {})
    batch, next_offset = encode_letters(
        ABOUT, letters(first, last), first, last, copies, now_ms=NOW_MS, most_bytes=most_bytes, **options
    )  # type: ignore[arg-type]  # fields by name
    return decode_batch(batch), len(batch), next_offset


def data(*batches: tuple[int, int], compression: Compression = Compression.NONE) -> bytes:
    """Batches of (first offset, records); each value names its offset."""
    content = bytearray()
    for first, count in batches:
        records = [Record(index, 0, None, b"v%d" % (first + index), ()) for index in range(count)]
        batch = encode_batch(records, compression=compression)
        batch[:8] = first.to_bytes(8, "big")
        content += batch
    return bytes(content)


def copied(content: bytes, first: int, last: int, *, most: int = 1 << 20, decompressed: int = 1 << 20) -> object:
    copies, known = copies_of(content, first, last, most_bytes=most, most_decompressed_bytes=decompressed)
    return {offset: value for offset, (_, value) in copies.items()}, known


def test_a_letter_says_which_record_it_is_about_and_why() -> None:
    (record,), _, next_offset = encoded(7, 7)
    assert record.headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", "grüppe".encode()),
        ("__dlq.errors.delivery.count", b"4"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert (record.key, record.value, record.timestamp, next_offset) == (None, None, NOW_MS, 8)


def test_a_batch_has_as_many_letters_as_the_topic_takes() -> None:
    _, three_bytes, _ = encoded(0, 2)
    for most_bytes, count in ((three_bytes, 3), (three_bytes - 1, 2)):
        records, size, next_offset = encoded(0, 9, most_bytes)
        assert (len(records), next_offset) == (count, count)
        assert size <= most_bytes
    assert len(encoded(0, 9, most_bytes=1)[0]) == 1, "the topic has to refuse it"


def test_a_batch_has_no_more_letters_than_a_turn_has_time_for() -> None:
    records, _, next_offset = encoded(0, 10_000)
    assert len(records) == next_offset == MOST_LETTERS_PER_BATCH
    assert len(encoded(0, 9, most_letters=1)[0]) == 1


def test_a_copy_that_fits_into_no_batch_is_left_out() -> None:
    copies = {0: (b"k", b"v" * 500), 1: (b"k", b"v" * 2_000), 2: (b"k", b"v")}
    found: list[Record] = []
    first = 0
    while first < 3:
        records, size, first = encoded(first, 2, 1_000, copies=copies)
        assert size <= 1_000
        found += records
    assert [(record.key, len(record.value or b"")) for record in found] == [(b"k", 500), (None, 0), (b"k", 1)]


@pytest.mark.parametrize("compression", Compression)
def test_copies_are_those_of_the_records_alone(compression: Compression) -> None:
    content = data((0, 3), (3, 3), (6, 3), compression=compression)
    assert copied(content, 2, 4) == ({2: b"v2", 3: b"v3", 4: b"v4"}, 4)


def test_offsets_without_a_record_have_no_copies() -> None:
    assert copied(data((0, 2), (5, 2)), 0, 5) == ({0: b"v0", 1: b"v1", 5: b"v5"}, 5)
    assert copied(data((5, 2)), 0, 2) == ({}, 2)
    assert copied(b"", 0, 2) == ({}, 2)


def test_what_was_not_read_is_not_known() -> None:
    content = data((0, 2), (2, 2))
    assert copied(content[:-1], 0, 3) == ({0: b"v0", 1: b"v1"}, 1)
    assert copied(content, 0, 3, most=1) == ({0: b"v0", 1: b"v1"}, 1)


def test_a_batch_that_cannot_be_read_has_no_copies() -> None:
    content = bytearray(data((0, 2), (2, 2)))
    content[70] ^= 0xFF
    assert copied(bytes(content), 0, 3) == ({2: b"v2", 3: b"v3"}, 3)
    large = data((0, 2), compression=Compression.GZIP)
    assert copied(large, 0, 1, decompressed=5) == ({}, 1)
