"""Share groups by raw frames, each test to be judged by Apache Kafka too:

    scripts/interop/apache-kafka --version 4.4.0 -- .venv/bin/pytest tests/integration/test_share_group_wire.py

Where Ottla differs on purpose there is no test here, but a row in docs/deviations.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.broker import BrokerProcess
from kit.share_wire import (
    Place,
    Said,
    ShareWireMember,
    acquired,
    create_topic,
    described,
    new_group,
    offsets,
    produce_batches,
    refusals,
)
from kit.wire import Wire
from kit.wire_groups import WireMember, join_request

from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_delete import OffsetDeleteRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.share_fetch import AcknowledgeType, AcquireMode
from ottla.protocol.errors import ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)
STRICT = int(AcquireMode.RECORD_LIMIT)
NONE, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
INVALID_RECORD_STATE, GROUP_ID_NOT_FOUND = ErrorCode.INVALID_RECORD_STATE, ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


class Scene:
    """A topic of one partition with batches of five records, and a group's members, which have joined."""

    def __init__(self, broker: BrokerProcess, wire: Wire) -> None:
        self.wire = wire
        self._port = broker.port
        self.members: list[ShareWireMember] = []

    def begin(self, *sizes: int, **settings: str) -> ShareWireMember:
        """A topic with such batches, and the first member of a new group."""
        self.topic, self.topic_id = create_topic(self.wire)
        self.place: Place = self.topic_id, 0
        produce_batches(self.wire, self.topic, *sizes)
        self.group = new_group(self.wire, **settings)
        return self.member()

    def member(self) -> ShareWireMember:
        """One more member."""
        self.members.append(ShareWireMember(self._port, self.group, [self.place]))
        self.members[-1].join(self.topic)
        return self.members[-1]


@pytest.fixture
def scene(broker: BrokerProcess, wire: Wire) -> Iterator[Scene]:
    made = Scene(broker, wire)
    yield made
    for member in made.members:
        member.close()


Outsider = Callable[[], ShareWireMember]


@pytest.fixture
def outsider(broker: BrokerProcess, wire: Wire) -> Iterator[Outsider]:
    """Makes members, each of a new group that is not there yet."""
    made: list[ShareWireMember] = []

    def make() -> ShareWireMember:
        made.append(ShareWireMember(broker.port, new_group(wire)))
        return made[-1]

    yield make
    for member in made:
        member.close()


# --- members ----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_that_is_wrong_in_itself_is_refused(outsider: Outsider) -> None:
    one = outsider()
    assert one.heartbeat(0, None).error_code == INVALID_REQUEST
    assert one.heartbeat(0, []).error_code == INVALID_REQUEST
    assert one.heartbeat(0, ["t"], rack="").error_code == INVALID_REQUEST
    assert one.heartbeat(-2, ["t"]).error_code == INVALID_REQUEST
    assert one.heartbeat(1).error_code == one.heartbeat(-1).error_code == GROUP_ID_NOT_FOUND
    for member_id in ("", "m" * 37):
        one.member_id = member_id
        assert one.heartbeat(0, ["t"]).error_code == INVALID_REQUEST
        assert one.fetch([], epoch=0).error_code == INVALID_REQUEST
    assert described(one.wire, one.group_id).error_code == GROUP_ID_NOT_FOUND


def test_a_member_has_its_epoch_or_the_one_before(scene: Scene) -> None:
    one = scene.begin(1)
    epoch = one.member_epoch
    for wrong in (epoch + 1, 1_000):
        assert one.heartbeat(wrong).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert one.heartbeat(epoch).assignment is None
    assert one.heartbeat(epoch, [scene.topic]).assignment is not None
    assert one.heartbeat(0, []).error_code == INVALID_REQUEST
    assert one.heartbeat(0, [scene.topic]).error_code == NONE
    stranger = scene.member()
    stranger.member_id = "stranger"
    assert stranger.heartbeat(epoch).error_code == stranger.heartbeat(-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = one.heartbeat(-1)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (NONE, -1, 0)
    assert one.heartbeat(-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_topics_that_do_not_exist_may_be_subscribed_to(outsider: Outsider) -> None:
    one = outsider()
    answer = one.heartbeat(0, ["not-there"])
    assert (answer.error_code, answer.assignment.topic_partitions) == (NONE, [])
    group = described(one.wire, one.group_id)
    assert (group.group_state, group.members[0].subscribed_topic_names) == ("Stable", ["not-there"])


def test_requests_of_other_groups_are_refused_by_a_share_group(scene: Scene, wire: Wire) -> None:
    scene.begin(1)
    for member_id in ("", "m"):
        answer = wire.call(join_request(scene.group, member_id), 9)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    commit = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=scene.topic, partitions=[commit])
    committed = wire.call(OffsetCommitRequest(group_id=scene.group, member_id="", topics=[topic]), 9)
    assert committed.topics[0].partitions[0].error_code == GROUP_ID_NOT_FOUND
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    named = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=scene.topic, partitions=[partition])
    deleted = wire.call(OffsetDeleteRequest(group_id=scene.group, topics=[named]), 0)
    assert (deleted.error_code, deleted.topics) == (GROUP_ID_NOT_FOUND, [])


