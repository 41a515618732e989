"""A simulated reader of committed records: it gets all of them, and nothing of a transaction that was aborted."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kit.simulator.model import Stored, Violation
from kit.simulator.readers import FETCH_VERSION, answer_of, fetch_request
from kit.simulator.topic_model import TopicModel
from kit.simulator.transactions import Transactions

from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import decode_batch, iter_batches

if TYPE_CHECKING:
    from kit.simulator.clients import Line

READ_COMMITTED = 1
Aborted = FetchResponse.AbortedTransaction


class Filtered(NamedTuple):
    """What a client makes of an answer: records that it shows, those of aborted transactions, and where it goes on."""

    shown: dict[int, Stored]
    hidden: dict[int, Stored]
    end: int


def filtered(content: bytes, aborted: Iterable[Aborted]) -> Filtered:
    """As Kafka's clients do it: an entry counts from its first offset on, until the marker of its producer."""
    waiting = sorted(((one.first_offset, one.producer_id) for one in aborted), reverse=True)
    shown: dict[int, Stored] = {}
    hidden: dict[int, Stored] = {}
    gone: set[int] = set()
    end = -1
    for position, header in iter_batches(content):
        end = header.next_offset
        while waiting and waiting[-1][0] <= header.last_offset:
            gone.add(waiting.pop()[1])
        if header.is_control:
            gone.discard(header.producer_id)
            continue
        into = hidden if header.is_transactional and header.producer_id in gone else shown
        for record in decode_batch(memoryview(content)[position : position + header.size_bytes]):
            into[record.offset] = Stored(record.key, record.value)
    return Filtered(shown, hidden, end)


class CommittedReader:
    """Reads committed records from where it is in each partition."""

    def __init__(self, known: Transactions, chance: random.Random) -> None:
        self._known = known
        self._chance = chance
        self._positions: dict[tuple[UUID, int], int] = {}
        self._stable: dict[tuple[UUID, int], int] = {}
        """The newest last stable offset of each partition, which never goes back where records are synced."""

    def read(self, line: Line) -> None:
        """Fetch from one partition."""
        model = self._known.model
        names = sorted(model.topics.keys() - model.deleting)
        if not names:
            return
        topic = model.topics[self._chance.choice(names)]
        index = self._chance.randrange(len(topic.partitions))
        position = self._positions.get((topic.id, index), 0)
        over_count = self._known.over_count

        def answered(response: Response) -> None:
            answer = answer_of(response)
            if answer is None:
                return
            if model.topics.get(topic.name) is topic and (topic.id, index) not in self._known.spoilt:
                self._take(topic, index, position, answer, over_count)

        request = fetch_request({(topic.name, index): position}, isolation_level=READ_COMMITTED)
        line.send(request, FETCH_VERSION, answered)

    def _take(
        self, topic: TopicModel, index: int, position: int, answer: FetchResponse.PartitionData, over_count: int
    ) -> None:
        name, place = f"{topic.name}-{index}", (topic.id, index)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[place] = max(answer.log_start_offset, 0)
            return
        if answer.error_code != ErrorCode.NONE:
            return
        stable = answer.last_stable_offset
        if stable > answer.high_watermark:
            raise Violation(f"{name}: last stable offset {stable}, high watermark {answer.high_watermark}")
        if topic.syncs:
            if stable < self._stable.get(place, 0):
                raise Violation(f"{name}: the last stable offset went back from {self._stable[place]} to {stable}")
            if stable > answer.log_start_offset:  # else records are deleted, and a crash may take that back
                self._stable[place] = stable
        if answer.log_start_offset < stable < answer.high_watermark:
            self._known.require_over(topic, index, stable, over_count)
        found = filtered(bytes(answer.records or b""), answer.aborted_transactions or ())
        if found.end > stable:
            raise Violation(f"{name}: a reader of committed records gets up to {found.end}, beyond {stable}")
        wrong = [one.first_offset for one in answer.aborted_transactions or () if one.first_offset >= max(stable, 0)]
        if wrong:
            raise Violation(f"{name}: aborted transactions at {wrong}, beyond {stable}")
        known = topic.partitions[index]
        self._known.learn(topic, index, found.shown, found.hidden)
        for offset, record in found.shown.items():
            if record.value is not None and record.value not in known.sent:
                raise Violation(f"{name} offset {offset}: something that was never sent")
            known.note(offset, record, survives_power=topic.syncs)
        if not topic.is_compacted:
            first = max(position, answer.log_start_offset)
            self._known.require_shown(topic, index, found.shown, range(first, found.end))
        if found.end >= 0:
            self._positions[place] = found.end
