"""Whether what a member says of its epoch is true: for heartbeats, and for commits and reads of offsets.

Source: Kafka 4.1's `GroupMetadataManager` (`throwIfConsumerGroupMemberEpochIsInvalid`) and `ConsumerGroup`.
"""

from __future__ import annotations

from ottla.broker.groups.consumer_member import ConsumerMember, MemberState
from ottla.broker.groups.partitions import Partitions, contains
from ottla.protocol.errors import ErrorCode, KafkaError

FIRST_COMMIT_VERSION_WITH_EPOCHS = 9


def check_member_epoch(member: ConsumerMember, member_epoch: int, owned: Partitions | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless a heartbeat may come with this epoch.

    The previous epoch is good too, as long as the member owns nothing beyond its assignment: the answer that told it
    the new epoch may have been lost.
    """
    if member_epoch > member.member_epoch:
        raise _fenced(member, member_epoch, "greater")
    if member_epoch < member.member_epoch:
        is_subset = owned is not None and contains(member.assigned, owned)
        if member_epoch != member.previous_member_epoch or not is_subset:
            raise _fenced(member, member_epoch, "smaller")
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )


def check_offset_epoch(member: ConsumerMember, epoch_or_generation: int, *, commit_version: int | None = None) -> None:
    """Raise ILLEGAL_GENERATION for a classic member, STALE_MEMBER_EPOCH for another, unless the epoch is its own.

    `commit_version` is that of an OffsetCommit; UNSUPPORTED_VERSION for one that cannot carry epochs.
    """
    is_classic = member.uses_classic_protocol
    if commit_version is not None and commit_version < FIRST_COMMIT_VERSION_WITH_EPOCHS and not is_classic:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    if epoch_or_generation != member.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received {'generation id' if is_classic else 'member epoch'} {epoch_or_generation} does not match "
            f"the expected member epoch {member.member_epoch}.",
        )


def _fenced(member: ConsumerMember, member_epoch: int, how: str) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({member_epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )
