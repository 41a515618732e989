"""OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6 name topics by their ids: what they answer, and to whom."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.exchange import Exchange, make_topic
from kit.group_requests import committed
from kit.nodes import ask, start_node

from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN = Principal("User", "admin")
NOBODYS = UUID(int=7)
NONE, UNKNOWN_ID = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID
NO_PARTITION, DENIED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
Wanted = tuple[UUID, list[int]]
Codes = list[tuple[UUID, list[int]]]


@pytest.fixture
def client() -> Exchange:
    node, _, _ = start_node()
    make_topic(node, "t", 400)
    make_topic(node, "u", 2)
    exchange = Exchange(node)
    exchange.ask(FindCoordinatorRequest(key="g", key_type=0), 1)
    return exchange


def id_of(node: Node, name: str) -> UUID:
    return node.services.catalog.topics[name].id


def commit_request(*wanted: Wanted, offset: int = 5, generation: int = -1) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    partition(partition_index=index, committed_offset=offset, committed_metadata="")
                    for index in indexes
                ],
            )
            for topic_id, indexes in wanted
        ],
    )


def codes(answer: object) -> Codes:
    assert isinstance(answer, OffsetCommitResponse | TxnOffsetCommitResponse)
    assert not any(topic.name for topic in answer.topics)
    return [(topic.topic_id, [one.error_code for one in topic.partitions]) for topic in answer.topics]


def test_offsets_are_committed_by_the_id_of_their_topic(client: Exchange) -> None:
    topic_id = id_of(client.node, "t")
    assert codes(client.ask(commit_request((topic_id, [0, 1])), 10)) == [(topic_id, [NONE, NONE])]
    assert committed(client.node, "g") == 5


def test_an_id_without_a_topic_and_a_partition_without_a_log_have_codes_of_their_own(client: Exchange) -> None:
    topic_id = id_of(client.node, "t")
    answer = client.ask(commit_request((NOBODYS, [0, 1]), (topic_id, [0, 400]), (ZERO_UUID, [0])), 10)
    assert codes(answer) == [
        (NOBODYS, [UNKNOWN_ID, UNKNOWN_ID]),
        (topic_id, [NONE, NO_PARTITION]),
        (ZERO_UUID, [UNKNOWN_ID]),
    ]
    assert codes(client.ask(commit_request((NOBODYS, [0])), 10)) == [(NOBODYS, [UNKNOWN_ID])]


def test_the_id_of_a_topic_that_was_deleted_does_not_commit_for_its_successor(client: Exchange) -> None:
    old = id_of(client.node, "t")
    state = DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=ZERO_UUID)
    client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1_000), 6)
    make_topic(client.node, "t", 1)
    assert codes(client.ask(commit_request((old, [0])), 10)) == [(old, [UNKNOWN_ID])]
    assert committed(client.node, "g") == -1


def test_a_refusal_of_the_group_is_given_to_the_topics_that_exist(client: Exchange) -> None:
    topic_id = id_of(client.node, "t")
    answer = client.ask(commit_request((NOBODYS, [0]), (topic_id, [0]), generation=3), 10)
    assert codes(answer) == [(NOBODYS, [UNKNOWN_ID]), (topic_id, [ErrorCode.GROUP_ID_NOT_FOUND])]


def test_a_long_commit_is_answered_in_the_order_of_its_topics(client: Exchange) -> None:
    first, second = id_of(client.node, "t"), id_of(client.node, "u")
    wanted: list[Wanted] = [(first, list(range(401))), (NOBODYS, list(range(350))), (second, [0, 1, 2])]
    assert codes(client.ask(commit_request(*wanted), 10)) == [
        (first, [NONE] * 400 + [NO_PARTITION]),
        (NOBODYS, [UNKNOWN_ID] * 350),
        (second, [NONE, NONE, NO_PARTITION]),
    ]


def test_a_commit_in_a_transaction_names_topics_by_their_ids(client: Exchange) -> None:
    who = client.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
    assert isinstance(who, InitProducerIdResponse)
    topic_id = id_of(client.node, "t")

    def request(generation: int = -1, member_id: str = "") -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        return TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic_id=each, partitions=[partition])
                for each in (NOBODYS, topic_id)
            ],
        )

    refused = codes(client.ask(request(3, "m"), 6))
    assert refused == [(NOBODYS, [UNKNOWN_ID]), (topic_id, [ErrorCode.GROUP_ID_NOT_FOUND])]
    assert codes(client.ask(request(), 6)) == [(NOBODYS, [UNKNOWN_ID]), (topic_id, [NONE])]


def secured() -> tuple[Exchange, Exchange]:
    """An administrator, and alice, who may read the group and topic t, and nothing of topic u."""
    node, _, _ = start_node(authorizer_class_name=AUTHORIZER, super_users="User:admin")
    make_topic(node, "t", 2)
    make_topic(node, "u", 2)
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=3, principal="User:alice",
            host="*", operation=AclOperation.READ, permission_type=3,
        )
        for kind, name in ((ResourceType.GROUP, "g"), (ResourceType.TOPIC, "t"))
    ]  # fmt: skip
    ask(node, CreateAclsRequest(creations=creations), 3, peer=Peer(principal=ADMIN))
    admin = Exchange(node)
    alice = Exchange(node, beside=admin)
    admin.connection.peer.principal, alice.connection.peer.principal = ADMIN, Principal("User", "alice")
    admin.ask(FindCoordinatorRequest(key="g", key_type=0), 1)
    return admin, alice


def test_the_right_is_that_of_the_topic_with_the_id() -> None:
    """As Apache Kafka 4.4: ids are resolved first, and a topic without the right is not said to be missing."""
    admin, alice = secured()
    mine, hidden = id_of(admin.node, "t"), id_of(admin.node, "u")
    answer = alice.ask(commit_request((hidden, [0, 1]), (NOBODYS, [0]), (mine, [0, 7])), 10)
    assert sorted(codes(answer)) == sorted(
        [(mine, [NONE, NO_PARTITION]), (NOBODYS, [UNKNOWN_ID]), (hidden, [DENIED, DENIED])]
    )
    assert codes(alice.ask(commit_request((hidden, [0])), 10)) == [(hidden, [DENIED])]
    assert codes(alice.ask(commit_request((NOBODYS, [0])), 10)) == [(NOBODYS, [UNKNOWN_ID])]
    assert sorted(codes(alice.ask(commit_request((NOBODYS, [0]), (hidden, [1])), 10))) == sorted(
        [(NOBODYS, [UNKNOWN_ID]), (hidden, [DENIED])]
    )


def test_without_the_right_to_the_group_everything_is_refused() -> None:
    admin, alice = secured()
    request = commit_request((id_of(admin.node, "t"), [0]), (NOBODYS, [0])).replace(group_id="other")
    refusal = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert [each for _, each in codes(alice.ask(request, 10))] == [refusal, refusal]


Fetched = list[tuple[UUID, dict[int, tuple[int, int]]]]


def fetch(client: Exchange, *wanted: Wanted, everything: bool = False, group: str = "g") -> Fetched:
    """By topic, the offset and the code of each partition."""
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=indexes)
        for topic_id, indexes in wanted
    ]
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None if everything else topics)
    answer = client.ask(OffsetFetchRequest(groups=[asked]), 10)
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups[0].error_code == NONE
    return [
        (topic.topic_id, {one.partition_index: (one.committed_offset, one.error_code) for one in topic.partitions})
        for topic in answer.groups[0].topics
    ]


def test_offsets_are_fetched_by_the_id_of_their_topic(client: Exchange) -> None:
    first, second = id_of(client.node, "t"), id_of(client.node, "u")
    client.ask(commit_request((first, [0, 1]), (second, [0])), 10)
    assert fetch(client, (NOBODYS, [0, 3]), (first, [0, 7]), (ZERO_UUID, [0]), (first, [1])) == [
        (NOBODYS, {0: (-1, UNKNOWN_ID), 3: (-1, UNKNOWN_ID)}),
        (first, {0: (5, NONE), 7: (-1, NONE)}),
        (ZERO_UUID, {0: (-1, UNKNOWN_ID)}),
        (first, {1: (5, NONE)}),
    ]
    assert sorted(fetch(client, everything=True)) == sorted(
        [(first, {0: (5, NONE), 1: (5, NONE)}), (second, {0: (5, NONE)})]
    )
    assert fetch(client, (first, [0]), group="no-group") == [(first, {0: (-1, NONE)})]


def test_a_long_fetch_is_answered_in_the_order_of_its_topics(client: Exchange) -> None:
    first, second = id_of(client.node, "t"), id_of(client.node, "u")
    client.ask(commit_request((first, [399]), (second, [1])), 10)
    found = fetch(client, (first, list(range(400))), (NOBODYS, list(range(350))), (second, [0, 1]))
    assert [topic_id for topic_id, _ in found] == [first, NOBODYS, second]
    assert found[0][1] == {index: (5 if index == 399 else -1, NONE) for index in range(400)}
    assert found[1][1] == dict.fromkeys(range(350), (-1, UNKNOWN_ID))
    assert found[2][1] == {0: (-1, NONE), 1: (5, NONE)}


def test_offsets_of_a_deleted_topic_are_not_fetched_by_its_id(client: Exchange) -> None:
    old = id_of(client.node, "t")
    client.ask(commit_request((old, [0])), 10)
    state = DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=ZERO_UUID)
    client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1_000), 6)
    make_topic(client.node, "t", 1)
    new = id_of(client.node, "t")
    assert fetch(client, (old, [0]), (new, [0])) == [(old, {0: (-1, UNKNOWN_ID)}), (new, {0: (-1, NONE)})]


def test_offsets_of_topics_that_a_client_may_not_see_are_refused_or_left_out() -> None:
    admin, alice = secured()
    mine, hidden = id_of(admin.node, "t"), id_of(admin.node, "u")
    admin.ask(commit_request((mine, [0]), (hidden, [0])), 10)
    assert fetch(alice, (hidden, [0]), (NOBODYS, [0]), (mine, [0])) == [
        (hidden, {0: (-1, DENIED)}),
        (NOBODYS, {0: (-1, UNKNOWN_ID)}),
        (mine, {0: (5, NONE)}),
    ]
    assert fetch(alice, everything=True) == [(mine, {0: (5, NONE)})]
    many = fetch(alice, (hidden, list(range(10))), (mine, list(range(400))))
    assert [(topic_id, len(partitions)) for topic_id, partitions in many] == [(hidden, 10), (mine, 400)]
