"""Commits with an older member epoch than the group's (KIP-1251), by raw frames; to be judged by Apache Kafka 4.4:

scripts/interop/apache-kafka --version 4.4.0 --override group.consumer.assignment.interval.ms=0 \
    -- pytest tests/integration/test_late_commits.py
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from kit.broker import BrokerProcess
from kit.wire import Wire
from kit.wire_groups import PATIENCE_S, await_coordinator

from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.errors import ErrorCode

PARTITIONS = 4
HEARTBEAT_VERSION, COMMIT_VERSION, FETCH_VERSION = 1, 9, 9


class Group:
    """A group of the consumer protocol, and a topic of its own."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.id = self.topic = f"late-{uuid.uuid4().hex}"
        topic = CreateTopicsRequest.CreatableTopic(
            name=self.topic, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        created = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert created.topics[0].error_code == ErrorCode.NONE
        named = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
        self.topic_id = wire.call(MetadataRequest(topics=named), 12).topics[0].topic_id
        await_coordinator(wire, self.id)
        self._await_topic()

    def _await_topic(self) -> None:
        """Have a member of another group join until it is given the topic: Kafka's coordinators see a new topic some
        time after it was made.
        """
        give_up = monotonic() + PATIENCE_S
        joining = ConsumerGroupHeartbeatRequest(
            group_id=f"{self.id}-probe",
            member_id="probe",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        while monotonic() < give_up:
            answer = self.wire.call(joining, HEARTBEAT_VERSION)
            if answer.error_code == ErrorCode.NONE and answer.assignment and answer.assignment.topic_partitions:
                return
        raise AssertionError(f"nobody is given {self.topic} within {PATIENCE_S} s")

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """A heartbeat that is accepted."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.id, member_id=member_id, member_epoch=epoch, **fields)
        answer = self.wire.call(request, HEARTBEAT_VERSION)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def join(self, member_id: str) -> Any:
        return self.beat(
            member_id, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[self.topic], topic_partitions=[]
        )

    def owning(self, partitions: set[int]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self.topic_id, partitions=sorted(partitions))]

    def commit(self, member_id: str, epoch: int, partition: int, offset: int) -> ErrorCode:
        asked = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.id,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=self.topic, partitions=[asked])],
        )
        return ErrorCode(self.wire.call(request, COMMIT_VERSION).topics[0].partitions[0].error_code)

    def committed(self, partition: int) -> int:
        asked = OffsetFetchRequest.OffsetFetchRequestTopics(name=self.topic, partition_indexes=[partition])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.id, topics=[asked])
        answer = self.wire.call(OffsetFetchRequest(groups=[group]), FETCH_VERSION)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset


def assigned(answer: Any) -> set[int]:
    """The partitions that a heartbeat's answer gives the member."""
    assert answer.assignment is not None
    return {partition for topic in answer.assignment.topic_partitions for partition in topic.partitions}


class Halved:
    """Member `a` had all partitions at `first`; at `second` it has `kept`, for `lost` went to `b`."""

    def __init__(self, group: Group) -> None:
        joined = group.join("a")
        self.first = joined.member_epoch
        assert assigned(joined) == set(range(PARTITIONS))
        self.second = group.join("b").member_epoch
        told = group.beat("a", self.first)
        assert told.member_epoch == self.first, "it has not given anything up yet"
        self.kept = min(assigned(told))
        self.lost = min(set(range(PARTITIONS)) - assigned(told))
        assert group.commit("a", self.first, self.lost, 5) is ErrorCode.NONE
        assert group.beat("a", self.first, topic_partitions=group.owning(assigned(told))).member_epoch == self.second
        assert self.second > self.first


@pytest.fixture
def group(broker: BrokerProcess) -> Iterator[Group]:
    with Wire(broker.port) as wire:
        yield Group(wire)


def test_a_commit_of_an_earlier_epoch_counts_for_a_partition_that_was_kept(group: Group) -> None:
    halved = Halved(group)
    assert group.commit("a", halved.first, halved.kept, 7) is ErrorCode.NONE
    assert group.committed(halved.kept) == 7


def test_a_commit_of_an_earlier_epoch_is_stale_for_a_partition_that_was_given_up(group: Group) -> None:
    halved = Halved(group)
    assert group.commit("a", halved.first, halved.lost, 7) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.committed(halved.lost) == 5


def come_back(group: Group, second: int) -> int:
    """`b` leaves, and `a` gets everything again; its new epoch."""
    group.beat("b", -1)
    answer = group.beat("a", second)
    assert assigned(answer) == set(range(PARTITIONS))
    third: int = answer.member_epoch
    assert third > second
    return third


def test_a_partition_that_came_back_needs_the_epoch_at_which_it_did(group: Group) -> None:
    halved = Halved(group)
    third = come_back(group, halved.second)
    for epoch in (halved.first, halved.second):
        assert group.commit("a", epoch, halved.lost, 7) is ErrorCode.STALE_MEMBER_EPOCH
        assert group.commit("a", epoch, halved.kept, 8) is ErrorCode.NONE
    assert group.commit("a", third, halved.lost, 9) is ErrorCode.NONE
    assert group.committed(halved.lost) == 9


def test_the_epochs_outlive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.port) as wire:
            group = Group(wire)
            halved = Halved(group)
            come_back(group, halved.second)
        broker.kill()
        broker.start()
        with Wire(broker.port) as wire:
            group.wire = wire
            await_coordinator(wire, group.id)
            assert group.commit("a", halved.second, halved.lost, 7) is ErrorCode.STALE_MEMBER_EPOCH
            assert group.commit("a", halved.second, halved.kept, 8) is ErrorCode.NONE
