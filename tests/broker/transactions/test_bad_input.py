"""Requests that no sound client sends, and late ones: Kafka's code, state unchanged, and nothing held up for good."""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, batch, produce_request
from kit.nodes import partition_of
from kit.transaction_life import (
    TIMEOUT_MS,
    TransactionalProducer,
    TransactionLife,
    begun,
    commits,
    refused,
    seen,
    stored_at,
)

from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode

BOTH = pytest.mark.parametrize("version", [0, 2])
LATE_MS = TIMEOUT_MS + 21_000
"""After this a transaction has timed out."""
LONGEST_ID = 32_767


@pytest.fixture
def life() -> TransactionLife:
    return TransactionLife()


def stored_or_refused(life: TransactionLife, request: ProduceRequest, version: int) -> ErrorCode:
    """What Produce answers of its only batch."""
    return refused(lambda: stored_at(life.ask(ProduceResponse, request, version)))


# --- whose transaction it is -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("epoch", [-32_768, -1, 1, 32_767])
def test_a_wrong_epoch_is_refused(life: TransactionLife, version: int, epoch: int) -> None:
    producer = begun(life, version=version)
    before, right = seen(life), producer.epoch
    producer.epoch = epoch
    assert refused(producer.end) is ErrorCode.PRODUCER_FENCED
    code = stored_or_refused(life, producer.produce_request(), producer.produce_version)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(lambda: producer.add(1)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: producer.init(again=True)) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_REQUEST)
    assert seen(life) == before
    producer.epoch = right
    commits(producer)


@BOTH
@pytest.mark.parametrize("producer_id", [-(1 << 63), -2, -1, 0, 77, (1 << 63) - 1])
def test_a_wrong_producer_id_is_refused(life: TransactionLife, version: int, producer_id: int) -> None:
    TransactionalProducer(life, "of producer 0").init()
    producer = begun(life, version=version)
    before, right = seen(life), producer.producer_id
    producer.producer_id = producer_id
    assert right != producer_id
    assert refused(producer.end) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    code = stored_or_refused(life, producer.produce_request(), producer.produce_version)
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: producer.add(1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: producer.init(again=True)) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_REQUEST)
    assert seen(life) == before
    producer.producer_id = right
    commits(producer)


