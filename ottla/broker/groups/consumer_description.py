"""A consumer group as ConsumerGroupDescribe shows it (KIP-848).

What a member has still to give up is part of its assignment: it may read from there until it reports that it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.groups.partitions import Partitions, in_order, united
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeResponse as Description

if TYPE_CHECKING:
    from ottla.broker.groups.consumer_member import ConsumerMember
    from ottla.broker.groups.consumer_state import ConsumerState
    from ottla.broker.groups.topics import TopicView

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_group(state: ConsumerState, topics: TopicView, assignor: str) -> Description.DescribedGroup:
    """Describe the group; topics that have been deleted since are left out of assignments."""
    return Description.DescribedGroup(
        group_id=state.group_id,
        group_state=state.name,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=assignor,
        members=[_describe_member(state, topics, member) for member in state.members.values()],
    )


def _describe_member(state: ConsumerState, topics: TopicView, member: ConsumerMember) -> Description.Member:
    return Description.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_describe(united(member.assigned, member.pending_revocation), topics),
        target_assignment=_describe(state.target_of(member.member_id), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _describe(partitions: Partitions, topics: TopicView) -> Description.Assignment:
    named = [(topic_id, topics.name_of(topic_id), indexes) for topic_id, indexes in in_order(partitions)]
    return Description.Assignment(
        topic_partitions=[
            Description.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, name, indexes in named
            if name is not None
        ]
    )
