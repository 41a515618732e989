"""What the client raises. Each is a `KafkaError`, so that its `code` says it in Kafka's words and `.retriable` holds.

The broker's refusals are plain `KafkaError`s with their code; the classes here are what the client finds out itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client_core.transaction_verdicts import AbortableTransactionError, FatalTransactionError
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.structs import TopicPartition

__all__ = [
    "AbortableTransactionError",
    "AuthenticationFailed",
    "BufferExhausted",
    "ClientClosed",
    "ClientFailed",
    "ClientTimeout",
    "CommitFailed",
    "ConnectionLost",
    "CorruptRecords",
    "FatalTransactionError",
    "KafkaError",
    "LogTruncated",
    "NoBrokersAvailable",
    "OffsetOutOfRange",
    "RebalanceListenerFailed",
    "RecordTooLarge",
    "UndecodableRecord",
    "UnsupportedByBroker",
    "is_worth_retrying",
]


def is_worth_retrying(error: KafkaError) -> bool:
    """Whether the same request may succeed later: what Kafka calls retriable, and brokers that cannot be reached."""
    return error.code.retriable or isinstance(error, NoBrokersAvailable)


class ClientTimeout(KafkaError):
    """What was asked for did not come about in its time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class BufferExhausted(ClientTimeout):
    """The producer's `buffer_memory` stayed full for `max_block_ms`: the brokers are slower than the program."""


class ConnectionLost(KafkaError):
    """The connection to a broker could not be made, or ended before the answer came."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class AuthenticationFailed(KafkaError):
    """Broker and client do not accept each other: a wrong password, mechanism or token, a certificate that is not
    trusted, TLS where there is none. Another attempt ends the same way (Kafka's AuthenticationException).
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED) -> None:
        super().__init__(code, message)


class NoBrokersAvailable(KafkaError):
    """None of the brokers in `bootstrap_servers` answered."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class UnsupportedByBroker(KafkaError):
    """The broker has no version in common with this client for an API that is needed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ClientClosed(KafkaError):
    """The client was closed, or was not started, when something was asked of it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class ClientFailed(KafkaError):
    """A fault of the client itself ended what was asked for: an exception, the `__cause__`, that nothing expects.

    A producer that `send` raises this for sends nothing more. Close it, and make another one.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, f"the client failed: {type(cause).__name__}: {cause}")
        self.__cause__ = cause


class RecordTooLarge(KafkaError):
    """A record is larger than `max_request_size` or `buffer_memory` allow."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class PartitionFailure(KafkaError):
    """Something that is the matter with one partition while consuming. `partition` and `offset` say where."""

    def __init__(self, code: ErrorCode, partition: TopicPartition, offset: int, message: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(code, f"{partition.topic}-{partition.partition} at offset {offset}: {message}")


class OffsetOutOfRange(PartitionFailure):
    """The partition holds no such offset, and `auto_offset_reset` is "none". Seek elsewhere to go on."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, partition, offset, "the partition holds no record at this offset"
        )


class CorruptRecords(PartitionFailure):
    """A batch failed its checksum or could not be decoded. Seek past it to go on."""

    def __init__(self, partition: TopicPartition, offset: int, message: str, next_offset: int = -1) -> None:
        self.next_offset = next_offset
        """Where the batch behind the broken one begins, if its header says it; -1 if not."""
        super().__init__(ErrorCode.CORRUPT_MESSAGE, partition, offset, message)


class UndecodableRecord(PartitionFailure):
    """A deserializer raised; the exception is the `__cause__`. Seek to `offset + 1` to go on (Kafka's KIP-334)."""

    def __init__(
        self, partition: TopicPartition, offset: int, key: bytes | None, value: bytes | None, cause: Exception
    ) -> None:
        self.key = key
        self.value = value
        super().__init__(
            ErrorCode.INVALID_RECORD, partition, offset, f"a deserializer raised {type(cause).__name__}: {cause}"
        )


class LogTruncated(PartitionFailure):
    """Records that were consumed are no longer in the log, which was cut and went on otherwise (KIP-320).

    `offset` is where the common part ends. Raised when `auto_offset_reset` is "none"; seek to go on.
    """

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, partition, offset, "the log was truncated below what was consumed already"
        )


class CommitFailed(KafkaError):
    """Offsets were not committed, because the group has taken the partitions away (Kafka's CommitFailedException).

    `code` says how: REBALANCE_IN_PROGRESS, which passes with the next poll, or UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION
    and the like: too much time went by between two polls, and other members read the partitions now.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, f"the offsets were not committed: {message}")


class RebalanceListenerFailed(KafkaError):
    """A rebalance listener raised; the exception is the `__cause__`. The rebalance itself was finished."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
