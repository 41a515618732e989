"""The facts about a group that `ottla groups` asks a cluster for: members, committed offsets, ends of the logs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from ottla.diagnosis.group_diagnosis import GroupFacts, MemberFacts, OpenTransaction, PartitionFacts
from ottla.diagnosis.streams_partitions import STREAMS, with_partitions
from ottla.diagnosis.unread import without_records
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client import (
        Admin,
        GroupDescription,
        MemberDescription,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
    )
    from ottla.diagnosis.unread import OpenReader

SHARE = "share"
"""The type of share groups."""
OFFSETS_TOPIC = "__consumer_offsets"
RETENTION_KEY = "offsets.retention.minutes"
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


WITHOUT_COORDINATOR = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors of a broker as long as the group has no coordinator."""


OTHER_KIND = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors of a broker for a member of another kind than the group's."""


class Edges(NamedTuple):
    """The log start offset of a partition, its last stable offset, and its high watermark."""

    start: int
    stable_end: int
    end: int


class GroupView(NamedTuple):
    """A group with its partitions: those assigned and those committed, as far as their topics exist."""

    description: GroupDescription | None
    committed: dict[TopicPartition, OffsetAndMetadata]
    edges: dict[TopicPartition, Edges]
    owners: dict[TopicPartition, MemberDescription]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All of them, sorted."""
        return sorted(self.committed.keys() | self.owners.keys() | self.edges.keys())

    @property
    def is_missing(self) -> bool:
        """Whether there is neither a group nor a committed offset."""
        return self.description is None and not self.committed


def is_share(group: GroupDescription | None) -> TypeGuard[GroupDescription]:
    """Whether this is a share group, which has requests of its own."""
    return group is not None and group.group_type == SHARE


def kind_of(group: GroupDescription) -> str:
    """The kind of the group for people: `share`, `streams`, or `consumer` for both protocols of consumers."""
    return group.group_type if group.group_type in (SHARE, STREAMS) else "consumer"


async def describe_if_there(admin: Admin, group_id: str) -> GroupDescription | None:
    """A group's description, of consumers, a share group or a streams group; None when there is no such group.

    Raises AdminError UNSUPPORTED_VERSION for a share or streams group on a broker where the feature `share.version`, or
    `streams.version`, is 0.
    """
    from ottla.client import AdminError, UnsupportedByBroker

    try:
        return (await admin.describe_groups([group_id]))[group_id]
    except AdminError as refused:
        if refused.errors[group_id].code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    for group_type, describe in ((SHARE, admin.describe_share_groups), (STREAMS, admin.describe_streams_groups)):
        try:
            return await with_partitions(admin, (await describe([group_id]))[group_id])
        except UnsupportedByBroker:
            continue
        except AdminError as refused:
            code = refused.errors[group_id].code
            if code is ErrorCode.UNSUPPORTED_VERSION:
                listed = await admin.list_groups(types=[group_type])
                if not any(one.group_id == group_id for one in listed):
                    continue
            if code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    return None


async def view_group(admin: Admin, group_id: str, description: GroupDescription | None) -> GroupView:
    """All partitions of a group, and of the topics that its members subscribe to."""
    committed = (await admin.list_group_offsets({group_id: None}))[group_id]
    members = description.members if description is not None else []
    owners = {partition: member for member in members for partition in member.assignment}
    topics = {one.topic for one in (*committed, *owners)} | {topic for member in members for topic in member.topics}
    return GroupView(description, committed, await edges_of_topics(admin, topics), owners)


async def edges_of_topics(admin: Admin, topics: Collection[str]) -> dict[TopicPartition, Edges]:
    """Return the beginnings and ends of all logs of those topics that exist."""
    from ottla.client import TopicPartition

    existing = sorted({*topics} & {*await admin.list_topics(include_internal=True)})
    described = await admin.describe_topics(existing) if existing else {}
    partitions = [TopicPartition(name, one.partition) for name, topic in described.items() for one in topic.partitions]
    return await edges_of(admin, partitions)


async def edges_of(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Edges]:
    """Return the beginnings and ends of the logs."""
    import asyncio

    from ottla.client import EARLIEST, LATEST

    asked = list(partitions)
    if not asked:
        return {}
    starts, stable_ends, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(asked, EARLIEST)),
        admin.list_offsets(dict.fromkeys(asked, LATEST), read_committed=True),
        admin.list_offsets(dict.fromkeys(asked, LATEST)),
    )

    def offset(found: dict[TopicPartition, OffsetAndTimestamp | None], one: TopicPartition) -> int:
        place = found[one]
        return place.offset if place is not None else 0

    return {one: Edges(offset(starts, one), offset(stable_ends, one), offset(ends, one)) for one in asked}


async def facts_of(
    admin: Admin, group_id: str, description: GroupDescription | None, open_reader: OpenReader
) -> GroupFacts:
    """Return the facts that `diagnose` needs."""
    view = await view_group(admin, group_id, description)
    existing = sorted({one.topic for one in view.edges})
    transactions = await open_transactions(admin, view.edges)
    unstable = await admin.find_unstable_group_offsets(group_id, view.edges) if view.edges else []
    writers = await _writers_of_offsets(admin, group_id) if unstable else ()
    read = await without_records(open_reader, _behind(view))
    return GroupFacts(
        group_id=group_id,
        state=description.state if description is not None else None,
        protocol_type=description.protocol_type if description is not None else "consumer",
        members=tuple(member_facts(member) for member in description.members) if description is not None else (),
        partition_counts={topic: sum(one.topic == topic for one in view.edges) for topic in existing},
        partitions=tuple(
            PartitionFacts(
                name=f"{one.topic}-{one.partition}",
                topic=one.topic,
                committed=view.committed[one].offset if one in view.committed else None,
                start=edges.start,
                stable_end=edges.stable_end,
                end=edges.end,
                owner=member_name(view.owners[one]) if one in view.owners else None,
                is_owner_static=one in view.owners and view.owners[one].group_instance_id is not None,
                open_transactions=transactions.get(one, ()),
                pending_by=writers if one in unstable else None,
                has_only_ends=one in read,
            )
            for one, edges in sorted(view.edges.items())
        ),
        committed_elsewhere=tuple(
            f"{one.topic}-{one.partition}" for one in sorted(view.committed) if one not in view.edges
        ),
        retention_minutes=await _retention_minutes(admin),
        other_groups=tuple(one.group_id for one in await admin.list_groups()) if description is None else (),
    )


def _behind(view: GroupView) -> dict[TopicPartition, tuple[int, int]]:
    """The partitions where the group has a lag: from its committed offset to the last stable offset."""
    return {
        one: (place.offset, view.edges[one].stable_end)
        for one, place in view.committed.items()
        if one in view.edges and view.edges[one].start <= place.offset < view.edges[one].stable_end
    }


def member_name(member: MemberDescription) -> str:
    """The name of a member: its instance id if it has one."""
    return member.group_instance_id or member.member_id


def member_facts(member: MemberDescription) -> MemberFacts:
    """What a diagnosis needs of a member."""
    owned = set(member.assignment)
    target = owned if member.target_assignment is None else set(member.target_assignment)
    return MemberFacts(
        name=member_name(member),
        topics=frozenset(member.topics),
        pattern=member.pattern,
        partitions=len(owned),
        to_give_up=tuple(f"{one.topic}-{one.partition}" for one in sorted(owned - target)),
        to_take=tuple(f"{one.topic}-{one.partition}" for one in sorted(target - owned)),
    )


async def open_transactions(
    admin: Admin, edges: Mapping[TopicPartition, Edges]
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    """The transactions that hold the last stable offsets back, by partition."""
    held_back = [one for one, edge in edges.items() if edge.stable_end < edge.end]
    return await _with_their_ids(admin, {one: await _open_transactions(admin, one) for one in held_back})


async def _open_transactions(admin: Admin, partition: TopicPartition) -> tuple[OpenTransaction, ...]:
    """The transaction that holds the last stable offset back; None if the broker does not report it."""
    from ottla.client import KafkaError

    try:
        states = (await admin.describe_producers([partition]))[partition]
    except KafkaError:  # the diagnosis continues without names
        return ()
    now_ms = time.time_ns() // 1_000_000
    return tuple(
        OpenTransaction(
            state.producer_id,
            state.transaction_start_offset,
            now_ms - state.last_timestamp_ms if state.last_timestamp_ms >= 0 else None,
        )
        for state in states
        if state.transaction_start_offset is not None
    )


async def _with_their_ids(
    admin: Admin, found: dict[TopicPartition, tuple[OpenTransaction, ...]]
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    """The same transactions, with what the coordinators report about them."""
    from ottla.client import KafkaError

    producer_ids = {transaction.producer_id for some in found.values() for transaction in some}
    if not producer_ids:
        return found
    try:
        listed = await admin.list_transactions(producer_ids=sorted(producer_ids))
    except KafkaError:  # the diagnosis continues without
        return found
    ids = {one.producer_id: one.transactional_id for one in listed if one.state in OPEN_STATES}
    return {
        partition: tuple(
            one._replace(transactional_id=ids.get(one.producer_id), is_hanging=one.producer_id not in ids)
            for one in some
        )
        for partition, some in found.items()
    }


async def _writers_of_offsets(admin: Admin, group_id: str) -> tuple[str, ...]:
    """The transactional ids whose open transactions include offsets of this group, or of another one that shares its
    partition of `__consumer_offsets`; none if the broker does not report them.
    """
    from ottla.broker.coordination.definition import java_hash
    from ottla.client import KafkaError, TopicPartition

    try:
        count = len((await admin.describe_topics([OFFSETS_TOPIC]))[OFFSETS_TOPIC].partitions)
        partition = TopicPartition(OFFSETS_TOPIC, java_hash(group_id) % count)
        ids = [one.transactional_id for one in await admin.list_transactions() if one.state in OPEN_STATES]
        described = await admin.describe_transactions(ids) if ids else {}
    except KafkaError:  # the diagnosis continues without
        return ()
    return tuple(one for one in sorted(described) if partition in described[one].partitions)


async def _retention_minutes(admin: Admin) -> int | None:
    """How long offsets of a group without members are kept; None if the broker does not report it."""
    from ottla.client import ConfigResource, KafkaError

    try:
        brokers = (await admin.describe_cluster()).brokers
        resource = ConfigResource.broker(brokers[0].node_id)
        entry = (await admin.describe_configs([resource], keys=[RETENTION_KEY]))[resource].get(RETENTION_KEY)
    except KafkaError:  # the diagnosis continues without
        return None
    return int(entry.value) if entry is not None and entry.value is not None and entry.value.isdecimal() else None
