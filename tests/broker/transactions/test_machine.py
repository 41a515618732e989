"""The steps of a transactional id: what each makes of each state, and Kafka's code where it may not be done."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.broker.transactions import machine
from ottla.broker.transactions.machine import NeedsProducerId, ProducerIdAndEpoch
from ottla.broker.transactions.state import MAX_EPOCH, Transaction, from_record, to_record
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import TransactionStatus as Status

T0, T1 = ("t", 0), ("t", 1)
STATES = [status for status in Status if status not in (Status.DEAD, Status.PREPARE_EPOCH_FENCE)]


def begun(
    known: Transaction | None = None,
    expected: ProducerIdAndEpoch | None = None,
    *,
    new_producer_id: int | None = None,
    now_ms: int = 1,
) -> Transaction:
    return machine.init_producer_id(
        "tx", known, expected, timeout_ms=60_000, now_ms=now_ms, new_producer_id=new_producer_id
    )


def in_status(status: Status, *, producer_id: int = 7, epoch: int = 3, version: int = 0) -> Transaction:
    known = Transaction("tx", producer_id, epoch, 60_000, status, client_version=version)
    if status is Status.EMPTY:
        return known
    is_idle = known.is_idle
    return known._replace(partitions=frozenset() if is_idle else frozenset({T0}), start_ms=1, last_update_ms=1)


def of(known: Transaction, *, epoch: int | None = None) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(known.producer_id, known.producer_epoch if epoch is None else epoch)


def ended(
    known: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool = True,
    version: int = 2,
    new_producer_id: int | None = None,
) -> Transaction:
    return machine.end(
        known, producer, is_commit=commit, client_version=version, now_ms=9, new_producer_id=new_producer_id
    )


def reloaded(known: Transaction, value_version: int = 1) -> Transaction:
    """What is known of it after a restart."""
    return from_record(*to_record(known, value_version))


def refused(call: object) -> ErrorCode:
    assert callable(call)
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


# --- InitProducerId --------------------------------------------------------------------------------------------------


def test_a_new_transactional_id_gets_a_new_producer_id_and_epoch_0() -> None:
    with pytest.raises(NeedsProducerId):
        begun()
    new = begun(new_producer_id=7)
    assert (new.producer_id, new.producer_epoch, new.status, new.timeout_ms) == (7, 0, Status.EMPTY, 60_000)
    assert (new.start_ms, new.last_update_ms, new.last_producer_epoch) == (-1, 1, -1)


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
def test_another_producer_gets_the_next_epoch(status: Status) -> None:
    new = begun(in_status(status))
    assert (new.producer_id, new.producer_epoch, new.status, new.start_ms) == (7, 4, Status.EMPTY, -1)


@pytest.mark.parametrize("status", [Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_an_open_transaction_has_to_end_before(status: Status) -> None:
    assert refused(lambda: begun(in_status(status))) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_goes_on_after_an_error_and_may_ask_again() -> None:
    known = in_status(Status.COMPLETE_ABORT)
    new = begun(known, of(known))
    assert (new.producer_epoch, new.last_producer_epoch) == (4, 3)
    again = begun(new, of(known))
    assert (again.producer_epoch, again.last_producer_epoch) == (4, 3)


@pytest.mark.parametrize("expected", [(7, 2), (7, 4), (8, 3), (8, MAX_EPOCH - 1)])
def test_who_is_not_its_producer_is_fenced(expected: tuple[int, int]) -> None:
    known = in_status(Status.EMPTY)
    assert refused(lambda: begun(known, ProducerIdAndEpoch(*expected))) is ErrorCode.PRODUCER_FENCED


def test_who_asks_again_after_a_restart_is_fenced() -> None:
    """As by Kafka, whose records do not have the epoch before, either (`TransactionLog`)."""
    known = in_status(Status.COMPLETE_ABORT)
    new = begun(known, of(known))
    for version in (0, 1):
        assert refused(partial(begun, reloaded(new, version), of(known))) is ErrorCode.PRODUCER_FENCED
        assert begun(reloaded(new, version), of(new)).producer_epoch == 5


def test_after_another_producer_nobody_goes_on_with_the_epoch_before() -> None:
    known = begun(in_status(Status.EMPTY), ProducerIdAndEpoch(7, 3))
    newer = begun(known)
    assert refused(lambda: begun(newer, ProducerIdAndEpoch(7, 4))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_expected", [False, True])
def test_used_up_epochs_bring_a_new_producer_id(is_expected: bool) -> None:
    known = in_status(Status.COMPLETE_COMMIT, epoch=MAX_EPOCH - 1)
    expected = of(known) if is_expected else None
    with pytest.raises(NeedsProducerId):
        begun(known, expected)
    new = begun(known, expected, new_producer_id=8)
    assert (new.producer_id, new.producer_epoch, new.previous_producer_id) == (8, 0, 7)
    if expected is not None:
        again = begun(new, expected)  # its answer got lost
        assert (again.producer_id, again.producer_epoch) == (8, 0)


# --- partitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(status: Status) -> None:
    known = in_status(status)
    new = machine.add_partitions(known, of(known), [T0], now_ms=5)
    assert (new.status, new.partitions, new.start_ms, new.last_update_ms) == (Status.ONGOING, {T0}, 5, 5)


def test_more_partitions_are_added_and_known_ones_change_nothing() -> None:
    known = in_status(Status.ONGOING)
    new = machine.add_partitions(known, of(known), [T0, T1], now_ms=5)
    assert (new.partitions, new.start_ms, new.last_update_ms) == ({T0, T1}, 1, 5)
    assert machine.add_partitions(new, of(known), [T1], now_ms=6) is new


@pytest.mark.parametrize("status", STATES)
def test_only_its_producer_adds_partitions(status: Status) -> None:
    known = in_status(status)

    def add(producer: ProducerIdAndEpoch) -> Transaction:
        return machine.add_partitions(known, producer, [T1], now_ms=5)

    assert refused(lambda: add(ProducerIdAndEpoch(8, 3))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: add(ProducerIdAndEpoch(7, 2))) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: add(ProducerIdAndEpoch(7, 4))) is ErrorCode.PRODUCER_FENCED
    if known.is_prepared:
        assert refused(lambda: add(of(known))) is ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        assert add(of(known)).status is Status.ONGOING
    none = refused(lambda: machine.add_partitions(None, of(known), [T1], now_ms=5))
    assert none is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_is_ended_and_completed(commit: bool, version: int) -> None:
    known = in_status(Status.ONGOING)
    prepared = ended(known, of(known), commit=commit, version=version)
    epoch = 4 if version == 2 else 3
    assert prepared.status is (Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT)
    assert (prepared.producer_epoch, prepared.partitions, prepared.client_version) == (epoch, {T0}, version)
    completed = machine.complete(prepared, now_ms=10)
    assert completed.status is (Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT)
    assert (completed.producer_epoch, completed.partitions, completed.last_update_ms) == (epoch, frozenset(), 10)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_repeated_request_is_answered_once_the_end_is_complete(commit: bool, version: int) -> None:
    known = in_status(Status.ONGOING)
    prepared = ended(known, of(known), commit=commit, version=version)

    def again(state: Transaction, is_commit: bool) -> Transaction:
        return ended(state, of(known), commit=is_commit, version=version)

    assert refused(lambda: again(prepared, commit)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(lambda: again(prepared, not commit)) is ErrorCode.INVALID_TXN_STATE
    completed = machine.complete(prepared, now_ms=10)
    assert again(completed, commit) is completed
    assert refused(lambda: again(completed, not commit)) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_request_that_is_repeated_after_a_restart_is_answered_as_before(commit: bool, version: int) -> None:
    """The answer got lost with the broker."""
    known = in_status(Status.ONGOING)
    prepared = reloaded(ended(known, of(known), commit=commit, version=version))
    assert refused(partial(ended, prepared, of(known), commit=commit, version=version)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    completed = reloaded(machine.complete(prepared, now_ms=10))
    assert ended(completed, of(known), commit=commit, version=version) is completed
    assert completed.producer_epoch == (4 if version else 3)


def test_an_end_that_used_up_the_epochs_is_answered_again_after_a_restart() -> None:
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH - 1, version=2)
    completed = reloaded(machine.complete(reloaded(ended(known, of(known), new_producer_id=8)), now_ms=10))
    assert ended(completed, of(known)) is completed
    assert (completed.producer_id, completed.producer_epoch) == (8, 0)


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
@pytest.mark.parametrize("commit", [True, False])
def test_an_older_client_that_ends_what_was_never_added_is_told_of_the_end_before(status: Status, commit: bool) -> None:
    """librdkafka sends EndTxn though its AddPartitionsToTxn was never answered. Without epochs that grow, the request
    looks like a repeated one; a wrong state, as in Kafka, is fatal for that client (its issue 4849).
    """
    known = reloaded(in_status(status))
    if status is (Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT):
        assert ended(known, of(known), commit=commit, version=0) is known
    else:
        assert refused(partial(ended, known, of(known), commit=commit, version=0)) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("status", STATES)
def test_only_its_producer_ends_a_transaction(status: Status, version: int) -> None:
    known = in_status(status, version=version)
    other = refused(lambda: ended(known, ProducerIdAndEpoch(8, 3), version=version))
    assert other is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: ended(known, ProducerIdAndEpoch(7, 1), version=version)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: ended(known, ProducerIdAndEpoch(7, 4), version=version)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: ended(None, of(known), version=version)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_without_a_transaction_there_is_nothing_to_commit() -> None:
    for version in (0, 2):
        known = in_status(Status.EMPTY)
        assert refused(lambda: ended(known, of(known), version=version)) is ErrorCode.INVALID_TXN_STATE  # noqa: B023
    known = in_status(Status.EMPTY)
    assert refused(lambda: ended(known, of(known), commit=False, version=0)) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
def test_an_abort_of_nothing_raises_the_epoch_in_version_2(status: Status) -> None:
    known = in_status(status, version=2)
    prepared = ended(known, of(known), commit=False)
    assert (prepared.status, prepared.partitions, prepared.producer_epoch) == (Status.PREPARE_ABORT, frozenset(), 4)
    assert machine.complete(prepared, now_ms=10).status is Status.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_used_up_epochs_bring_a_new_producer_id_at_the_end(commit: bool) -> None:
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH - 1, version=2)
    with pytest.raises(NeedsProducerId):
        ended(known, of(known), commit=commit)
    prepared = ended(known, of(known), commit=commit, new_producer_id=8)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, MAX_EPOCH, 8)
    completed = machine.complete(prepared, now_ms=10)
    assert (completed.producer_id, completed.producer_epoch) == (8, 0)
    assert (completed.previous_producer_id, completed.next_producer_id) == (7, -1)
    assert ended(completed, of(known), commit=commit) is completed  # its answer got lost


# --- fencing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_fenced_transaction_is_aborted_with_the_next_epoch(version: int) -> None:
    known = in_status(Status.ONGOING)
    prepared = machine.fence(known, server_version=version, now_ms=5)
    assert (prepared.status, prepared.producer_epoch, prepared.partitions) == (Status.PREPARE_ABORT, 4, {T0})
    completed = machine.complete(prepared, now_ms=6)
    assert begun(completed).producer_epoch == 5
    add = refused(lambda: machine.add_partitions(completed, of(known), [T0], now_ms=7))
    assert add is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1])
def test_a_fenced_producer_does_not_begin_again_below_version_2(version: int) -> None:
    known = in_status(Status.ONGOING)
    completed = machine.complete(machine.fence(known, server_version=version, now_ms=5), now_ms=6)
    assert refused(lambda: begun(completed, of(known))) is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_begins_again_in_version_2_unless_another_one_has() -> None:
    known = in_status(Status.ONGOING)
    prepared = machine.fence(known, server_version=2, now_ms=5)
    assert refused(lambda: begun(prepared, of(known))) is ErrorCode.CONCURRENT_TRANSACTIONS
    completed = machine.complete(prepared, now_ms=6)
    again = begun(completed, of(known))
    assert (again.producer_epoch, again.status) == (4, Status.EMPTY)
    assert begun(again, of(known)).producer_epoch == 4  # the answer got lost
    other = begun(completed)
    assert other.producer_epoch == 5
    assert refused(lambda: begun(other, of(known))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_producer_that_was_fenced_for_good_does_not_begin_again(version: int) -> None:
    for epoch in (3, MAX_EPOCH - 1):
        known = in_status(Status.ONGOING, epoch=epoch)
        completed = machine.complete(machine.fence_for_good(known, server_version=version, now_ms=5), now_ms=6)
        assert completed.producer_epoch == epoch + 1
        assert refused(partial(begun, completed, of(known), new_producer_id=8)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_transaction_timed_out_may_abort_it_and_go_on_in_version_2() -> None:
    known = in_status(Status.ONGOING)
    completed = machine.complete(machine.fence(known, server_version=2, now_ms=5), now_ms=6)
    assert ended(completed, of(known), commit=False) is completed
    assert refused(lambda: ended(completed, of(known))) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 1])
def test_the_last_epoch_is_for_fencing_below_version_2(version: int) -> None:
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH - 1)
    completed = machine.complete(machine.fence(known, server_version=version, now_ms=5), now_ms=6)
    assert completed.producer_epoch == MAX_EPOCH
    new = begun(completed, new_producer_id=8)
    assert (new.producer_id, new.producer_epoch) == (8, 0)


@pytest.mark.parametrize("epoch", [MAX_EPOCH - 1, MAX_EPOCH])
def test_a_transaction_that_is_fenced_in_the_last_epoch_brings_a_new_producer_id_in_version_2(epoch: int) -> None:
    """As in Apache Kafka since KAFKA-20090. The highest epoch is that of transactions which Kafka has begun before."""
    known = in_status(Status.ONGOING, epoch=epoch)
    with pytest.raises(NeedsProducerId):
        machine.fence(known, server_version=2, now_ms=5)
    prepared = machine.fence(known, server_version=2, now_ms=5, new_producer_id=8)
    assert (prepared.status, prepared.producer_id, prepared.producer_epoch) == (Status.PREPARE_ABORT, 7, MAX_EPOCH)
    completed = machine.complete(prepared, now_ms=6)
    assert (completed.producer_id, completed.producer_epoch, completed.previous_producer_id) == (8, 0, 7)
    other = begun(completed)
    assert (other.producer_id, other.producer_epoch) == (8, 1)
    assert refused(lambda: begun(other, of(known))) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_transaction_timed_out_in_the_last_epoch_continues_with_the_new_id_in_version_2() -> None:
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH - 1)
    prepared = machine.fence(known, server_version=2, now_ms=5, new_producer_id=8)
    for state in (prepared, reloaded(prepared)):
        assert refused(partial(ended, state, of(known), commit=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert refused(partial(ended, state, of(known))) is ErrorCode.INVALID_TXN_STATE
        completed = machine.complete(state, now_ms=6)
        for one in (completed, reloaded(completed)):
            assert ended(one, of(known), commit=False) is one  # which has the new id
            assert refused(partial(ended, one, of(known))) is ErrorCode.INVALID_TXN_STATE
    again = begun(machine.complete(prepared, now_ms=6), of(known))
    assert (again.producer_id, again.producer_epoch) == (8, 0)


@pytest.mark.parametrize("commit", [False, True])
def test_a_producer_whose_end_used_up_the_epochs_may_begin_again_with_its_old_epoch(commit: bool) -> None:
    """The answer to its EndTxn got lost, and it continues by InitProducerId: as in Apache Kafka 4.4."""
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH - 1, version=2)
    completed = machine.complete(ended(known, of(known), commit=commit, new_producer_id=8), now_ms=10)
    again = begun(completed, of(known))
    assert (again.producer_id, again.producer_epoch) == (8, 0)


@pytest.mark.parametrize("commit", [False, True])
def test_a_producer_that_was_fenced_for_good_with_the_last_epoch_gets_none_by_its_end(commit: bool) -> None:
    """The epoch that fences it is no client's: the one after it would not fit a record."""
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH - 1, version=2)
    fenced = machine.fence_for_good(known, server_version=2, now_ms=9)
    for state in (fenced, machine.complete(fenced, now_ms=9)):
        assert refused(partial(ended, state, of(known), commit=commit)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [False, True])
def test_an_end_in_the_highest_epoch_stays_in_it_and_brings_a_new_producer_id(commit: bool) -> None:
    """No client gets this epoch, but one may claim it after it has fenced another."""
    known = in_status(Status.ONGOING, epoch=MAX_EPOCH, version=2)
    prepared = ended(known, of(known), commit=commit, new_producer_id=8)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, MAX_EPOCH)
    assert reloaded(prepared).next_producer_id == 8
    completed = machine.complete(prepared, now_ms=10)
    assert (completed.producer_id, completed.producer_epoch) == (8, 0)
