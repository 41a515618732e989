"""The state machine of a transactional id: pure steps from one `Transaction` to the next.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, or Empty by InitProducerId
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing, or Empty

Each step takes the current state and returns the next one, or the same object if nothing changes. If the request is not
allowed, it raises KafkaError with Kafka's code, and nothing has changed. Steps that need a new producer id raise
`NeedsProducerId` and are called again with one.

With `transaction.version` 2 (KIP-890) every end raises the producer's epoch, so that a batch that was sent before the
end cannot be written after it. When the coordinator itself aborts a transaction, it raises the epoch in every version:
the producer is fenced. In version 2 it may continue, as after an end whose answer was lost, unless another producer has
begun since: EndTxn 5 and InitProducerId return the raised epoch, or the new producer id after the last epoch.

Sources: Kafka's `TransactionMetadata`, `TransactionCoordinator`; KIP-98, 360, 890. One difference: as a step is never
interrupted, there are no pending states, and PrepareEpochFence, which Kafka never stores, is part of the step `fence`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.broker.transactions.state import (
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TopicPartition,
    Transaction,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import TransactionStatus

VERSION_WITH_EPOCH_BUMPS: Final = 2
"""From this `transaction.version` on every end raises the epoch, and Produce itself adds partitions."""


_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class NeedsProducerId(Exception):
    """The step has to be called again with a new producer id."""


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch in a client's request."""

    producer_id: int
    epoch: int


# --- a producer begins -----------------------------------------------------------------------------------------------


