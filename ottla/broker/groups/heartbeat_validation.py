"""What a ConsumerGroupHeartbeat must be like before any group is looked at.

Source: `GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid` of Kafka 4.1. A text of blanks counts as
empty, as there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.groups.consumer_member import JOINING_EPOCH, LEAVING_EPOCH, NOT_GIVEN, STATIC_LEAVING_EPOCH
from ottla.broker.groups.target_assignment import ASSIGNORS
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITH_OWN_MEMBER_IDS = 1
"""From this version on clients choose their member ids (KIP-1082)."""


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
