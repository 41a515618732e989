"""One member's next step towards the target (`CurrentAssignmentBuilder` of Kafka 4.3, KIP-848).

    STABLE ──new target──> UNREVOKED_PARTITIONS ──given up──> UNRELEASED_PARTITIONS ──others gave up──> STABLE

A member first gives up what the target takes from it, at its old epoch. Only then does it move to the target's epoch
and get those of its new partitions that no member owns; it gets the others when their owners give them up. So no
partition has two owners: it is owned from the step that assigns it to a member to the step in which that member no
longer reports it.

A member that still has partitions to give up gets nothing of a later target. But if its subscription changes, it has to
give up the topics that it left, too.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.broker.groups.consumer_member import ConsumerMember, MemberState
from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, overlaps, united

NOTHING: frozenset[int] = frozenset()


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_taken: Callable[[UUID, int], bool],
    owned: Partitions | None,
    left: Callable[[UUID], bool] | None = None,
) -> ConsumerMember:
    """The member after this step; the same object where there is nothing to do.

    `is_taken` returns whether another member owns a partition. `owned` is what the member reports to own; None where it
    reports nothing, which does not prove that it has given anything up. `left` returns whether the member does not
    subscribe to a topic (any more); None if its subscription has not changed in this step.
    """
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch:
            return member
        return _towards(member, member.member_epoch, target_epoch, target, is_taken, owned)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, owned):
            return member if left is None else _without(member, left, target_epoch)
        return _towards(member, member.member_epoch, target_epoch, target, is_taken, owned)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _towards(member, member.member_epoch, target_epoch, target, is_taken, owned)
    # A state of a later Kafka. The caller has made sure that the member owns nothing, so it can begin again.
    return _towards(member, target_epoch, target_epoch, target, is_taken, owned)


def _without(member: ConsumerMember, left: Callable[[UUID], bool], target_epoch: int) -> ConsumerMember:
    """The member, with the topics that it left added to what it has to give up."""
    unwanted = {topic_id: indexes for topic_id, indexes in member.assigned.items() if left(topic_id)}
    if not unwanted:
        return member
    kept = {topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id not in unwanted}
    to_revoke = united(member.pending_revocation, unwanted)
    return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, to_revoke, target_epoch)


def _towards(
    member: ConsumerMember,
    member_epoch: int,
    target_epoch: int,
    target: Partitions,
    is_taken: Callable[[UUID, int], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    kept: dict[UUID, frozenset[int]] = {}
    to_revoke: dict[UUID, frozenset[int]] = {}
    for topic_id, indexes in member.assigned.items():
        wanted = target.get(topic_id, NOTHING)
        if keep := indexes & wanted:
            kept[topic_id] = keep
        if revoke := indexes - wanted:
            to_revoke[topic_id] = revoke
    if to_revoke and _still_owns(to_revoke, owned):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member_epoch, kept, to_revoke, target_epoch)
    has_unreleased = False
    for topic_id, wanted in target.items():
        missing = wanted - kept.get(topic_id, NOTHING)
        if missing:
            free = frozenset(partition for partition in missing if not is_taken(topic_id, partition))
            has_unreleased = has_unreleased or len(free) < len(missing)
            if free:
                kept[topic_id] = kept.get(topic_id, NOTHING) | free
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return _moved(member, state, target_epoch, kept, NO_PARTITIONS, target_epoch)


def _moved(
    member: ConsumerMember,
    state: MemberState,
    member_epoch: int,
    assigned: Partitions,
    pending_revocation: Partitions,
    target_epoch: int,
) -> ConsumerMember:
    moved = member.moved_to(member_epoch, state, assigned, pending_revocation, target_epoch)
    return member if moved == member else moved


def _still_owns(revoked: Partitions, owned: Partitions | None) -> bool:
    return owned is None or overlaps(owned, revoked)
