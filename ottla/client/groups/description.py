"""Conversion of a broker's description of a group to the client's, for each protocol. Pure."""

from __future__ import annotations

import logging

from ottla.client.admin_group_results import CLASSIC, CONSUMER, SHARE, GroupDescription, MemberDescription
from ottla.client.structs import BrokerAddress, TopicPartition
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeResponse
from ottla.protocol.api.describe_groups import DescribeGroupsResponse
from ottla.protocol.api.share_group_describe import ShareGroupDescribeResponse
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment, decode_subscription
from ottla.protocol.errors import MalformedMessage

logger = logging.getLogger(__name__)

_CLASSIC_MEMBER = 0


def describe_classic(
    description: DescribeGroupsResponse.DescribedGroup, coordinator: BrokerAddress
) -> GroupDescription:
    """Return a group of the classic protocol; the members' own bytes are decoded for consumers only."""
    is_consumers = description.protocol_type in (CONSUMER_PROTOCOL_TYPE, "")
    return GroupDescription(
        group_id=description.group_id,
        group_type=CLASSIC,
        protocol_type=description.protocol_type,
        state=description.group_state,
        assignor=description.protocol_data,
        coordinator=coordinator,
        members=[_classic_member(member, is_consumers) for member in description.members],
    )


def describe_consumer(
    description: ConsumerGroupDescribeResponse.DescribedGroup, coordinator: BrokerAddress
) -> GroupDescription:
    """Return a group of the consumer protocol."""
    return GroupDescription(
        group_id=description.group_id,
        group_type=CONSUMER,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state=description.group_state,
        assignor=description.assignor_name,
        coordinator=coordinator,
        members=[
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                topics=sorted(member.subscribed_topic_names),
                pattern=member.subscribed_topic_regex or None,
                assignment=_partitions(member.assignment),
                target_assignment=_partitions(member.target_assignment),
                epoch=member.member_epoch,
                speaks_classic=member.member_type == _CLASSIC_MEMBER,
            )
            for member in description.members
        ],
        epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
    )


def describe_share(
    description: ShareGroupDescribeResponse.DescribedGroup, coordinator: BrokerAddress
) -> GroupDescription:
    """Return a share group."""
    return GroupDescription(
        group_id=description.group_id,
        group_type=SHARE,
        protocol_type=SHARE,
        state=description.group_state,
        assignor=description.assignor_name,
        coordinator=coordinator,
        members=[
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=None,
                client_id=member.client_id,
                host=member.client_host,
                topics=sorted(member.subscribed_topic_names),
                assignment=_partitions(member.assignment),
                epoch=member.member_epoch,
                speaks_classic=False,
            )
            for member in description.members
        ],
        epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
    )


def _classic_member(description: DescribeGroupsResponse.DescribedGroupMember, is_consumers: bool) -> MemberDescription:
    topics: list[str] = []
    assignment: list[TopicPartition] = []
    if is_consumers:
        try:
            topics = (
                sorted(decode_subscription(description.member_metadata).topics)
                if len(description.member_metadata)
                else []
            )
            assignment = [
                TopicPartition(topic.topic, index)
                for topic in decode_assignment(description.member_assignment).assigned_partitions
                for index in topic.partitions
            ]
        except MalformedMessage as malformed:
            logger.warning("member %s has a malformed subscription or assignment: %s", description.member_id, malformed)
    return MemberDescription(
        member_id=description.member_id,
        group_instance_id=description.group_instance_id,
        client_id=description.client_id,
        host=description.client_host,
        topics=topics,
        assignment=sorted(assignment),
    )


def _partitions(
    description: ConsumerGroupDescribeResponse.Assignment | ShareGroupDescribeResponse.Assignment,
) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, index) for topic in description.topic_partitions for index in topic.partitions
    )
