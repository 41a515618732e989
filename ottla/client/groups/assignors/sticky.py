"""Sticky: the most even assignment in which members keep as many partitions as possible (Kafka's StickyAssignor).

Members give up all partitions before a rebalance. So their former partitions are in the user data, in the format of
Kafka's `StickyAssignorUserData`: an int32 count of topics, each an int16 length, its name, an int32 count and the int32
partitions; then (version 1) the int32 generation. `orders-0` and `orders-2` of generation 7:

    00000001 0006 6f7264657273 00000002 00000000 00000002 00000007

With this format, members of other clients can be in the same group. Among equally even and equally sticky assignments
the choice may differ from Java's; that does not matter, since only the leader computes it.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ottla.client.groups.assignors.balance import Claim, balance
from ottla.client.groups.assignors.interface import NO_GENERATION, Assignment, Assignor, GroupMember
from ottla.client.structs import TopicPartition

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class StickyAssignor(Assignor):
    """See the module."""

    name = "sticky"

    def user_data(self, previous: Sequence[TopicPartition], generation: int) -> bytes:
        """Return the member's former partitions; empty before its first assignment."""
        return encode_previous(previous, generation) if generation >= 0 else b""

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Assign, starting from the members' former partitions."""
        claims = {}
        for member in members:
            previous, generation = decode_previous(member.user_data)
            claims[member.member_id] = Claim(tuple(previous), generation)
        return balance(partition_counts, members, claims)


def encode_previous(previous: Sequence[TopicPartition], generation: int) -> bytes:
    """Return the user data, version 1."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in previous:
        by_topic[topic].append(index)
    parts = [_INT32.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def decode_previous(data: bytes) -> tuple[list[TopicPartition], int]:
    """Return partitions and generation (-1 in version 0); no partitions for malformed user data, as in Kafka."""
    previous: list[TopicPartition] = []
    position = 4
    try:
        (topics,) = _INT32.unpack_from(data, 0)
        if topics < 0:
            return [], NO_GENERATION
        for _ in range(topics):
            (size_bytes,) = _INT16.unpack_from(data, position)
            if size_bytes < 0:  # a step back: the same bytes would be read up to 2**31 times
                return [], NO_GENERATION
            topic = data[position + 2 : position + 2 + size_bytes].decode()
            (count,) = _INT32.unpack_from(data, position := position + 2 + size_bytes)
            indexes = struct.unpack_from(f">{count}i", data, position + 4) if 0 <= 4 * count <= len(data) else None
            if indexes is None:
                return [], NO_GENERATION
            previous += [TopicPartition(topic, index) for index in indexes]
            position += 4 + 4 * count
        generation: int = _INT32.unpack_from(data, position)[0] if len(data) >= position + 4 else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return [], NO_GENERATION
    return previous, generation
