"""Metadata, CreateTopics, DeleteTopics, CreatePartitions and DescribeTopicPartitions as the wire sees them."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.nodes import ask, start_node

from ottla.broker.node import Node
from ottla.broker.peer import Endpoint, Peer
from ottla.protocol.api.create_partitions import CreatePartitionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode, KafkaError

NOT_ASKED = -(1 << 31)
ZERO_ID = UUID(int=0)


def create(
    node: Node, name: str, partitions: int = 1, *, version: int = 7, validate_only: bool = False, **configs: str
) -> CreateTopicsResponse.CreatableTopicResult:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=1000,
        validate_only=validate_only,
    )
    response = ask(node, request, version)
    assert isinstance(response, CreateTopicsResponse)
    (result,) = response.topics
    return result


def metadata(
    node: Node, *targets: str | UUID, version: int = 13, peer: Peer | None = None, **fields: bool
) -> MetadataResponse:
    topics = [
        MetadataRequest.MetadataRequestTopic(topic_id=target, name=None)
        if isinstance(target, UUID)
        else MetadataRequest.MetadataRequestTopic(name=target)
        for target in targets
    ]
    response = ask(node, MetadataRequest(topics=topics, **fields), version, peer=peer)
    assert isinstance(response, MetadataResponse)
    return response


def all_topics(node: Node, version: int) -> MetadataResponse:
    topics: list[MetadataRequest.MetadataRequestTopic] | None = [] if version == 0 else None
    response = ask(node, MetadataRequest(topics=topics), version)
    assert isinstance(response, MetadataResponse)
    return response


# --- Metadata


@pytest.mark.parametrize("name", ["", None, "another"])
def test_a_topic_id_counts_whatever_name_stands_beside_it(name: str | None) -> None:
    node, _, _ = start_node()
    create(node, "t", 2)
    topic_id = node.services.catalog.topics["t"].id
    asked = MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=name)
    response = ask(node, MetadataRequest(topics=[asked]), 13)
    assert isinstance(response, MetadataResponse)
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics] == [("t", 0, 2)]


@pytest.mark.parametrize("version", range(14))
def test_metadata_has_the_one_broker_and_every_topic_at_each_version(version: int) -> None:
    node, _, _ = start_node(broker_rack="r1")
    create(node, "a", 2)
    create(node, "b")
    response = all_topics(node, version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
    assert broker.rack == ("r1" if version >= 1 else None)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (node.services.catalog.cluster_id if version >= 2 else None)
    assert {topic.name: len(topic.partitions) for topic in response.topics} == {"a": 2, "b": 1}
    first = response.topics[0].partitions[0]
    assert (first.leader_id, first.replica_nodes, first.isr_nodes, first.offline_replicas) == (1, [1], [1], [])
    assert first.leader_epoch == (0 if version >= 7 else -1)
    assert response.topics[0].topic_id == (node.services.catalog.topics["a"].id if version >= 10 else ZERO_ID)


def test_an_empty_list_asks_for_no_topic_from_version_1_on() -> None:
    node, _, _ = start_node()
    create(node, "a")
    assert metadata(node, version=1).topics == []
    assert len(metadata(node, version=0).topics) == 1


def test_the_first_metadata_of_an_unknown_topic_creates_it_usable_at_once() -> None:
    node, _, _ = start_node(num_partitions=3)
    (topic,) = metadata(node, "new", version=12).topics
    assert topic.error_code == ErrorCode.NONE
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.NONE] * 3
    assert node.services.catalog.partition("new", 2) is not None


@pytest.mark.parametrize(
    ("version", "fields", "keys"),
    [
        (4, {"allow_auto_topic_creation": False}, {}),
        (3, {}, {"auto_create_topics_enable": False}),
        (13, {}, {"auto_create_topics_enable": False}),
    ],
)
def test_no_topic_is_created_where_client_or_broker_decline(
    version: int, fields: dict[str, bool], keys: dict[str, object]
) -> None:
    node, _, _ = start_node(**keys)
    (topic,) = metadata(node, "new", version=version, **fields).topics
    assert (topic.name, topic.error_code) == ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert node.services.catalog.topics == {}


@pytest.mark.parametrize("name", ["", "a b", "a" * 250, ".."])
def test_an_impossible_name_is_invalid_and_not_created(name: str) -> None:
    node, _, _ = start_node()
    (topic,) = metadata(node, name).topics
    assert (topic.name, topic.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_the_metadata_log_is_not_a_topic() -> None:
    node, _, _ = start_node()
    (topic,) = metadata(node, "__cluster_metadata").topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all_topics(node, 13).topics == []


def test_topics_are_found_by_id_from_version_12_on() -> None:
    node, _, _ = start_node()
    topic_id = create(node, "a").topic_id
    found, unknown = metadata(node, topic_id, UUID(int=77), version=12).topics
    assert (found.name, found.error_code) == ("a", ErrorCode.NONE)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, UUID(int=77), ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_version_12_are_an_invalid_request(version: int) -> None:
    node, _, _ = start_node()
    with pytest.raises(KafkaError) as caught:
        metadata(node, UUID(int=77), version=version)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_topic_asked_for_twice_is_described_once() -> None:
    node, _, _ = start_node()
    assert [topic.name for topic in metadata(node, "a", "b", "a").topics] == ["a", "b"]


def test_internal_topics_are_flagged_and_listed() -> None:
    node, _, _ = start_node()
    create(node, "__consumer_offsets")
    create(node, "orders")
    flags = {topic.name: topic.is_internal for topic in all_topics(node, 9).topics}
    assert flags == {"__consumer_offsets": True, "orders": False}


def test_authorized_operations_are_sent_only_when_asked_for() -> None:
    node, _, _ = start_node()
    create(node, "a")
    plain = metadata(node, "a", version=8)
    asked = metadata(
        node,
        "a",
        version=8,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert plain.cluster_authorized_operations == NOT_ASKED
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert asked.cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
    assert asked.topics[0].topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    missing = metadata(node, "no", version=8, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    assert missing.topics[0].topic_authorized_operations == asked.topics[0].topic_authorized_operations


def test_an_internal_topic_that_is_not_there_is_flagged_too() -> None:
    node, _, _ = start_node()
    (topic,) = metadata(node, "__transaction_state").topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    (topic,) = describe(node, "__transaction_state").topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


def test_a_topic_that_cannot_be_created_is_refused_with_the_reason() -> None:
    node, _, _ = start_node(num_partitions=3, ottla_max_partitions=2)
    (topic,) = metadata(node, "a").topics
    assert topic.error_code == ErrorCode.POLICY_VIOLATION


# --- the advertised address


def test_a_client_gets_the_address_that_it_connected_to() -> None:
    node, _, _ = start_node()
    (broker,) = metadata(node, peer=Peer(Endpoint(local_address=("::ffff:192.0.2.7", 9099)))).brokers
    assert (broker.host, broker.port) == ("192.0.2.7", 9099)
    (broker,) = metadata(node, peer=Peer(Endpoint(local_address=("2001:db8::1", 9099)))).brokers
    assert (broker.host, broker.port) == ("2001:db8::1", 9099)


def test_each_listener_has_its_own_advertised_address() -> None:
    node, _, _ = start_node(
        listeners="IN://:9092,OUT://:9093",
        advertised_listeners="OUT://broker.example:19093",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
    )
    (inside,) = metadata(node, peer=Peer(Endpoint(listener="IN", local_address=("10.0.0.1", 9092)))).brokers
    (outside,) = metadata(node, peer=Peer(Endpoint(listener="OUT", local_address=("10.0.0.1", 9093)))).brokers
    assert (inside.host, inside.port) == ("10.0.0.1", 9092)
    assert (outside.host, outside.port) == ("broker.example", 19093)


# --- CreateTopics


@pytest.mark.parametrize("version", range(8))
def test_create_topics_answers_what_each_version_can_say(version: int) -> None:
    node, _, _ = start_node()
    result = create(node, "a", 2, version=version, retention_ms="5000")
    assert result.error_code == ErrorCode.NONE
    assert len(node.services.catalog.topics["a"].partitions) == 2
    assert result.topic_id == (node.services.catalog.topics["a"].id if version >= 7 else ZERO_ID)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        values = {entry.name: (entry.value, entry.config_source) for entry in result.configs or ()}
        assert values["retention.ms"] == ("5000", 1)
        assert values["segment.bytes"] == ("1073741824", 5)


def test_create_topics_0_has_a_code_and_no_reason() -> None:
    node, _, _ = start_node()
    assert (create(node, "a/b", version=0).error_code, create(node, "a/b", version=0).error_message) == (17, None)
    assert create(node, "a/b", version=1).error_message is not None


def test_create_topics_that_is_only_validated_says_what_would_be() -> None:
    node, _, _ = start_node()
    result = create(node, "a", 3, validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)
    assert result.topic_id != ZERO_ID  # as in Kafka; the id is of no topic
    assert node.services.catalog.topics == {}


def test_create_topics_refuses_with_code_and_reason() -> None:
    node, _, _ = start_node()
    result = create(node, "a", retention_ms="soon")
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "retention.ms" in (result.error_message or "")


def test_a_name_twice_in_a_request_has_one_result() -> None:
    node, _, _ = start_node()
    topic = CreateTopicsRequest.CreatableTopic(
        name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    response = ask(node, CreateTopicsRequest(topics=[topic, topic]), 7)
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error_code for result in response.topics] == [ErrorCode.INVALID_REQUEST]


# --- DeleteTopics


@pytest.mark.parametrize("version", range(7))
def test_delete_topics_by_name_at_each_version(version: int) -> None:
    node, _, _ = start_node()
    create(node, "a")
    if version >= 6:
        state = DeleteTopicsRequest.DeleteTopicState(name="a", topic_id=ZERO_ID)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=1000)
    else:
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
    (result,) = ask(node, request, version).responses  # type: ignore[attr-defined]  # of its class
    assert (result.name, result.error_code) == ("a", ErrorCode.NONE)
    assert node.services.catalog.topics == {}


def test_delete_topics_by_id() -> None:
    node, _, _ = start_node()
    topic_id = create(node, "a").topic_id
    states = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=wanted) for wanted in (topic_id, UUID(int=77))]
    good, bad = ask(node, DeleteTopicsRequest(topics=states, timeout_ms=1), 6).responses  # type: ignore[attr-defined]
    assert (good.name, good.topic_id, good.error_code) == ("a", topic_id, ErrorCode.NONE)
    assert (bad.name, bad.topic_id, bad.error_code) == (None, UUID(int=77), ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("name", [None, "a"])
def test_delete_topics_by_both_name_and_id_or_neither_is_refused_and_the_others_are_deleted(name: str | None) -> None:
    node, _, _ = start_node()
    create(node, "a")
    create(node, "b")
    states = [
        DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_ID if name is None else UUID(int=7)),
        DeleteTopicsRequest.DeleteTopicState(name="b", topic_id=ZERO_ID),
    ]
    response = ask(node, DeleteTopicsRequest(topics=states, timeout_ms=1), 6)
    assert isinstance(response, DeleteTopicsResponse)
    reported = [(one.name, one.error_code) for one in response.responses]
    assert reported == [(name, ErrorCode.INVALID_REQUEST), ("b", ErrorCode.NONE)]
    assert list(node.services.catalog.topics) == ["a"]


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73)])
def test_disabled_deletion_has_its_own_code_from_version_3_on(version: int, code: int) -> None:
    node, _, _ = start_node(delete_topic_enable=False)
    create(node, "a")
    (result,) = ask(node, DeleteTopicsRequest(topic_names=["a"], timeout_ms=1), version).responses  # type: ignore[attr-defined]
    assert result.error_code == code


# --- CreatePartitions


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_grows_a_topic_and_refuses_to_shrink_it(version: int) -> None:
    node, _, _ = start_node()
    create(node, "a", 2)
    topics = [
        CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=4, assignments=None),
        CreatePartitionsRequest.CreatePartitionsTopic(name="missing", count=4, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False)
    good, bad = ask(node, request, version).results  # type: ignore[attr-defined]  # of its class
    assert (good.name, good.error_code) == ("a", ErrorCode.NONE)
    assert (bad.name, bad.error_code) == ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (again,) = ask(  # type: ignore[attr-defined]  # of its class
        node, CreatePartitionsRequest(topics=topics[:1], timeout_ms=1000, validate_only=False), version
    ).results
    assert again.error_code == ErrorCode.INVALID_PARTITIONS


def test_what_is_wrong_with_a_new_topic_is_reported_in_kafkas_order() -> None:
    """Its name, its configuration, the replication factor if it is none, the number of partitions, the brokers."""
    node, _, _ = start_node()
    create(node, "here")

    def code(name: str, partitions: int, replication_factor: int, value: str = "1") -> int:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value=value)],
        )
        response = ask(node, CreateTopicsRequest(topics=[topic], timeout_ms=1, validate_only=True), 7)
        assert isinstance(response, CreateTopicsResponse)
        return response.topics[0].error_code

    assert code("here", 0, 0, "x") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert code("new", 0, 0, "x") == ErrorCode.INVALID_CONFIG
    assert code("new", 0, 0) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert code("new", 0, 2) == ErrorCode.INVALID_PARTITIONS
    assert code("new", 1, 2) == ErrorCode.INVALID_REPLICATION_FACTOR


# --- DescribeTopicPartitions


def describe(
    node: Node, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = ask(node, request, 0)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def reported(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


def test_topics_are_described_in_the_order_of_their_names() -> None:
    node, _, _ = start_node()
    for name in ("c", "a", "b"):
        create(node, name)
    assert reported(describe(node)) == [("a", [0]), ("b", [0]), ("c", [0])]
    assert reported(describe(node, "c", "a", "c")) == [("a", [0]), ("c", [0])]


def test_pages_put_together_are_everything_once() -> None:
    node, _, _ = start_node()
    for name, count in (("a", 3), ("b", 1), ("c", 4)):
        create(node, name, count)
    expected = [(name, index) for name, count in (("a", 3), ("b", 1), ("c", 4)) for index in range(count)]
    for limit in range(1, 10):
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            page = describe(node, limit=limit, cursor=cursor)
            rows = [(name, index) for name, indexes in reported(page) for index in indexes]
            assert len(rows) <= limit
            seen += rows
            if page.next_cursor is None:
                break
            cursor = (page.next_cursor.topic_name, page.next_cursor.partition_index)
        assert seen == expected


def test_a_cursor_at_a_topic_that_is_gone_begins_at_the_next_one() -> None:
    node, _, _ = start_node()
    create(node, "a")
    create(node, "c")
    assert reported(describe(node, cursor=("b", 3))) == [("c", [0])]


def test_unknown_topics_are_answered_with_their_error() -> None:
    node, _, _ = start_node()
    assert {topic.name: topic.error_code for topic in describe(node, "nowhere", "not allowed").topics} == {
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not allowed": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize(("names", "cursor"), [((), ("a", -1)), (("a", "b"), ("aa", 0)), (("a",), ("", 0))])
def test_impossible_cursors_are_an_invalid_request(names: tuple[str, ...], cursor: tuple[str, int]) -> None:
    node, _, _ = start_node()
    with pytest.raises(KafkaError) as caught:
        describe(node, *names, cursor=cursor)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("limit", [1, 0, -1, -(1 << 31)])
def test_a_page_holds_at_least_one_partition(limit: int) -> None:
    node, _, _ = start_node()
    create(node, "a", 3)
    page = describe(node, "a", limit=limit)
    assert reported(page) == [("a", [0])]
    assert page.next_cursor is not None
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("a", 1)


@pytest.mark.parametrize("index", [2, 7])
def test_a_topic_that_the_cursor_is_past_is_described_without_partitions(index: int) -> None:
    node, _, _ = start_node()
    create(node, "a", 2)
    create(node, "b")
    assert reported(describe(node, "a", "b", limit=1, cursor=("a", index))) == [("a", []), ("b", [0])]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("no.such.key", "1", "Unknown topic config name: no.such.key"),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms: must be an integer"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_in_words_that_begin_as_kafkas(
    key: str, value: str | None, message: str
) -> None:
    node, _, _ = start_node()
    result = create(node, "a", **{key: value})  # type: ignore[arg-type]  # null is what is tested
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert (result.error_message or "").startswith(message)
