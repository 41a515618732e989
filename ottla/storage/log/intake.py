"""A turn's batches on their way into a log: each is checked, refused, recognised or given its offsets.

What every topic asks of a batch is asked here, in the loop over them (docs/decisions/a-look-at-the-header.md);
`append.py` has the rules and says what is wrong, `rewrite.py` has what only some topics ask. Nothing here touches a
file or the log's state: the producers' new entries are staged, the base offset and the leader epoch are written into
the batches' own bytes. Called by `Log.append` only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import (
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    HeaderFields,
    place_batch,
    unpack_header,
)
from ottla.protocol.records.checksum import crc32c
from ottla.storage.log.append import (
    LAST_PLAIN_CODEC,
    AllStored,
    AppendEntry,
    AppendResult,
    BatchRules,
    Refused,
    check_attributes,
    check_timestamps,
    wrong_shape,
)
from ottla.storage.log.append_plan import PlannedBatch
from ottla.storage.log.rewrite import rewrite
from ottla.storage.producers.producer_state import (
    MAX_SEQUENCE,
    BatchFields,
    ProducerEntry,
    ProducerStates,
    advance_by,
    check_sequence,
    due_sequence,
    find_duplicate,
)

_NO_PRODUCERS: Final[dict[int, ProducerEntry]] = {}
_NO_BATCHES: Final[list[BatchFields]] = []
_ALL_STORED: Final[dict[int, AppendResult]] = {}
"""What a call without any begins with, and never changes."""
_CHECKED: Final = slice(21, None)
"""The bytes of a batch that its checksum covers: from its attributes on."""


Intake = tuple[list[AppendResult] | None, list[PlannedBatch], int, int, int, Sequence[ProducerEntry], int]
"""What became of a turn's batches: one result per entry, in order, as if all that is to be stored were, or None when
all are to be stored; what is to be stored, how many bytes that is, the largest of its timestamps, the offset behind it,
what it makes of its producers, and the stamp that it gets, -1 for none. (A plain tuple, since it is taken apart at
once.)"""


def validate_and_assign(  # noqa: PLR0915  (one loop without calls: what it says below)
    entries: Sequence[AppendEntry | tuple[memoryview, int]],
    rules: BatchRules,
    producers: ProducerStates,
    next_offset: int,
    leader_epoch: int,
    log_start_offset: int,
    now_ms: int,
) -> Intake:
    """Look at each entry and give its batch the next offsets, or say why not.

    One function for all of it: with a call for the look at each batch, which gave its fields back, a batch of 16 KB
    took 0.6 us of 8 more.
    """
    if not rules.bounds_from_ms <= now_ms < rules.bounds_until_ms:
        rules.set_bounds(now_ms)
    earliest_ms, latest_ms, max_batch_bytes = rules.earliest_ms, rules.latest_ms, rules.max_batch_bytes
    is_plain = rules.is_plain
    stamp_ms = now_ms if rules.is_log_append_time else -1
    batches: list[PlannedBatch] = []
    # The batch before's: its producer, what was known of that, which of its batches came since, what comes next of it.
    sender = sender_epoch = due = -1
    producer: ProducerEntry | None = None
    fresh = _NO_BATCHES
    staged = _NO_PRODUCERS  # what became of the producers of others before
    not_stored = _ALL_STORED
    added_bytes, newest_ms = 0, -1
    for records, api_version in entries:
        try:
            try:
                fields: HeaderFields = unpack_header(records)
            except struct.error:
                raise wrong_shape(records, rules) from None
            first, length, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, epoch, sequence, count = (
                fields
            )
            size_bytes = length + LENGTH_PREFIX_BYTES
            if (
                magic != MAGIC
                or size_bytes != len(records)
                or first
                or count < 1
                or delta != count - 1
                or size_bytes > max_batch_bytes
            ):
                raise wrong_shape(records, rules)
            if crc32c(records[_CHECKED]) != crc:
                raise Refused(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum does not match its bytes")
            # Nothing to ask of the common case: a known codec other than zstd, and none of the bits that are refused.
            if attributes and not 0 < attributes <= LAST_PLAIN_CODEC:
                check_attributes(attributes, api_version)
            if base_ms < earliest_ms or max_ms > latest_ms or max_ms < base_ms:
                check_timestamps(base_ms, max_ms, rules, now_ms)
            if producer_id >= 0 or not is_plain:
                if producer_id >= 0 and (sequence < 0 or epoch < 0):
                    raise Refused(
                        ErrorCode.INVALID_RECORD,
                        f"sequence {sequence} and epoch {epoch} cannot be those of producer {producer_id}",
                    )
                if not is_plain:
                    records, fields = rewrite(  # noqa: PLW2901  (a name of its own is time on the hot path)
                        records, BatchHeader._make(fields), rules, now_ms
                    )
                    _, length, _, _, _, _, delta, _, max_ms, _, _, _, _ = fields
                    size_bytes = length + LENGTH_PREFIX_BYTES
                if producer_id >= 0:
                    if producer_id != sender or sequence != due or epoch != sender_epoch:
                        if sender >= 0:
                            staged = staged or {}
                            staged[sender] = advance_by(producer, sender, sender_epoch, fresh, now_ms)
                            sender = -1
                        producer = staged.get(producer_id) or producers.get(producer_id)
                        if sequence != due_sequence(producer, epoch):
                            header = BatchHeader._make(fields)
                            duplicate = _duplicate(producer, header, rules, log_start_offset)
                            if duplicate is not None:
                                not_stored = not_stored or {}
                                not_stored[len(batches) + len(not_stored)] = duplicate
                                continue
                            _require_sequence(producers, producer, header)
                        sender, sender_epoch, fresh = producer_id, epoch, []
                    last_sequence = (sequence + delta) & MAX_SEQUENCE
                    fresh.append((last_sequence, next_offset + delta, delta, max_ms))
                    due = (last_sequence + 1) & MAX_SEQUENCE
        except Refused as refusal:
            not_stored = not_stored or {}
            not_stored[len(batches) + len(not_stored)] = _refused(refusal, log_start_offset)
            continue
        place_batch(records, 0, next_offset, length, leader_epoch)
        last_offset = next_offset + delta
        batches.append((records, size_bytes, next_offset, last_offset, max_ms))
        next_offset = last_offset + 1
        added_bytes += size_bytes
        if max_ms > newest_ms:  # noqa: PLR1730  (a call for each batch is time on the hot path)
            newest_ms = max_ms
    results = _in_order(AllStored(batches, stamp_ms, log_start_offset), not_stored) if not_stored else None
    changed: Sequence[ProducerEntry] = ()
    if sender >= 0:
        newest = advance_by(producer, sender, sender_epoch, fresh, now_ms)
        changed = (*staged.values(), newest) if staged else (newest,)
    elif staged:
        changed = list(staged.values())
    return results, batches, added_bytes, newest_ms, next_offset, changed, stamp_ms


def _in_order(stored: AllStored, not_stored: dict[int, AppendResult]) -> list[AppendResult]:
    """One result for each entry, where those of some entries, by their numbers, are not to be stored."""
    rest = iter(stored)
    return [not_stored.get(number) or next(rest) for number in range(len(stored) + len(not_stored))]


def _duplicate(
    producer: ProducerEntry | None, header: BatchHeader, rules: BatchRules, log_start_offset: int
) -> AppendResult | None:
    original = find_duplicate(producer, header)
    if original is None:
        return None
    stamp_ms = original.timestamp_ms if rules.is_log_append_time else -1
    return AppendResult(
        ErrorCode.NONE, original.base_offset, original.last_offset, stamp_ms, log_start_offset, is_duplicate=True
    )


def _refused(refusal: Refused, log_start_offset: int) -> AppendResult:
    return AppendResult(
        refusal.code,
        log_start_offset=log_start_offset,
        error_message=refusal.message,
        record_errors=refusal.record_errors,
    )


def _require_sequence(producers: ProducerStates, producer: ProducerEntry | None, header: BatchHeader) -> None:
    if producer is None:
        earlier = producers.beginnings.earlier(header)
        if earlier is not None:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} of producer {header.producer_id} is behind {earlier}, "
                "which found no room and has to be stored first",
            )
    refusal = check_sequence(producer, header)
    if refusal is not None:
        raise Refused(refusal.error_code, refusal.message)
