"""A simulated producer whose requests name several partitions, often the same ones again.

The first request goes the slow way, the next ones by the template that it was learnt into
(`ottla/broker/fast/several_template.py`); what is the first for most of its partitions since a start is appended in
several turns (`ottla/broker/partitions/first_appends.py`).
"""

from __future__ import annotations

import random
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kit.simulator.model import Model, Violation
from kit.simulator.producers import PRODUCE_VERSION, Values, note_acknowledged, note_sent
from kit.simulator.topic_model import TopicModel

from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

if TYPE_CHECKING:
    from kit.simulator.clients import Line

KEPT: Final = 0.7
"""How often a request names the partitions of the one before."""
MOST_PARTITIONS: Final = 8
UNSOUND: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
"""What is answered to a batch that is not as it was sent."""

Where = tuple[TopicModel, int]


class WideProducer:
    """See the module. Sends each batch once."""

    def __init__(self, model: Model, values: Values, chance: random.Random) -> None:
        self._model = model
        self._values = values
        self._chance = chance
        self._places: list[Where] = []
        self._acks = -1

    def send(self, line: Line, now_ms: int) -> None:
        """Produce a batch to each of some partitions."""
        places = self._choose()
        if not places:
            return
        acks, sent = self._acks, {}
        for topic, index in places:
            records = self._values.records(topic, now_ms)
            note_sent(topic, index, records)
            sent[topic.name, index] = topic, records

        def answered(response: Response) -> None:
            assert isinstance(response, ProduceResponse)
            self._take(response, dict(sent), acks)

        line.send(_request({place: records for place, (_, records) in sent.items()}, acks), PRODUCE_VERSION, answered)

    def _choose(self) -> list[Where]:
        """The partitions of the last request, while all of them are there; or others."""
        model = self._model
        names = sorted(model.topics.keys() - model.deleting)
        is_there = all(model.topics.get(topic.name) is topic for topic, _ in self._places)
        if not self._places or not is_there or self._chance.random() >= KEPT:
            every = [
                (model.topics[name], index) for name in names for index in range(len(model.topics[name].partitions))
            ]
            most = min(MOST_PARTITIONS, len(every))
            if not most:
                return []
            chosen = self._chance.sample(every, self._chance.randint(min(2, most), most))
            self._places = sorted(chosen, key=lambda place: (place[0].name, place[1]))
            self._acks = self._chance.choice((-1, -1, -1, 1))
        return self._places

    def _take(
        self, response: ProduceResponse, sent: dict[tuple[str, int], tuple[TopicModel, list[Record]]], acks: int
    ) -> None:
        """What became of each batch. Raises Violation where one has no answer, or two."""
        for of_topic in response.responses:
            for answer in of_topic.partition_responses:
                place = of_topic.name, answer.index
                if place not in sent:
                    raise Violation(f"{place} is answered and was not asked, or is answered twice")
                topic, records = sent.pop(place)
                if answer.error_code in UNSOUND:
                    raise Violation(f"{place}: a sound batch is answered {ErrorCode.of(answer.error_code).name}")
                if answer.error_code == ErrorCode.NONE:
                    note_acknowledged(self._model, topic.name, topic.id, answer, records, acks)
        if sent:
            raise Violation(f"{sorted(sent)}: no answer, though the others of the request have one")


def _request(batches: dict[tuple[str, int], list[Record]], acks: int) -> ProduceRequest:
    topics = [
        ProduceRequest.TopicProduceData(
            name=name,
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=encode_batch(records))
                for (_, index), records in places
            ],
        )
        for name, places in groupby(batches.items(), lambda item: item[0][0])
    ]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=topics)
