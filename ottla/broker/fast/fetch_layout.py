"""The layout of topics in one version of Fetch: read from a request, written into an answer. For templates of several
partitions.

    request, each topic:   name or id, count | index 4, leader epoch 4, offset 8, the partition's other fields
    answer, each topic:    name or id, count | index 4, error 2, three offsets, aborted transactions, replica, records

Counts and lengths are varints from version 12 on, which also adds tags; topics are named by id from version 13 on.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final

from ottla.protocol.primitives import encode_unsigned_varint

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.fetch.fetch_sessions import FetchTarget

FIRST_VERSION_WITH_LOG_START: Final = 5
FIRST_VERSION_WITH_SESSIONS: Final = 7
FIRST_VERSION_WITH_LEADER_EPOCH: Final = 9
FIRST_VERSION_WITH_RACK: Final = 11
FIRST_FLEXIBLE_VERSION: Final = 12
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
NO_LOG_START: Final = -1
_TOPIC_ID_BYTES: Final = 16
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

Known = tuple["FetchTarget", bytes, bytes]
"""A partition that a template knows, and the fields of a request that may not change: its leader epoch, and the bytes
after the offset.
"""
Offsets = list[tuple["FetchTarget", int]]


class FetchLayout:
    """See the module; `layout_of` returns the layout of a version.

    Attributes:
        is_flexible: whether counts are varints, and tags follow.
        has_session: whether requests and answers name a session.
        has_log_start: whether answers have the log start offset.
        epoch_at, topics_at: the positions of the session's epoch and of the count of topics in a request's body.
        count_bytes: the size of the count of no topics.
        pack_partition: packs a partition of an answer up to the length of its records: index, error, high
            watermark, last stable offset, log start offset if there is one, and the bytes of `behind_offsets`.
    """

    __slots__ = (
        *("_has_leader_epoch", "_has_topic_ids", "_named", "_replica", "_rest"),
        *("count_bytes", "epoch_at", "has_log_start", "has_session", "is_flexible", "pack_partition", "topics_at"),
    )

    def __init__(self, version: int) -> None:
        self.is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self.has_session = version >= FIRST_VERSION_WITH_SESSIONS
        self.has_log_start = version >= FIRST_VERSION_WITH_LOG_START
        self._has_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._has_leader_epoch = version >= FIRST_VERSION_WITH_LEADER_EPOCH
        # After the offset: last fetched epoch, log start offset, most bytes, no tags.
        start = "q" if self.has_log_start else ""
        self._rest = struct.Struct(f">i{start}ib" if self.is_flexible else f">{start}i")
        self._named = struct.Struct(f">i{4 if self._has_leader_epoch else 0}sq{self._rest.size}s")
        self._replica = _INT32.pack(-1) if version >= FIRST_VERSION_WITH_RACK else b""
        self.count_bytes = 1 if self.is_flexible else 4
        self.pack_partition = struct.Struct(f">ihqq{start}{self.count_bytes + len(self._replica)}s").pack
        # Replica id, longest wait, least and most bytes, isolation level; session id and epoch.
        self.epoch_at = (17 if version >= FIRST_VERSION_WITH_REPLICA_STATE else 21) if self.has_session else 17
        self.topics_at = self.epoch_at + 4 if self.has_session else self.epoch_at

    def topic_key(self, topic: str | UUID) -> bytes:
        """A topic as requests and answers name it."""
        if not isinstance(topic, str):
            return topic.bytes
        name = topic.encode()
        return (encode_unsigned_varint(len(name) + 1) if self.is_flexible else _INT16.pack(len(name))) + name

    def known(self, target: FetchTarget, log_start_offset: int) -> Known:
        """The target, and the fields of a request that may not change."""
        leader_epoch = _INT32.pack(target.current_leader_epoch) if self._has_leader_epoch else b""
        said = [log_start_offset] if self.has_log_start else []
        said.append(target.max_bytes)
        if self.is_flexible:
            said = [target.last_fetched_epoch, *said, 0]
        return target, leader_epoch, self._rest.pack(*said)

    def named(self, topics: bytes, known: dict[bytes, dict[int, Known]]) -> Offsets | None:
        """The partitions that a request names in `topics`, and their offsets; None where any of their other fields is
        not known. `known` has each topic's partitions by their index, under its name in requests.
        """
        named: Offsets = []
        unpack, step, is_flexible = self._named.unpack_from, self._named.size, self.is_flexible
        try:
            topic_count, at = self._count(topics, 0)
            for _ in range(topic_count):
                if self._has_topic_ids:
                    following = at + _TOPIC_ID_BYTES
                elif is_flexible:
                    length, following = self._count(topics, at)
                    following += length
                else:
                    following = at + _INT16.size + _INT16.unpack_from(topics, at)[0]
                by_index = known[topics[at:following]]
                count, at = self._count(topics, following)
                for _ in range(count):
                    index, leader_epoch, offset, rest = unpack(topics, at)
                    target, known_leader_epoch, known_rest = by_index[index]
                    if leader_epoch != known_leader_epoch or rest != known_rest:
                        return None
                    named.append((target, offset))
                    at += step
                if is_flexible:
                    if topics[at]:
                        return None  # tags: the slow path reads them
                    at += 1
        except (KeyError, IndexError, struct.error):  # an unknown partition, or a malformed request: for the slow path
            return None
        return named if at == len(topics) else None

    def _count(self, topics: bytes, at: int) -> tuple[int, int]:
        """A count, or the length of a name, and the position after it. Only varints of one or two bytes are read."""
        if not self.is_flexible:
            return _INT32.unpack_from(topics, at)[0], at + _INT32.size
        first = topics[at]
        if first < 128:
            return first - 1, at + 1
        second = topics[at + 1]
        if second > 127:
            raise IndexError  # no count is that large
        return (first & 127 | second << 7) - 1, at + 2

    def behind_offsets(self, *, committed_only: bool) -> bytes:
        """Pack the fields after a partition's offsets: nothing aborted (an empty list, or null), no other replica."""
        if self.is_flexible:
            return (b"\1" if committed_only else b"\0") + self._replica
        return _INT32.pack(0 if committed_only else -1) + self._replica

    def count(self, number: int) -> bytes:
        """The count of an array, or the length of records."""
        return encode_unsigned_varint(number + 1) if self.is_flexible else _INT32.pack(number)


@cache
def layout_of(version: int) -> FetchLayout:
    """The layout of a version; all templates of a version share it."""
    return FetchLayout(version)
