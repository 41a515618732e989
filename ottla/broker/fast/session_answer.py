"""The answer to a Fetch in a session, as its template gives it: what is new in some of its partitions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.primitives import encode_unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from ottla.broker.partitions.partition import Partition
    from ottla.protocol.types import Buffer

_LENGTH_BYTES = 4
_ANSWER = struct.Struct(">4sbihi")  # correlation id, no tags, throttle time, no error, session id
# Partition, no error, high watermark, last stable offset, log start; aborted transactions, preferred replica.
_PARTITION = struct.Struct(">ihqqqbi")
_NO_TAGS = b"\0"

News = tuple["FetchTarget", "Partition", bytes, int, int, int, memoryview]
"""Of a target: partition, topic id, high watermark, last stable offset, log start offset, records."""


class Found(NamedTuple):
    """What there is to say of a session's partitions, in its order."""

    news: list[News]
    has_records: bool


def session_answer(
    session: FetchSession, news: list[News], correlation_id: bytes, committed_only: bool
) -> list[Buffer]:
    """The frame that reports `news`; the session counts it as sent from now on."""
    counts: list[int] = []
    last_id = b""
    read: list[FetchTarget] = []
    for _, _, topic_id, *_ in news:
        if topic_id == last_id:
            counts[-1] += 1
        else:
            counts.append(1)
            last_id = topic_id
    aborted = 1 if committed_only else 0  # an empty list, or null
    pieces: list[Buffer] = [b""]
    text = _ANSWER.pack(correlation_id, 0, 0, 0, session.id) + encode_unsigned_varint(len(counts) + 1)
    size_bytes = left = slot = 0
    for target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records in news:
        if not left:
            left = counts[slot]
            slot += 1
            text += topic_id + encode_unsigned_varint(left + 1)
        left -= 1
        length = len(records)
        text += _PARTITION.pack(
            target.partition, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1
        ) + encode_unsigned_varint(length + 1)
        target.sent_high_watermark, target.sent_log_start_offset = high_watermark, log_start_offset
        counters = partition.counters
        counters.total_fetch_requests += 1
        if length:
            counters.bytes_out += length
            size_bytes += len(text) + length
            pieces += (text, records)
            text = b""
            read.append(target)
        text += _NO_TAGS if left else _NO_TAGS + _NO_TAGS
    text += _NO_TAGS
    pieces.append(text)
    pieces[0] = (size_bytes + len(text)).to_bytes(_LENGTH_BYTES, "big")
    if len(read) < len(session.targets):  # else the order stays as it is
        for target in read:
            session.read_last(target)
    return pieces
