"""What administrators ask of share groups: where they are, to continue elsewhere, to forget topics, to be removed.

The group coordinator knows the groups, their members and topics, the share coordinator their offsets; an answer rests
on both. What is taken away, is taken from the offsets first: offsets without their group would count for a new group of
that name. Source: `describeShareGroupOffsets`, `alterShareGroupOffsets` and `deleteShareGroupOffsets` of Kafka's
`GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordination.writes import JointAnswer
from ottla.broker.groups.share_state import SharedTopic
from ottla.broker.runtime.pending import Pending, follow
from ottla.broker.share.stored_state import SharePartitionKey
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.groups.share_group import ShareGroup
    from ottla.broker.share.coordinator import ShareCoordinator

R = TypeVar("R")
MayUse = Callable[[str], bool]
"""Whether the client has the right to a topic, by its name."""

DescribedTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
DescribedPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


def describe_offsets(
    request: DescribeShareGroupOffsetsRequest,
    groups: GroupCoordinator,
    coordinator: ShareCoordinator,
    catalog: Catalog,
    may_describe: MayUse,
) -> Pending[DescribeShareGroupOffsetsResponse]:
    """The start offset and the lag of each partition, once they are durable; of all topics those that the client may
    describe. Where there is nothing to describe, no group, topic or partition, that is -1. Makes no topic of states.
    """
    described = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    response = DescribeShareGroupOffsetsResponse(groups=[])
    pending: Pending[DescribeShareGroupOffsetsResponse] = Pending()
    answer = JointAnswer(pending, response)
    for asked in request.groups:
        one = described(group_id=asked.group_id, topics=[])
        response.groups.append(one)
        try:
            topics = _topics_of(asked.group_id, groups)
            if asked.topics is not None:
                wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
            else:
                wanted = [(topic.name, sorted(topic.partitions)) for topic in topics if may_describe(topic.name)]
            one.topics = [
                _described(asked.group_id, name, partitions, coordinator, catalog, may_describe, answer)
                for name, partitions in sorted(wanted)
            ]
        except KafkaError as refusal:
            one.error_code, one.error_message = refusal.code, refusal.message
    answer.seal()
    return pending


def _topics_of(group_id: str, groups: GroupCoordinator) -> Collection[SharedTopic]:
    """The topics of which a share group has a state. Raises KafkaError, as `ShardMap.ready`."""
    try:
        return groups.share_group(group_id).durable.topics.values()
    except KafkaError as refusal:
        if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return ()
        raise


def _described(
    group_id: str,
    name: str,
    partitions: Iterable[int],
    coordinator: ShareCoordinator,
    catalog: Catalog,
    may_describe: MayUse,
    answer: JointAnswer[DescribeShareGroupOffsetsResponse],
) -> DescribedTopic:
    topic = catalog.topics.get(name)
    found = DescribedTopic(topic_name=name, topic_id=_id(topic), partitions=[])
    for index in partitions:
        one = DescribedPartition(partition_index=index, start_offset=-1, leader_epoch=0)
        found.partitions.append(one)
        try:
            if not may_describe(name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            one.leader_epoch = _leader_epoch(topic, index)
            key = SharePartitionKey(group_id, topic.id, index)
            one.start_offset, one.lag = coordinator.offsets_of(key)
            coordinator.rest_on(key, answer)
        except KafkaError as error:
            one.error_code, one.error_message = error.code, error.message
    return found


def alter_offsets(
    request: AlterShareGroupOffsetsRequest,
    groups: GroupCoordinator,
    coordinator: ShareCoordinator,
    catalog: Catalog,
    may_read: MayUse,
) -> Pending[AlterShareGroupOffsetsResponse]:
    """Let the partitions of an empty group, or of a new one, begin at other offsets."""
    pending: Pending[AlterShareGroupOffsetsResponse] = Pending()

    def step() -> None:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        groups.check_share_topics(request.group_id)
        response = AlterShareGroupOffsetsResponse(responses=[])
        answer = JointAnswer(pending, response)
        added: dict[UUID, SharedTopic] = {}
        for asked in request.topics:
            name, topic = asked.topic_name, catalog.topics.get(asked.topic_name)
            altered = AlteredTopic(topic_name=name, topic_id=_id(topic), partitions=[])
            response.responses.append(altered)
            done: set[int] = set()
            for one in asked.partitions:
                result = AlteredPartition(partition_index=one.partition_index)
                altered.partitions.append(result)
                try:
                    found = _usable(name, topic, may_read)
                    _leader_epoch(found, one.partition_index)
                    if one.start_offset < 0:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.start_offset} is no offset")
                    key = SharePartitionKey(request.group_id, found.id, one.partition_index)
                    coordinator.set_offset(key, one.start_offset, answer)
                    done.add(one.partition_index)
                except KafkaError as error:
                    result.error_code, result.error_message = error.code, error.message
            if done and topic is not None:
                added[topic.id] = SharedTopic(name, frozenset(done))
        if added:
            groups.set_share_topics(request.group_id, added, (), answer)
        answer.seal()

    def prepared(error: KafkaError | None) -> None:
        if pending.done:
            return  # the client went away while `__consumer_offsets` was made
        if error is not None:
            pending.fail(error)
        else:
            coordinator.when_made(pending, step)

    groups.prepare(request.group_id, prepared)
    return pending


def delete_offsets(
    request: DeleteShareGroupOffsetsRequest,
    groups: GroupCoordinator,
    coordinator: ShareCoordinator,
    catalog: Catalog,
    may_read: MayUse,
) -> Pending[DeleteShareGroupOffsetsResponse]:
    """Let an empty group forget topics: their offsets first, then that it has them."""
    pending: Pending[DeleteShareGroupOffsetsResponse] = Pending()
    response = DeleteShareGroupOffsetsResponse(responses=[])

    def step() -> None:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = groups.share_group(request.group_id)
        group.check_delete()
        removed: set[UUID] = set()
        for asked in request.topics:
            name, topic = asked.topic_name, catalog.topics.get(asked.topic_name)
            result = DeletedTopic(topic_name=name, topic_id=_id(topic))
            response.responses.append(result)
            try:
                found = _usable(name, topic, may_read)
                if found.id not in group.durable.topics:
                    reason = "There is no offset information to delete."
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
                removed.add(found.id)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        forgotten: Pending[None] = Pending()
        answer: JointAnswer[None] = JointAnswer(forgotten, None)
        keys = [key for key in coordinator.keys_of(request.group_id) if key.topic_id in removed]
        coordinator.forget(keys, answer)
        answer.seal()
        forgotten.then(lambda done: note(done, removed))

    def note(forgotten: Pending[None], removed: Collection[UUID]) -> None:
        if forgotten.error is not None:
            pending.fail(forgotten.error)
            return
        answer = JointAnswer(pending, response)
        try:
            groups.set_share_topics(request.group_id, {}, removed, answer)
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.NON_EMPTY_GROUP:
                pending.fail(refusal)
                return
            # A member has joined meanwhile: the offsets are deleted, and the group has the topics again.
        answer.seal()

    return coordinator.when_made(pending, step)


def forget_groups(
    group_ids: Collection[str], groups: GroupCoordinator, coordinator: ShareCoordinator, then: Callable[[], Pending[R]]
) -> Pending[R]:
    """Remove the offsets of those that are share groups without members, then do what comes next: their removal.

    A group whose removal would be refused keeps its offsets, and no member joins a group between the two. (Kafka lets
    one join: it then refuses to remove the group, whose offsets are gone.)
    """
    pending: Pending[R] = Pending()
    held: list[ShareGroup] = []

    def step() -> None:
        forgotten: Pending[None] = Pending()
        answer: JointAnswer[None] = JointAnswer(forgotten, None)
        try:
            for group_id in dict.fromkeys(group_ids):
                try:
                    group = groups.share_group(group_id)
                    groups.shards.ready(group_id).check_delete_group(group_id)
                except KafkaError:
                    continue  # the removal itself says so
                group.is_being_deleted = True
                held.append(group)
                coordinator.forget(coordinator.keys_of(group_id), answer)
        except BaseException:
            release()
            raise
        answer.seal()
        forgotten.then(removed)

    def release() -> None:
        for group in held:
            group.is_being_deleted = False
        held.clear()

    def removed(forgotten: Pending[None]) -> None:
        release()
        if forgotten.error is not None:
            pending.fail(forgotten.error)
        else:
            follow(pending, then())

    return coordinator.when_made(pending, step)


def _usable(name: str, topic: Topic | None, may_read: MayUse) -> Topic:
    if not may_read(name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    return topic


def _leader_epoch(topic: Topic, index: int) -> int:
    """The leader epoch of a partition. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{index} does not exist")
    partition = topic.partitions[index]
    return 0 if partition is None else partition.leader_epoch


def _id(topic: Topic | None) -> UUID:
    return ZERO_UUID if topic is None else topic.id
