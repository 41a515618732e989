"""A producer with a transactional id: its block commits or aborts, and what goes wrong is said by one of two errors."""

# ruff: noqa: PT012  # it is the end of a block that raises
from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import FakeCluster, Fault
from kit.fake_group import FakeGroup
from kit.fake_transactions import FakeTransactions

from ottla import Producer as BlockingProducer
from ottla.client import (
    AbortableTransactionError,
    ClientTimeout,
    CommitFailed,
    Consumer,
    ErrorCode,
    FatalTransactionError,
    GroupMetadata,
    KafkaError,
    Producer,
    TopicPartition,
)
from ottla.protocol.api.end_txn import EndTxnRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
NOBODY = GroupMetadata("g", -1, "", None)


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        yield running


@pytest.fixture(params=[2, 1], ids=["new", "old"])
def transactions(request, cluster):
    return FakeTransactions(cluster, version=request.param)


def producer_of(cluster, **options):
    return Producer(cluster.bootstrap, transactional_id="mine", **{**QUICK, **options})


async def test_a_block_commits_what_was_sent_in_it(cluster, transactions):
    first, second = transactions.topic("t", 2)
    async with producer_of(cluster) as producer:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
            delivery = await producer.send("t", b"b", partition=1)
            assert first.visible == second.visible == []
        assert (first.visible, second.visible) == ([b"a"], [b"b"])
        assert (await delivery).offset == 0
        async with producer.transaction():
            await producer.send("t", b"c", partition=0)
    assert first.visible == [b"a", b"c"]
    (request, *_) = cluster.seen(ProduceRequest)
    assert request.transactional_id == "mine"


async def test_each_protocol_asks_what_it_has_to(cluster, transactions):
    transactions.topic("t")
    async with producer_of(cluster) as producer, producer.transaction() as transaction:
        await producer.send_and_wait("t", b"a")
        await transaction.send_offsets(NOBODY, {TopicPartition("in", 0): 5})
    if transactions.model.version == 2:
        expected = ["InitProducerId", "TxnOffsetCommit", "EndTxn"]
    else:
        expected = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
    assert transactions.asked() == expected
    newest = max(version for _, request, version in cluster.requests if isinstance(request, ProduceRequest))
    assert (newest > 11) == (transactions.model.version == 2)
    assert transactions.model.committed == {("in", 0): 5}


async def test_a_block_that_raises_aborts_and_lets_the_exception_through(cluster, transactions):
    (partition,) = transactions.topic("t")
    async with producer_of(cluster) as producer:
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"a")
                await producer.send("t", b"on its way")
                raise LookupError
        async with producer.transaction():
            await producer.send("t", b"b")
    assert partition.visible == [b"b"]


async def test_a_cancelled_block_aborts(cluster, transactions):
    (partition,) = transactions.topic("t")
    async with producer_of(cluster) as producer:
        is_sent = asyncio.Event()

        async def work():
            async with producer.transaction():
                await producer.send_and_wait("t", b"a")
                is_sent.set()
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await is_sent.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        async with producer.transaction():
            await producer.send("t", b"b")
    assert partition.visible == [b"b"]


async def test_a_refused_record_keeps_the_whole_transaction_from_committing(cluster, transactions):
    first, second = transactions.topic("t", 2)
    second.faults += [Fault(ErrorCode.MESSAGE_TOO_LARGE)]
    async with producer_of(cluster) as producer:
        with pytest.raises(AbortableTransactionError) as failed:
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
                delivery = await producer.send("t", b"b", partition=1)
        assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert isinstance(failed.value.__cause__, KafkaError)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await delivery
        async with producer.transaction():
            await producer.send("t", b"c", partition=1)
    assert (first.visible, second.visible) == ([], [b"c"])


async def test_after_a_failure_nothing_more_is_sent_until_the_abort(cluster, transactions):
    (partition,) = transactions.topic("t")
    partition.faults += [Fault(ErrorCode.MESSAGE_TOO_LARGE)]
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"a")
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        with pytest.raises(AbortableTransactionError):
            await producer.send("t", b"b")
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"c")
    assert partition.visible == [b"c"]


async def test_a_program_that_hears_of_a_failure_can_send_no_more_in_that_transaction(cluster, transactions):
    (partition,) = transactions.topic("t")
    partition.faults += [Fault(ErrorCode.MESSAGE_TOO_LARGE)]
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.send_and_wait("t", b"a")
        with pytest.raises(AbortableTransactionError):
            await producer.send("t", b"b")
        await producer.abort_transaction()


async def test_records_outside_of_a_transaction_are_refused(cluster, transactions):
    transactions.topic("t")
    async with producer_of(cluster) as producer:
        with pytest.raises(RuntimeError, match="cannot send records: it has no transaction"):
            await producer.send("t", b"a")
        with pytest.raises(RuntimeError, match="it has no transaction"):
            await producer.send_many("t", [b"a"])
        assert await producer.partitions_for("t") == [0]
        with pytest.raises(RuntimeError, match="cannot commit: it has no transaction"):
            await producer.commit_transaction()
        async with producer.transaction():
            with pytest.raises(RuntimeError, match="cannot begin a transaction: it is in a transaction"):
                await producer.begin_transaction()
            await producer.send_many("t", [b"a", b"b"])
    assert transactions.model.partitions["t", 0].visible == [b"a", b"b"]


