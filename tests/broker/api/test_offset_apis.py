"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId, and what Produce refuses by itself."""

from __future__ import annotations

import errno
import random

import pytest
from kit.exchange import STAMP_MS, Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node

from ottla.broker.node import Node
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 2)
    for _ in range(2):
        Exchange(node).ask(produce_request("t", batch(5)), 9)
    return node


def list_offsets(
    node: Node, *timestamps: int, version: int = 11, epoch: int = -1, topic: str = "t"
) -> list[ListOffsetsResponse.ListOffsetsPartitionResponse]:
    asked = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        for index, timestamp in enumerate(timestamps)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked)]
    )
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions


@pytest.mark.parametrize(
    ("timestamp", "offset", "stamp"),
    [
        (-1, 10, -1),
        (-2, 0, -1),
        (-3, 4, STAMP_MS + 4),
        (-4, 0, -1),
        (-5, -1, -1),
        (-6, -1, -1),
        (STAMP_MS + 3, 3, STAMP_MS + 3),
        (STAMP_MS + 99, -1, -1),
    ],
)
def test_special_and_real_timestamps(node: Node, timestamp: int, offset: int, stamp: int) -> None:
    (answer,) = list_offsets(node, timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, stamp)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_is_unknown_before_its_version(node: Node, timestamp: int, since: int) -> None:
    assert list_offsets(node, timestamp, version=since - 1)[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offsets(node, timestamp, version=since)[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_answers_latest_and_an_epoch_where_it_can(node: Node, version: int) -> None:
    (answer,) = list_offsets(node, -1, version=version)
    assert (answer.offset, answer.leader_epoch) == (10, 0 if version >= 4 else -1)


def test_a_partition_that_is_named_twice_is_refused(node: Node) -> None:
    asked = [ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=asked)]
    )
    answer = Exchange(node).ask(request, 7)
    assert isinstance(answer, ListOffsetsResponse)
    assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("timestamp", [-1, -2, -4])
def test_both_ends_of_an_empty_log_have_the_leaders_epoch(node: Node, timestamp: int) -> None:
    """As Apache Kafka 4.1 answers: an epoch begins when its leader does, not with its first batch."""
    make_topic(node, "empty", 1)
    (answer,) = list_offsets(node, timestamp, topic="empty")
    assert (answer.offset, answer.leader_epoch) == (0, 0)


def test_unknown_partitions_and_epochs_are_refused(node: Node) -> None:
    assert list_offsets(node, -1, topic="no")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(node, -1, -1, -1)[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(node, -1, epoch=9)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert list_offsets(node, -1, epoch=-2)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert list_offsets(node, -9, topic="no")[0].error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("asked", "current", "expected"),
    [
        (0, -1, (0, 0, 10)),
        (0, 0, (0, 0, 10)),
        (3, -1, (0, -1, -1)),
        (0, 4, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
        (0, -2, (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)),
    ],
)
def test_where_an_epoch_ended(node: Node, asked: int, current: int, expected: tuple[int, int, int]) -> None:
    assert epoch_end(node, asked, current=current) == expected


def test_the_epoch_of_a_leader_that_took_no_record_is_known_all_the_same() -> None:
    """A client that got it from ListOffsets asks where it ended; "unknown" makes Java's consumer reset its position."""
    node, files, _ = start_node()
    make_topic(node, "t", 2)
    Exchange(node).ask(produce_request("t", batch(5)), 9)
    assert epoch_end(node, 0, partition=1) == (0, 0, 0)
    for leader_epoch in (1, 2):
        node, files, _ = start_node(files.crash(random.Random(1)))
        assert list_offsets(node, -1)[0].leader_epoch == leader_epoch
    for partition, end_offset in ((0, 5), (1, 0)):
        assert epoch_end(node, 2, partition=partition) == (0, 2, end_offset)
        assert epoch_end(node, 3, partition=partition) == (0, -1, -1)
    assert epoch_end(node, 1) == epoch_end(node, 0) == (0, 0, 5)
    assert epoch_end(node, 1, partition=1) == (0, 1, 0)


def epoch_end(node: Node, asked: int, *, partition: int = 0, current: int = -1) -> tuple[int, int, int]:
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=asked
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[wanted])]
    )
    answer = Exchange(node).ask(request, 4)
    assert isinstance(answer, OffsetForLeaderEpochResponse)
    got = answer.topics[0].partitions[0]
    return got.error_code, got.leader_epoch, got.end_offset


