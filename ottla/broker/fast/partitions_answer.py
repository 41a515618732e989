"""The answer to a Fetch, as a template of several partitions gives it: the partitions that have something to report."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.broker.fast.fetch_template import MOST_JOINED_BYTES
from ottla.protocol.primitives import encode_unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.fast.fetch_layout import FetchLayout
    from ottla.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from ottla.broker.partitions.partition import Partition
    from ottla.protocol.types import Buffer

_LENGTH_BYTES = 4
# Correlation id, throttle time; no error, session id.
_HEAD = struct.Struct(">4si")
_HEAD_OF_SESSION = struct.Struct(">4sihi")
_FLEXIBLE_HEAD = struct.Struct(">4sbihi")
_NO_TAGS = b"\0"
_ONE = struct.Struct(">i4sbihi b16sb ihqqqbi")  # one topic with one partition, in the versions that name topics by id
_ONE_COUNT = 2  # compact arrays encode the count plus one
_TAGS_OF_ALL = b"\0\0\0"  # of the partition, the topic, the response
_PACK_ONE = _ONE.pack
_ONE_HEAD_BYTES = _ONE.size - _LENGTH_BYTES + len(_TAGS_OF_ALL)
"""The size of such an answer without records, their length and the size field."""

News = tuple["FetchTarget", "Partition", bytes, int, int, int, "Buffer"]
"""A target, its partition, the topic as answers name it, high watermark, last stable offset, log start offset, records.
"""

Found = tuple[list[News], int]
"""What there is to report of the partitions, in their order, and the total bytes of records in it."""


def partitions_answer(
    layout: FetchLayout, session: FetchSession | None, news: list[News], correlation_id: bytes, committed_only: bool
) -> list[Buffer]:
    """The frame that reports `news`; the session counts it as sent from now on."""
    counts: list[int] = []
    last_topic = b""
    for _, _, topic, *_ in news:
        if topic == last_topic:
            counts[-1] += 1
        else:
            counts.append(1)
            last_topic = topic
    is_flexible, has_log_start, count_of = layout.is_flexible, layout.has_log_start, layout.count
    no_length = count_of(0)
    pack, behind = layout.pack_partition, layout.behind_offsets(committed_only=committed_only)
    pieces: list[Buffer] = [b""]
    read: list[FetchTarget] = []
    texts = [_head(layout, session, correlation_id), count_of(len(counts))]
    size_bytes = left = slot = 0
    for target, partition, topic, high_watermark, last_stable_offset, log_start_offset, records in news:
        if not left:
            left = counts[slot]
            slot += 1
            texts += (topic, count_of(left))
        left -= 1
        length = len(records)
        if has_log_start:
            texts.append(pack(target.partition, 0, high_watermark, last_stable_offset, log_start_offset, behind))
        else:
            texts.append(pack(target.partition, 0, high_watermark, last_stable_offset, behind))
        texts.append(count_of(length) if length else no_length)
        counters = partition.counters
        counters.total_fetch_requests += 1
        if length:
            counters.bytes_out += length
            text = b"".join(texts)
            texts.clear()
            size_bytes += len(text) + length
            pieces += (text, records)
            read.append(target)
        if is_flexible:
            texts.append(_NO_TAGS if left else _NO_TAGS + _NO_TAGS)
    if is_flexible:
        texts.append(_NO_TAGS)
    text = b"".join(texts)
    pieces.append(text)
    pieces[0] = (size_bytes + len(text)).to_bytes(_LENGTH_BYTES, "big")
    if session is not None:
        for target, _, _, high_watermark, _, log_start_offset, _ in news:
            target.sent_high_watermark, target.sent_log_start_offset = high_watermark, log_start_offset
        if len(read) < len(session.targets):  # else the order stays as it is
            for target in read:
                session.read_last(target)
    return pieces


def _head(layout: FetchLayout, session: FetchSession | None, correlation_id: bytes) -> bytes:
    """An answer up to the count of its topics."""
    session_id = 0 if session is None else session.id
    if layout.is_flexible:
        return _FLEXIBLE_HEAD.pack(correlation_id, 0, 0, 0, session_id)
    if layout.has_session:
        return _HEAD_OF_SESSION.pack(correlation_id, 0, 0, session_id)
    return _HEAD.pack(correlation_id, 0)


def answer_of_one(session: FetchSession, news: News, correlation_id: bytes, committed_only: bool) -> list[Buffer]:
    """`partitions_answer` for one partition, which is the usual case at the end of a log, where the session names
    topics by id. It takes a third of the steps.
    """
    target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records = news
    length = len(records)
    length_field = encode_unsigned_varint(length + 1)
    head = _PACK_ONE(
        _ONE_HEAD_BYTES + len(length_field) + length,
        correlation_id,
        0,
        0,
        0,
        session.id,
        _ONE_COUNT,
        topic_id,
        _ONE_COUNT,
        target.partition,
        0,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        1 if committed_only else 0,  # aborted transactions: an empty list, or null
        -1,
    )
    target.sent_high_watermark, target.sent_log_start_offset = high_watermark, log_start_offset
    counters = partition.counters
    counters.total_fetch_requests += 1
    if length:
        counters.bytes_out += length
        if len(session.targets) > 1:  # else the order stays as it is
            session.read_last(target)
    if length <= MOST_JOINED_BYTES:
        return [b"".join((head, length_field, records, _TAGS_OF_ALL))]
    return [head + length_field, records, _TAGS_OF_ALL]
