"""Disks that fail or are full at each step of a transaction: nothing is committed in part, and all goes on later."""

from __future__ import annotations

import errno

import pytest
from kit.nodes import partition_of
from kit.simulated_files import CrashPoint
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife

from ottla.broker.transactions.state import MAX_EPOCH
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.stored.transaction import TransactionLogValue, TransactionStatus, decode_transaction_record
from ottla.storage.formats.layout import TRANSACTIONS_TOPIC

BOTH = pytest.mark.parametrize("version", [0, 2])
DATA, STATE = "*/t-*/*.log", "*/__transaction_state-*/*.log"
PLACES = pytest.mark.parametrize("place", [DATA, STATE], ids=["data", "state"])
CALLS = pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
RELOAD_MS = 10_000
LATE_MS = TIMEOUT_MS + 31_000
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def tried(step: object) -> ErrorCode:
    """What a step answers, NONE where it succeeds."""
    assert callable(step)
    try:
        step()
    except KafkaError as error:
        return error.code
    except AssertionError:  # it still waits for the disk
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE


def next_works(life: TransactionLife, version: int) -> None:
    """Another producer with the transactional id gets it, and commits."""
    producer = TransactionalProducer(life, version=version)
    for _ in range(5):
        code = tried(producer.init)
        if code is ErrorCode.NONE:
            break
        assert code in AGAIN
        life.pass_ms(RELOAD_MS)
    for index in range(3):
        producer.produce(b"next", index)
    producer.end()
    for index in range(3):
        assert life.committed(index)[-1:] == [b"next"]
        assert life.last_stable_offset(index) == partition_of(life.node, "t", index).high_watermark


@BOTH
@PLACES
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_records_that_cannot_be_written_are_refused_and_the_transaction_is_ended(
    version: int, place: str, code: int
) -> None:
    life = TransactionLife()
    producer = TransactionalProducer(life, version=version)
    producer.init()
    producer.produce(b"v")
    life.files.fail("pwritev", place, code, times=None)
    assert tried(lambda: producer.produce(b"w", 1)) is not ErrorCode.NONE
    life.files.heal()
    life.pass_ms(LATE_MS)
    assert life.committed() == life.committed(1) == []
    next_works(life.restarted() if code == errno.EIO else life, version)


@BOTH
@PLACES
@CALLS
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_meets_a_full_disk_is_complete_or_undone(version: int, place: str, call: str, commit: bool) -> None:
    life = TransactionLife()
    producer = TransactionalProducer(life, version=version)
    producer.init()
    producer.produce(b"v")
    producer.produce(b"w", 1)
    life.files.fail(call, place, errno.ENOSPC, times=None)
    answered = tried(lambda: producer.end(commit=commit))
    life.files.heal()
    life = life.restarted() if call == "fdatasync" else life
    life.pass_ms(LATE_MS)
    both = (life.committed(), life.committed(1))
    assert both in (([b"v"], [b"w"]), ([], []))
    if answered is ErrorCode.NONE:
        assert both == (([b"v"], [b"w"]) if commit else ([], []))
    if not commit:
        assert both == ([], [])
    next_works(life, version)


@BOTH
@PLACES
def test_a_start_on_a_full_disk_ends_transactions_when_there_is_room(version: int, place: str) -> None:
    life = TransactionLife()
    producer = TransactionalProducer(life, version=version)
    producer.init()
    producer.produce(b"v")
    pending = life.begin(producer.end_request(), 5 if version == 2 else 4)
    life.node.services.turn.end()  # the decision is written, and no marker
    assert not pending.done
    life = TransactionLife(life.files.kill(), life.clock, **life.keys)
    life.files.fail("pwritev", place, errno.ENOSPC, times=None)
    life.pass_ms(RELOAD_MS)
    life.files.heal()
    life.pass_ms(LATE_MS)
    next_works(life, version)


# --- power cuts ------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.parametrize("seed", range(4))
def test_a_transaction_that_was_not_ended_is_never_committed_whatever_a_power_cut_kept(
    version: int, write: int, seed: int
) -> None:
    """The records of the next transaction may be kept, and those of the coordinator since the end before be lost."""
    life = TransactionLife()
    producer = TransactionalProducer(life, version=version)
    producer.init()
    producer.produce(b"v")
    pending = life.begin(producer.end_request(), 5 if version == 2 else 4)
    while not pending.done:  # what follows the answer is not on the disk
        life.node.services.turn.end()
        life.node.services.syncer.run_all()  # type: ignore[attr-defined]
    if version == 2:
        producer.epoch += 1
        producer.sequences.clear()
    life.stop_at_write(write)
    try:
        if version < 2:
            producer.add(0, 1)
        for index in range(2):
            life.begin(producer.produce_request(b"next", index), producer.produce_version)
            life.node.services.turn.end()
    except CrashPoint:
        pass
    life = life.crashed(seed)
    assert life.committed()[:1] == [b"v"]
    assert b"next" not in life.committed() + life.committed(1)
    life.pass_ms(LATE_MS)
    assert (life.committed(), life.committed(1)) == ([b"v"], [])
    next_works(life, version)


def without_what_follows_the_decision(life: TransactionLife) -> TransactionLife:
    """The broker killed, and its coordinator's log cut off after the newest decided end."""
    path = partition_of(life.node, TRANSACTIONS_TOPIC).log.directory / "00000000000000000000.log"
    files = life.files.kill()
    data = files.read_bytes(path)
    end = 0
    for position, header in iter_batches(data):
        (record,) = decode_batch(memoryview(data)[position:])
        _, value = decode_transaction_record(record.key or b"", record.value)
        assert isinstance(value, TransactionLogValue)
        if value.transaction_status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT):
            end = position + header.size_bytes
    assert 0 < end < len(data)
    file = files.open(path, writable=True)
    file.truncate(end)
    file.close()
    return TransactionLife(files, life.clock, **life.keys)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_last_epoch", [False, True])
def test_an_end_whose_last_record_is_lost_does_not_end_the_transaction_after_it(
    is_last_epoch: bool, commit: bool
) -> None:
    life = TransactionLife()
    producer = TransactionalProducer(life)
    producer.init()
    if is_last_epoch:
        shard = life.node.services.transactions.get().shards.ready("tx")
        shard.transactions["tx"] = shard.transactions["tx"]._replace(producer_epoch=MAX_EPOCH - 1)
        producer.epoch = MAX_EPOCH - 1
    producer.produce(b"v")
    producer.produce(b"w", 1)
    producer.end(commit=commit)
    producer.produce(b"next")
    producer.life = life = without_what_follows_the_decision(life)
    life.pass_ms(1_000)
    assert (life.committed(), life.committed(1)) == (([b"v"], [b"w"]) if commit else ([], []))
    assert life.state() == "Ongoing"
    producer.produce(b"more", 2)
    producer.end()
    assert life.committed()[-1:] == [b"next"]
    assert life.committed(2) == [b"more"]
    assert life.last_stable_offset() == partition_of(life.node, "t").high_watermark
