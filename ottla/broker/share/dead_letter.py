"""Dead letters (KIP-1191): what is written about records that a share group has archived without success.

One record for each offset, in a batch that the topic of dead letters takes. Its headers say which record it is about
and why; key and value are copies of the record's, or null. Pure. Source: the headers and causes of Kafka 4.4's
`ShareGroupDLQStateManager` and `ShareGroupDLQManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.records.batch import CorruptBatch
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.formats import decode_any, hides_offsets, iter_any
from ottla.protocol.records.record import encode_record

if TYPE_CHECKING:
    from ottla.broker.share.deliveries import DeadLetters
    from ottla.protocol.types import Buffer

MOST_LETTERS_PER_BATCH: Final = 500
"""2 us each where nothing is copied."""
Copies = Mapping[int, tuple[bytes | None, bytes | None]]
"""Key and value of a record, by its offset."""


class About(NamedTuple):
    """The share partition of a dead letter, in words: the group, and the topic and the partition that it reads."""

    group_id: str
    topic: str
    partition: int


def encode_letters(
    about: About,
    letters: DeadLetters,
    first_offset: int,
    last_offset: int,
    copies: Copies,
    *,
    now_ms: int,
    most_bytes: int,
    most_letters: int = MOST_LETTERS_PER_BATCH,
) -> tuple[bytearray, int]:
    """A batch about the offsets from the first on, as many as fit, at least one; and the first offset after it.

    A copy that does not fit into an otherwise empty batch is left out.
    """
    builder = BatchBuilder()
    offset = first_offset
    before = [
        ("__dlq.errors.topic", about.topic.encode()),
        ("__dlq.errors.partition", b"%d" % about.partition),
    ]
    after = [
        ("__dlq.errors.group", about.group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letters.delivery_count),
        ("__dlq.errors.message", letters.cause.value.encode()),
    ]
    while offset <= last_offset and builder.record_count < most_letters:
        headers = [*before, ("__dlq.errors.offset", b"%d" % offset), *after]
        key, value = copies.get(offset, (None, None))
        record = encode_record(0, builder.record_count, key, value, headers)
        if builder.size_bytes + len(record) > most_bytes:
            if builder.record_count:
                break
            record = encode_record(0, 0, None, None, headers)
        builder.append_encoded(record, now_ms)
        offset += 1
    return builder.seal(), offset


def copies_of(
    data: Buffer, first_offset: int, last_offset: int, *, most_bytes: int, most_decompressed_bytes: int
) -> tuple[dict[int, tuple[bytes | None, bytes | None]], int]:
    """Keys and values of the records in `data`, which was read from the first offset on; and the last offset of which
    that is known. After about `most_bytes` no more batches are read. A batch that cannot be read has no copies.
    """
    copies: dict[int, tuple[bytes | None, bytes | None]] = {}
    known_offset = first_offset - 1
    size_bytes = 0
    view = memoryview(data)
    try:
        for position, header in iter_any(view, allow_partial_tail=True):
            if size_bytes >= most_bytes or (header.base_offset > last_offset and not hides_offsets(header)):
                break
            batch = view[position : position + header.size_bytes]
            for offset, key, value in _records(batch, most_decompressed_bytes, is_control=header.is_control):
                if first_offset <= offset <= last_offset:
                    copies[offset] = key, value
                    size_bytes += len(key or b"") + len(value or b"")
            known_offset = max(known_offset, header.next_offset - 1)
    except CorruptBatch:
        pass  # what is after it has no copies
    if known_offset < first_offset:
        known_offset = last_offset  # the log has none of them any more
    return copies, min(known_offset, last_offset)


def _records(
    batch: memoryview, most_decompressed_bytes: int, *, is_control: bool
) -> list[tuple[int, bytes | None, bytes | None]]:
    if is_control:
        return []
    try:
        records = decode_any(batch, max_decompressed_bytes=most_decompressed_bytes)
    except CorruptBatch:
        return []
    return [(record.offset, record.key, record.value) for record in records]
