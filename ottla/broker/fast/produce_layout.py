"""The layout of topics in one version of Produce: read from a request, written into an answer. For the template of
several partitions.

    request, each topic:   name or id, count | index 4, length of the records, records
    answer, each topic:    name or id, count | index 4, error 2, base offset, append time, log start offset, no errors

Counts and lengths are varints from version 9 on, which also adds tags; topics are named by id from version 13 on.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.protocol.primitives import encode_unsigned_varint
from ottla.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.partitions.partition import Partition
    from ottla.protocol.types import Buffer

    Named = tuple[list[Partition], list[memoryview], list[tuple[bytes, int]]]
    """The partitions that a request names and their batches, in order; and its topics, as requests and answers name
    them, with the number of partitions of each."""

FIRST_VERSION_WITH_ERROR_MESSAGES: Final = 8
FIRST_FLEXIBLE_VERSION: Final = 9
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
LAST_VERSION: Final = 13
MOST_PARTITIONS: Final = 1_000
"""A request that names more partitions of a topic takes the slow path."""
_TOPIC_ID_BYTES: Final = 16
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_AND_LENGTH: Final = struct.Struct(">II")


class ProduceLayout:
    """See the module; `layout_of` returns the layout of a version.

    Attributes:
        topics_bytes: the size of what follows the fields of the whole request, in the body of a request without
            topics.
        pack_partition, unpack_partition: a partition of an answer: index, error, base offset, log append time, log
            start offset, and `no_errors`.
        no_errors: follows the offsets of a batch that was stored.
        end_of_topic, end: follow the partitions of a topic in an answer, and the topics.
        header_tags: the tags of an answer's header.
        named: reads the topics of a request.
    """

    __slots__ = (
        *("_has_topic_ids", "_is_flexible", "end", "end_of_topic", "header_tags", "named", "no_errors"),
        *("pack_partition", "topics_bytes", "unpack_partition"),
    )

    def __init__(self, version: int) -> None:
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self._has_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        tags = b"\0" if self._is_flexible else b""
        self.header_tags = self.end_of_topic = tags
        self.end = _INT32.pack(0) + tags  # the throttle time
        if self._is_flexible:
            self.no_errors = b"\1\0\0"  # no record errors, no message, no tags
        elif version >= FIRST_VERSION_WITH_ERROR_MESSAGES:
            self.no_errors = _INT32.pack(0) + _INT16.pack(-1)
        else:
            self.no_errors = b""
        of_partition = struct.Struct(f">ihqqq{len(self.no_errors)}s")
        self.pack_partition, self.unpack_partition = of_partition.pack, of_partition.unpack
        self.topics_bytes = len(self.count(0)) + len(tags)
        self.named: Callable[[memoryview, int, int, Mapping[bytes, list[Partition | None]]], Named | None]
        self.named = self._named if self._is_flexible else self._named_without_tags

    def topic_key(self, name: str, topic_id: UUID) -> bytes:
        """A topic as requests and answers name it."""
        if self._has_topic_ids:
            return topic_id.bytes
        encoded = name.encode()
        length = encode_unsigned_varint(len(encoded) + 1) if self._is_flexible else _INT16.pack(len(encoded))
        return length + encoded

    def topic_of(self, key: bytes) -> tuple[str, UUID]:
        """Name and id of a topic in answers, as far as `key` has them."""
        if self._has_topic_ids:
            return "", UUID(bytes=key)
        return key[_count(key, 0)[1] if self._is_flexible else _INT16.size :].decode(), ZERO_UUID

    def count(self, number: int) -> bytes:
        """The count of an array."""
        return encode_unsigned_varint(number + 1) if self._is_flexible else _INT32.pack(number)

    def _named(
        self, view: memoryview, at: int, end: int, known: Mapping[bytes, list[Partition | None]]
    ) -> Named | None:
        """The topics of the request, in `view[at:end]`, which is the rest of its frame. None where it has anything else
        than one batch of each partition, or a partition that is not `known` (the partitions of topics, by the topics'
        names in requests).

        What is read beyond the end, from other frames, is never returned: then this request does not end where it
        should.
        """
        partitions: list[Partition] = []
        batches: list[memoryview] = []
        topics: list[tuple[bytes, int]] = []
        unpack = _INDEX_AND_LENGTH.unpack_from
        try:
            topic_count, at = _count(view, at)
            for _ in range(topic_count):
                if self._has_topic_ids:
                    following = at + _TOPIC_ID_BYTES
                else:
                    length, following = _count(view, at)
                    following += length
                key = bytes(view[at:following])
                of_topic = known[key]
                count, at = _count(view, following)
                if not 0 < count <= MOST_PARTITIONS:
                    return None
                topics.append((key, count))
                for _ in range(count):
                    index, word = unpack(view, at)
                    partition = of_topic[index]
                    # The length is a varint, encoded plus one: seven bits of each byte, the lowest first.
                    if not word & 0x80_0000 and word & 0x8000_0000:  # two bytes, as for nearly all batches
                        first = at + 6
                        last = first + (word >> 24 & 0x7F | word >> 9 & 0x3F80) - 1
                    elif not word & 0x8000_0000:
                        first = at + 5
                        last = first + (word >> 24) - 1
                    elif not word & 0x8000:
                        first = at + 7
                        last = first + (word >> 24 & 0x7F | word >> 9 & 0x3F80 | word << 6 & 0x1F_C000) - 1
                    elif not word & 0x80:
                        first = at + 8
                        last = first + (word >> 24 & 0x7F | word >> 9 & 0x3F80 | word << 6 & 0x1F_C000) - 1
                        last += (word & 0x7F) << 21
                    else:
                        return None
                    if last <= first or view[last] or partition is None:  # no batch, or tags, or an offline directory
                        return None
                    partitions.append(partition)
                    batches.append(view[first:last])
                    at = last + 1
                if view[at]:
                    return None  # tags: the slow path reads them
                at += 1
            if at != end - 1 or view[at]:
                return None
        except (KeyError, IndexError, struct.error):  # an unknown partition, or a malformed request: for the slow path
            return None
        return partitions, batches, topics

    def _named_without_tags(
        self, view: memoryview, at: int, end: int, known: Mapping[bytes, list[Partition | None]]
    ) -> Named | None:
        """As `_named`, for versions that are not flexible."""
        partitions: list[Partition] = []
        batches: list[memoryview] = []
        topics: list[tuple[bytes, int]] = []
        unpack = _INDEX_AND_LENGTH.unpack_from
        try:
            (topic_count,) = _INT32.unpack_from(view, at)
            at += _INT32.size
            for _ in range(topic_count):
                following = at + _INT16.size + _INT16.unpack_from(view, at)[0]
                key = bytes(view[at:following])
                of_topic = known[key]
                (count,) = _INT32.unpack_from(view, following)
                at = following + _INT32.size
                if not 0 < count <= MOST_PARTITIONS:
                    return None
                topics.append((key, count))
                for _ in range(count):
                    index, length = unpack(view, at)
                    partition = of_topic[index]
                    first = at + _INDEX_AND_LENGTH.size
                    at = first + length
                    if not length or at > end or partition is None:
                        return None
                    partitions.append(partition)
                    batches.append(view[first:at])
        except (KeyError, IndexError, struct.error):
            return None
        return (partitions, batches, topics) if at == end else None


def _count(view: Buffer, at: int) -> tuple[int, int]:
    """A count, or the length of a name, and the position after it. Only varints of one or two bytes are read."""
    first = view[at]
    if first < 128:
        return first - 1, at + 1
    second = view[at + 1]
    if second > 127:
        raise IndexError  # no count is that large
    return (first & 127 | second << 7) - 1, at + 2


@cache
def layout_of(version: int) -> ProduceLayout:
    """The layout of a version; all templates of a version share it."""
    return ProduceLayout(version)
