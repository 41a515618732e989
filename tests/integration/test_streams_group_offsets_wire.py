"""Offsets, lists, deletions and other kinds of groups beside streams groups, by raw frames. Apache Kafka judges them:

    scripts/interop/apache-kafka --version 4.4.0 -- .venv/bin/pytest tests/integration/test_streams_group_*wire.py

Where Ottla differs on purpose there is no test here, but a row in docs/deviations.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kit.broker import BrokerProcess
from kit.share_wire import ShareWireMember, create_topic
from kit.streams_wire import StreamsWireMember, described, new_streams_group, subtopology, topology
from kit.wire import PATIENCE_S, Wire
from kit.wire_groups import WireMember, join_request

from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.end_txn import EndTxnRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_delete import OffsetDeleteRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request

NONE, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP = ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP
TRANSACTION = 1
UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH


class Scene:
    """A topic of two partitions, and a group without members that reads it."""

    def __init__(self, broker: BrokerProcess, wire: Wire) -> None:
        self.wire = wire
        self.port = broker.port
        self.topic, _ = create_topic(wire, 2)
        self.other_topic, _ = create_topic(wire, 2)
        self.group = f"g-{uuid.uuid4().hex}"
        new_streams_group(wire, self.group)
        self.wanted = topology(subtopology("0", self.topic))
        self.members: list[StreamsWireMember] = []

    def joined(self) -> StreamsWireMember:
        """One more member, which has joined and owns its tasks."""
        self.members.append(StreamsWireMember(self.port, self.group))
        answer = self.members[-1].join(self.wanted)
        assert answer.error_code == NONE, answer
        return self.members[-1]

    def commit(
        self, member_id: str, epoch: int, offset: int, *, index: int = 0, topic: str | None = None, version: int = 9
    ) -> ErrorCode:
        """Commit an offset; the error of its partition."""
        kind = OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        topics = [kind.OffsetCommitRequestTopic(name=topic or self.topic, partitions=[partition])]
        request = kind(group_id=self.group, member_id=member_id, generation_id_or_member_epoch=epoch, topics=topics)
        return ErrorCode.of(self.wire.call(request, version).topics[0].partitions[0].error_code)

    def fetched(self, member_id: str | None = None, epoch: int = -1, index: int = 0) -> tuple[ErrorCode, int | None]:
        """The committed offset: the error of the group, and the offset."""
        kind = OffsetFetchRequest
        topics = [kind.OffsetFetchRequestTopics(name=self.topic, partition_indexes=[index])]
        group = kind.OffsetFetchRequestGroup(
            group_id=self.group, member_id=member_id, member_epoch=epoch, topics=topics
        )
        (answer,) = self.wire.call(kind(groups=[group], require_stable=False), 9).groups
        code = ErrorCode.of(answer.error_code)
        return code, None if code else answer.topics[0].partitions[0].committed_offset

    def deleted(self) -> ErrorCode:
        """Delete the group."""
        (result,) = self.wire.call(DeleteGroupsRequest(groups_names=[self.group]), 2).results
        return ErrorCode.of(result.error_code)

    def offset_deleted(self, topic: str) -> tuple[ErrorCode, ErrorCode | None]:
        """Delete an offset: the error of the group, and of the partition."""
        kind = OffsetDeleteRequest
        partition = kind.OffsetDeleteRequestPartition(partition_index=0)
        named = kind.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
        answer = self.wire.call(kind(group_id=self.group, topics=[named]), 0)
        of_partition = ErrorCode.of(answer.topics[0].partitions[0].error_code) if answer.topics else None
        return ErrorCode.of(answer.error_code), of_partition

    def listed(self, types: list[str] | None = None, states: list[str] | None = None) -> list[tuple[str, str, str]]:
        """The group as it is listed: protocol type, state and type."""
        request = ListGroupsRequest(types_filter=types or [], states_filter=states or [])
        groups = self.wire.call(request, 5).groups
        return [(g.protocol_type, g.group_state, g.group_type) for g in groups if g.group_id == self.group]


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.fixture
def scene(broker: BrokerProcess, wire: Wire) -> Iterator[Scene]:
    made = Scene(broker, wire)
    yield made
    for member in made.members:
        member.close()


def answered(wire: Wire, request: Request, version: int) -> Any:
    """The first answer without an error: Kafka's coordinators are not there at once."""
    give_up = time.monotonic() + PATIENCE_S
    while (answer := wire.call(request, version)).error_code:
        assert time.monotonic() < give_up, answer
        time.sleep(0.05)
    return answer


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_members_commit_with_their_epoch(scene: Scene) -> None:
    one = scene.joined()
    epoch = one.member_epoch
    assert scene.commit(one.member_id, epoch, 5) == NONE
    assert scene.fetched() == scene.fetched(one.member_id, epoch) == (NONE, 5)
    assert scene.commit(one.member_id, epoch + 1, 6) == STALE_MEMBER_EPOCH
    assert scene.commit("stranger", epoch, 6) == UNKNOWN_MEMBER_ID
    assert scene.commit("", -1, 6) == UNKNOWN_MEMBER_ID
    assert scene.commit(one.member_id, epoch, 6, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert (
        scene.fetched(one.member_id, epoch - 1)
        == scene.fetched(one.member_id, epoch + 1)
        == (
            STALE_MEMBER_EPOCH,
            None,
        )
    )
    assert scene.fetched("stranger", epoch) == (UNKNOWN_MEMBER_ID, None)
    assert scene.fetched() == (NONE, 5)


def test_a_task_is_committed_with_an_epoch_that_it_was_assigned_at_or_later(scene: Scene) -> None:
    one = scene.joined()
    first = one.member_epoch
    other = scene.joined()
    one.own()
    one.own()
    other.own()
    assert (one.active, other.active, one.member_epoch) == ({"0": [0]}, {"0": [1]}, first + 1)
    assert scene.commit(one.member_id, first, 5) == NONE, "it has had task 0 since then"
    assert scene.commit(one.member_id, first, 5, index=1) == STALE_MEMBER_EPOCH, "it has task 1 no more"
    assert scene.commit(one.member_id, first, 5, topic=scene.other_topic) == STALE_MEMBER_EPOCH
    assert scene.commit(one.member_id, first - 1, 5) == STALE_MEMBER_EPOCH
    assert scene.commit(other.member_id, first + 1, 5, index=1) == NONE


def test_a_tool_commits_when_the_group_is_empty(scene: Scene) -> None:
    one = scene.joined()
    one.heartbeat(-1)
    assert scene.commit("", -1, 7) == scene.commit("", -1, 8, version=2) == NONE
    assert scene.fetched() == (NONE, 8)
    assert scene.commit("m", 1, 9) == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4])