def delete_request(offset: int, *, topic: str = "t", partition: int = 0) -> DeleteRecordsRequest:
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000
    )


def delete(node: Node, offset: int, *, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    return deleted(Exchange(node).ask(delete_request(offset, topic=topic, partition=partition), 2))


def deleted(answer: object) -> tuple[int, int]:
    assert isinstance(answer, DeleteRecordsResponse)
    result = answer.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_are_deleted_up_to_an_offset_and_never_beyond_the_high_watermark(node: Node) -> None:
    assert delete(node, 3) == (0, 3)
    assert delete(node, 2) == (0, 3)
    assert delete(node, 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(node, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(node, -1) == (0, 10)
    assert list_offsets(node, -2)[0].offset == 10
    answer = Exchange(node).ask(fetch_request("t", 3), 12)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def sent_and_not_synced(node: Node) -> Exchange:
    """A client whose five records with acks=1 are answered, and on no disk yet."""
    make_topic(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch(5), acks=1), 9)
    client.end_turn()
    assert isinstance(client.reply(), ProduceResponse)
    return client


@pytest.mark.parametrize("offset", [5, -1])
def test_records_that_were_just_taken_with_acks_1_can_be_deleted_the_answer_waits_for_their_sync(offset: int) -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    client = sent_and_not_synced(node)
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition.high_watermark == 0  # nothing is synced so far

    client.send(delete_request(offset), 2)
    client.end_turn()
    assert client.replies() == []
    node.settle()
    assert deleted(client.reply()) == (0, 5)


def test_an_offset_beyond_the_log_end_is_refused_without_waiting_for_a_sync() -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    client = sent_and_not_synced(node)
    client.send(delete_request(6), 2)
    client.end_turn()
    assert deleted(client.reply()) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_deletion_waits_for_a_sync_no_longer_than_the_client_wants() -> None:
    node, _, clock = start_node(ottla_acks_all="sync")
    client = sent_and_not_synced(node)
    client.send(delete_request(5), 2)
    client.end_turn()
    clock.advance(1_001)
    node.run_due()
    assert deleted(client.reply()) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    node.settle()
    assert list_offsets(node, -2)[0].offset == 0


def test_a_deletion_that_waits_for_a_failing_disk_gets_an_error() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    client = sent_and_not_synced(node)
    client.send(delete_request(5), 2)
    files.fail("fdatasync", "*.log", errno.EIO)
    node.settle()
    assert deleted(client.reply()) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_records_of_unknown_partitions_and_compacted_topics_are_not_deleted(node: Node) -> None:
    make_topic(node, "compacted", cleanup_policy="compact")
    make_topic(node, "kept", cleanup_policy="")
    assert delete(node, 0, topic="no")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(node, 0, partition=7)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(node, 0, topic="compacted")[0] == ErrorCode.POLICY_VIOLATION
    assert delete(node, 0, topic="kept")[0] == ErrorCode.POLICY_VIOLATION


def test_deleted_records_stay_deleted_after_the_loss_of_everything_unsynced() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    Exchange(node).ask(produce_request("t", batch(5)), 9)
    assert delete(node, 3) == (0, 3)
    after, _, _ = start_node(files.crash(random.Random(5)))
    assert list_offsets(after, -2)[0].offset == 3


def test_a_checkpoint_that_cannot_be_written_is_not_answered_as_deleted() -> None:
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    Exchange(node).ask(produce_request("t", batch(5)), 9)
    files.fail("*", "*log-start-offset-checkpoint*", errno.EIO, times=None)
    assert delete(node, 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def init(
    node: Node, version: int = 5, transactional_id: str | None = None, *, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, InitProducerIdResponse)
    return answer


def test_every_producer_gets_an_id_of_its_own_also_after_a_crash() -> None:
    node, files, _ = start_node()
    given = [init(node, version) for version in range(6)]
    assert all((answer.error_code, answer.producer_epoch) == (0, 0) for answer in given)
    ids = [answer.producer_id for answer in given]
    after, _, _ = start_node(files.crash(random.Random(1)))
    ids += [init(after).producer_id for _ in range(3)]
    assert len(set(ids)) == 9


@pytest.mark.parametrize(("producer_id", "epoch", "code"), [(7, 3, 0), (7, -1, 42), (-1, 3, 42)])
def test_a_producer_has_both_an_id_and_an_epoch_or_neither(node: Node, producer_id: int, epoch: int, code: int) -> None:
    answer = init(node, producer_id=producer_id, epoch=epoch)
    assert (answer.error_code, answer.producer_epoch) == (code, -1 if code else 0)


def test_producers_that_ask_while_a_block_is_being_stored_are_served_in_their_order() -> None:
    node, _, _ = start_node()
    clients = [Exchange(node) for _ in range(3)]
    for client in clients:
        client.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5)
    node.settle()
    ids = [client.reply().producer_id for client in clients]  # type: ignore[attr-defined]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]


def test_an_empty_transactional_id_is_refused(node: Node) -> None:
    answer = init(node, transactional_id="")
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def produced(answer: object) -> ProduceResponse.PartitionProduceResponse:
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_values_of_acks_are_refused(node: Node, acks: int) -> None:
    answer = produced(Exchange(node).ask(produce_request("t", batch(), acks=acks), 9))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)


def test_a_batch_of_no_transaction_is_stored_where_the_request_names_a_transactional_id(node: Node) -> None:
    answer = produced(Exchange(node).ask(produce_request("t", batch(), transactional_id="tx"), 9))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 10)
    assert list_offsets(node, -1)[0].offset == 11