async def test_another_producer_of_the_id_fences_the_first(cluster, transactions):
    (partition,) = transactions.topic("t")
    async with producer_of(cluster) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"a")
        async with producer_of(cluster) as second:
            with pytest.raises(FatalTransactionError) as fenced:
                await first.commit_transaction()
            assert fenced.value.code is ErrorCode.PRODUCER_FENCED
            for call in (first.begin_transaction, first.abort_transaction):
                with pytest.raises(FatalTransactionError):
                    await call()
            with pytest.raises(FatalTransactionError):
                await first.send("t", b"b")
            async with second.transaction():
                await second.send("t", b"c")
    assert partition.visible == [b"c"]


async def test_what_passes_is_asked_again(cluster, transactions):
    (partition,) = transactions.topic("t")
    passing = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS]
    transactions.refuse(FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    transactions.refuse(InitProducerIdRequest, *passing)
    transactions.refuse(TxnOffsetCommitRequest, *passing)
    transactions.refuse(EndTxnRequest, *passing)
    async with producer_of(cluster) as producer, producer.transaction() as transaction:
        await producer.send("t", b"a")
        await transaction.send_offsets(NOBODY, {TopicPartition("in", 0): 5})
    assert partition.visible == [b"a"]
    assert len(cluster.seen(FindCoordinatorRequest)) >= 5


async def test_answers_that_are_lost_are_asked_for_again(cluster, transactions):
    (partition,) = transactions.topic("t")
    transactions.losses[TxnOffsetCommitRequest] = transactions.losses[EndTxnRequest] = 1
    async with producer_of(cluster) as producer:
        async with producer.transaction() as transaction:
            await producer.send("t", b"a")
            await transaction.send_offsets(NOBODY, {TopicPartition("in", 0): 5})
        async with producer.transaction():
            await producer.send("t", b"b")
    assert partition.visible == [b"a", b"b"]
    assert transactions.model.committed == {("in", 0): 5}


async def test_a_commit_without_an_answer_can_be_waited_for_again(cluster, transactions):
    (partition,) = transactions.topic("t")
    async with producer_of(cluster, max_block_ms=50) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        transactions.silent.add(EndTxnRequest)
        with pytest.raises(ClientTimeout, match="is committing its transaction"):
            await producer.commit_transaction()
        with pytest.raises(RuntimeError, match="is committing"):
            await producer.abort_transaction()
        transactions.silent.clear()
        cluster.drop_connections()
        while not partition.visible:
            await asyncio.sleep(0.001)
        await producer.commit_transaction()  # what was open is said now, and then it is over
        with pytest.raises(RuntimeError, match="has no transaction"):
            await producer.commit_transaction()
    assert partition.visible == [b"a"]


async def test_the_next_transaction_waits_for_an_epoch_that_was_not_raised_in_time(cluster):
    transactions = FakeTransactions(cluster, version=1)
    (partition,) = transactions.topic("t")
    async with producer_of(cluster, max_block_ms=300) as producer:
        partition.faults += [Fault(ErrorCode.MESSAGE_TOO_LARGE)]
        await producer.begin_transaction()
        await producer.send("t", b"a")
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        transactions.silent.add(InitProducerIdRequest)
        with pytest.raises(ClientTimeout, match="has no producer id yet"):
            await producer.abort_transaction()
        transactions.silent.clear()
        cluster.drop_connections()
        async with producer.transaction():
            await producer.send("t", b"b")
    assert partition.visible == [b"b"]


async def test_closing_aborts_what_is_open(cluster, transactions):
    (partition,) = transactions.topic("t")
    producer = producer_of(cluster)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"a")
    await producer.close()
    assert transactions.model.state == "CompleteAbort"
    assert partition.visible == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FatalTransactionError),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, FatalTransactionError),
    ],
)
async def test_a_producer_that_gets_no_id_does_not_start(cluster, transactions, code, error):
    transactions.refuse(InitProducerIdRequest, code)
    with pytest.raises(error) as refused:
        await producer_of(cluster).start()
    assert refused.value.code is code


async def test_a_member_that_is_gone_ends_the_transaction(cluster, transactions):
    (partition,) = transactions.topic("t")
    transactions.refuse(TxnOffsetCommitRequest, ErrorCode.ILLEGAL_GENERATION)
    async with producer_of(cluster) as producer:
        with pytest.raises(AbortableTransactionError) as failed:
            async with producer.transaction() as transaction:
                await producer.send("t", b"a")
                await transaction.send_offsets(GroupMetadata("g", 3, "m", None), {TopicPartition("in", 0): 5})
        assert failed.value.code is ErrorCode.ILLEGAL_GENERATION
        async with producer.transaction():
            await producer.send("t", b"b")
    assert partition.visible == [b"b"]
    assert transactions.model.committed == {}