@pytest.mark.parametrize("version", [1, 7, 9])
def test_a_share_group_has_committed_nothing(scene: Scene, wire: Wire, version: int) -> None:
    scene.begin(1)
    if version < 8:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=scene.topic, partition_indexes=[0])
        answer = wire.call(OffsetFetchRequest(group_id=scene.group, topics=[topic]), version)
    else:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=scene.topic, partition_indexes=[0])]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=scene.group, topics=topics)
        (answer,) = wire.call(OffsetFetchRequest(groups=[group]), version).groups
    (one,) = answer.topics[0].partitions
    assert (answer.error_code, one.error_code, one.committed_offset) == (NONE, NONE, -1)


def test_a_group_of_another_type_is_no_share_group(broker: BrokerProcess, outsider: Outsider) -> None:
    one = outsider()
    classic = WireMember(broker.port, one.group_id)
    classic.join()
    try:
        assert one.heartbeat(0, ["t"]).error_code == one.heartbeat(1).error_code == GROUP_ID_NOT_FOUND
        assert described(one.wire, one.group_id).error_code == GROUP_ID_NOT_FOUND
        assert (offsets(one.wire, one.group_id).error_code, offsets(one.wire, one.group_id).topics) == (NONE, [])
    finally:
        classic.close()


def test_groups_are_listed_by_their_type_in_any_case(scene: Scene, wire: Wire) -> None:
    scene.begin(1)
    for types, is_listed in (([], True), (["share"], True), (["Share"], True), (["consumer", "classic"], False)):
        groups = wire.call(ListGroupsRequest(types_filter=types, states_filter=[]), 5).groups
        found = [(g.protocol_type, g.group_state, g.group_type) for g in groups if g.group_id == scene.group]
        assert found == ([("share", "Stable", "share")] if is_listed else [])


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_is_opened_moved_on_and_closed(scene: Scene) -> None:
    one = scene.begin(1)
    one.session_epoch = 1
    assert one.fetch().error_code == one.acknowledge({}).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.acknowledge({}, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    said = {scene.place: [(0, 0, [ACCEPT])]}
    assert one.fetch(epoch=0, acknowledged=said).error_code == INVALID_REQUEST
    assert one.fetch(epoch=0).error_code == NONE
    for wrong in (0, 2, 5):
        assert one.acknowledge({}, epoch=wrong).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.fetch(epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.fetch(max_wait_ms=0).error_code == NONE
    assert one.acknowledge({}).error_code == NONE
    assert one.fetch(epoch=-1).error_code == NONE
    assert one.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("how", ["ShareFetch", "ShareAcknowledge", "connection"])
def test_what_a_member_has_is_available_when_its_session_ends(scene: Scene, how: str) -> None:
    one = scene.begin(5)
    assert one.first_records() == [(0, 4, 1)]
    if how == "ShareFetch":
        one.fetch(epoch=-1, acknowledged={scene.place: [(1, 1, [ACCEPT])]})
    elif how == "ShareAcknowledge":
        one.acknowledge({scene.place: [(1, 1, [ACCEPT])]}, epoch=-1)
    else:
        assert one.result(scene.place, (1, 1, [ACCEPT])) == NONE
        one.close()
    assert scene.member().first_records() == [(0, 0, 2), (2, 4, 2)]


def test_a_member_that_opens_another_session_keeps_what_it_has(scene: Scene) -> None:
    one = scene.begin(5)
    assert one.first_records() == [(0, 4, 1)]
    assert one.records(epoch=0) == []
    assert scene.member().records() == []
    assert one.result(scene.place, (0, 4, [ACCEPT])) == NONE


def test_partitions_that_do_not_exist_are_refused_in_each_answer_until_they_are_forgotten(scene: Scene) -> None:
    one = scene.begin(1)
    one.first_records()
    none, gone = (scene.topic_id, 7), (uuid.uuid4(), 0)
    wrong = {none: UNKNOWN_TOPIC_OR_PARTITION, gone: ErrorCode.UNKNOWN_TOPIC_ID}
    assert refusals(one.fetch([none, gone])) == refusals(one.fetch()) == wrong
    assert refusals(one.acknowledge({none: [(0, 0, [ACCEPT])], gone: [(0, 0, [ACCEPT])]})) == wrong
    assert refusals(one.fetch(forgotten=[none, gone])) == {}


# --- what is acquired -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 4, 5, 6, 12, 100])
def test_whole_batches_are_acquired_unless_records_are_limited(scene: Scene, most: int) -> None:
    whole = min(-(-most // 5) * 5, 15)
    assert scene.begin(5, 5, 5).first_records(max_records=most) == [(0, whole - 1, 1)]
    strict = scene.begin(5, 5, 5)
    assert strict.first_records(max_records=most, mode=STRICT) == [(0, min(most, 15) - 1, 1)]
    if most < 15:
        last = min(2 * most, 15) - 1
        assert strict.records(max_records=most, mode=STRICT) == [(most, last, 1)]


def test_entries_have_the_batch_size_or_one_batch(scene: Scene) -> None:
    def entries(answer: Any) -> list[int]:
        ((partition,),) = [topic.partitions for topic in answer.responses]
        return [one.last_offset - one.first_offset + 1 for one in partition.acquired_records]

    def first(one: ShareWireMember, batch_size: int) -> list[int]:
        while not acquired(answer := one.fetch(batch_size=batch_size)):
            pass
        return entries(answer)

    assert first(scene.begin(5, 5, 5), 5) == [5, 5, 5]
    assert first(scene.begin(5, 5, 5), 7) == [10, 5]
    assert first(scene.begin(*[1] * 12), 5) == [5, 5, 2]
    assert first(scene.begin(20), 6) == [20]


def test_no_more_records_are_in_flight_than_the_group_may_have(scene: Scene) -> None:
    one = scene.begin(60, 60, 60, 60, partition_max_record_locks="100")
    assert one.first_records(max_records=60) == [(0, 59, 1)]
    assert one.records(max_records=60) == [(60, 119, 1)]
    assert one.records() == []
    assert one.result(scene.place, (60, 119, [ACCEPT])) == NONE
    assert one.records() == [], "the first ones are still there"
    assert one.result(scene.place, (0, 59, [ACCEPT])) == NONE
    assert one.records(max_wait_ms=5000)[0][0] == 120


def test_records_that_were_delivered_too_often_are_not_delivered_again(scene: Scene) -> None:
    one = scene.begin(3, delivery_count_limit="2")
    assert one.first_records() == [(0, 2, 1)]
    assert one.result(scene.place, (0, 2, [RELEASE])) == NONE
    assert one.records() == [(0, 2, 2)]
    assert one.result(scene.place, (0, 2, [RELEASE])) == NONE
    assert one.records() == []
    produce_batches(scene.wire, scene.topic, 2)
    assert one.records(max_wait_ms=5000) == [(3, 4, 1)]


def test_at_its_last_delivery_a_record_comes_alone(scene: Scene) -> None:
    one = scene.begin(4, 4, delivery_count_limit="4")
    assert one.first_records(max_records=4) == [(0, 3, 1)]
    for count in (2, 3):
        assert one.result(scene.place, (0, 3, [RELEASE])) == NONE
        assert one.records(max_records=4) == [(0, 3 if count == 2 else 1, count)]
        if count == 3:
            assert one.result(scene.place, (0, 1, [RELEASE])) == NONE
    assert one.records() == [(0, 0, 4)]
    assert one.records() == [(1, 1, 4)]


# --- acknowledgements -------------------------------------------------------------------------------------------------


def test_each_type_has_its_effect(scene: Scene) -> None:
    one = scene.begin(5)
    one.first_records()
    assert one.result(scene.place, (0, 3, [ACCEPT, RELEASE, REJECT, GAP])) == NONE
    assert one.records() == [(1, 1, 2)]
    assert one.result(scene.place, (4, 4, [ACCEPT])) == NONE
    (state,) = offsets(scene.wire, scene.group, {scene.topic: [0]}).topics[0].partitions
    assert (state.start_offset, state.lag) == (1, 1)


WRONG: list[tuple[str, list[Said], ErrorCode]] = [
    ("down", [(4, 2, [ACCEPT])], INVALID_REQUEST),
    ("out of order", [(3, 4, [ACCEPT]), (0, 1, [ACCEPT])], INVALID_REQUEST),
    ("twice", [(4, 4, [ACCEPT]), (4, 4, [ACCEPT])], INVALID_RECORD_STATE),
    ("overlapping", [(0, 2, [ACCEPT]), (2, 4, [ACCEPT])], INVALID_RECORD_STATE),
    ("no type", [(0, 2, [])], INVALID_REQUEST),
    ("too few types", [(0, 2, [ACCEPT] * 2)], INVALID_REQUEST),
    ("too many types", [(0, 2, [ACCEPT] * 4)], INVALID_REQUEST),
    ("type 5", [(0, 2, [5])], INVALID_REQUEST),
    ("type -1", [(0, 2, [-1])], INVALID_REQUEST),
    ("renewed unasked", [(0, 2, [RENEW])], INVALID_REQUEST),
    ("negative", [(-3, -1, [ACCEPT])], INVALID_REQUEST),
    ("far", [(1000, 1001, [ACCEPT])], INVALID_REQUEST),
    ("partly acquired", [(4, 12, [ACCEPT])], INVALID_REQUEST),
    ("acknowledged before", [(5, 5, [ACCEPT])], INVALID_RECORD_STATE),
]


def test_a_wrong_acknowledgement_is_refused_and_changes_nothing(scene: Scene) -> None:
    one = scene.begin(5, 5)
    assert one.first_records() == [(0, 9, 1)]
    assert one.result(scene.place, (5, 5, [ACCEPT])) == NONE
    for name, said, code in WRONG:
        assert one.result(scene.place, *said) == code, name
    other = scene.member()
    other.fetch()
    assert other.result(scene.place, (0, 4, [ACCEPT])) == INVALID_RECORD_STATE
    assert one.result(scene.place, (0, 4, [ACCEPT]), (6, 9, [ACCEPT])) == NONE


def test_a_partition_is_answered_once_and_only_with_acknowledgements(scene: Scene) -> None:
    one = scene.begin(5)
    one.first_records()
    answer = one.acknowledge({scene.place: []})
    assert (answer.error_code, answer.responses) == (NONE, [])
    answer = one.acknowledge([(scene.place, [(0, 0, [ACCEPT])]), (scene.place, [(1, 1, [ACCEPT])])])
    assert [len(topic.partitions) for topic in answer.responses] == [1]


def test_records_are_renewed_by_requests_that_say_so(scene: Scene) -> None:
    one = scene.begin(5)
    one.first_records()
    assert one.result(scene.place, (0, 4, [RENEW]), is_renewal=True) == NONE
    assert one.result(scene.place, (0, 1, [RENEW, ACCEPT]), is_renewal=True) == NONE
    renewed = {scene.place: [(2, 2, [RENEW])]}
    assert one.fetch(acknowledged=renewed, is_renewal=True).error_code == INVALID_REQUEST
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    answer = one.fetch(acknowledged=renewed, is_renewal=True, **nothing)
    assert (answer.error_code, answer.responses[0].partitions[0].acknowledge_error_code) == (NONE, NONE)


def test_a_group_may_forbid_to_renew_records(scene: Scene) -> None:
    one = scene.begin(5, renew_acknowledge_enable="false")
    one.first_records()
    assert one.result(scene.place, (0, 4, [RENEW]), is_renewal=True) == INVALID_RECORD_STATE
    assert one.result(scene.place, (0, 4, [RENEW])) == INVALID_REQUEST
    assert one.result(scene.place, (0, 4, [ACCEPT]), is_renewal=True) == NONE


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_bytes_and_no_longer(scene: Scene) -> None:
    one = scene.begin(1)
    one.first_records()
    for max_wait_ms, min_bytes, waits in ((0, 1, False), (1500, 0, False), (1500, 1, True)):
        begun = time.monotonic()
        assert one.records(max_wait_ms=max_wait_ms, min_bytes=min_bytes) == []
        assert (time.monotonic() - begun > 1) is waits
    begun = time.monotonic()
    one.send_fetch(max_wait_ms=20_000)
    produce_batches(scene.wire, scene.topic, 2)
    assert acquired(one.read_fetch()) == [(1, 2, 1)]
    assert time.monotonic() - begun < 15
    other = scene.member()
    other.send_fetch(max_wait_ms=3_000)  # Kafka 4.4 answers it when the time is over
    assert one.result(scene.place, (1, 1, [RELEASE])) == NONE
    assert acquired(other.read_fetch()) == [(1, 1, 2)]


# --- administration ---------------------------------------------------------------------------------------------------


def altered(wire: Wire, group_id: str, topic: str, wanted: dict[int, int]) -> tuple[ErrorCode, list[ErrorCode]]:
    kind = AlterShareGroupOffsetsRequest
    partitions = [
        kind.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in wanted.items()
    ]
    topics = [kind.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    answer = wire.call(kind(group_id=group_id, topics=topics), 0)
    codes = [ErrorCode.of(one.error_code) for topic in answer.responses for one in topic.partitions]
    return ErrorCode.of(answer.error_code), codes


def deleted(wire: Wire, group_id: str, *topics: str) -> tuple[ErrorCode, list[ErrorCode]]:
    kind = DeleteShareGroupOffsetsRequest
    named = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    answer = wire.call(kind(group_id=group_id, topics=named), 0)
    return ErrorCode.of(answer.error_code), [ErrorCode.of(one.error_code) for one in answer.responses]


def test_offsets_that_are_not_there_are_described_without_an_error(scene: Scene, wire: Wire) -> None:
    scene.begin(1)
    nowhere = offsets(wire, f"{scene.group}-other")
    assert (nowhere.error_code, nowhere.topics) == (NONE, [])
    for group_id, topic in (
        (f"{scene.group}-other", scene.topic),
        (scene.group, "not-there"),
        (scene.group, scene.topic),
    ):
        group = offsets(wire, group_id, {topic: [0]})
        ((one,),) = [found.partitions for found in group.topics]
        assert (group.error_code, one.error_code, one.start_offset, one.lag) == (NONE, NONE, -1, -1)


def test_the_offsets_of_an_empty_group_are_altered_and_deleted(scene: Scene, wire: Wire) -> None:
    one = scene.begin(5)
    one.first_records()
    assert altered(wire, scene.group, scene.topic, {0: 3}) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert deleted(wire, scene.group, scene.topic) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert [one.error_code for one in wire.call(DeleteGroupsRequest(groups_names=[scene.group]), 2).results] == [
        ErrorCode.NON_EMPTY_GROUP
    ]
    one.fetch(epoch=-1)
    one.heartbeat(-1)
    assert altered(wire, scene.group, scene.topic, {0: 3, 7: 1}) == (NONE, [NONE, UNKNOWN_TOPIC_OR_PARTITION])
    assert altered(wire, scene.group, "not-there", {0: 3}) == (NONE, [UNKNOWN_TOPIC_OR_PARTITION])
    (state,) = offsets(wire, scene.group).topics[0].partitions
    assert (state.start_offset, state.lag) == (3, 2)
    assert deleted(wire, scene.group, scene.topic, "not-there") == (NONE, [NONE, UNKNOWN_TOPIC_OR_PARTITION])
    assert offsets(wire, scene.group).topics == []
    assert described(wire, scene.group).group_state == "Empty"
    assert [one.error_code for one in wire.call(DeleteGroupsRequest(groups_names=[scene.group]), 2).results] == [NONE]


def test_a_group_that_does_not_exist_is_created_by_its_offsets(scene: Scene, wire: Wire) -> None:
    scene.begin(5)
    group = new_group(wire)
    assert deleted(wire, group, scene.topic) == (GROUP_ID_NOT_FOUND, [])
    assert altered(wire, "", scene.topic, {0: 2}) == deleted(wire, "", scene.topic) == (ErrorCode.INVALID_GROUP_ID, [])
    assert altered(wire, group, "not-there", {0: 2}) == (NONE, [UNKNOWN_TOPIC_OR_PARTITION])
    assert described(wire, group).error_code == GROUP_ID_NOT_FOUND
    assert altered(wire, group, scene.topic, {0: 2}) == (NONE, [NONE])
    found = described(wire, group)
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (NONE, "Empty", 1, 1)
    scene.group = group
    assert scene.member().first_records() == [(2, 4, 1)]
