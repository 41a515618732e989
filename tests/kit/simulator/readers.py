"""A simulated reader: what it has seen in a topic that syncs is never taken back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import UUID

from kit.simulator.model import Model, Stored, Violation
from kit.simulator.topic_model import TopicModel

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import decode_batch, iter_batches

if TYPE_CHECKING:
    from kit.simulator.clients import Line

FETCH_VERSION = 12
MOST_BYTES = 1 << 20


def fetch_request(wanted: Mapping[tuple[str, int], int], *, isolation_level: int = 0) -> FetchRequest:
    """Partitions from these offsets on, by (topic, partition) in the order of topics; answered at once."""
    topics = [
        FetchRequest.FetchTopic(
            topic=topic,
            partitions=[
                FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=MOST_BYTES)
                for (_, index), offset in places
            ],
        )
        for topic, places in groupby(wanted.items(), lambda item: item[0][0])
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, isolation_level=isolation_level, topics=topics)


def answer_of(response: Response) -> FetchResponse.PartitionData | None:
    """Of the only partition; None where the client is over a quota, and gets nothing."""
    assert isinstance(response, FetchResponse)
    if response.responses:
        return response.responses[0].partitions[0]
    if not response.throttle_time_ms:
        raise Violation("a Fetch is answered without its partition, and the client need not wait")
    return None


def stored_records(content: bytes | memoryview) -> dict[int, Stored]:
    """The records of fetched batches by offset, without the markers of transactions."""
    view = memoryview(content)
    found = {}
    for position, header in iter_batches(view):
        if header.is_control:
            continue
        for record in decode_batch(view[position : position + header.size_bytes]):
            found[record.offset] = Stored(record.key, record.value)
    return found


def end_of(content: bytes) -> int:
    """The offset after the last whole batch, -1 without one."""
    return max((header.next_offset for _, header in iter_batches(content)), default=-1)


class Reader:
    """Reads from where it is in each partition, and remembers everything."""

    def __init__(self, model: Model, chance: random.Random) -> None:
        self._model = model
        self._chance = chance
        self._positions: dict[tuple[UUID, int], int] = {}
        self._starts: dict[tuple[UUID, int], int] = {}
        """Log starts that this life of the broker has reported."""

    def reconnect(self) -> None:
        """Go on where it was. What retention took and a crash gave back may be there again."""
        self._starts.clear()

    def read(self, line: Line) -> None:
        """Fetch from one partition."""
        names = sorted(self._model.topics.keys() - self._model.deleting)
        if not names:
            return
        topic = self._model.topics[self._chance.choice(names)]
        index = self._chance.randrange(len(topic.partitions))
        position, deleted_before = self._begin(topic, index)

        def answered(response: Response) -> None:
            answer = answer_of(response)
            if answer is not None:
                self._take(topic, index, position, deleted_before, answer)

        line.send(fetch_request({(topic.name, index): position}), FETCH_VERSION, answered)

    def _begin(self, topic: TopicModel, index: int) -> tuple[int, int]:
        """Where it is in a partition, and where that starts at the latest."""
        return self._positions.get((topic.id, index), 0), topic.partitions[index].start

    def _take(
        self, topic: TopicModel, index: int, position: int, deleted_before: int, answer: FetchResponse.PartitionData
    ) -> None:
        """What a fetch at `position` has found, with what `_begin` has given before it. Raises Violation."""
        place = (topic.id, index)
        if self._model.topics.get(topic.name) is not topic:
            return
        if answer.log_start_offset >= 0:
            least = max(self._starts.get(place, 0), deleted_before)
            if answer.log_start_offset < least:
                raise Violation(f"{topic.name}-{index} starts at {answer.log_start_offset}, it was at {least}")
            self._starts[place] = answer.log_start_offset
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[place] = answer.log_start_offset if answer.log_start_offset >= 0 else 0
            if answer.high_watermark >= 0 and position > answer.high_watermark and topic.always_syncs:
                raise Violation(f"{topic.name}-{index}: a reader stands at {position}, beyond the end")
            return
        if answer.error_code != ErrorCode.NONE:
            return
        known = topic.partitions[index]
        if topic.syncs:
            known.promised_end = max(known.promised_end, answer.high_watermark)
        known.shown_end = max(known.shown_end, answer.high_watermark)
        content = bytes(answer.records or b"")
        for offset, record in stored_records(content).items():
            if offset >= answer.high_watermark:
                raise Violation(f"{topic.name}-{index}: offset {offset} is shown, the high watermark is lower")
            if record.value is not None and record.value not in known.sent:
                raise Violation(f"{topic.name}-{index} offset {offset}: something that was never sent")
            known.note(offset, record, survives_power=topic.syncs)
            self._positions[place] = offset + 1
        self._positions[place] = max(self._positions.get(place, 0), end_of(content))
