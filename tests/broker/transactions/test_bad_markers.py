"""WriteTxnMarkers with nonsense: Kafka's codes, and partitions as they were."""

from __future__ import annotations

import pytest
from kit.nodes import partition_of
from kit.transaction_life import TransactionalProducer, TransactionLife, begun, commits, seen

from ottla.broker.transactions.state import MAX_EPOCH
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import OFFSETS_TOPIC


@pytest.fixture
def life() -> TransactionLife:
    return TransactionLife()


def marked(life: TransactionLife, *where: tuple[str, int], version: int = 1, **fields: object) -> list[int]:
    """What WriteTxnMarkers answers of each partition."""
    topics = [
        WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in where
    ]
    values: dict[str, object] = {
        "producer_id": 0,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": topics,
    }
    marker = WriteTxnMarkersRequest.WritableTxnMarker(**(values | fields))  # type: ignore[arg-type]
    answer = life.ask(WriteTxnMarkersResponse, WriteTxnMarkersRequest(markers=[marker]), version)
    return [each.error_code for topic in answer.markers[0].topics for each in topic.partitions]


def test_markers_for_partitions_that_do_not_exist_are_refused(life: TransactionLife) -> None:
    producer = begun(life)
    before = seen(life)
    where = [("t", -1), ("t", 3), ("no", 0), ("__cluster_metadata", 0), (OFFSETS_TOPIC, -1), (OFFSETS_TOPIC, 7)]
    assert marked(life, *where) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(where)
    assert seen(life) == before
    commits(producer)


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"producer_epoch": -1}, {"coordinator_epoch": -2}])
def test_markers_with_negative_numbers_are_refused(life: TransactionLife, fields: dict[str, int]) -> None:
    producer = begun(life)
    before = seen(life)
    values = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch} | fields
    assert marked(life, ("t", 0), **values) == [ErrorCode.INVALID_REQUEST]
    assert seen(life) == before
    commits(producer)


def test_a_marker_of_an_old_epoch_or_coordinator_is_refused(life: TransactionLife) -> None:
    first = begun(life)
    first.end(commit=False)  # the log has seen epoch 1 now
    ours = {"producer_id": first.producer_id}
    assert marked(life, ("t", 0), producer_epoch=0, **ours) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert marked(life, ("t", 0), producer_epoch=1, coordinator_epoch=5, **ours) == [ErrorCode.NONE]
    before = seen(life)
    fenced = marked(life, ("t", 0), producer_epoch=1, coordinator_epoch=4, **ours)
    assert fenced == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert seen(life) == before


def test_a_marker_of_transaction_version_2_must_have_a_higher_epoch_than_an_open_transaction(
    life: TransactionLife,
) -> None:
    """What Apache Kafka 4.4 answers (KIP-1228): a late marker of an earlier transaction must not end the next one."""
    producer = begun(life)
    before = seen(life)
    here = {"producer_id": producer.producer_id, "version": 2}
    for level in (2, 5):
        late = marked(life, ("t", 0), producer_epoch=producer.epoch, transaction_version=level, **here)
        assert late == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert marked(life, ("t", 0), producer_epoch=producer.epoch, transaction_version=-1, **here) == [
        ErrorCode.INVALID_REQUEST
    ]
    assert seen(life) == before
    for epoch in (producer.epoch + 1, producer.epoch + 1):  # again, with no transaction open: nothing is wrong
        assert marked(life, ("t", 0), producer_epoch=epoch, transaction_version=2, **here) == [ErrorCode.NONE]
    assert seen(life) != before


def test_a_marker_of_transaction_version_2_may_have_the_last_epoch_of_the_open_transaction(
    life: TransactionLife,
) -> None:
    """What Apache Kafka 4.4 answers (KAFKA-20090): there is no higher epoch that could end it."""
    producer = TransactionalProducer(life)
    producer.init()
    shard = life.node.services.transactions.get().shards.ready("tx")
    shard.transactions["tx"] = shard.transactions["tx"]._replace(producer_epoch=MAX_EPOCH)
    producer.epoch = MAX_EPOCH
    producer.produce()
    assert life.last_stable_offset() == 0
    here = {"producer_id": producer.producer_id, "producer_epoch": MAX_EPOCH, "transaction_version": 2}
    for _ in range(2):
        assert marked(life, ("t", 0), version=2, **here) == [ErrorCode.NONE]
    assert life.last_stable_offset() == partition_of(life.node, "t").high_watermark
    assert life.committed() == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_marker_of_an_older_transaction_version_may_have_the_epoch_of_the_open_transaction(
    life: TransactionLife, level: int
) -> None:
    producer = begun(life)
    before = seen(life)
    here = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "transaction_version": level}
    assert marked(life, ("t", 0), version=2, **here) == [ErrorCode.NONE]
    assert seen(life) != before


def test_a_request_of_many_markers_for_the_same_partition_is_answered_one_by_one(life: TransactionLife) -> None:
    producer = begun(life)
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0] * 500)
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[topic] * 2,
    )
    answer = life.ask(WriteTxnMarkersResponse, WriteTxnMarkersRequest(markers=[marker]), 1)
    codes = [each.error_code for each in answer.markers[0].topics[1].partitions]
    assert codes == [ErrorCode.NONE] * 500
    assert life.last_stable_offset() == 1_001
    producer.end()
    assert life.committed() == []
