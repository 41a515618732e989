"""The state that a member of the consumer protocol has reported to its coordinator: heartbeats contain only changes.

Joining sends everything, later heartbeats only changes; null means "unchanged". After a heartbeat without an answer it
is unknown what the coordinator has received, so the next one sends everything again. This is Kafka's
`ConsumerHeartbeatRequestManager.HeartbeatState`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from ottla.client.structs import TopicPartition
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2

Owned = frozenset[tuple[UUID, int]]
"""Partitions as in this protocol, by topic id."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state to report."""

    topics: frozenset[str]
    regex: str | None
    server_assignor: str | None
    rebalance_timeout_ms: int
    owned: Owned = frozenset()


class HeartbeatState:
    """See the module."""

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._reported: Facts | None = None
        self._reporting: Facts | None = None

    def request(self, member_id: str, epoch: int, facts: Facts) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat; call `answered` or `lost` with its result."""
        reported = None if epoch == JOIN_EPOCH else self._reported
        if epoch == JOIN_EPOCH:
            facts = replace(facts, owned=frozenset())
        self._reporting = facts
        is_new_regex = facts.regex != (reported.regex if reported else None)
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._group_instance_id,
            rebalance_timeout_ms=facts.rebalance_timeout_ms if reported is None else -1,
            subscribed_topic_names=sorted(facts.topics)
            if reported is None or facts.topics != reported.topics
            else None,
            subscribed_topic_regex=(facts.regex or "") if is_new_regex else None,
            server_assignor=facts.server_assignor if reported is None else None,
            topic_partitions=_by_id(facts.owned) if reported is None or facts.owned != reported.owned else None,
        )

    def leaving(self, member_id: str, *, for_good: bool) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat of a member that leaves, or of a static one that will return."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=LEAVE_EPOCH if for_good else LEAVE_FOR_A_WHILE_EPOCH,
            instance_id=self._group_instance_id,
        )

    def answered(self) -> None:
        """Note that the coordinator has received the last heartbeat."""
        self._reported, self._reporting = self._reporting, None

    def lost(self) -> None:
        """Note that the coordinator may not have received it."""
        self._reported = self._reporting = None

    def is_reported(self, facts: Facts) -> bool:
        """Whether the coordinator knows all of this."""
        return facts == self._reported


def owned_by_id(partitions: Iterable[TopicPartition], ids: Mapping[str, UUID]) -> Owned:
    """Return partitions by the ids of their topics."""
    return frozenset((ids[topic], index) for topic, index in partitions if topic in ids)


def _by_id(owned: Owned) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    by_id: dict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in sorted(owned):
        by_id[topic_id].append(index)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_id.items()
    ]
