"""Conversion of what was read for an old client to messages: in a worker thread, and repeated if there is no message.

Converting record by record in Python takes too long for the broker's own thread. Only one conversion runs at a time,
since more would only share the interpreter, and each needs memory. A part of a log may have nothing that an old client
can see (control batches, batches that compaction has emptied). Kafka then answers with bytes that make such a client
give up; here reading continues after them until there is a message or the end. Called by the Fetch handler, on the
broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.formats.conversion import Converted, magic_for_fetch, to_messages
from ottla.broker.partitions.read_damage import note_damage, note_read_error
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.services import Services
    from ottla.protocol.api.fetch import FetchResponse
    from ottla.storage.segment.slice import LogSlice

CONVERTED_WEIGHT: Final = 3
"""Bytes of memory for each stored byte: what was read, the messages that it becomes (which are larger), and a batch of
records while it is converted. The decompressed content of one compressed batch at a time is added to that."""

NOTHING_HERE: Final = -1
"""A limit for copies on the broker's thread that allows none: a worker reads everything."""

_Outcome = Converted | KafkaError | OSError
_NOTHING: Final = Converted(bytearray(), -1)


@dataclass(slots=True)
class ConvertedPart:
    """One partition of an old client's Fetch.

    Attributes:
        data: the partition's answer, to be filled in.
        piece: what was read of the partition, never mapped.
        offset: the offset from which records are wanted; it grows where there are none.
        max_bytes: the client's limit for the partition.
        most_bytes: the number of bytes that are read at a time.
    """

    data: FetchResponse.PartitionData
    partition: Partition
    piece: LogSlice
    offset: int
    max_bytes: int
    most_bytes: int


def convert_parts(
    services: Services,
    api_version: int,
    parts: Sequence[ConvertedPart],
    done: Callable[[BaseException | None], None],
    is_given_up: Callable[[], bool],
) -> None:
    """Fill in the answers of all `parts`, and call `done`, with an error only if there is a bug.

    Once `is_given_up` returns true the rest is not done: no client waits for it.
    """
    magic = magic_for_fetch(api_version)

    def convert() -> list[_Outcome]:
        return [_NOTHING if is_given_up() else _convert(part, magic) for part in parts]

    def converted(outcomes: list[_Outcome] | None, error: BaseException | None) -> None:
        if outcomes is None:
            done(error)
            return
        unfinished = [part for part, outcome in zip(parts, outcomes, strict=True) if _goes_on(services, part, outcome)]
        if unfinished and not is_given_up():
            convert_parts(services, api_version, unfinished, done, is_given_up)
        else:
            done(None)

    services.conversions.run(convert, converted)


def _convert(part: ConvertedPart, magic: int) -> _Outcome:
    """In a worker thread."""
    try:
        return to_messages(
            part.piece.read_blocking(),
            magic,
            part.offset,
            max_bytes=part.max_bytes,
            max_decompressed_bytes=part.partition.log.config.ottla_batch_max_decompressed_bytes,
        )
    except (KafkaError, OSError) as error:
        return error
    except ValueError as error:  # the file was closed meanwhile: its topic was deleted
        return OSError(str(error))


def _goes_on(services: Services, part: ConvertedPart, outcome: _Outcome) -> bool:
    """Whether more must be read before the part's answer is complete."""
    if isinstance(outcome, Converted):
        part.data.records = outcome.messages
        if outcome.messages or outcome.next_offset <= part.offset:
            return False
        part.offset = outcome.next_offset
        try:
            part.piece = part.partition.read(
                part.offset, part.most_bytes, at_least_one=True, allow_map=False, most_copied_bytes=NOTHING_HERE
            )
        except (KafkaError, OSError) as error:
            outcome = error
        else:
            return part.piece.length > 0
    if isinstance(outcome, OSError):
        note_read_error(part.partition, outcome)
    elif isinstance(outcome, KafkaError) and outcome.code is ErrorCode.CORRUPT_MESSAGE:
        note_damage(services.metrics, services.clock.monotonic_ms(), part.partition, f"offset {part.offset}", outcome)
    _refuse(part.data, outcome.code if isinstance(outcome, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR)
    return False


def _refuse(data: FetchResponse.PartitionData, code: ErrorCode) -> None:
    data.error_code = code
    data.high_watermark = -1
    data.records = b""
