"""Conversion of what an old client produces to batches, which are gathered then: immediately if small, else in a
worker.

Called by the Produce handler, on the broker's thread. While a worker converts, no later request of the client starts
(the answer parks), so that its messages keep their order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.formats.conversion import is_batch, to_batch
from ottla.protocol.errors import ErrorCode
from ottla.storage.log.append import FIRST_PRODUCE_VERSION_WITH_ZSTD, AppendEntry, Refused

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.workers import OneAtATime

LOG = logging.getLogger("ottla.produce_conversion")

MOST_BYTES_AT_ONCE: Final = 16 * 1024
"""The bytes of one request that are converted on the broker's thread: some milliseconds if messages are small."""


class OldRecords(NamedTuple):
    """The records of a Produce 0-2 for one partition; `slot` is the request's own number for it."""

    slot: int
    partition: Partition
    records: memoryview


Converted = Callable[[OldRecords, AppendEntry | Refused], None]
"""Called for each partition with its records and the result of their conversion."""


def is_little(parts: Sequence[OldRecords]) -> bool:
    """Whether `convert_now` may be called, rather than `convert_in_worker`."""
    return sum(len(part.records) for part in parts) <= MOST_BYTES_AT_ONCE and not any(map(_may_expand, parts))


def convert_now(parts: Sequence[OldRecords], version: int, converted: Converted) -> None:
    """Convert, and call `converted` immediately."""
    for part in parts:
        converted(part, _entry(part, part.records, version))


def convert_in_worker(
    conversions: OneAtATime, peer: Peer, parts: Sequence[OldRecords], version: int, converted: Converted
) -> None:
    """Convert in a worker thread, and call `converted` when that is done. The records are copied first: their buffer
    is the connection's. The copies count as received until then.
    """
    copies = [bytearray(part.records) for part in parts]
    copied_bytes = sum(map(len, copies))
    if peer.endpoint.received is not None:
        peer.endpoint.received.note_copied(copied_bytes)

    def convert() -> list[AppendEntry | Refused]:
        return [_entry(part, memoryview(copy), version) for part, copy in zip(parts, copies, strict=True)]

    def done(entries: Sequence[AppendEntry | Refused] | None, error: BaseException | None) -> None:
        if entries is None:
            LOG.error("bug: old messages could not be converted", exc_info=error)
            entries = [Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the messages could not be converted")] * len(parts)
        copies.clear()
        for part, entry in zip(parts, entries, strict=True):
            converted(part, entry)
        if peer.endpoint.received is not None:
            peer.endpoint.received.drop_copied(copied_bytes)

    conversions.run(convert, done)


def _may_expand(part: OldRecords) -> bool:
    """Whether the first message is compressed, so that its size does not limit the work."""
    attributes = part.records[17:18]
    return bool(attributes) and bool(attributes[0] & 0x07) and not is_batch(part.records)


def _entry(part: OldRecords, records: memoryview, version: int) -> AppendEntry | Refused:
    if is_batch(records):
        return AppendEntry(records, version)
    try:
        batch = to_batch(records, part.partition.log.config)
    except Refused as refused:
        return refused
    # The codec is the topic's or one that old messages may have; the client's version no longer matters.
    return AppendEntry(batch, FIRST_PRODUCE_VERSION_WITH_ZSTD)