@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_without_a_batch_is_refused(node: Node, records: bytes | None) -> None:
    answer = produced(Exchange(node).ask(produce_request("t", records), 9))
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_no_more_replicas_are_asked_for_than_a_topic_has(node: Node) -> None:
    """Apache Kafka 3.9 and 4.1 take acks=all for a topic of one replica whatever its min.insync.replicas."""
    make_topic(node, "two", min_insync_replicas="2")
    client = Exchange(node)
    answers = [produced(client.ask(produce_request("two", batch(), acks=acks), 9)) for acks in (-1, -1, 1)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2)]


def test_one_request_answers_for_each_of_its_partitions(node: Node) -> None:
    data = ProduceRequest.PartitionProduceData
    topics = [
        ProduceRequest.TopicProduceData(
            name="t", partition_data=[data(index=index, records=batch(2)) for index in (1, 0, 9)]
        ),
        ProduceRequest.TopicProduceData(name="no", partition_data=[data(index=0, records=batch())]),
    ]
    answer = Exchange(node).ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    assert isinstance(answer, ProduceResponse)
    got = [
        (one.index, one.error_code, one.base_offset) for topic in answer.responses for one in topic.partition_responses
    ]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert got == [(1, 0, 0), (0, 0, 10), (9, missing, -1), (0, missing, -1)]


def test_acks_0_is_not_answered_and_an_error_closes_the_connection(node: Node) -> None:
    client = Exchange(node)
    client.send(produce_request("t", batch(), acks=0), 9)
    node.settle()
    assert client.replies() == []
    assert not client.transport.closed
    client.send(produce_request("no", batch(), acks=0), 9)
    node.settle()
    assert client.replies() == []
    assert client.transport.closed
