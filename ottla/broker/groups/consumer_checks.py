"""Checks of the consumer protocol: whether it is enabled, whether a heartbeat is well-formed, whether an epoch is
valid.

Sources, of Kafka 4.1: `KafkaApis.isConsumerGroupProtocolEnabled`;
`GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid`, for which a blank text is empty, as here; of
Kafka 4.3: `GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid`, `ConsumerGroup.validateOffsetCommit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NOT_GIVEN,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
)
from ottla.broker.groups.partitions import Partitions, contains
from ottla.broker.groups.target_assignment import ASSIGNORS
from ottla.broker.metadata.features import CONSUMER_PROTOCOL_LEVEL, GROUP_VERSION_FEATURE
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.groups.group import PartitionCheck
    from ottla.broker.groups.settings import GroupSettings

FIRST_VERSION_WITH_OWN_MEMBER_IDS = 1
"""From this version on clients choose their member ids (KIP-1082)."""
FIRST_COMMIT_VERSION_WITH_EPOCHS = 9
NO_EPOCHS: Mapping[int, int] = {}


def check_consumer_protocol(settings: GroupSettings, catalog: Catalog) -> None:
    """Raise UNSUPPORTED_VERSION unless the consumer protocol is configured, and finalized as a feature."""
    is_configured = CONSUMER_PROTOCOL_TYPE in settings.rebalance_protocols
    _, levels = catalog.finalized_features()
    if not is_configured or levels.get(GROUP_VERSION_FEATURE, 0) < CONSUMER_PROTOCOL_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this broker does not serve the consumer protocol")


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR for one that is not among `assignors`."""
    epoch = request.member_epoch
    needs_member_id = api_version >= FIRST_VERSION_WITH_OWN_MEMBER_IDS or epoch > 0 or epoch == LEAVING_EPOCH
    if needs_member_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and (assignor not in assignors or assignor not in ASSIGNORS):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_GIVEN:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def check_member_epoch(member: ConsumerMember, member_epoch: int, owned: Partitions | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless a heartbeat may have this epoch.

    The previous epoch is valid too, as long as the member owns nothing beyond its assignment: the answer with the
    new epoch may have been lost. Epoch 0 is always valid: a member that was fenced, or believes so, has given up all
    that it owned, and joins again.
    """
    if member_epoch > member.member_epoch:
        raise _fenced(member, member_epoch, "greater")
    if JOINING_EPOCH != member_epoch < member.member_epoch:
        is_subset = owned is not None and contains(member.assigned, owned)
        if member_epoch != member.previous_member_epoch or not is_subset:
            raise _fenced(member, member_epoch, "smaller")
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )


def check_commit_epoch(
    member: ConsumerMember, epoch_or_generation: int, *, commit_version: int | None = None
) -> PartitionCheck | None:
    """Raise ILLEGAL_GENERATION for a classic member, STALE_MEMBER_EPOCH for another, for an epoch in the future.

    None for the member's own epoch. With an earlier one each partition has to be checked: it may be committed if it
    was assigned to the member at that epoch or before (KIP-1251). `commit_version` is that of an OffsetCommit;
    UNSUPPORTED_VERSION for one that cannot carry epochs.
    """
    is_classic = member.uses_classic_protocol
    if commit_version is not None and commit_version < FIRST_COMMIT_VERSION_WITH_EPOCHS and not is_classic:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    if epoch_or_generation == member.member_epoch:
        return None
    if epoch_or_generation > member.member_epoch:
        raise _stale(member, epoch_or_generation, f"is newer than the member's, {member.member_epoch}")

    def check_partition(topic: str, topic_id: UUID, partition: int) -> None:
        since = member.assignment_epochs.get(topic_id, NO_EPOCHS).get(partition)
        if since is None:
            raise _stale(
                member, epoch_or_generation, f"is not the member's present one, nor is {topic}-{partition} the member's"
            )
        if epoch_or_generation < since:
            raise _stale(
                member, epoch_or_generation, f"is older than {since}, at which {topic}-{partition} came to the member"
            )

    return check_partition


def check_fetch_epoch(member: ConsumerMember, epoch_or_generation: int) -> None:
    """Raise ILLEGAL_GENERATION for a classic member, STALE_MEMBER_EPOCH for another, unless the epoch is its own."""
    if epoch_or_generation != member.member_epoch:
        raise _stale(member, epoch_or_generation, f"does not match the expected member epoch {member.member_epoch}")


def _stale(member: ConsumerMember, epoch_or_generation: int, why: str) -> KafkaError:
    is_classic = member.uses_classic_protocol
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH,
        f"The received {'generation id' if is_classic else 'member epoch'} {epoch_or_generation} {why}.",
    )


def _fenced(member: ConsumerMember, member_epoch: int, how: str) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({member_epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )
