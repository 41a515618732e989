"""Ottla lives the same life as Apache Kafka 4.4 did, and gives the same answers and writes the same records."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.exchange import Exchange, make_topic
from kit.group_scenario import (
    GROWN_ORDERS,
    KAFKA_FIRST_EPOCH,
    OTTLA_FIRST_EPOCH,
    TOPICS,
    RawRecord,
    Step,
    load,
    plain,
    play,
)
from kit.nodes import start_node

from ottla.broker.groups.metadata_hash import hash_of_topic, hash_of_topics
from ottla.broker.metadata.change_requests import NewPartitions, TopicResult
from ottla.broker.node import Node
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.stored.group import ConsumerGroupMetadataValue, decode_group_record


class OttlaStage:
    """A node without sockets."""

    first_epoch = OTTLA_FIRST_EPOCH

    def __init__(self, node: Node) -> None:
        self._node = node
        self._exchange = Exchange(node)
        self._offset = 0
        self.topic_ids: dict[str, UUID] = {}
        for name, partitions in TOPICS.items():
            make_topic(node, name, partitions)
            self.topic_ids[name] = node.services.catalog.topics[name].id

    def ask(self, request: Request, version: int) -> Response:
        return self._exchange.ask(request, version)

    def new_records(self) -> list[RawRecord]:
        partition = self._node.services.catalog.partition("__consumer_offsets", 0)
        if partition is None or self._offset == partition.log.log_end_offset:
            return []
        data = partition.log.read(
            self._offset, 1 << 20, end_offset=partition.log.log_end_offset, allow_map=False
        ).read_blocking()
        records: list[RawRecord] = []
        for position, header in iter_batches(data):
            self._offset = header.next_offset
            records.extend(
                (bytes(record.key or b""), record.value) for record in decode_batch(memoryview(data)[position:])
            )
        return records

    def grow(self, topic: str, partitions: int) -> None:
        grown: list[TopicResult] = []
        self._node.services.catalog.create_partitions([NewPartitions(topic, partitions)], grown.extend)
        self._node.settle()
        assert [outcome.error_code for outcome in grown] == [0]


@pytest.fixture(scope="module")
def ottla() -> tuple[list[Step], dict[str, UUID]]:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    stage = OttlaStage(node)
    return play(stage), stage.topic_ids


KAFKA_STEPS, KAFKA_TOPIC_IDS = load("4.4.0")
KAFKAS = plain(KAFKA_STEPS, KAFKA_TOPIC_IDS, first_epoch=KAFKA_FIRST_EPOCH)


@pytest.mark.parametrize("number", range(len(KAFKA_STEPS)), ids=[step.label for step in KAFKA_STEPS])
def test_answers_and_records_are_those_of_kafka(number: int, ottla: tuple[list[Step], dict[str, UUID]]) -> None:
    assert plain(*ottla)[number] == KAFKAS[number]


def test_the_hash_of_topics_is_kafkas_own() -> None:
    known = {
        hash_of_topics((name, hash_of_topic(KAFKA_TOPIC_IDS[name], name, counts[name])) for name in names)
        for counts in (TOPICS, {**TOPICS, "orders": GROWN_ORDERS})
        for names in ([], ["orders"], ["payments"], ["orders", "payments"])
    }
    values = [decode_group_record(*record)[1] for step in KAFKA_STEPS for record in step.records]
    hashes = {value.metadata_hash for value in values if isinstance(value, ConsumerGroupMetadataValue)}
    assert len(hashes) >= 4
    assert hashes <= known
