"""What consumers say to each other: versions in front, newer ones read as the newest known."""

from __future__ import annotations

import pytest

from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    version_of,
)
from ottla.protocol.errors import MalformedMessage

Owned = ConsumerProtocolSubscription.TopicPartition
Assigned = ConsumerProtocolAssignment.TopicPartition
EXAMPLE = bytes.fromhex("0003 00000001 0001 74 ffffffff 00000000 ffffffff ffff")


def test_the_worked_example_of_a_subscription() -> None:
    assert encode_subscription(ConsumerProtocolSubscription(topics=["t"])) == EXAMPLE
    assert decode_subscription(EXAMPLE) == ConsumerProtocolSubscription(topics=["t"])


@pytest.mark.parametrize("version", range(4))
def test_each_version_keeps_what_it_has(version: int) -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["t", "u"],
        user_data=b"data",
        owned_partitions=[Owned(topic="t", partitions=[0, 3])],
        generation_id=9,
        rack_id="r",
    )
    read = decode_subscription(encode_subscription(subscription, version))
    assert (read.topics, read.user_data) == (["t", "u"], b"data")
    assert read.owned_partitions == (subscription.owned_partitions if version >= 1 else [])
    assert read.generation_id == (9 if version >= 2 else -1)
    assert read.rack_id == ("r" if version >= 3 else None)


def test_a_version_of_tomorrow_reads_as_the_newest_of_today() -> None:
    tomorrow = b"\0\x63" + EXAMPLE[2:] + b"and a new field"
    assert version_of(tomorrow) == 99
    assert decode_subscription(tomorrow) == ConsumerProtocolSubscription(topics=["t"])


def test_an_assignment_comes_back_and_no_bytes_assign_nothing() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[Assigned(topic="t", partitions=[1])], user_data=b"")
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == ConsumerProtocolAssignment(assigned_partitions=[])


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff" + EXAMPLE[2:], EXAMPLE[:-1], b"\0\0\x7f\xff\xff\xff"])
def test_broken_subscriptions_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_subscription(data)


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1"])
def test_broken_assignments_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_assignment(data)