async def test_offsets_of_a_consumer_are_those_that_it_has_read(cluster):
    group = FakeGroup(cluster)
    transactions = FakeTransactions(cluster)
    source, target = transactions.topic("in"), transactions.topic("out")
    async with producer_of(cluster) as producer:
        async with producer.transaction():
            await producer.send_many("in", [b"0", b"1", b"2"])
        options = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 5, **QUICK}
        async with Consumer(cluster.bootstrap, enable_auto_commit=False, **options) as consumer:
            consumer.subscribe(["in"])
            async with producer.transaction() as transaction:
                with pytest.raises(CommitFailed):
                    await transaction.send_offsets(consumer)  # it is no member yet
                for _ in range(2):
                    await producer.send("out", (await consumer.getone()).value)
                await transaction.send_offsets(consumer)
            assert transactions.model.committed == {("in", 0): 2}
            (sent,) = cluster.seen(TxnOffsetCommitRequest)
            assert (sent.group_id, sent.generation_id_or_member_epoch, sent.member_id) == (
                "g",
                group.generation,
                "member-1",
            )
    assert source[0].end == 3
    assert target[0].visible == [b"0", b"1"]


async def test_offsets_that_make_no_sense_are_refused(cluster, transactions):
    transactions.topic("t")
    async with Consumer(cluster.bootstrap, group_id="g", **QUICK) as consumer, producer_of(cluster) as producer:
        async with producer.transaction() as transaction:
            with pytest.raises(ValueError, match="enable_auto_commit=False"):
                await transaction.send_offsets(consumer)
            with pytest.raises(ValueError, match="give the offsets"):
                await transaction.send_offsets(NOBODY)
            with pytest.raises(ValueError, match="t-0: an offset is 0 to"):
                await transaction.send_offsets(NOBODY, {TopicPartition("t", 0): -1})
            await transaction.send_offsets(NOBODY, {})
        with pytest.raises(RuntimeError, match="cannot send offsets"):
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, NOBODY)


async def test_a_block_may_end_its_transaction_itself(cluster, transactions):
    (partition,) = transactions.topic("t")
    async with producer_of(cluster) as producer:
        async with producer.transaction() as transaction:
            await producer.send("t", b"a")
            await transaction.abort()
        async with producer.transaction():
            await producer.send("t", b"b")
            await producer.commit_transaction()
    assert partition.visible == [b"b"]


async def test_a_producer_without_an_id_has_no_transactions(cluster, transactions):
    async with Producer(cluster.bootstrap) as producer:
        with pytest.raises(RuntimeError, match="has no transactional_id"):
            async with producer.transaction():
                pass


def test_transactions_need_idempotence():
    for wrong in ({"acks": 1}, {"enable_idempotence": False}, {"retries": 0}):
        with pytest.raises(ValueError, match="transactional_id needs"):
            Producer("localhost", transactional_id="mine", **wrong)


# Blocking ---------------------------------------------------------------------------------------------------------


async def in_thread(work, *arguments):
    await asyncio.to_thread(work, *arguments)


async def test_the_blocking_block_commits_and_aborts(cluster, transactions):
    (partition,) = transactions.topic("t")

    def work():
        with BlockingProducer(cluster.bootstrap, transactional_id="mine", **QUICK) as producer:
            with producer.transaction() as transaction:
                for number in range(100):
                    producer.send("t", b"%d" % number)
                transaction.send_offsets(NOBODY, {TopicPartition("in", 0): 5})
            with pytest.raises(LookupError), producer.transaction():
                producer.send("t", b"not this")
                raise LookupError
            with producer.transaction() as transaction:
                producer.send("t", b"nor this")
                transaction.abort()
            with pytest.raises(RuntimeError, match="it has no transaction"):
                producer.send("t", b"outside")
            producer.begin_transaction()
            producer.send("t", b"last")
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send("t", b"nor that")
            producer.abort_transaction()

    await in_thread(work)
    assert partition.visible == [*(b"%d" % number for number in range(100)), b"last"]
    assert transactions.model.committed == {("in", 0): 5}


async def test_a_record_that_the_blocking_producer_could_not_put_anywhere_keeps_its_transaction_from_committing(
    cluster, transactions
):
    (partition,) = transactions.topic("t")

    def work():
        with BlockingProducer(cluster.bootstrap, transactional_id="mine", **QUICK) as producer:
            with (
                pytest.raises(AbortableTransactionError, match="t has partitions 0 to 0, not 7"),
                producer.transaction(),
            ):
                producer.send("t", b"a")
                producer.send("t", b"b", partition=7)
            with producer.transaction():
                producer.send("t", b"c")

    await in_thread(work)
    assert partition.visible == [b"c"]
