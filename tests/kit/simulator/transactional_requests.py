"""The requests of transactional producers, and the codes in their answers, whatever the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.protocol.message import Response
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

TRANSACTION_KEY = 1
Producer = tuple[int, int]
Where = tuple[str, int]


def codes_of(response: Response) -> dict[Where, int]:
    """The code of each partition; of the whole answer where it has no partitions."""
    if isinstance(response, ProduceResponse):
        return {
            (topic.name, one.index): one.error_code for topic in response.responses for one in topic.partition_responses
        }
    if isinstance(response, AddPartitionsToTxnResponse):
        return {
            (topic.name, one.partition_index): one.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
    if isinstance(response, TxnOffsetCommitResponse):
        return {
            (topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions
        }
    if isinstance(response, FindCoordinatorResponse):
        return {("", 0): response.coordinators[0].error_code}
    assert isinstance(response, AddOffsetsToTxnResponse | EndTxnResponse)
    return {("", 0): response.error_code}


def find_request(transactional_id: str) -> FindCoordinatorRequest:
    """Who coordinates a transactional id."""
    return FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id])


def init_request(transactional_id: str, timeout_ms: int, expected: Producer) -> InitProducerIdRequest:
    """An epoch; `expected`: who it was before, (-1, -1) for a new one."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected[0],
        producer_epoch=expected[1],
    )


def add_partitions_request(
    transactional_id: str, producer: Producer, wanted: Iterable[Where]
) -> AddPartitionsToTxnRequest:
    """Of older clients."""
    topics: dict[str, list[int]] = {}
    for name, index in wanted:
        topics.setdefault(name, []).append(index)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


def batch_of(records: Sequence[Record], producer: Producer, sequence: int) -> bytearray:
    """A batch of a transaction."""
    return encode_batch(
        records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, is_transactional=True
    )


def produce_request(transactional_id: str, batches: Mapping[Where, bytes | bytearray]) -> ProduceRequest:
    """A batch for each of some partitions."""
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for (name, index), batch in batches.items():
        topics.setdefault(name, []).append(ProduceRequest.PartitionProduceData(index=index, records=batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )


def add_offsets_request(transactional_id: str, producer: Producer, group: str) -> AddOffsetsToTxnRequest:
    """Of older clients."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group
    )


def commit_offsets_request(
    transactional_id: str, producer: Producer, group: str, offsets: Mapping[Where, int]
) -> TxnOffsetCommitRequest:
    """Offsets as a part of the transaction."""
    kind = TxnOffsetCommitRequest
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[
            kind.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    kind.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}"
                    )
                ],
            )
            for (name, index), offset in offsets.items()
        ],
    )


def end_request(transactional_id: str, producer: Producer, *, commit: bool) -> EndTxnRequest:
    """The end of a transaction."""
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
    )
