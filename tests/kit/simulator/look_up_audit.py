"""Asks a started broker for offsets by time, and holds the answers against the records that it has just shown.

A look-up answers the first record that is there, at or after the log start, whose timestamp is the asked one or later.
The markers of transactions have a timestamp, too, and may be answered, as in Apache Kafka. A record that the cleaner
has removed is no answer, whatever its batch's header says. Readers of committed records get nothing at or after the
last stable offset. Of several records with the largest timestamp any may be answered.

Retention may move the start of a log while it is audited: then its answers are not compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kit.simulator.model import Violation

from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, iter_batches

if TYPE_CHECKING:
    from kit.simulator.transaction_audit import LogContent

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NOTHING: Final = -1
LOOK_UP_VERSION: Final = 7
READ_COMMITTED: Final = 1
LOOK_UPS: Final = 4
"""Times that are looked up in each partition."""

Place = tuple[str, int]
Answer = ListOffsetsResponse.ListOffsetsPartitionResponse
Ask = Callable[[ListOffsetsRequest], ListOffsetsResponse]


@dataclass
class TimedLog:
    """What a partition has shown: its bounds, the timestamp of each record or marker, and its open transactions."""

    start: int
    end: int
    stamps_ms: Mapping[int, int]
    content: LogContent
    stable: int = field(init=False, default=0)

    def first_at_or_after(self, timestamp_ms: int) -> tuple[int, int]:
        """(offset, timestamp) of the first record with this timestamp or a later one; -1 for none."""
        found = (item for item in sorted(self.stamps_ms.items()) if item[1] >= timestamp_ms)
        return next(found, (NOTHING, NOTHING))

    def largest_below(self, end: int) -> int:
        """The largest timestamp before an offset, -1 for none."""
        return max((stamp for offset, stamp in self.stamps_ms.items() if offset < end), default=NOTHING)


def stamps_of(content: bytes) -> dict[int, int]:
    """The timestamps of all records of fetched batches, markers included, by offset."""
    view = memoryview(content)
    found = {}
    for position, header in iter_batches(view):
        for record in decode_batch(view[position : position + header.size_bytes]):
            found[record.offset] = record.timestamp
    return found


def look_up_request(
    wanted: Mapping[Place, int], *, committed: bool = False, leader_epochs: Mapping[Place, int] | None = None
) -> ListOffsetsRequest:
    """A timestamp, or a special value, for each partition; with `leader_epochs` those that the client knows."""
    kind = ListOffsetsRequest
    topics = [
        kind.ListOffsetsTopic(
            name=name,
            partitions=[
                kind.ListOffsetsPartition(
                    partition_index=index,
                    timestamp=timestamp,
                    current_leader_epoch=(leader_epochs or {}).get((name, index), -1),
                )
                for (_, index), timestamp in places
            ],
        )
        for name, places in groupby(wanted.items(), lambda item: item[0][0])
    ]
    return kind(replica_id=-1, isolation_level=READ_COMMITTED if committed else 0, topics=topics)


def audit_look_ups(ask: Ask, logs: Mapping[Place, TimedLog], chance: random.Random) -> None:
    """Every partition, just after it was read to its end. Raises Violation."""
    if not logs:
        return
    latest = _ask(ask, dict.fromkeys(logs, LATEST))
    stable = _ask(ask, dict.fromkeys(logs, LATEST), committed=True)
    largest = {
        is_committed: _ask(ask, dict.fromkeys(logs, MAX_TIMESTAMP), committed=is_committed)
        for is_committed in (False, True)
    }
    by_time = []
    for number in range(LOOK_UPS):
        wanted = {place: _draw(log, chance) for place, log in logs.items()}
        by_time.append((wanted, number % 2 == 1, _ask(ask, wanted, committed=number % 2 == 1)))
    earliest = _ask(ask, dict.fromkeys(logs, EARLIEST))
    for place, log in logs.items():
        start = earliest[place].offset
        if start < log.start:
            raise Violation(f"{place}: {start} is the earliest offset, after {log.start}")
        if start > log.start:
            continue
        log.stable = stable[place].offset
        if latest[place].offset != log.end:
            raise Violation(f"{place}: {latest[place].offset} is the latest offset, {log.end} the high watermark")
        _require_stable(place, log)
        for is_committed, answers in largest.items():
            _require_largest(place, log, answers[place], log.stable if is_committed else log.end)
        for wanted, is_committed, answers in by_time:
            _require_first(place, log, wanted[place], answers[place], log.stable if is_committed else log.end)


def _ask(ask: Ask, wanted: Mapping[Place, int], *, committed: bool = False) -> dict[Place, Answer]:
    response = ask(look_up_request(wanted, committed=committed))
    answers = {(topic.name, one.partition_index): one for topic in response.topics for one in topic.partitions}
    for place, timestamp in wanted.items():
        code = answers[place].error_code
        if code != ErrorCode.NONE:
            raise Violation(f"{place}: the look-up of {timestamp} is answered {ErrorCode.of(code).name}")
    return answers


def _draw(log: TimedLog, chance: random.Random) -> int:
    """Mostly about the time of a record."""
    stamps = sorted({stamp for stamp in log.stamps_ms.values() if stamp > 0})
    if not stamps or chance.random() < 0.1:
        return chance.choice((0, 1, 1 << 50))
    return chance.choice(stamps) + chance.choice((-1, 0, 0, 1))


def _require_stable(place: Place, log: TimedLog) -> None:
    """Before the first open transaction; one whose records were all deleted holds it at the start of the log."""
    opened = min(log.content.open.values(), default=log.end)
    if log.stable != max(opened, log.start) and not (log.stable == log.start > 0):
        raise Violation(f"{place}: {log.stable} is the last stable offset; {log.end} the end, {opened} is open")


def _require_largest(place: Place, log: TimedLog, answer: Answer, end: int) -> None:
    found = answer.offset, answer.timestamp
    if answer.offset == NOTHING:
        # Kafka answers nothing where the largest timestamp of the log is not before the end.
        is_right = log.largest_below(end) < 0 or log.largest_below(log.end) > log.largest_below(end)
    else:
        is_right = (
            log.stamps_ms.get(answer.offset) == answer.timestamp == log.largest_below(end) and answer.offset < end
        )
    if not is_right:
        raise Violation(f"{place}: {found} has the largest timestamp before {end}, which is {log.largest_below(end)}")


def _require_first(place: Place, log: TimedLog, timestamp_ms: int, answer: Answer, end: int) -> None:
    expected = log.first_at_or_after(timestamp_ms)
    if expected[0] >= end:
        expected = NOTHING, NOTHING
    if (answer.offset, answer.timestamp) != expected:
        raise Violation(
            f"{place}: the first record from {timestamp_ms} on is {(answer.offset, answer.timestamp)}, not {expected};"
            f" from {log.start} to {end}"
        )
