"""Checks of streams groups: whether they are served, the fields of a heartbeat, member epochs, the epochs of commits.

Sources, of Kafka 4.4: `KafkaApis.isStreamsGroupProtocolEnabled`;
`GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid`, whose order this is;
`GroupMetadataManager.throwIfStreamsGroupMemberEpochIsInvalid`; `StreamsGroup.validateOffsetCommit`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.groups.streams.member import (
    JOINING_EPOCH,
    NOT_GIVEN,
    STATIC_LEAVING_EPOCH,
    StreamsMember,
)
from ottla.broker.groups.streams.settings import STREAMS_PROTOCOL_TYPE
from ottla.broker.groups.streams.tasks import NO_PARTITIONS, TaskSets
from ottla.broker.groups.streams.topology import check_expressions, check_structure
from ottla.broker.metadata.features import STREAMS_GROUP_LEVEL, STREAMS_VERSION_FEATURE
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.groups.group import PartitionCheck
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.streams.state import StreamsGroupState
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest

FIRST_COMMIT_VERSION_WITH_EPOCHS = 9


_NOT_SERVED = "this broker does not serve streams groups"


def check_streams_groups(settings: GroupSettings, catalog: Catalog) -> None:
    """Raise UNSUPPORTED_VERSION unless streams groups are configured, and finalized as a feature."""
    is_configured = STREAMS_PROTOCOL_TYPE in settings.rebalance_protocols
    if not is_configured:
        reason = f"group.coordinator.rebalance.protocols does not have {STREAMS_PROTOCOL_TYPE}"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{_NOT_SERVED}: {reason}")
    _, levels = catalog.finalized_features()
    if levels.get(STREAMS_VERSION_FEATURE, 0) < STREAMS_GROUP_LEVEL:
        remedy = "`ottla features upgrade streams.version 1` turns them on"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{_NOT_SERVED}: streams.version is 0 ({remedy})")


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH."""
    topology = request.topology
    if topology is not None:
        check_expressions(topology)
    for text, reason in (
        (request.member_id, "MemberId can't be empty."),
        (request.group_id, "GroupId can't be empty."),
        (request.instance_id, "InstanceId can't be empty."),
        (request.rack_id, "RackId can't be empty."),
    ):
        if text is not None and not text.strip():
            raise _invalid(reason)
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(one is not None for one in tasks) and any(one is None for one in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOINING_EPOCH and topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
    tags = [tag.key for tag in request.client_tags or ()]
    if len(set(tags)) < len(tags):
        raise _invalid("ClientTags must not have the same key twice.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_GIVEN:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for tasks, name in (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    ):
        if tasks is None or tasks:
            raise _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    check_structure(request.topology)


def check_member_epoch(member: StreamsMember, member_epoch: int, owned: TaskSets | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless a heartbeat may have this epoch.

    The previous epoch is valid too, as long as the member has nothing beyond its assignment: the answer with the new
    epoch may have been lost.
    """
    if member_epoch in (JOINING_EPOCH, member.member_epoch):
        return
    if member_epoch > member.member_epoch:
        raise _fenced(member, member_epoch, "greater")
    if member_epoch != member.previous_member_epoch or not _has_all(member, owned):
        raise _fenced(member, member_epoch, "smaller")


def check_commit_epoch(
    state: StreamsGroupState, member: StreamsMember, member_epoch: int, *, commit_version: int | None
) -> PartitionCheck | None:
    """Raise STALE_MEMBER_EPOCH for an epoch in the future; None for the member's own.

    With an earlier one each partition has to be checked: it may be committed if its task was assigned to the member at
    that epoch or before. `commit_version` is that of an OffsetCommit; UNSUPPORTED_VERSION for one without epochs.
    """
    if commit_version is not None and commit_version < FIRST_COMMIT_VERSION_WITH_EPOCHS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the streams group protocol",
        )
    if member_epoch == member.member_epoch:
        return None
    if member_epoch > member.member_epoch:
        raise _stale(f"Received member epoch {member_epoch} is newer than current member epoch {member.member_epoch}.")
    if state.topology is None:
        raise _stale("Topology is not available for offset commit validation.")
    subtopology_of = state.topology.subtopology_by_source

    def check_partition(topic: str, topic_id: object, partition: int) -> None:
        subtopology_id = subtopology_of.get(topic)
        if subtopology_id is None:
            raise _stale(f"Topic {topic} is not in the topology.")
        since = member.assigned.active.get(subtopology_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.active.get(subtopology_id, {}).get(partition)
        if since is None:
            raise _stale(f"Task {subtopology_id}-{partition} is not assigned or pending revocation for member.")
        if member_epoch < since:
            raise _stale(
                f"Received member epoch {member_epoch} is older than assignment epoch {since} for task "
                f"{subtopology_id}-{partition}."
            )

    return check_partition


def check_fetch_epoch(member: StreamsMember, member_epoch: int) -> None:
    """Raise STALE_MEMBER_EPOCH unless the epoch is the member's own."""
    if member_epoch != member.member_epoch:
        raise _stale(
            f"The received member epoch {member_epoch} does not match the expected member epoch {member.member_epoch}."
        )


def _has_all(member: StreamsMember, owned: TaskSets | None) -> bool:
    """Whether a member has all tasks that it reports."""
    return owned is not None and all(
        partitions <= _set(has.get(subtopology_id, NO_PARTITIONS))
        for reported, has in zip(owned, member.assigned, strict=True)
        for subtopology_id, partitions in reported.items()
    )


def _set(partitions: Collection[int]) -> frozenset[int]:
    return frozenset(partitions)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _stale(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, reason)


def _fenced(member: StreamsMember, member_epoch: int, how: str) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {how} member epoch ({member_epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )
