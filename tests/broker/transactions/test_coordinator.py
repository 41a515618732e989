"""Transactions on a broker without a loop: what is written when, what is answered when, and what a crash leaves."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import pytest
from kit.nodes import partition_of
from kit.simulated_files import CrashPoint
from kit.topics import delete
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife, stored_at

from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.transactions.shard import END_WAIT_MS, MARKER_RETRY_MS
from ottla.broker.transactions.state import MAX_EPOCH
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.control import decode_transaction_end
from ottla.protocol.stored.transaction import TransactionLogValue, TransactionStatus, decode_transaction_record
from ottla.storage.formats.layout import TRANSACTIONS_TOPIC

ABORT_INTERVAL_MS = 10_000
BOTH = pytest.mark.parametrize("version", [0, 2])


@pytest.fixture
def life() -> TransactionLife:
    return TransactionLife()


def producer_of(life: TransactionLife, transactional_id: str = "tx", *, version: int = 2) -> TransactionalProducer:
    producer = TransactionalProducer(life, transactional_id, version=version)
    producer.init()
    return producer


def kept(life: TransactionLife) -> list[TransactionLogValue]:
    """The records of `__transaction_state`, in order."""
    partition = partition_of(life.node, TRANSACTIONS_TOPIC)
    data = life.files.read_bytes(partition.log.directory / "00000000000000000000.log")
    values: list[TransactionLogValue] = []
    for position, _ in iter_batches(data):
        for record in decode_batch(memoryview(data)[position:]):
            _, value = decode_transaction_record(record.key or b"", record.value)
            assert isinstance(value, TransactionLogValue)
            values.append(value)
    return values


def markers(life: TransactionLife, index: int = 0) -> list[tuple[int, int, bool]]:
    """(producer id, epoch, whether COMMIT) of the markers of a partition, in order."""
    data = life.files.read_bytes(partition_of(life.node, "t", index).log.directory / "00000000000000000000.log")
    found = []
    for position, header in iter_batches(data):
        end = decode_transaction_end(memoryview(data)[position : position + header.size_bytes])
        if end is not None:
            found.append((header.producer_id, header.producer_epoch, end.is_commit))
    return found


def refused(call: object) -> ErrorCode:
    assert callable(call)
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


# --- the usual life --------------------------------------------------------------------------------------------------


@BOTH
def test_committed_records_are_read_and_aborted_ones_are_not(life: TransactionLife, version: int) -> None:
    producer = producer_of(life, version=version)
    producer.produce(b"one")
    producer.produce(b"two", 1)
    assert (life.committed(), life.committed(1), life.last_stable_offset()) == ([], [], 0)
    producer.end()
    assert (life.committed(), life.committed(1), life.last_stable_offset()) == ([b"one"], [b"two"], 2)
    producer.produce(b"three")
    producer.end(commit=False)
    producer.produce(b"four")
    producer.end()
    assert life.committed() == [b"one", b"four"]
    assert [is_commit for *_, is_commit in markers(life)] == [True, False, True]


@BOTH
def test_what_is_kept_of_a_transaction(life: TransactionLife, version: int) -> None:
    producer = producer_of(life, version=version)
    producer.produce()
    producer.end()
    life.pass_ms(10)
    values = kept(life)
    assert [TransactionStatus(value.transaction_status) for value in values] == [
        TransactionStatus.EMPTY,
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.COMPLETE_COMMIT,
    ]
    assert [value.producer_epoch for value in values] == ([0, 0, 1, 1] if version == 2 else [0, 0, 0, 0])
    assert markers(life) == [(producer.producer_id, 1 if version == 2 else 0, True)]


def test_the_end_is_answered_when_it_is_visible_and_not_before(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(b"v")
    pending = life.begin(producer.end_request(), 5)
    services = life.node.services
    rounds = 0
    while not pending.done:
        assert life.last_stable_offset() == 0
        services.turn.end()
        services.syncer.run_all()  # type: ignore[attr-defined]
        rounds += 1
        assert rounds < 10
    assert life.committed() == [b"v"]
    assert rounds <= 3


def test_nothing_is_read_committed_before_its_marker_is_on_the_disk(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce()
    pending = life.begin(producer.end_request(), 5)
    again = life.crashed()
    assert not pending.done
    assert again.committed() == []


def test_a_transactional_id_has_one_producer(life: TransactionLife) -> None:
    first = producer_of(life)
    second = producer_of(life)
    assert (second.producer_id, second.epoch) == (first.producer_id, 1)
    assert refused(first.produce) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(first.end) is ErrorCode.PRODUCER_FENCED
    second.produce(b"second")
    second.end()
    assert life.committed() == [b"second"]


@BOTH
def test_a_new_producer_aborts_what_the_one_before_left_open(life: TransactionLife, version: int) -> None:
    first = producer_of(life, version=version)
    first.produce(b"left")
    second = TransactionalProducer(life, version=version)
    assert refused(second.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    second.init()
    assert second.epoch == 2
    assert markers(life) == [(first.producer_id, 1, False)]
    assert refused(first.produce) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    second.produce(b"new")
    second.end()
    assert life.committed() == [b"new"]


@BOTH
def test_a_transaction_ends_by_its_timeout(life: TransactionLife, version: int) -> None:
    producer = producer_of(life, version=version)
    producer.produce(b"late")
    life.pass_ms(TIMEOUT_MS - ABORT_INTERVAL_MS)
    assert life.state() == "Ongoing"
    life.pass_ms(2 * ABORT_INTERVAL_MS + 1_000)
    assert life.state() == "CompleteAbort"
    assert life.last_stable_offset() == 2
    assert life.committed() == []
    expected = ErrorCode.INVALID_TXN_STATE if version == 2 else ErrorCode.PRODUCER_FENCED
    assert refused(producer.end) is expected


def test_a_producer_whose_end_waits_in_the_socket_of_a_broker_that_was_stopped_commits(life: TransactionLife) -> None:
    """After a stop of the loop, timers that are due run before the sockets are read."""
    life.node.services.listening.listen()
    producer = producer_of(life)
    producer.produce(b"in time")
    life.clock.advance(10 * TIMEOUT_MS)
    life.node.run_due()
    producer.end()
    assert life.committed() == [b"in time"]


def test_a_producer_of_version_2_aborts_after_the_timeout_and_goes_on(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(b"late")
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    producer.end(commit=False)
    producer.produce(b"on time")
    producer.end()
    assert life.committed() == [b"on time"]


def in_its_last_epoch(life: TransactionLife, *, version: int = 2) -> TransactionalProducer:
    """A producer of which no further epoch may be assigned."""
    producer = producer_of(life, version=version)
    shard = life.node.services.transactions.get().shards.ready("tx")
    shard.transactions["tx"] = shard.transactions["tx"]._replace(producer_epoch=MAX_EPOCH - 1)
    producer.epoch = MAX_EPOCH - 1
    return producer


def test_a_producer_whose_transaction_timed_out_in_its_last_epoch_aborts_and_goes_on(life: TransactionLife) -> None:
    """As with Apache Kafka since KAFKA-20090."""
    producer = in_its_last_epoch(life)
    before = producer.producer_id
    producer.produce(b"late")
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    assert (life.state(), life.committed()) == ("CompleteAbort", [])
    producer.end(commit=False)
    assert producer.producer_id != before
    assert producer.epoch == 0
    producer.produce(b"on time")
    producer.end()
    assert life.committed() == [b"on time"]


def test_a_producer_that_comes_after_one_in_its_last_epoch_aborts_its_transaction(life: TransactionLife) -> None:
    first = in_its_last_epoch(life)
    first.produce(b"of the first")
    second = TransactionalProducer(life)
    assert refused(second.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    second.init()
    assert second.producer_id != first.producer_id
    assert refused(lambda: first.end(commit=False)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    second.produce(b"of the second")
    second.end()
    assert life.committed() == [b"of the second"]


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_times_out_in_the_last_epoch_though_no_producer_id_can_be_stored(
    life: TransactionLife, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers do not wait for an id: the producer is fenced, and the next one gets the id."""
    producer = in_its_last_epoch(life, version=version)
    producer.produce(b"late")
    monkeypatch.setattr(life.node.services.producer_ids, "next", lambda given: given(None))
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    assert (life.state(), life.committed()) == ("CompleteAbort", [])
    assert life.last_stable_offset() == 2
    assert refused(lambda: producer.end(commit=False)) is ErrorCode.PRODUCER_FENCED
    monkeypatch.undo()
    producer.init()
    producer.produce(b"on time")
    producer.end()
    assert life.committed() == [b"on time"]


@pytest.mark.parametrize("meanwhile", ["nothing", "another partition", "an end", "the next transaction", "a stop"])
def test_a_timeout_in_the_last_epoch_waits_for_its_producer_id_and_no_client_waits_for_it(
    life: TransactionLife, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = in_its_last_epoch(life)
    producer.produce(b"first")
    waiting: list[Callable[[int | None], None]] = []
    ids = life.node.services.producer_ids
    monkeypatch.setattr(ids, "next", waiting.append)
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    assert (life.state(), len(waiting)) == ("Ongoing", 1)
    monkeypatch.undo()
    if meanwhile == "another partition":
        producer.produce(b"second", 1)
    elif meanwhile in ("an end", "the next transaction"):
        producer.end()
        if meanwhile == "the next transaction":
            producer.produce(b"next")
    elif meanwhile == "a stop":
        life.node.stop()
        waiting.pop()(77)
        producer.life = life = TransactionLife(life.files, life.clock)
        life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    for given in waiting:
        given(77)
    life.pass_ms(1_000)
    states = {"an end": "CompleteCommit", "the next transaction": "Ongoing"}
    assert life.state() == states.get(meanwhile, "CompleteAbort")
    if meanwhile in states:
        assert life.committed() == [b"first"]
    else:
        producer.end(commit=False)
        assert producer.epoch == 0
        assert (producer.producer_id == 77) == (meanwhile != "a stop")
        assert (life.committed(), life.committed(1)) == ([], [])
    assert life.last_stable_offset(1) == partition_of(life.node, "t", 1).high_watermark


def test_a_producer_goes_on_after_an_error(life: TransactionLife) -> None:
    producer = producer_of(life, version=0)
    epoch = producer.epoch
    producer.init(again=True)
    assert producer.epoch == epoch + 1
    producer.produce(b"v")
    producer.end()
    assert life.committed() == [b"v"]


def test_used_up_epochs_bring_a_new_producer_id(life: TransactionLife) -> None:
    producer = producer_of(life)
    shard = life.node.services.transactions.get().shards.ready("tx")
    shard.transactions["tx"] = shard.transactions["tx"]._replace(producer_epoch=MAX_EPOCH - 1)
    producer.epoch, before = MAX_EPOCH - 1, producer.producer_id
    producer.produce(b"last epoch")
    producer.end()
    assert producer.producer_id != before
    assert producer.epoch == 0
    producer.produce(b"first epoch")
    producer.end()
    assert life.committed() == [b"last epoch", b"first epoch"]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_partitions_of_older_clients_have_to_be_added_before(life: TransactionLife) -> None:
    producer = producer_of(life, version=0)
    producer.add(1)
    answer = life.ask(ProduceResponse, producer.produce_request(), 11)
    assert refused(lambda: stored_at(answer)) is ErrorCode.TRANSACTION_ABORTABLE
    answer = life.ask(ProduceResponse, producer.produce_request(), 10)
    assert refused(lambda: stored_at(answer)) is ErrorCode.INVALID_TXN_STATE
    assert partition_of(life.node, "t").log.log_end_offset == 0
    answer = life.ask(ProduceResponse, producer.produce_request(index=1), 10)
    assert stored_at(answer) == 0


def test_verification_can_be_turned_off() -> None:
    life = TransactionLife(transaction_partition_verification_enable="false")
    producer = producer_of(life, version=0)
    assert stored_at(life.ask(ProduceResponse, producer.produce_request(), 10)) == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_bounds(life: TransactionLife, timeout_ms: int) -> None:
    producer = TransactionalProducer(life)
    assert refused(lambda: producer.init(timeout_ms=timeout_ms)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert life.describe("tx").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_empty_transactional_id_is_refused(life: TransactionLife) -> None:
    assert refused(TransactionalProducer(life, "").init) is ErrorCode.INVALID_REQUEST


def test_older_clients_get_the_code_that_they_know(life: TransactionLife) -> None:
    producer_of(life)
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=1_000, producer_id=77, producer_epoch=0
    )
    assert refused(lambda: life.ask(InitProducerIdResponse, request, 4)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: life.ask(InitProducerIdResponse, request, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_number_of_partitions_is_bounded() -> None:
    life = TransactionLife(ottla_transaction_max_partitions=2)
    producer = producer_of(life)
    producer.produce(index=0)
    producer.produce(index=1)
    assert refused(lambda: producer.produce(index=2)) is ErrorCode.INVALID_TXN_STATE
    producer.end()
    assert life.committed() == [b"v"]


def test_the_number_of_open_transactions_is_bounded() -> None:
    life = TransactionLife(ottla_transactions_max_open=1)
    first, second = producer_of(life, "a"), producer_of(life, "b")
    first.produce(b"a")
    assert refused(second.produce) is ErrorCode.CONCURRENT_TRANSACTIONS
    first.end()
    second.produce(b"b")
    second.end()
    assert life.committed() == [b"a", b"b"]


# --- crashes and restarts --------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("is_clean", [True, False])
def test_an_open_transaction_goes_on_after_a_restart(life: TransactionLife, version: int, is_clean: bool) -> None:
    producer = producer_of(life, version=version)
    producer.produce(b"before")
    producer.life = life = life.restarted() if is_clean else life.crashed()
    assert (life.state(), life.committed()) == ("Ongoing", [])
    producer.produce(b"after")
    producer.end()
    assert life.committed() == [b"before", b"after"]


def test_the_timeout_counts_from_the_begin_of_the_transaction_also_after_a_restart(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce()
    life.pass_ms(TIMEOUT_MS // 2)
    life = life.crashed()
    life.pass_ms(TIMEOUT_MS // 2 + 2 * ABORT_INTERVAL_MS)
    assert (life.state(), life.committed()) == ("CompleteAbort", [])
    assert life.last_stable_offset() == 2


def test_a_transaction_that_began_later_than_the_time_that_a_start_knows_is_open_for_its_timeout(
    life: TransactionLife,
) -> None:
    """The known time is written every five minutes; after a power cut with a wrong clock it is all there is."""
    life.pass_ms(200_000)
    producer = producer_of(life)
    producer.produce()
    life.clock.reboot(off_ms=10 * 365 * 24 * 3600 * 1000)
    life = life.crashed()
    assert life.state() == "Ongoing"
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    assert (life.state(), life.committed()) == ("CompleteAbort", [])


@BOTH
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("writes", range(1, 7))
def test_an_end_that_was_decided_is_finished_after_a_crash_at_any_write(
    version: int, commit: bool, writes: int
) -> None:
    life = TransactionLife()
    producer = producer_of(life, version=version)
    producer.produce(b"v")
    producer.produce(b"w", 1)
    life.stop_at_write(writes)
    try:
        producer.end(commit=commit)
    except CrashPoint:
        is_answered = False
    else:
        is_answered = True
    life = life.crashed(writes)
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    state = life.state()
    assert state in ("CompleteCommit", "CompleteAbort")
    if is_answered:
        assert state == ("CompleteCommit" if commit else "CompleteAbort")
    is_committed = state == "CompleteCommit"
    assert (life.committed(), life.committed(1)) == (([b"v"], [b"w"]) if is_committed else ([], []))
    assert life.last_stable_offset() == partition_of(life.node, "t").high_watermark
    again = TransactionalProducer(life, version=version)
    again.init()
    again.produce(b"next")
    again.end()
    assert life.committed()[-1:] == [b"next"]


@pytest.mark.parametrize("rounds", range(5))
def test_an_end_is_not_continued_while_the_broker_stops(life: TransactionLife, rounds: int) -> None:
    producer = producer_of(life)
    producer.produce(b"v")
    ended = life.begin(producer.end_request(), 5)
    for _ in range(rounds):  # of syncs, before the stop: of the decision, of the marker, and so on
        life.node.services.turn.end()
        assert isinstance(life.node.services.syncer, QueuedSyncer)
        life.node.services.syncer.run_one()
    life.node.quiesce()
    assert not life.node.services.turn.has_work
    life.node.close_logs()
    life = TransactionLife(life.files, life.clock, **life.keys)
    assert (life.state(), life.committed()) == ("CompleteCommit", [b"v"])
    assert ended.done is (rounds > 1)


def test_records_whose_transaction_is_not_on_record_become_part_of_it(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(b"known", 1)
    shard = life.node.services.transactions.get().shards.ready("tx")
    known = shard.transactions["tx"]
    producer.produce(b"unknown", 0)
    shard.transactions["tx"] = known  # as a load would find it whose log has lost the newest record
    shard.finish("tx", _effects_of(shard, known))
    life.node.settle()
    producer.life = life = life.crashed()
    assert life.state() == "Ongoing"
    producer.end(commit=False)
    assert (life.committed(), life.last_stable_offset()) == ([], 2)


def _effects_of(shard: object, known: object) -> object:
    from ottla.broker.coordination.effects import Effects
    from ottla.broker.transactions.state import Transaction, to_record

    assert isinstance(known, Transaction)
    return Effects([to_record(known, 2)])


def test_a_full_disk_delays_the_markers_and_loses_nothing(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(b"v")
    life.files.fail("pwritev", "*/t-0/*.log", errno.ENOSPC, times=None)
    pending = life.begin(producer.end_request(), 5)
    life.node.settle()
    assert not pending.done
    life.files.heal()
    life.pass_ms(MARKER_RETRY_MS + 5_000)
    assert pending.done
    assert life.committed() == [b"v"]


def test_an_end_is_answered_where_its_markers_cannot_be_written_for_long(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(b"v")
    life.files.fail("pwritev", "*/t-0/*.log", errno.ENOSPC, times=None)
    pending = life.begin(producer.end_request(), 5)
    life.pass_ms(END_WAIT_MS - MARKER_RETRY_MS)
    assert not pending.done
    life.pass_ms(2 * MARKER_RETRY_MS)
    assert isinstance(pending.response, EndTxnResponse)
    assert (pending.response.producer_id, pending.response.producer_epoch) == (producer.producer_id, 1)
    assert life.state() == "PrepareCommit"
    producer.epoch, producer.sequences = 1, {}
    assert refused(producer.produce) is ErrorCode.CONCURRENT_TRANSACTIONS
    life.files.heal()
    life.pass_ms(10_000)
    assert (life.state(), life.committed()) == ("CompleteCommit", [b"v"])
    producer.produce(b"next")
    producer.end()
    assert life.committed() == [b"v", b"next"]


def test_an_end_that_brings_a_new_producer_id_waits_for_its_markers(life: TransactionLife) -> None:
    producer = producer_of(life)
    shard = life.node.services.transactions.get().shards.ready("tx")
    shard.transactions["tx"] = shard.transactions["tx"]._replace(producer_epoch=MAX_EPOCH - 1)
    producer.epoch = MAX_EPOCH - 1
    producer.produce(b"v")
    life.files.fail("pwritev", "*/t-0/*.log", errno.ENOSPC, times=None)
    pending = life.begin(producer.end_request(), 5)
    life.pass_ms(2 * END_WAIT_MS)
    assert not pending.done
    life.files.heal()
    life.pass_ms(10_000)
    assert isinstance(pending.response, EndTxnResponse)
    assert pending.response.producer_epoch == 0
    assert life.committed() == [b"v"]


def test_a_deleted_topic_needs_no_marker(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(b"v")
    delete(life.node, "t")
    producer.end()
    assert life.state() == "CompleteCommit"


# --- administration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_timeout_in_the_last_epoch_is_finished_after_a_crash_at_any_write(writes: int) -> None:
    life = TransactionLife()
    producer = in_its_last_epoch(life)
    before = producer.producer_id
    producer.produce(b"v")
    producer.produce(b"w", 1)
    life.stop_at_write(writes)
    with contextlib.suppress(CrashPoint):
        life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    producer.life = life = life.crashed(writes)
    life.pass_ms(TIMEOUT_MS + 2 * ABORT_INTERVAL_MS)
    assert (life.state(), life.committed(), life.committed(1)) == ("CompleteAbort", [], [])
    for index in range(2):
        assert life.last_stable_offset(index) == partition_of(life.node, "t", index).high_watermark
    producer.end(commit=False)
    assert producer.producer_id != before
    assert producer.epoch == 0
    producer.produce(b"next")
    producer.end()
    assert life.committed() == [b"next"]


def test_transactional_ids_are_described(life: TransactionLife) -> None:
    producer = producer_of(life)
    producer.produce(index=1)
    producer.produce(index=0)
    found = life.describe("tx")
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
    assert life.describe("other").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert life.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_transactional_ids_are_listed_by_filters(life: TransactionLife) -> None:
    first, second = producer_of(life, "a-1"), producer_of(life, "b-1")
    first.produce()
    life.pass_ms(5_000)
    second.produce(index=1)

    def listed(version: int = 2, **filters: object) -> list[str]:
        request = ListTransactionsRequest(
            **{"state_filters": [], "producer_id_filters": [], **filters}  # type: ignore[arg-type]
        )
        answer = life.ask(ListTransactionsResponse, request, version)
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert listed(0) == ["a-1", "b-1"]
    assert listed(producer_id_filters=[second.producer_id]) == ["b-1"]
    assert listed(state_filters=["Ongoing", "None"]) == ["a-1", "b-1"]
    assert listed(state_filters=["Empty"]) == []
    assert listed(duration_filter=3_000) == ["a-1"]
    assert listed(transactional_id_pattern="b-.*") == ["b-1"]
    assert refused(lambda: listed(transactional_id_pattern="(")) is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_transactional_ids_that_are_not_used_are_forgotten() -> None:
    life = TransactionLife(
        transactional_id_expiration_ms=3_600_000, transaction_remove_expired_transaction_cleanup_interval_ms=600_000
    )
    idle, open_one = producer_of(life, "idle"), producer_of(life, "open")
    idle.produce()
    idle.end()
    life.pass_ms(1_000)
    for _ in range(5):
        open_one.produce(index=1)
        open_one.end()
        life.pass_ms(900_000)
    assert life.describe("idle").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert life.state("open") == "CompleteCommit"
    assert refused(idle.produce) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    life = life.crashed()
    assert life.describe("idle").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