def test_members_commit_in_transactions(scene: Scene, version: int) -> None:
    one = scene.joined()
    wire, name = scene.wire, f"x-{uuid.uuid4().hex}"
    wire.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[name]), 4)
    got = answered(wire, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
    producer: dict[str, Any] = {"producer_id": got.producer_id, "producer_epoch": got.producer_epoch}
    answered(wire, AddOffsetsToTxnRequest(transactional_id=name, group_id=scene.group, **producer), 3)

    def commit(member_id: str, epoch: int) -> ErrorCode:
        kind = TxnOffsetCommitRequest
        partition = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata=None)
        topics = [kind.TxnOffsetCommitRequestTopic(name=scene.topic, partitions=[partition])]
        request = kind(
            transactional_id=name,
            group_id=scene.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=topics,
            **producer,
        )
        return ErrorCode.of(wire.call(request, version).topics[0].partitions[0].error_code)

    epoch = one.member_epoch
    assert commit("stranger", epoch) == UNKNOWN_MEMBER_ID
    assert commit(one.member_id, epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit(one.member_id, epoch) == commit("", -1) == NONE
    assert scene.fetched() == (NONE, -1)
    answered(wire, EndTxnRequest(transactional_id=name, committed=True, **producer), 3)
    give_up = time.monotonic() + PATIENCE_S
    while scene.fetched() != (NONE, 9):
        assert time.monotonic() < give_up, scene.fetched()


def test_offsets_of_topics_that_nobody_reads_are_deleted(scene: Scene) -> None:
    assert scene.offset_deleted(scene.topic) == (GROUP_ID_NOT_FOUND, None)
    one = scene.joined()
    epoch = one.member_epoch
    assert (
        scene.commit(one.member_id, epoch, 1) == scene.commit(one.member_id, epoch, 1, topic=scene.other_topic) == NONE
    )
    assert scene.offset_deleted(scene.topic) == (NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert scene.offset_deleted(scene.other_topic) == (NONE, NONE)
    one.heartbeat(-1)
    assert scene.offset_deleted(scene.topic) == (NONE, NONE)
    assert scene.fetched() == (NONE, -1)


# --- lists and deletions ----------------------------------------------------------------------------------------------


def test_groups_are_listed_by_type_and_state_in_any_case(scene: Scene) -> None:
    assert scene.listed() == []
    one = scene.joined()
    stable = [("streams", "Stable", "streams")]
    assert scene.listed() == scene.listed(["streams"]) == scene.listed(["Streams"], ["stable", "Dead"]) == stable
    assert scene.listed(["consumer", "classic", "share"]) == scene.listed(["streams"], ["Empty"]) == []
    other = scene.joined()
    for name in ("Reconciling", "reconciling"):
        assert scene.listed(None, [name]) == [("streams", "Reconciling", "streams")]
    one.heartbeat(-1)
    other.heartbeat(-1)
    assert scene.listed(["streams"], ["EMPTY"]) == [("streams", "Empty", "streams")]


@pytest.mark.parametrize("state", ["NotReady", "Assigning"])
def test_states_before_the_first_tasks_are_listed(scene: Scene, state: str) -> None:
    if state == "NotReady":
        scene.wanted = topology(subtopology("0", "not-there"))
    else:
        new_streams_group(scene.wire, scene.group, initial_rebalance_delay_ms="20000")
    scene.joined()
    by_name = "not_ready" if state == "NotReady" else state  # Kafka 4.4 has no other name for it here
    assert scene.listed(None, [by_name]) == [("streams", state, "streams")]


def test_an_empty_group_is_deleted_with_its_offsets(scene: Scene) -> None:
    assert scene.deleted() == GROUP_ID_NOT_FOUND
    one = scene.joined()
    assert scene.commit(one.member_id, one.member_epoch, 4) == NONE
    assert scene.deleted() == NON_EMPTY_GROUP
    one.heartbeat(-1)
    assert described(scene.wire, scene.group).group_state == "Empty"
    assert scene.deleted() == NONE
    assert described(scene.wire, scene.group).error_code == GROUP_ID_NOT_FOUND
    assert scene.fetched() == (NONE, -1)
    again = scene.joined()
    assert (again.member_epoch, again.active) == (2, {"0": [0, 1]}), "a new group begins again"


# --- other kinds of groups --------------------------------------------------------------------------------------------


def consumer_heartbeat(scene: Scene, epoch: int = 0) -> ErrorCode:
    """The error of a member of a consumer group that joins."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=scene.group,
        member_id=str(uuid.uuid4()),
        member_epoch=epoch,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[scene.topic],
        topic_partitions=[],
    )
    return ErrorCode.of(scene.wire.call(request, 1).error_code)


def test_members_of_other_kinds_do_not_join_a_streams_group(scene: Scene) -> None:
    scene.joined()
    assert scene.wire.call(join_request(scene.group, ""), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert consumer_heartbeat(scene) == consumer_heartbeat(scene, 1) == GROUP_ID_NOT_FOUND
    share = ShareWireMember(scene.port, scene.group)
    try:
        assert share.heartbeat(0, [scene.topic]).error_code == GROUP_ID_NOT_FOUND
    finally:
        share.close()
    (found,) = scene.wire.call(DescribeGroupsRequest(groups=[scene.group]), 6).groups
    assert (found.error_code, found.group_state) == (GROUP_ID_NOT_FOUND, "Dead")


def test_streams_members_do_not_join_groups_of_other_kinds(scene: Scene) -> None:
    assert consumer_heartbeat(scene) == NONE
    one = StreamsWireMember(scene.port, scene.group)
    scene.members.append(one)
    assert one.join(scene.wanted).error_code == one.heartbeat(1).error_code == GROUP_ID_NOT_FOUND
    group = described(scene.wire, scene.group)
    assert (group.error_code, group.error_message) == (
        GROUP_ID_NOT_FOUND,
        f"Group {scene.group} is not a streams group.",
    )


def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets(scene: Scene) -> None:
    classic = WireMember(scene.port, scene.group)
    classic.join()
    one = StreamsWireMember(scene.port, scene.group)
    scene.members.append(one)
    assert one.join(scene.wanted).error_code == GROUP_ID_NOT_FOUND, "it has a member"
    assert classic.sync().error_code == NONE
    assert scene.commit(classic.member_id, classic.generation, 3, version=8) == NONE
    classic.leave()
    classic.close()
    assert one.join(scene.wanted).error_code == NONE
    assert scene.listed() == [("streams", "Stable", "streams")]
    assert scene.fetched() == (NONE, 3)


def test_a_group_with_offsets_only_becomes_a_streams_group(scene: Scene) -> None:
    assert scene.commit("", -1, 11) == NONE
    assert scene.listed() == [("", "Empty", "classic")]
    scene.joined()
    assert scene.listed() == [("streams", "Stable", "streams")]
    assert scene.fetched() == (NONE, 11)


def test_an_empty_streams_group_becomes_a_classic_group_only(scene: Scene) -> None:
    scene.joined().heartbeat(-1)
    assert scene.commit("", -1, 4) == NONE
    assert consumer_heartbeat(scene) == GROUP_ID_NOT_FOUND
    assert scene.listed() == [("streams", "Empty", "streams")]
    assert scene.wire.call(join_request(scene.group, ""), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert scene.listed() == [("", "Empty", "classic")]
    assert scene.fetched() == (NONE, 4)
