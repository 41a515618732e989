"""The answer to a Fetch in a session, as its template gives it: what is new in some of its partitions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

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
_ONE = struct.Struct(">4sbihi b16sb ihqqqbi")  # both of them around one topic with one partition
_ONE_COUNT = 2  # as compact arrays have it: one more
_TAGS_OF_ALL = b"\0\0\0"  # of the partition, the topic, the response
_SHORT_COUNTS = [encode_unsigned_varint(number + 1) for number in range(127)]
"""The counts of a byte: a look is cheaper than a call."""

News = tuple["FetchTarget", "Partition", bytes, int, int, int, memoryview]
"""Of a target: partition, topic id, high watermark, last stable offset, log start offset, records."""


Found = tuple[list[News], int]
"""What there is to say of a session's partitions, in its order; and the bytes of the records among it."""


def session_answer(
    session: FetchSession, news: list[News], correlation_id: bytes, committed_only: bool
) -> list[Buffer]:
    """The frame that reports `news`; the session counts it as sent from now on."""
    if len(news) == 1:
        return _answer_of_one(session, news[0], correlation_id, committed_only)
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
    topics = len(counts)
    text = _ANSWER.pack(correlation_id, 0, 0, 0, session.id)
    text += _SHORT_COUNTS[topics] if topics < 127 else encode_unsigned_varint(topics + 1)
    size_bytes = left = slot = 0
    for target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records in news:
        if not left:
            left = counts[slot]
            slot += 1
            text += topic_id + (_SHORT_COUNTS[left] if left < 127 else encode_unsigned_varint(left + 1))
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


def _answer_of_one(session: FetchSession, news: News, correlation_id: bytes, committed_only: bool) -> list[Buffer]:
    """`session_answer` where there is something to say of one partition only, as nearly always at the end of a log: a
    third of the steps.
    """
    target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records = news
    length = len(records)
    aborted = 1 if committed_only else 0  # an empty list, or null
    head = correlation_id, 0, 0, 0, session.id, _ONE_COUNT, topic_id, _ONE_COUNT
    offsets = high_watermark, last_stable_offset, log_start_offset
    text = _ONE.pack(*head, target.partition, 0, *offsets, aborted, -1) + encode_unsigned_varint(length + 1)
    target.sent_high_watermark, target.sent_log_start_offset = high_watermark, log_start_offset
    counters = partition.counters
    counters.total_fetch_requests += 1
    size = (len(text) + length + len(_TAGS_OF_ALL)).to_bytes(_LENGTH_BYTES, "big")
    if not length:
        return [size, text + _TAGS_OF_ALL]
    counters.bytes_out += length
    if len(session.targets) > 1:  # else the order stays as it is
        session.read_last(target)
    return [size, text, records, _TAGS_OF_ALL]
