"""The client's exceptions. Each is a `KafkaError`, so that it has a `code` of Kafka and its `.retriable`.

The broker's refusals are plain `KafkaError`s with their code; the classes here are for errors that the client detects.
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
    """Whether the same request may succeed later: retriable errors of Kafka, and brokers that cannot be reached."""
    return error.code.retriable or isinstance(error, NoBrokersAvailable)


class ClientTimeout(KafkaError):
    """A request or a wait did not finish in time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class BufferExhausted(ClientTimeout):
    """The producer's `buffer_memory` stayed full for `max_block_ms`: the brokers are slower than the program."""


class ConnectionLost(KafkaError):
    """The connection to a broker could not be made, or ended before the answer came."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class WrongBroker(ConnectionLost):
    """At the address of a broker is another one now, or one of another cluster (KIP-1242)."""


class AuthenticationFailed(KafkaError):
    """Broker and client do not accept each other: a wrong password, mechanism or token, a certificate that is not
    trusted, TLS on a listener without it. Another attempt would fail the same way (Kafka's AuthenticationException).
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED) -> None:
        super().__init__(code, message)


class NoBrokersAvailable(KafkaError):
    """None of the brokers in `bootstrap_servers` answered."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class UnsupportedByBroker(KafkaError):
    """The broker and this client have no common version of an API that is needed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ClientClosed(KafkaError):
    """The client was used after `close`, or before `start`."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


def not_started(client: str) -> ClientClosed:
    """The error of a client, such as "the producer", that is used before its start."""
    return ClientClosed(f"{client} was not started: use `async with`, or await its start()")


class ClientFailed(KafkaError):
    """A bug of the client itself ended the operation: an unexpected exception, the `__cause__`.

    A producer whose `send` raises this sends nothing more. Close it, and create another one.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, f"the client failed: {type(cause).__name__}: {cause}")
        self.__cause__ = cause


class RecordTooLarge(KafkaError):
    """A record is larger than `max_request_size` or `buffer_memory` allow."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class PartitionFailure(KafkaError):
    """An error of one partition while consuming, at `partition` and `offset`."""

    def __init__(self, code: ErrorCode, partition: TopicPartition, offset: int, message: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(code, f"{partition.topic}-{partition.partition} at offset {offset}: {message}")


class OffsetOutOfRange(PartitionFailure):
    """The partition has no such offset, and `auto_offset_reset` is "none". Seek to another offset to continue."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, partition, offset, "the partition holds no record at this offset"
        )


class CorruptRecords(PartitionFailure):
    """A batch failed its checksum or could not be decoded. Seek past it to continue."""

    def __init__(self, partition: TopicPartition, offset: int, message: str, next_offset: int = -1) -> None:
        self.next_offset = next_offset
        """The offset after the broken batch, if its header contains it; else -1."""
        super().__init__(ErrorCode.CORRUPT_MESSAGE, partition, offset, message)


class UndecodableRecord(PartitionFailure):
    """A deserializer raised an exception, the `__cause__`. Seek to `offset + 1` to continue (Kafka's KIP-334)."""

    def __init__(
        self, partition: TopicPartition, offset: int, key: bytes | None, value: bytes | None, cause: Exception
    ) -> None:
        self.key = key
        self.value = value
        super().__init__(
            ErrorCode.INVALID_RECORD, partition, offset, f"a deserializer raised {type(cause).__name__}: {cause}"
        )


class LogTruncated(PartitionFailure):
    """Consumed records are no longer in the log, which was truncated and got other records (KIP-320).

    `offset` is where the common part ends. Raised when `auto_offset_reset` is "none"; seek to continue.
    """

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, partition, offset, "the log was truncated below what was consumed already"
        )


class CommitFailed(KafkaError):
    """Offsets were not committed, because the group has revoked the partitions (Kafka's CommitFailedException).

    `code` has the reason: REBALANCE_IN_PROGRESS, which the next poll resolves, or UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION
    and the like: too much time passed between two polls, and other members read the partitions now.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, f"the offsets were not committed: {message}")


class RebalanceListenerFailed(KafkaError):
    """A rebalance listener raised an exception, the `__cause__`. The rebalance itself was finished."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
