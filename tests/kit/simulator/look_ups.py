"""A simulated client that looks offsets up by time while others write, delete, roll and clean.

What it is answered is held against what clients had been answered before it asked. All of the log is known only to the
audit after a restart (`look_up_audit.py`); here it is known that

- a record that is answered has the timestamp that it was acknowledged with, which is the asked one or a later one;
- no record with such a timestamp that was acknowledged before is passed over, where nothing can have removed it;
- what was acknowledged by acks=1 or all, or shown, is below the latest offset, and a latest offset that was answered is
  a promise like a high watermark: a look-up waits for the sync of what is there;
- the earliest offset is not before what was deleted, nor after what nobody has deleted;
- all of this holds for readers of committed records as well, but that a transaction may keep them from what was
  acknowledged after it: where there are transactions, they may be answered less.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kit.simulator.look_up_audit import (
    EARLIEST,
    LATEST,
    LOOK_UP_VERSION,
    MAX_TIMESTAMP,
    NOTHING,
    Answer,
    look_up_request,
)
from kit.simulator.model import Model, PartitionModel, Violation

from ottla.protocol.api.list_offsets import ListOffsetsResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line
    from kit.simulator.topic_model import TopicModel

BY_TIME: Final = 0.6
"""How many look-ups are of a time; the others are of the ends and of the largest timestamp."""
COMMITTED: Final = 0.3
"""How many are for readers of committed records."""
UNEXPECTED: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE)


@dataclass(frozen=True)
class _Asked:
    """A look-up, and what was known when it was sent."""

    topic: TopicModel
    index: int
    timestamp: int
    is_committed: bool
    stamps_ms: dict[int, int]
    """Of records that every reader may see."""
    least_end: int
    least_start: int

    @property
    def known(self) -> PartitionModel:
        """What is known of the partition now."""
        return self.topic.partitions[self.index]

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}, timestamp {self.timestamp}, committed {self.is_committed}"


class LookUps:
    """See the module. `line` is given anew for each life of the broker.

    `loses_writes`: whether what is acknowledged by acks=1 may not be synced later, because the disk may fail.
    """

    def __init__(self, model: Model, chance: random.Random, *, loses_writes: bool, has_transactions: bool) -> None:
        self._model = model
        self._chance = chance
        self._loses_writes = loses_writes
        self._has_transactions = has_transactions
        self._starts: dict[tuple[UUID, int], int] = {}
        """The earliest offsets that this life of the broker has answered."""
        self.line: Line

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [(10, self._look_up)]

    def reconnect(self) -> None:
        """The broker has restarted. What retention took and a crash gave back may be there again."""
        self._starts.clear()

    def _look_up(self) -> None:
        names = sorted(self._model.topics.keys() - self._model.deleting)
        if not names:
            return
        topic = self._model.topics[self._chance.choice(names)]
        index = self._chance.randrange(len(topic.partitions))
        known = topic.partitions[index]
        timestamp = self._draw(known)
        visible = self._visible(known)
        asked = _Asked(
            topic,
            index,
            timestamp,
            self._chance.random() < COMMITTED,
            {offset: known.stamps_ms[offset] for offset in visible if offset in known.stamps_ms},
            max([known.promised_end, known.shown_end, *(offset + 1 for offset in visible)]),
            max(known.start, self._starts.get((topic.id, index), 0)),
        )

        def answered(response: Response) -> None:
            assert isinstance(response, ListOffsetsResponse)
            if self._model.topics.get(topic.name) is topic:
                self._take(asked, response.topics[0].partitions[0])

        request = look_up_request({(topic.name, index): timestamp}, committed=asked.is_committed)
        self.line.send(request, LOOK_UP_VERSION, answered)

    def _draw(self, known: PartitionModel) -> int:
        """A time, mostly about that of a record; or a special value."""
        chance = self._chance
        if chance.random() >= BY_TIME:
            return chance.choice((LATEST, LATEST, EARLIEST, MAX_TIMESTAMP))
        stamps = sorted({stamp for stamp in known.stamps_ms.values() if stamp > 0})
        if not stamps or chance.random() < 0.1:
            return chance.choice((0, 1 << 50))
        return chance.choice(stamps[-8:] if chance.random() < 0.6 else stamps) + chance.choice((-1, 0, 0, 1))

    def _visible(self, known: PartitionModel) -> set[int]:
        """Offsets of records that are acknowledged and stay."""
        return set(known.promised) if self._loses_writes else known.promised.keys() | known.written.keys()

    def _take(self, asked: _Asked, answer: Answer) -> None:
        if answer.error_code != ErrorCode.NONE:
            if answer.error_code in UNEXPECTED:
                raise Violation(f"{asked}: {ErrorCode.of(answer.error_code).name}")
            return
        if asked.timestamp == EARLIEST:
            self._take_earliest(asked, answer.offset)
        elif asked.timestamp == LATEST:
            self._take_latest(asked, answer.offset)
        else:
            self._take_record(asked, answer)

    def _take_earliest(self, asked: _Asked, offset: int) -> None:
        if offset < asked.least_start:
            raise Violation(f"{asked}: the earliest offset is {offset}, it was {asked.least_start}")
        if offset > asked.known.latest_start and not asked.topic.expires:
            raise Violation(f"{asked}: the earliest offset is {offset}, beyond {asked.known.latest_start}")
        self._starts[asked.topic.id, asked.index] = offset

    def _take_latest(self, asked: _Asked, offset: int) -> None:
        if offset < asked.least_end and not (asked.is_committed and self._has_transactions):
            raise Violation(f"{asked}: the latest offset is {offset}, {asked.least_end} or more was known before")
        known = asked.known
        if asked.topic.syncs:
            known.promised_end = max(known.promised_end, offset)
        known.shown_end = max(known.shown_end, offset)

    def _take_record(self, asked: _Asked, answer: Answer) -> None:
        known, found = asked.known, answer.offset
        if found != NOTHING:
            if answer.timestamp < asked.timestamp:
                raise Violation(f"{asked}: offset {found} has timestamp {answer.timestamp}")
            if known.stamps_ms.get(found, answer.timestamp) != answer.timestamp:
                raise Violation(f"{asked}: offset {found} has {answer.timestamp}, not {known.stamps_ms[found]}")
            if found < asked.least_start:
                raise Violation(f"{asked}: offset {found}, though the log starts at {asked.least_start}")
        elif asked.is_committed and self._has_transactions:
            return  # what was acknowledged may be after a transaction that is open
        for offset, stamp in self._lasting(asked).items():
            if asked.timestamp == MAX_TIMESTAMP:
                is_passed_over = stamp > answer.timestamp and not (asked.is_committed and self._has_transactions)
            else:
                is_passed_over = stamp >= asked.timestamp and (found == NOTHING or offset < found)
            if is_passed_over:
                raise Violation(f"{asked}: {(found, answer.timestamp)} is answered, offset {offset} has {stamp}")

    @staticmethod
    def _lasting(asked: _Asked) -> dict[int, int]:
        """The timestamps of records that nothing can have removed since."""
        if asked.topic.is_compacted or asked.topic.expires:
            return {}
        return {offset: stamp for offset, stamp in asked.stamps_ms.items() if offset >= asked.known.latest_start}
