"""What goes into `Log.append` and what comes out of it: entries, results, and the look at each batch.

A batch stays opaque: its header and checksum are looked at, its records are not (docs: deviation from Kafka, which always
looks inside), except where the topic asks for it: compaction (keys), recompression, `ottla.validate.records`.
Nothing here touches a file. Called by `log.py` only; the broker makes entries and reads results.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.errors import ErrorCode


class AppendEntry:
    """One partition's record data of one Produce request.

    Attributes:
        records: exactly the bytes that the client sent for the partition; writable, because base offset and leader epoch
            are patched in place, and valid until `Log.append` returns.
        api_version: of the Produce request: zstd is refused below 7.
    """

    __slots__ = ("api_version", "records")

    def __init__(self, records: memoryview, api_version: int) -> None:
        self.records = records
        self.api_version = api_version


@dataclass(slots=True, frozen=True)
class RecordError:
    """One record of a refused batch, as ProduceResponse names it (KIP-467)."""

    batch_index: int
    message: str | None


@dataclass(slots=True)
class AppendResult:
    """What became of one entry.

    Attributes:
        error_code: NONE, or why nothing of the entry was stored.
        base_offset, last_offset: of the stored batch; of the original for a duplicate; -1 when refused.
        log_append_time_ms: the broker's stamp under `message.timestamp.type=LogAppendTime`, else -1.
        log_start_offset: of the partition at the time of the call.
        is_duplicate: the batch was stored before; answer when `last_offset` is covered by the promise.
        error_message: one line for people, or None.
        record_errors: the records that caused the refusal, where Kafka names them.
    """

    error_code: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    is_duplicate: bool = False
    error_message: str | None = None
    record_errors: tuple[RecordError, ...] = ()