@BOTH
def test_an_unknown_transactional_id_is_refused(life: TransactionLife, version: int) -> None:
    producer = begun(life, version=version)
    before = seen(life)
    producer.transactional_id = "unknown"
    assert refused(producer.end) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    code = stored_or_refused(life, producer.produce_request(), producer.produce_version)
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: producer.add(1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert seen(life) == before
    producer.transactional_id = "tx"
    commits(producer)


def test_before_the_first_transactional_id_every_one_is_unknown(life: TransactionLife) -> None:
    producer = TransactionalProducer(life)
    producer.producer_id, producer.epoch = 5, 0
    assert stored_or_refused(life, producer.produce_request(), 12) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(producer.end) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert partition_of(life.node, "t").log.log_end_offset == 0


@BOTH
def test_a_producer_whose_id_was_taken_over_can_do_nothing_more(life: TransactionLife, version: int) -> None:
    zombie = begun(life, version=version)
    successor = TransactionalProducer(life, version=version)
    assert refused(successor.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    successor.init()
    successor.produce(b"first")
    before = seen(life)
    code = stored_or_refused(life, zombie.produce_request(b"zombie"), zombie.produce_version)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(lambda: zombie.add(1)) is ErrorCode.PRODUCER_FENCED
    assert refused(zombie.end) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: zombie.init(again=True)) is ErrorCode.PRODUCER_FENCED
    assert seen(life) == before
    commits(successor)


@BOTH
def test_a_commit_after_the_timeout_is_refused_and_the_records_stay_aborted(
    life: TransactionLife, version: int
) -> None:
    producer = begun(life, version=version)
    life.pass_ms(LATE_MS)
    before = seen(life)
    assert refused(producer.end) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert (seen(life), life.committed(), life.last_stable_offset()) == (before, [], 2)


def test_records_after_the_timeout_are_refused_until_the_producer_has_a_new_epoch(life: TransactionLife) -> None:
    producer = begun(life, version=0)
    life.pass_ms(LATE_MS)
    assert refused(lambda: producer.produce(b"late")) is ErrorCode.PRODUCER_FENCED
    producer.epoch, producer.producer_id = -1, -1
    producer.init()
    producer.produce(b"on time")
    producer.end()
    assert life.committed() == [b"on time"]


# --- what belongs to it ----------------------------------------------------------------------------------------------


@BOTH
def test_a_gap_in_the_sequence_is_refused_inside_a_transaction(life: TransactionLife, version: int) -> None:
    producer = begun(life, version=version)
    before = seen(life)
    producer.sequences[0] += 1
    code = stored_or_refused(life, producer.produce_request(b"gap"), producer.produce_version)
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert seen(life) == before
    producer.sequences[0] -= 1
    commits(producer)


def test_a_partition_whose_only_batch_was_refused_does_not_hold_up_the_end(life: TransactionLife) -> None:
    producer = begun(life)
    corrupt = producer.produce_request(index=1)
    records = corrupt.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[-1] ^= 0xFF
    assert stored_or_refused(life, corrupt, 12) is ErrorCode.CORRUPT_MESSAGE
    assert partition_of(life.node, "t", 1).log.log_end_offset == 0
    commits(producer)
    assert life.last_stable_offset(1) == partition_of(life.node, "t", 1).high_watermark


@pytest.mark.parametrize("transactional_id", ["tx", None])
@pytest.mark.parametrize("is_hot", [False, True])
def test_a_batch_of_no_transaction_is_refused_while_its_producer_has_one_open(
    life: TransactionLife, transactional_id: str | None, is_hot: bool
) -> None:
    producer = begun(life)
    client = Exchange(life.node)
    if is_hot:  # the same bytes have come before, of another producer
        for _ in range(3):
            client.ask(produce_request("t", batch()), 9)
    before = partition_of(life.node, "t").log.log_end_offset
    plain = batch(producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1)
    answer = client.ask(produce_request("t", plain, transactional_id=transactional_id), 9)
    assert isinstance(answer, ProduceResponse)
    assert refused(lambda: stored_at(answer)) is ErrorCode.INVALID_TXN_STATE
    assert partition_of(life.node, "t").log.log_end_offset == before
    producer.end()


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize("is_hot", [False, True])
def test_a_batch_of_a_transaction_is_refused_in_a_request_of_no_transactional_id(
    life: TransactionLife, version: int, is_hot: bool
) -> None:
    producer = begun(life)
    client = Exchange(life.node)
    if is_hot:
        for _ in range(3):
            client.ask(produce_request("t", batch()), version)
    before = seen(life)
    records = batch(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1, is_transactional=True
    )
    answer = client.ask(produce_request("t", records), version)
    assert isinstance(answer, ProduceResponse)
    assert refused(lambda: stored_at(answer)) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert seen(life) == before
    producer.end()
    assert b"first" in life.committed()


def _of_two_producers(first: TransactionalProducer, second: TransactionalProducer) -> ProduceRequest:
    request = first.produce_request(b"one", 1)
    (more,) = second.produce_request(b"two", 2).topic_data[0].partition_data
    request.topic_data[0].partition_data.append(more)
    return request


@BOTH
def test_the_batches_of_two_producers_are_refused_in_one_request(life: TransactionLife, version: int) -> None:
    first, second = begun(life, version=version), begun(life, "other", version=version)
    before = seen(life)
    answer = life.ask(ProduceResponse, _of_two_producers(first, second), first.produce_version)
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert seen(life) == before
    first.end()
    second.end()
    assert life.committed() == [b"first", b"first"]


@BOTH
@pytest.mark.parametrize("index", [-1, 3, -(1 << 31), (1 << 31) - 1])
def test_partitions_that_do_not_exist_are_refused(life: TransactionLife, version: int, index: int) -> None:
    producer = begun(life, version=version)
    before = seen(life)
    assert refused(lambda: producer.add(0, index)) is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert refused(lambda: producer.add(index)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = stored_or_refused(life, producer.produce_request(index=index), producer.produce_version)
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert seen(life) == before
    commits(producer)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("__transaction_state", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("__consumer_offsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no such topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_topics_that_no_transaction_writes_to_are_refused(life: TransactionLife, topic: str, code: ErrorCode) -> None:
    producer = begun(life)
    before = seen(life)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    answer = life.ask(AddPartitionsToTxnResponse, request, 3)
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == code
    assert seen(life) == before
    commits(producer)


def test_a_long_list_of_partitions_is_added_or_refused_as_a_whole() -> None:
    life = TransactionLife(ottla_transaction_max_partitions=2)
    producer = begun(life, version=0)
    before = seen(life)
    assert refused(lambda: producer.add(*range(50_000))) in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    )
    assert refused(lambda: producer.add(0, 1, 2)) is ErrorCode.INVALID_TXN_STATE
    assert seen(life) == before
    producer.add(*[0, 1] * 25_000)  # repeats are one partition
    commits(producer)


def test_a_transaction_that_its_record_cannot_hold_is_not_begun() -> None:
    life = TransactionLife(transaction_state_log_segment_bytes=1 << 20)
    names = [f"{number:03d}-{'x' * 240}" for number in range(400)]
    producer = TransactionalProducer(life)
    producer.init()
    shard = life.node.services.transactions.get().shards.ready("tx")
    who = shard.transactions["tx"]
    before = seen(life)
    many = [(name, index) for name in names for index in range(1_000)]
    admission = life.node.services.transactions.get().admit_batches(
        "tx", who.producer_id, who.producer_epoch, many[:10_000] + many[-390_000::400], adds=True
    )
    assert admission.error is not None
    assert admission.error.code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_TXN_STATE)
    assert seen(life) == before
    producer.produce(b"v")
    producer.end()


# --- identifiers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional_id", ["i" * LONGEST_ID, "\u4e2d" * (LONGEST_ID // 3), "a\n\x00\u202eb"])
def test_a_long_or_odd_transactional_id_is_one_like_others(life: TransactionLife, transactional_id: str) -> None:
    producer = begun(life, transactional_id)
    commits(producer)
    life = life.crashed()
    assert life.state(transactional_id) == "CompleteCommit"


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (-1, 0, ErrorCode.INVALID_REQUEST),
        (5, -1, ErrorCode.INVALID_REQUEST),
        (-2, 0, ErrorCode.PRODUCER_FENCED),
        (-(1 << 63), -5, ErrorCode.PRODUCER_FENCED),
        (5, -2, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_producer_that_cannot_be_is_not_given_the_id_of_another(
    life: TransactionLife, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    producer = begun(life)
    before = seen(life)
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=1_000, producer_id=producer_id, producer_epoch=epoch
    )
    assert refused(lambda: life.ask(InitProducerIdResponse, request, 5)) is code
    assert seen(life) == before
    commits(producer)


@pytest.mark.parametrize("version", [4, 5])
def test_an_end_without_a_transactional_id_is_refused(life: TransactionLife, version: int) -> None:
    request = EndTxnRequest(transactional_id="", producer_id=0, producer_epoch=0, committed=True)
    assert refused(lambda: life.ask(EndTxnResponse, request, version)) is ErrorCode.INVALID_REQUEST


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_nobody_began_changes_nothing_that_readers_see(
    life: TransactionLife, version: int, commit: bool
) -> None:
    producer = TransactionalProducer(life, version=version)
    producer.init()
    if version == 2 and not commit:
        producer.end(commit=False)  # KIP-890: an abort raises the epoch, whatever was begun
    else:
        assert refused(lambda: producer.end(commit=commit)) is ErrorCode.INVALID_TXN_STATE
    producer.produce(b"v")
    producer.end()
    assert life.committed() == [b"v"]


@BOTH
def test_the_other_end_of_a_transaction_that_has_ended_is_refused(life: TransactionLife, version: int) -> None:
    producer = begun(life, version=version)
    request = producer.end_request()
    producer.end()
    before = seen(life)
    api_version = 5 if version == 2 else 4
    again = request.replace(committed=False)
    assert refused(lambda: life.ask(EndTxnResponse, again, api_version)) is ErrorCode.INVALID_TXN_STATE
    assert life.ask(EndTxnResponse, request, api_version).error_code == ErrorCode.NONE  # the same end once more
    assert (seen(life), life.committed()) == (before, [b"first"])