def init_producer_id(
    transactional_id: str,
    known: Transaction | None,
    expected: ProducerIdAndEpoch | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction:
    """The transactional id with a new epoch, or with a new producer id if the epochs are used up.

    `expected`: the producer id and epoch of a client that continues after an error (KIP-360); any other producer of
    this transactional id is fenced. An open transaction has to be aborted first, with `fence`.

    Raises KafkaError PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; NeedsProducerId.
    """
    if known is None:
        if new_producer_id is None:
            raise NeedsProducerId
        known = Transaction(transactional_id, new_producer_id)
    check_expected(known, expected)
    if not known.is_idle:
        raise _concurrent(known)
    idle = known._replace(
        status=TransactionStatus.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=0,
    )
    if known.is_epoch_exhausted and (expected is None or expected.epoch == known.producer_epoch):
        if new_producer_id is None:
            raise NeedsProducerId
        last_epoch = NO_PRODUCER_EPOCH if expected is None else known.producer_epoch
        return idle._replace(producer_id=new_producer_id, producer_epoch=0, last_producer_epoch=last_epoch)
    raised = known.producer_epoch + 1
    if expected is None:
        return idle._replace(producer_epoch=raised, last_producer_epoch=NO_PRODUCER_EPOCH)
    if known.producer_epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return idle._replace(producer_epoch=raised, last_producer_epoch=known.producer_epoch)
    if expected.epoch == known.last_producer_epoch:
        return idle  # a repeated request, because the answer got lost: no other producer has come since
    raise _fenced(known, expected.epoch)


def check_expected(known: Transaction, expected: ProducerIdAndEpoch | None) -> None:
    """Raise KafkaError PRODUCER_FENCED unless the transactional id may belong to the expected producer.

    A difference from Kafka: an older epoch does not end the open transaction of a newer producer.
    """
    if expected is None or known.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if expected.producer_id == known.previous_producer_id != known.producer_id and expected.epoch >= MAX_EPOCH - 1:
        return
    is_current = expected.epoch in (known.producer_epoch, known.last_producer_epoch)
    if expected.producer_id != known.producer_id or not is_current:
        raise _fenced(known, expected.epoch)


# --- a transaction grows ---------------------------------------------------------------------------------------------


def check_producer(known: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    """The transactional id, if this producer may write with it now.

    Raises KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if known is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known")
    if producer.producer_id != known.producer_id:
        raise _not_its_id(known, producer)
    if producer.epoch != known.producer_epoch:
        raise _fenced(known, producer.epoch)
    if known.is_prepared:
        raise _concurrent(known)
    return known


def add_partitions(
    known: Transaction | None, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], *, now_ms: int
) -> Transaction:
    """The transaction with these partitions; it begins if none is open. Raises what `check_producer` raises."""
    known = check_producer(known, producer)
    if known.status is TransactionStatus.ONGOING:
        if known.partitions.issuperset(partitions):
            return known
        return known._replace(partitions=known.partitions.union(partitions), last_update_ms=now_ms)
    # Made without its constructor, as are the results of the other two steps of a transaction: a tenth of the time.
    (name, producer_id, epoch, timeout_ms, _, _, _, _, previous_id, next_id, last_epoch, client_version) = known
    fields = (name, producer_id, epoch, timeout_ms, TransactionStatus.ONGOING, frozenset(partitions), now_ms, now_ms)
    return tuple.__new__(Transaction, (*fields, previous_id, next_id, last_epoch, client_version))


# --- a transaction ends ----------------------------------------------------------------------------------------------


def end(
    known: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: int | None = None,
) -> Transaction:
    """The transaction with its end decided (prepared), as its producer has requested.

    For a repeated request whose end is complete, the same object is returned.

    Raises KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS (a
    repeated request whose end is not complete); NeedsProducerId.
    """
    if known is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known")
    if client_version >= VERSION_WITH_EPOCH_BUMPS:
        return _end_with_bump(known, producer, is_commit, client_version, now_ms, new_producer_id)
    if producer.producer_id != known.producer_id:
        raise _not_its_id(known, producer)
    if producer.epoch != known.producer_epoch:
        raise _fenced(known, producer.epoch)
    if known.status is TransactionStatus.ONGOING:
        return _prepared(known, is_commit, client_version, now_ms)
    _check_repeated(known, is_commit)
    return known


def _end_with_bump(
    known: Transaction,
    producer: ProducerIdAndEpoch,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction:
    """`end` for versions in which the epoch distinguishes a repeated request from that of the next transaction."""
    if known.status is TransactionStatus.ONGOING and not known.is_epoch_exhausted and producer == known[1:3]:
        return _prepared_with_bump(known, is_commit, client_version, now_ms)
    has_bumped = known.client_version >= VERSION_WITH_EPOCH_BUMPS
    is_repeated = has_bumped and producer == (known.producer_id, known.producer_epoch - 1)
    if known.producer_epoch == MAX_EPOCH and known.next_producer_id == NO_PRODUCER_ID:
        is_repeated = False  # it was fenced for good; no client gets this epoch
    if known.is_idle and has_bumped and known.producer_epoch == 0:
        is_repeated |= producer == (known.previous_producer_id, MAX_EPOCH - 1)
    if is_repeated and known.status not in (TransactionStatus.ONGOING, TransactionStatus.EMPTY):
        _check_repeated(known, is_commit)
        return known
    if producer.producer_id != known.producer_id:
        raise _not_its_id(known, producer)
    if producer.epoch != known.producer_epoch or known.is_prepared:
        raise _fenced(known, producer.epoch)
    if known.status is not TransactionStatus.ONGOING:
        if is_commit:
            raise _wrong_state(known, is_commit)
        # No partition is known to be added yet. The epoch is raised nevertheless, to fence batches on their way.
        known = known._replace(start_ms=now_ms, partitions=frozenset())
    if known.is_epoch_exhausted:
        if new_producer_id is None:
            raise NeedsProducerId
        known = known._replace(next_producer_id=new_producer_id)
    return _prepared_with_bump(known, is_commit, client_version, now_ms)


def _prepared_with_bump(known: Transaction, is_commit: bool, client_version: int, now_ms: int) -> Transaction:
    (name, producer_id, epoch, timeout_ms, _, partitions, start_ms, _, previous_id, next_id, _, _) = known
    status = TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT
    raised = epoch + 1 if epoch < MAX_EPOCH else epoch
    fields = (name, producer_id, raised, timeout_ms, status, partitions, start_ms, now_ms, previous_id, next_id)
    return tuple.__new__(Transaction, (*fields, epoch, client_version))


def _check_repeated(known: Transaction, is_commit: bool) -> None:
    """Raise unless the end that is requested again is complete."""
    if known.status in (TransactionStatus.EMPTY, TransactionStatus.ONGOING) or known.is_commit is not is_commit:
        raise _wrong_state(known, is_commit)
    if known.is_prepared:
        raise _concurrent(known)


def fence(known: Transaction, *, server_version: int, now_ms: int, new_producer_id: int | None = None) -> Transaction:
    """Prepare the abort of an open transaction and fence its producer: it has timed out, or another one has come.

    In version 2 the producer may continue, after its last epoch with the new producer id. Raises NeedsProducerId.
    """
    fenced = fence_for_good(known, server_version=server_version, now_ms=now_ms)
    if server_version < VERSION_WITH_EPOCH_BUMPS:
        return fenced
    if not known.is_epoch_exhausted:
        return fenced._replace(last_producer_epoch=known.producer_epoch)
    if new_producer_id is None:
        raise NeedsProducerId
    return fenced._replace(last_producer_epoch=known.producer_epoch, next_producer_id=new_producer_id)


def fence_for_good(known: Transaction, *, server_version: int, now_ms: int) -> Transaction:
    """As `fence`, but the producer may not continue in any version: no new producer id is needed."""
    raised = min(known.producer_epoch + 1, MAX_EPOCH)
    prepared = _prepared(known, False, server_version, now_ms)
    return prepared._replace(producer_epoch=raised, last_producer_epoch=NO_PRODUCER_EPOCH)


def complete(known: Transaction, *, now_ms: int) -> Transaction:
    """A prepared transaction whose markers are visible."""
    (name, producer_id, epoch, timeout_ms, status, _, start_ms, _, previous_id, next_id, last_epoch, version) = known
    is_commit = status is TransactionStatus.PREPARE_COMMIT
    status = TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT
    fields = (name, producer_id, epoch, timeout_ms, status, _NO_PARTITIONS, start_ms, now_ms, previous_id, next_id)
    completed: Transaction = tuple.__new__(Transaction, (*fields, last_epoch, version))
    if version < VERSION_WITH_EPOCH_BUMPS or next_id == NO_PRODUCER_ID:
        return completed
    return completed._replace(
        producer_id=known.next_producer_id,
        producer_epoch=0,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _prepared(known: Transaction, is_commit: bool, client_version: int, now_ms: int) -> Transaction:
    status = TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT
    return known._replace(status=status, last_update_ms=now_ms, client_version=client_version)


# --- refusals --------------------------------------------------------------------------------------------------------


def _not_its_id(known: Transaction, producer: ProducerIdAndEpoch) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer {producer.producer_id} does not have this transactional id, producer {known.producer_id} has",
    )


def _fenced(known: Transaction, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"epoch {epoch} is not that of the transactional id, which is {known.producer_epoch} of "
        f"producer {known.producer_id}",
    )


def _concurrent(known: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction before is in state {known.state_name}: try again"
    )


def _wrong_state(known: Transaction, is_commit: bool) -> KafkaError:
    verb = "committed" if is_commit else "aborted"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"a transaction in state {known.state_name} cannot be {verb} by this request"
    )
