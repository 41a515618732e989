"""The admission of batches in a transactional Produce: one call of the coordinator for all of them.

The codes are those that a client of the request's version understands. Temporary refusals (a shard that is loading, a
transaction whose markers are being written) are NOT_ENOUGH_REPLICAS up to version 11, because clients then send the
batch again; as in Kafka (`ReplicaManager`, KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.transactions.codes import ABORTABLE_BEFORE, replaced
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CorruptBatch, parse_header

if TYPE_CHECKING:
    from ottla.broker.partitions.first_appends import SentBatch
    from ottla.broker.transactions.admission import Admission
    from ottla.broker.transactions.coordinator import TransactionCoordinator

FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12
"""With `transaction.version` 2 Produce adds its partitions to the transaction."""
_PASSES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Admitted(NamedTuple):
    """The batches that may be gathered, as part of the transaction or `plain`, and those that are refused.

    `admission`: the one on which the answers of the transactional batches depend, None without such batches.
    """

    transactional: Sequence[SentBatch]
    plain: Sequence[SentBatch]
    refused: Sequence[tuple[SentBatch, KafkaError]]
    admission: Admission | None


def admit(
    transactions: TransactionCoordinator, transactional_id: str, batches: Sequence[SentBatch], version: int
) -> Admitted:
    """Check all batches with the transactional bit; the log checks the others, and invalid ones."""
    asked: list[SentBatch] = []
    plain: list[SentBatch] = []
    producers: set[tuple[int, int]] = set()
    for batch in batches:
        try:
            header = parse_header(batch.records)
        except CorruptBatch:
            plain.append(batch)
            continue
        if header.is_transactional:
            asked.append(batch)
            producers.add((header.producer_id, header.producer_epoch))
        else:
            plain.append(batch)
    if not asked:
        return Admitted((), plain, (), None)
    if len(producers) > 1:
        text = "the transactional batches of a request are of one producer"
        refusal = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        return Admitted((), plain, [(batch, refusal) for batch in asked], None)
    ((producer_id, producer_epoch),) = producers
    partitions = {(batch.partition.topic, batch.partition.index) for batch in asked}
    admission = transactions.admit_batches(
        transactional_id, producer_id, producer_epoch, partitions, adds=version >= FIRST_VERSION_THAT_ADDS
    )
    if admission.error is not None:
        refusal = for_version(admission.error, version)
        return Admitted((), plain, [(batch, refusal) for batch in asked], None)
    if not admission.missing:
        return Admitted(asked, plain, (), admission)
    missing = frozenset(admission.missing)
    text = "the partition is not part of an open transaction"
    refusal = for_version(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, text), version)
    refused = [(batch, refusal) for batch in asked if (batch.partition.topic, batch.partition.index) in missing]
    taken = [batch for batch in asked if (batch.partition.topic, batch.partition.index) not in missing]
    return Admitted(taken, plain, refused, admission)


def for_version(error: KafkaError, version: int) -> KafkaError:
    """The coordinator's refusal, with a code that clients of this version of Produce understand."""
    codes = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
    if version < FIRST_VERSION_WITH_ABORTABLE:
        codes.update(ABORTABLE_BEFORE)
    if error.code in _PASSES and (
        version < FIRST_VERSION_THAT_ADDS or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS
    ):
        codes[error.code] = ErrorCode.NOT_ENOUGH_REPLICAS
    return replaced(error, codes)
